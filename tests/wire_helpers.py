"""A live server before fake rooms, and a client that can send anything."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from gleeman.errors import InputError
from gleeman.records import LineKey, LineRequest, ModelState, VoiceInfo
from gleeman.stats import RoomFigures
from gleeman.wire import messages as m
from gleeman.wire.server import Server

TOKEN = "ab" * 32
PATIENCE_S = 10.0
"""A hang becomes a failure after this; nothing here takes a hundredth of it."""


class FakeVoices:
    """Three voices."""

    known = ("af_heart", "bm_george", "zf_xiaobei")

    def names(self) -> Sequence[str]:
        return self.known

    def default(self) -> str:
        return "af_heart"

    def info(self, name: str) -> VoiceInfo:
        return VoiceInfo(name, "en-us", "female")

    def resolve(self, names: str | list[str]) -> str:
        for name in [names] if isinstance(names, str) else names:
            if name in self.known:
                return name
        raise InputError("no such voice; known voices: " + ", ".join(self.known), "unknown-voice")


class FakeHouse:
    """The other rooms: remembers what it was asked, opens every mapping at once."""

    emotions = ("neutral", "happy")

    def __init__(self) -> None:
        self.voices = FakeVoices()
        self.server: Server | None = None
        self.asked: list[tuple[Any, ...]] = []
        self.lines: list[LineRequest] = []
        self.counts: list[int] = []
        self.opens = True
        self.submit_raises: Exception | None = None
        self.voice_error: Exception | None = None

    def emotion_of(self, name: str) -> tuple[str, str]:
        return (name, "") if name in self.emotions else ("neutral", f"emotion {name!r} is not known")

    def open_session(self, session: int, rate_hz: int, client_pid: int) -> None:
        self.asked.append(("open", session, rate_hz, client_pid))
        if self.opens:
            assert self.server
            self.server.tell_opened(session, f"/mapping/{session:x}", 17_059_840)

    def close_session(self, session: int) -> None:
        self.asked.append(("close", session))
        if self.opens:
            assert self.server
            self.server.tell_closed(session)

    def submit(self, request: LineRequest) -> None:
        if self.submit_raises:
            raise self.submit_raises
        self.lines.append(request)

    def cancel(self, key: LineKey) -> None:
        self.asked.append(("cancel", key))

    def frame(self, session: int) -> None:
        self.asked.append(("frame", session))

    def sessions_changed(self, count: int) -> None:
        self.counts.append(count)

    def figures(self) -> RoomFigures:
        if self.voice_error:
            raise self.voice_error
        return RoomFigures(
            device="cpu",
            quality="auto",
            dtype="float32",
            queued_lines=3,
            batches=2,
            rows=5,
            underrun_samples=7,
            text_restarts=1,
            frames=80,
            padding_frames=20,
        )


class Peer:
    """A DEALER that sends what it is told and reads with a limit."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(endpoint)

    def send(self, message: m.Message) -> None:
        self.send_raw(m.encode(message))

    def send_map(self, **fields: Any) -> None:
        self.send_raw(msgspec.msgpack.encode(fields))

    def send_raw(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def read(self, kind: type[Any] | None = None) -> Any:
        """The next message, of that kind if one is given; `state` comes when it likes and is passed over."""
        message: Any = None
        while message is None or (isinstance(message, m.State) and kind is not m.State):
            assert self.socket.poll(PATIENCE_S * 1000), f"no answer within {PATIENCE_S} s, wanted {kind}"
            message = m.decode_from_daemon(self.socket.recv())
        assert kind is None or isinstance(message, kind), message
        return message

    def hello(self, **fields: Any) -> m.Welcome:
        self.send(m.Hello(**{"id": 1, "protocol": m.PROTOCOL_MAJOR, "token": TOKEN, **fields}))
        return self.read(m.Welcome)  # type: ignore[no-any-return]

    def ping(self) -> None:
        """The daemon goes on."""
        self.send(m.Ping(id=77_000))
        assert self.read() == m.Pong(re=77_000)

    def code(self) -> str:
        return str(self.read(m.Error).code)


class Live:
    """A running server with fake rooms."""

    def __init__(self, ipc_path: Path | None = None) -> None:
        self.house = FakeHouse()
        self.fatal = threading.Event()
        self.server = Server(self.house, TOKEN, "babble", self.fatal.set)
        self.house.server = self.server
        self.endpoints = self.server.bind(ipc_path)
        self.context: zmq.Context[Any] = zmq.Context()
        self._peers: list[Peer] = []
        self.server.start()
        self.server.tell_state(ModelState("ready", 1.0))

    def peer(self, endpoint: str | None = None) -> Peer:
        peer = Peer(self.context, endpoint or self.endpoints[-1])
        self._peers.append(peer)
        return peer

    def greeted(self, **fields: Any) -> tuple[Peer, m.Welcome]:
        peer = self.peer()
        return peer, peer.hello(**fields)

    def settle(self) -> None:
        """Wait until the server has heard everything it was told so far."""
        heard = threading.Event()
        self.server._outbox.post(heard.set)
        assert heard.wait(PATIENCE_S)

    def close(self) -> None:
        for peer in self._peers:
            peer.socket.close()
        self.server.stop()
        self.context.term()
        assert not self.fatal.is_set()


@contextlib.contextmanager
def live_server(ipc_path: Path | None = None) -> Iterator[Live]:
    live = Live(ipc_path)
    try:
        yield live
    finally:
        live.close()


def wait_until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end_s, f"not within {patience_s} s: {what}"
        time.sleep(0.005)


def tagged(kind: type[m.Message]) -> str:
    """The `type` of a message."""
    return str(kind.__struct_config__.tag)
