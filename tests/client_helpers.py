"""A daemon that does only what a test tells it: a ROUTER, a mapping, and a process that can be killed.

It answers `hello`, `ping`, `voices`, `bye` and (unless told otherwise) accepts every line. Lanes are
written by the test.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import zmq

from gleeman import host, paths
from gleeman.client import Client, Line
from gleeman.records import End, Event, EventType, Samples, Viseme
from gleeman.shm import layout
from gleeman.shm.mapping import DaemonMapping, u32_at, u64_at
from gleeman.shm.publish import publish
from gleeman.wire import messages as m
from gleeman.wire.discovery import Discovery, new_token, remove_discovery, write_discovery

WAIT_S = 10.0


def until(what: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """Wait until `what()` is true; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def ramp(samples: int, first: int = 0) -> Samples:
    """Samples that tell their own position."""
    return ((np.arange(first, first + samples) % 10_000) / 20_000 + 0.25).astype(np.float32)


class FakeDaemon:
    """Everything it received is in `received`, in order."""

    def __init__(self, *, token: str = "", protocol: int = m.PROTOCOL_MAJOR, accepts: bool = True) -> None:
        host.private_folder(paths.runtime_dir())
        self.received: list[m.FromClient] = []
        self.accepts = accepts
        self.beats = True
        self.protocol = protocol
        self._token = new_token()
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self._mapping: DaemonMapping | None = None
        self._peer = b""
        self._generation = 0
        self._out: list[m.Message] = []
        self._stopping = False
        self.forgets = False
        """It has ended the session without a word: the next ping is answered hello-first."""
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        port = self._router.bind_to_random_port("tcp://127.0.0.1")
        start_ns = host.process_start_ns(self._process.pid)
        assert start_ns is not None
        self.discovery = Discovery(
            protocol=m.PROTOCOL_MAJOR,
            minor=0,
            version="0",
            pid=self._process.pid,
            start_ns=start_ns,
            endpoints=[f"tcp://127.0.0.1:{port}"],
            token=token or self._token,
            model="fake",
        )
        write_discovery(self.discovery)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def mapping(self) -> DaemonMapping:
        assert self._mapping is not None, "nobody has said hello"
        return self._mapping

    def speaks(self) -> list[m.Speak]:
        return [each for each in self.received if isinstance(each, m.Speak)]

    def send(self, message: m.Message) -> None:
        self._out.append(message)

    def give(
        self,
        line: int,
        samples: Samples,
        *,
        lane: int = 0,
        events: Sequence[Event] = (),
        preroll: int = 0,
        end: End | None = None,
    ) -> None:
        """Give a line a lane that holds `samples` and `events`."""
        for offset in (layout.L_WRITE_POS, layout.L_EVENT_WRITE):
            self.mapping.u64[u64_at(lane, offset)] = 0
        for offset in range(layout.L_READ_POS, layout.LANE_HEAD_BYTES, 8):
            self.mapping.u64[u64_at(lane, offset)] = 0
        self.mapping.u64[u64_at(lane, layout.L_END_POS)] = layout.UNKNOWN_END
        self.mapping.u64[u64_at(lane, layout.L_LINE_ID)] = line
        self.mapping.u64[u64_at(lane, layout.L_PREROLL)] = preroll
        self.add(samples, lane=lane, events=events, end=end)
        self._generation += 1
        publish(self.mapping.u64, u64_at(lane, layout.L_GENERATION), self._generation)

    def add(
        self, samples: Samples, *, lane: int = 0, events: Sequence[Event] = (), end: End | None = None
    ) -> None:
        """Write on."""
        u64 = self.mapping.u64
        write = u64[u64_at(lane, layout.L_WRITE_POS)]
        at = (write + np.arange(samples.size)) % layout.CAPACITY
        self.mapping.samples[lane][at] = samples
        count = u64[u64_at(lane, layout.L_EVENT_WRITE)]
        for index, event in enumerate(events, count):
            place = layout.EVENT_RINGS + lane * layout.EVENT_RING_BYTES
            place += (index % layout.EVENTS) * layout.EVENT_BYTES
            self.mapping.raw[place : place + layout.EVENT_BYTES] = layout.EVENT.pack(*event, 0)
        publish(u64, u64_at(lane, layout.L_EVENT_WRITE), count + len(events))
        publish(u64, u64_at(lane, layout.L_WRITE_POS), write + samples.size)
        if end is not None:
            self.mapping.u32[u32_at(lane, layout.L_END_CODE)] = end
            publish(u64, u64_at(lane, layout.L_END_POS), write + samples.size)

    def field(self, offset: int, lane: int = 0) -> int:
        return self.mapping.u64[u64_at(lane, offset)]

    def freed(self, lane: int = 0) -> bool:
        return self.field(layout.L_DONE_GENERATION, lane) == self.field(layout.L_GENERATION, lane)

    def die(self) -> None:
        """kill -9: the process is gone, the socket is silent, the files stay."""
        self._process.kill()
        self._process.wait(WAIT_S)
        self._stop_thread()

    def stop(self) -> None:
        self._stop_thread()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        remove_discovery(self.discovery)
        if self._mapping is not None:
            self._mapping.remove()

    def _stop_thread(self) -> None:
        self._stopping = True
        self._thread.join(WAIT_S)
        self._router.close()
        self._context.term()

    def _run(self) -> None:
        beat = 0
        while not self._stopping:
            if self._router.poll(5):
                self._peer, data = self._router.recv_multipart()
                message = m.decode_from_client(data)
                self.received.append(message)
                self._answer(message)
            if self._mapping is not None and self.beats:
                beat += 1
                self._mapping.beat(beat, beat, False)
            while self._out:
                self._router.send_multipart([self._peer, m.encode(self._out.pop(0))])

    def _answer(self, message: m.FromClient) -> None:
        match message:
            case m.Hello() if message.protocol != self.protocol:
                said = f"daemon speaks protocol {self.protocol}, client asked for {message.protocol}"
                self.send(m.Error(re=message.id, code="bad-protocol", message=said))
            case m.Hello() if message.token != self._token:
                self.send(m.Error(re=message.id, code="bad-token", message="the token is not ours"))
            case m.Hello():
                if self._mapping is not None:
                    self._mapping.remove()
                folders = host.mapping_folders(paths.runtime_dir())
                self._mapping = DaemonMapping.create(7, message.rate_hz, message.pid, folders)
                self.send(welcome(message, self._mapping))
            case m.Speak() if self.accepts:
                voice = message.voice if isinstance(message.voice, str) else message.voice[0]
                self.send(m.Accepted(re=message.id, line=message.line, voice=voice or "af_heart", seed=99))
            case m.Ping() if self.forgets:
                self.forgets = False
                self.send(m.Error(re=message.id, code="hello-first", message="say hello first"))
            case m.Ping():
                self.send(m.Pong(re=message.id))
            case m.Bye():
                self.send(m.Ok(re=message.id))
            case m.Voices():
                entry = m.VoiceEntry(name="af_heart", language="en-us", gender="female")
                self.send(m.VoiceList(re=message.id, default="af_heart", voices=[entry]))
            case _:
                pass


