"""The server thread: one ROUTER socket on two endpoints, and the ear for the other rooms.

It carries frames to the conversation and messages from it, and knows no more of them. It never waits
but in its poll, which has no timeout while nothing is due; a client that does not read loses its
session rather than the daemon its memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import zmq

from ..errors import Failure, GleemanError
from ..records import End, LineEnded, LineKey, ModelState
from . import messages as m
from .conversation import Conversation
from .house import House
from .outbox import Call, Outbox

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 2 << 20
"""Where libzmq cuts the connection; below it a message that is too long still gets its error. What a
connection that has not said hello can make us hold is some of these."""
QUEUED_MESSAGES = 1000
"""libzmq's queue each way for one client; a client this far behind with reading is dropped."""
MESSAGES_A_TURN = 256
"""Read before the other rooms' calls are heard again."""
PROBE_S = (0.02, 0.3)
"""After a connection broke: when we look which. libzmq tells of it a moment before it forgets it."""
FAREWELL_MS = 250
"""How long the last messages may take to leave."""


class Server:
    """Owns the sockets. `bind`, `start`, `stop` from the thread that made it; the `tell_…` from any."""

    def __init__(self, house: House, token: str, model: str, on_fatal: Callable[[], None]) -> None:
        self._talk = Conversation(house, token, model, self._send)
        self._on_fatal = on_fatal
        self._outbox = Outbox()
        self._probes_ns: list[int] = []
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.set(zmq.LINGER, 0)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._router.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._router.set(zmq.RCVHWM, QUEUED_MESSAGES)
        self._router.set(zmq.SNDHWM, QUEUED_MESSAGES)
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    # ---- life ----------------------------------------------------------------------------------

    def bind(self, ipc_path: Path | None) -> list[str]:
        """Open the endpoints, the best first; `ipc_path` None: only tcp. Raises Failure bad-file."""
        endpoints = [f"ipc://{ipc_path}"] if ipc_path else []
        endpoints.append("tcp://127.0.0.1:*")
        bound = []
        for endpoint in endpoints:
            try:
                self._router.bind(endpoint)
            except zmq.ZMQError as error:
                raise Failure(f"cannot listen on {endpoint}: {error.strerror}", "bad-file") from error
            bound.append(self._router.getsockopt_string(zmq.LAST_ENDPOINT))
        return bound

    def start(self) -> None:
        """Start answering."""
        self._thread = threading.Thread(target=self._run, name="gleeman-server", daemon=True)
        self._thread.start()

    def stop(self, code: str = "shutting-down", message: str = "the daemon is going down") -> None:
        """Say `gone` to every session and close the sockets; returns when they are closed."""
        if self._thread is None:
            self._close()
        elif self._thread.is_alive():
            self._outbox.post(partial(self._say_farewell, code, message))
            self._thread.join(5)

    # ---- from the other rooms, any thread --------------------------------------------------------

    def tell_opened(self, session: int, path: str, size: int) -> None:
        """A session's mapping is there."""
        self._outbox.post(partial(self._talk.opened, session, path, size))

    def tell_not_opened(self, session: int, error: GleemanError) -> None:
        """A session's mapping could not be made."""
        self._outbox.post(partial(self._talk.not_opened, session, error))

    def tell_read(self, key: LineKey, clauses: list[m.ClauseInfo], warnings: list[str]) -> None:
        """A line's text was read."""
        self._outbox.post(partial(self._talk.read, key, clauses, warnings))

    def tell_first_audio(self, key: LineKey, now_ns: int) -> None:
        """A line's first samples are in its lane."""
        self._outbox.post(partial(self._talk.heard, key, now_ns))

    def tell_ended(self, ended: LineEnded) -> None:
        """A line is over for the daemon."""
        self._outbox.post(partial(self._talk.ended, ended))

    def tell_freed(self, key: LineKey, end: End) -> None:
        """A line's lane is free again, so the line is over if it was not before."""
        self._outbox.post(partial(self._talk.freed, key, end))

    def tell_gone(self, session: int, code: str, message: str) -> None:
        """A client's process is gone (code ""), or its mapping holds nonsense."""
        self._outbox.post(partial(self._talk.gone, session, code, message))

    def tell_closed(self, session: int) -> None:
        """A session's mapping is gone, as was asked."""
        self._outbox.post(partial(self._talk.closed, session))

    def tell_state(self, state: ModelState) -> None:
        """The model's state changed."""
        self._outbox.post(partial(self._talk.new_state, state))

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._outbox.fileno(), zmq.POLLIN)
        try:
            while not self._stopping:
                poller.poll(self._timeout_ms())
                for call in self._outbox.take():
                    self._guarded(call)
                self._receive()
                self._watch_connections()
        except Exception:
            log.exception("the server thread ends by a mistake of ours")
            self._on_fatal()
        finally:
            self._close()

    def _guarded(self, call: Call) -> None:
        """A mistake in one answer must not silence the others."""
        try:
            call()
        except Exception:
            log.exception("a mistake of ours in answering another room")

    def _timeout_ms(self) -> int | None:
        if not self._probes_ns:
            return None
        return max(0, (self._probes_ns[0] - time.monotonic_ns()) // 1_000_000 + 1)

    def _receive(self) -> None:
        for _ in range(MESSAGES_A_TURN):
            if self._stopping:
                return
            try:
                route = self._router.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            frames, data = 0, b""
            while self._router.get(zmq.RCVMORE):  # all parts of a message are there at once
                part = self._router.recv(zmq.DONTWAIT)
                frames, data = frames + 1, part if frames == 0 else b""
            self._talk.take(route, data, frames)

    def _watch_connections(self) -> None:
        broken = False
        while self._monitor.poll(0):
            self._monitor.recv_multipart(zmq.DONTWAIT)  # what it holds does not say whose it was
            broken = True
        now_ns = time.monotonic_ns()
        if broken:
            # What is due first stays due: connections that break one after another must not put it off.
            looks_ns = {now_ns + int(after_s * 1e9) for after_s in PROBE_S}
            self._probes_ns = sorted({*self._probes_ns[:1], *looks_ns})
        if self._probes_ns and now_ns >= self._probes_ns[0]:
            self._probes_ns.pop(0)
            # libzmq does not say whose connection it was; sending to it does.
            self._talk.tell_state()

    def _say_farewell(self, code: str, message: str) -> None:
        self._talk.to_all(m.Gone(code=code, message=message))
        self._stopping = True

    def _close(self) -> None:
        self._outbox.close()
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._router.close(linger=FAREWELL_MS)
        self._context.term()

    def _send(self, route: bytes, message: m.Message) -> str:
        """ "", or why the client of this connection cannot be reached."""
        try:
            self._router.send_multipart([route, m.encode(message)], zmq.DONTWAIT)
        except zmq.Again:
            return f"the client has left {QUEUED_MESSAGES} messages unread"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return "its connection is gone"
        return ""
