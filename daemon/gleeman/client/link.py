"""The thread that owns a client's socket: says hello, sends, receives, watches the daemon, finds the next.

Alone touches the socket. Takes the client's lock to read and change its tables, never while it waits.
Knows nothing of samples.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time

import msgspec
import zmq

from .. import host
from ..errors import Failure, GleemanError
from ..records import End, ModelState
from ..shm.mapping import ClientMapping
from ..wire.discovery import Discovery
from ..wire.messages import (
    Bye,
    Error,
    Frame,
    FromDaemon,
    Gone,
    Hello,
    Ok,
    Ping,
    Welcome,
    decode_from_daemon,
    encode,
)
from .find import Finder, endpoint_of
from .session import Session
from .tables import Tables, as_error

log = logging.getLogger(__name__)

LIVE_MS = 5
"""Between scans while lines live."""
IDLE_MS = 250
SEEK_MS = 20
"""Between looks for a daemon while one is wanted."""
LOOK_NS = 100_000_000
PROBE_NS = 1_000_000_000
"""Between asking a daemon that stands still whether it still knows us."""
"""Between looks at the daemon while lines live: what a death costs before it is seen."""
HELLO_NS = 5_000_000_000
RETRY_NS = 1_000_000_000
"""Before the same daemon is greeted again."""
BYE_MS = 500


class Link:
    """The I/O thread of one client. `start`, `stop` and `wake` are for any other thread."""

    def __init__(self, tables: Tables, finder: Finder, hello: Hello) -> None:
        """`hello` lacks only the token."""
        self._tables = tables
        tables.wake = self.wake
        self._finder = finder
        self._hello = hello
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._opened = False
        self._refusal: GleemanError | None = None
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self._socket: zmq.Socket[bytes] | None = None
        self._daemon: Discovery | None = None
        self._not_before_ns = 0
        self._hello_due_ns = 0
        self._look_ns = 0
        self._probe_ns = 0

    def start(self, timeout_s: float) -> None:
        """Connect; returns once a daemon has answered. Raises GleemanError."""
        tables = self._tables
        self._thread = threading.Thread(target=self._run, name="gleeman-client", daemon=True)
        self._thread.start()
        with tables.lock:
            tables.changed.wait_for(lambda: self._opened or self._refusal is not None, timeout_s)
            if self._refusal is not None:
                raise self._refusal
            if not self._opened:
                code = "timeout" if self._daemon is not None else "no-daemon"
                raise Failure(f"no daemon has answered in {timeout_s:g} s; `gleeman doctor` looks why", code)

    def stop(self) -> None:
        """Say good-bye and end the thread. May be called twice."""
        thread, self._thread = self._thread, None
        self._stopping = True
        if thread is not None:
            self.wake()
            thread.join()
        self._ear.close()
        self._mouth.close()

    def wake(self) -> None:
        """Let the thread look at what is to be sent."""
        with contextlib.suppress(OSError):  # awake already, or stopped
            self._mouth.send(b"\0")

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        context = zmq.Context()
        poller = zmq.Poller()
        poller.register(self._ear, zmq.POLLIN)
        try:
            while not self._stopping:
                self._step(context, poller)
            self._say_bye()
        except Exception:
            log.exception("the client's thread has failed")
            failure = Failure("the client's thread has failed; its log says why")
            self._refuse(failure)
            with self._tables.lock:
                self._tables.close(End.FAILED, failure.code, failure.message)
        finally:
            with self._tables.lock:
                self._hang_up()
            context.term()

    def _step(self, context: zmq.Context[zmq.Socket[bytes]], poller: zmq.Poller) -> None:
        before = self._socket
        poller.poll(self._pace_ms())
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)
        tables = self._tables
        if self._socket is not None:
            self._receive(self._socket)
        with tables.lock:
            tables.poll()
            if self._socket is not None and tables.session is not None:
                self._send(self._socket)
        self._watch(context)
        if self._socket is not before:
            if before is not None:
                poller.unregister(before)
            if self._socket is not None:
                poller.register(self._socket, zmq.POLLIN)

    def _pace_ms(self) -> int:
        if self._tables.session is None:
            return SEEK_MS if self._tables.lines or not self._opened else IDLE_MS
        return LIVE_MS if self._tables.lines else IDLE_MS

    def _receive(self, wire: zmq.Socket[bytes]) -> None:
        while self._socket is wire:
            try:
                parts = wire.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = decode_from_daemon(parts[-1])
            except GleemanError as error:  # of a newer daemon, or broken: not ours to crash on
                log.warning("a message of the daemon cannot be read: %s", error)
                continue
            with self._tables.lock:
                self._take(message)

    def _take(self, message: FromDaemon) -> None:
        tables = self._tables
        match message:
            case Welcome():
                self._welcomed(message)
            case Error() if tables.session is None or message.code == "hello-first":
                self._greeting_failed(as_error(message.code, message.message))
            case Gone():
                self._lose(message.message)
                if message.code == "shutting-down":
                    self._finder.leaves(self._daemon)
                    self._not_before_ns = 0
            case _:
                tables.take(message)

    def _send(self, wire: zmq.Socket[bytes]) -> None:
        tables = self._tables
        try:
            while tables.waiting and not tables.stalled:
                line = tables.waiting[0]
                if line is None:
                    wire.send(encode(Frame()), zmq.NOBLOCK)
                elif (speak := line.to_send()) is not None:
                    wire.send(encode(speak), zmq.NOBLOCK)
                    tables.sent(line)
                tables.waiting.popleft()
            while tables.orders:
                wire.send(tables.orders[0], zmq.NOBLOCK)
                tables.orders.popleft()
        except zmq.Again:  # the daemon does not take more now
            pass

    # ---- finding and losing a daemon -------------------------------------------------------------

    def _watch(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """Look at the daemon that is there, or for one."""
        now_ns = time.monotonic_ns()
        tables = self._tables
        with tables.lock:
            session = tables.session
            if session is not None:
                if session.dead or now_ns >= self._look_ns:
                    self._look_ns = now_ns + LOOK_NS
                    self._look_at(session)
                return
            tables.end_forsaken(now_ns)
            if self._socket is not None and now_ns >= self._hello_due_ns:
                self._hang_up()
                self._not_before_ns = 0
            if self._socket is not None or now_ns < self._not_before_ns:
                return
        try:
            found = self._finder.look()
            if found is not None:
                self._greet(context, found)
        except (GleemanError, zmq.ZMQError, OSError) as error:
            self._hang_up()
            none_there = isinstance(error, GleemanError) and error.code == "no-daemon"
            self._not_before_ns = now_ns + (SEEK_MS * 1_000_000 if none_there else RETRY_NS)
            self._refuse(error if isinstance(error, GleemanError) else Failure(str(error), "no-daemon"))

    def _look_at(self, session: Session) -> None:
        session.beat()
        how = session.look()
        if how == "dead":
            self._lose("the daemon is dead")
            return
        if (how == "stalled") != self._tables.stalled:
            self._tables.stalled = how == "stalled"
            self._tables.changed.notify_all()
        now_ns = time.monotonic_ns()
        if self._tables.stalled and self._socket is not None and now_ns >= self._probe_ns:
            # It may have ended this session unheard and go on without us: then it answers hello-first.
            self._probe_ns = now_ns + PROBE_NS
            with contextlib.suppress(zmq.Again):
                self._socket.send(encode(Ping()), zmq.NOBLOCK)

    def _greet(self, context: zmq.Context[zmq.Socket[bytes]], daemon: Discovery) -> None:
        endpoint = endpoint_of(daemon)
        wire: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        wire.linger = 0
        self._socket, self._daemon = wire, daemon
        self._hello_due_ns = time.monotonic_ns() + HELLO_NS
        wire.connect(endpoint)
        hello = msgspec.structs.replace(self._hello, token=daemon.token)
        wire.send(encode(hello), zmq.NOBLOCK)

    def _welcomed(self, welcome: Welcome) -> None:
        daemon = self._daemon
        if daemon is None or self._tables.session is not None:
            return
        try:
            mapping = ClientMapping.open(welcome.mapping, welcome.mapping_bytes)
        except GleemanError as error:
            self._greeting_failed(error)
            return
        session = Session(daemon, welcome.session, welcome.rate_hz, mapping)
        self._opened = True
        self._look_ns = self._probe_ns = 0
        self._tables.opened(session, ModelState(welcome.state, welcome.progress, welcome.eta_s))

    def _greeting_failed(self, error: GleemanError) -> None:
        log.warning("the daemon refused us: %s: %s", error.code, error)
        self._lose(error.message)
        self._not_before_ns = time.monotonic_ns() + RETRY_NS
        self._refuse(error)

    def _lose(self, reason: str) -> None:
        if self._socket is not None and self._daemon is not None:
            with contextlib.suppress(zmq.Again):  # for a daemon that lives after all
                self._socket.send(encode(Bye()), zmq.NOBLOCK)
                self._socket.linger = BYE_MS
        self._hang_up()
        self._not_before_ns = time.monotonic_ns() + RETRY_NS if self._daemon_lives() else 0
        self._tables.lost(reason)

    def _daemon_lives(self) -> bool:
        return self._daemon is not None and host.pid_alive(self._daemon.pid, self._daemon.start_ns)

    def _hang_up(self) -> None:
        wire, self._socket = self._socket, None
        if wire is not None:
            wire.close()

    def _refuse(self, error: GleemanError) -> None:
        """Let a `connect` that still waits raise."""
        with self._tables.lock:
            if not self._opened and self._refusal is None:
                self._refusal = error
                self._tables.changed.notify_all()

    def _say_bye(self) -> None:
        """The daemon answers when the mapping is gone."""
        wire = self._socket
        if wire is None or self._tables.session is None or self._tables.stalled:
            return
        try:
            wire.send(encode(Bye(id=1)), zmq.NOBLOCK)
            until = time.monotonic() + BYE_MS / 1000
            while time.monotonic() < until and wire.poll(BYE_MS):
                if isinstance(decode_from_daemon(wire.recv_multipart()[-1]), Ok):
                    return
        except (zmq.ZMQError, GleemanError):
            pass