def welcome(hello: m.Hello, mapping: DaemonMapping) -> m.Welcome:
    return m.Welcome(
        re=hello.id,
        protocol=m.PROTOCOL_MAJOR,
        minor=0,
        version="0",
        session=7,
        mapping=str(mapping.path),
        mapping_bytes=layout.TOTAL_BYTES,
        rate_hz=hello.rate_hz,
        lanes=layout.LANES,
        model="fake",
        state="ready",
        progress=1.0,
        eta_s=0.0,
        voices=1,
        emotions=["neutral"],
        max_text_chars=m.MAX_TEXT_CHARS,
        max_queued_lines=256,
    )


@contextlib.contextmanager
def fake_daemon(**how: object) -> Iterator[FakeDaemon]:
    """A FakeDaemon that is gone, with its files, afterwards."""
    daemon = FakeDaemon(**how)  # type: ignore[arg-type]
    try:
        yield daemon
    finally:
        if not daemon._stopping:
            daemon.stop()
        else:
            daemon._process.stdin.close()  # type: ignore[union-attr]
            remove_discovery(daemon.discovery)
            if daemon._mapping is not None:
                daemon._mapping.remove()


def said(client: Client, daemon: FakeDaemon, text: str = "Well met.") -> Line:
    """A line that the daemon has received."""
    line = client.speak(text)
    until(lambda: any(each.line == line.id for each in daemon.speaks()))
    return line


def begun(client: Client, daemon: FakeDaemon, samples: int, **how: object) -> Line:
    """A line with `samples` in its lane, found by the client."""
    line = said(client, daemon)
    daemon.give(line.id, ramp(samples), **how)  # type: ignore[arg-type]
    until(lambda: line.first_audio_ms is not None or not samples)
    return line


def word(sample: int, begin: int) -> Event:
    return Event(sample, EventType.WORD, 0, 0.0, begin, begin + 2, 100)


def viseme(sample: int, code: Viseme) -> Event:
    return Event(sample, EventType.VISEME, code, 1.0)
