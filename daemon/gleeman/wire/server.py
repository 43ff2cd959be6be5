"""The server thread: one ROUTER socket on two endpoints, every message of every client, every answer.

It checks, asks the other rooms through `House`, and tells clients what those rooms answer. It knows
no torch, no lane and no clause. It never waits but in its poll, which has no timeout while nothing
is due; a client that sends nonsense gets an error, one that does not read loses its session.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from ..errors import Failure, GleemanError, InputError
from ..records import End, LineEnded, LineKey, ModelState
from ..stats import FirstAudio
from . import answers
from . import messages as m
from .house import House
from .outbox import Call, Outbox
from .sessions import Session, Sessions, admit, check_order

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 16 << 20
"""Where libzmq cuts the connection; below it a message that is too long still gets its error."""
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
        self._house = house
        self._token = token.encode()
        self._model = model
        self._on_fatal = on_fatal
        self._state = ModelState("loading")
        self._sessions = Sessions()
        self._first_audio = FirstAudio()
        self._outbox = Outbox()
        self._started_ns = time.monotonic_ns()
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
        self._outbox.post(partial(self._opened, session, path, size))

    def tell_not_opened(self, session: int, error: GleemanError) -> None:
        """A session's mapping could not be made."""
        self._outbox.post(partial(self._not_opened, session, error))

    def tell_read(self, key: LineKey, clauses: list[m.ClauseInfo]) -> None:
        """A line's text was read."""
        self._outbox.post(partial(self._read, key, clauses))

    def tell_first_audio(self, key: LineKey, now_ns: int) -> None:
        """A line's first samples are in its lane."""
        self._outbox.post(partial(self._heard, key, now_ns))

    def tell_ended(self, ended: LineEnded) -> None:
        """A line is over for the daemon."""
        self._outbox.post(partial(self._ended, ended))

    def tell_freed(self, key: LineKey, end: End) -> None:
        """A line's lane is free again, so the line is over if it was not before."""
        self._outbox.post(partial(self._freed, key, end))

    def tell_gone(self, session: int, code: str, message: str) -> None:
        """A client's process is gone (code ""), or its mapping holds nonsense."""
        self._outbox.post(partial(self._gone, session, code, message))

    def tell_state(self, state: ModelState) -> None:
        """The model's state changed."""
        self._outbox.post(partial(self._new_state, state))

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
            self._one(route, data, frames)

    def _watch_connections(self) -> None:
        broken = False
        while self._monitor.poll(0):
            recv_monitor_message(self._monitor, zmq.DONTWAIT)
            broken = True
        now_ns = time.monotonic_ns()
        if broken:
            self._probes_ns = [now_ns + int(after_s * 1e9) for after_s in PROBE_S]
        if self._probes_ns and now_ns >= self._probes_ns[0]:
            self._probes_ns.pop(0)
            # libzmq does not say whose connection it was; sending to it does.
            self._to_all(answers.state(self._state))

    def _say_farewell(self, code: str, message: str) -> None:
        self._to_all(m.Gone(code=code, message=message))
        self._stopping = True

    def _close(self) -> None:
        self._outbox.close()
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._router.close(linger=FAREWELL_MS)
        self._context.term()

    # ---- messages of clients ---------------------------------------------------------------------

    def _one(self, route: bytes, data: bytes, frames: int) -> None:
        """Answer one message, whatever it holds."""
        session = self._sessions.by_route.get(route)
        glimpse = m.glimpse(data)
        try:
            if frames != 1 or not data:
                raise InputError(f"a message is one frame that is not empty; got {frames}", "bad-message")
            self._answer(route, session, m.decode_from_client(data))
        except GleemanError as error:
            if session and session.welcomed and glimpse.type == "speak" and glimpse.line:
                self._refuse(session, glimpse.line, glimpse.id, error)
            else:
                self._send(route, m.Error(re=glimpse.id, code=error.code, message=error.message))
        except Exception:
            log.exception(
                "session %s: a mistake of ours in answering %r", session and session.id, glimpse.type
            )
            answer = m.Error(re=glimpse.id, code="internal", message="a mistake of ours; please report it")
            self._send(route, answer)

    def _answer(self, route: bytes, session: Session | None, message: m.FromClient) -> None:
        if isinstance(message, m.Hello):
            return self._hello(route, message)
        if session is None or not session.welcomed:
            what = "wait for `welcome`" if session else "say hello first"
            raise InputError(f"{what}; nothing else is answered before it", "hello-first")
        match message:
            case m.Speak():
                self._speak(session, message)
            case m.Frame():
                self._house.frame(session.id)
            case m.Cancel():
                self._cancel(session, message)
            case m.Ping():
                self._send(route, m.Pong(re=message.id))
            case m.Voices():
                self._send(route, answers.voice_list(message.id, self._house.voices))
            case m.Status():
                self._send(route, self._report(message.id))
            case m.Bye():
                self._drop(session, "bye")
                self._send(route, m.Ok(re=message.id))
        return None

    def _hello(self, route: bytes, hello: m.Hello) -> None:
        if hello.protocol != m.PROTOCOL_MAJOR:
            older = "the client" if hello.protocol < m.PROTOCOL_MAJOR else "the daemon"
            raise InputError(
                f"the daemon speaks protocol {m.PROTOCOL_MAJOR}, the client asked for {hello.protocol}; "
                f"update {older}",
                "bad-protocol",
            )
        if not hmac.compare_digest(hello.token.encode("utf-8", "replace"), self._token):
            raise InputError("the token is not that of the discovery file; read the file again", "bad-token")
        session = self._sessions.open(route, hello)
        self._house.sessions_changed(len(self._sessions.by_id))
        log.info("session %016x: opened by %r (pid %d)", session.id, session.client, session.pid)
        self._house.open_session(session.id, session.rate_hz, session.pid)

    def _speak(self, session: Session, speak: m.Speak) -> None:
        ready = self._state.state == "ready"
        pipeline = "main" if ready else session.standin
        now_ns = time.monotonic_ns()
        house = self._house
        request, warnings = admit(session, speak, house.voices, house.emotion_of, pipeline, now_ns)
        try:
            self._house.submit(request)
        except GleemanError:
            session.lines.pop(speak.line, None)
            raise
        accepted = m.Accepted(
            re=speak.id, line=speak.line, voice=request.voice, seed=request.seed, warnings=warnings
        )
        self._send(session.route, accepted)

    def _refuse(self, session: Session, line: int, re: int, error: GleemanError) -> None:
        if line > session.last_line:
            check_order(session, line)  # the number is used up, although its message could not be read
        self._sessions.ended["refused"] += 1
        refusal = m.Ended(line=line, end="refused", code=error.code, message=error.message, re=re)
        self._send(session.route, refusal)

    def _cancel(self, session: Session, cancel: m.Cancel) -> None:
        if cancel.line not in session.lines:
            raise InputError(f"line {cancel.line} is not live in this session", "unknown-line")
        self._house.cancel(LineKey(session.id, cancel.line))
        self._send(session.route, m.Ok(re=cancel.id))

    def _report(self, re: int) -> m.StatusReport:
        uptime_s = (time.monotonic_ns() - self._started_ns) / 1e9
        figures = self._house.figures()
        return answers.report(
            re, self._model, self._state, self._sessions, self._first_audio, figures, uptime_s
        )

    # ---- what the other rooms told, on the server thread -----------------------------------------

    def _opened(self, session_id: int, path: str, size: int) -> None:
        session = self._sessions.by_id.get(session_id)
        if session is None:  # it went while its mapping was made; `close_session` removes that
            return
        session.welcomed = True
        welcome = answers.welcome(session, path, size, self._model, self._state, self._house)
        self._send(session.route, welcome)

    def _not_opened(self, session_id: int, error: GleemanError) -> None:
        session = self._sessions.by_id.get(session_id)
        if session:
            answer = m.Error(re=session.hello, code=error.code, message=error.message)
            self._send(session.route, answer)
            self._drop(session, error.code)

    def _read(self, key: LineKey, clauses: list[m.ClauseInfo]) -> None:
        session = self._sessions.by_id.get(key.session)
        if session and key.line in session.lines:
            self._send(session.route, m.Clauses(line=key.line, clauses=clauses))

    def _heard(self, key: LineKey, now_ns: int) -> None:
        line = self._sessions.line(key)
        if line and not line.playing:
            line.playing = True
            self._first_audio.add(now_ns - line.arrived_ns)

    def _ended(self, ended: LineEnded) -> None:
        if ended.end is End.DONE and ended.in_lane:
            return  # its reader has yet to come to the end; `tell_freed` tells of that
        session = self._sessions.line_over(ended.key, ended.end)
        if session is None:
            return
        level = logging.WARNING if ended.end is End.FAILED else logging.DEBUG
        where = (ended.key.session, ended.key.line)
        log.log(level, "session %016x line %d: %s %s %s", *where, ended.end.name, ended.code, ended.message)
        end = ended.end.name.lower()
        word = m.Ended(
            line=ended.key.line, end=end, code=ended.code, message=ended.message, in_lane=ended.in_lane
        )
        self._send(session.route, word)

    def _freed(self, key: LineKey, end: End) -> None:
        self._sessions.line_over(key, end)

    def _gone(self, session_id: int, code: str, message: str) -> None:
        session = self._sessions.by_id.get(session_id)
        if session:
            if code:  # else its process is gone: nobody is there to be told
                self._send(session.route, m.Gone(code=code, message=message))
            self._drop(session, message)

    def _new_state(self, state: ModelState) -> None:
        self._state = state
        self._to_all(answers.state(self._state))

    # ---- sending -----------------------------------------------------------------------------------

    def _to_all(self, message: m.Message) -> None:
        for session in list(self._sessions.by_id.values()):
            if session.welcomed:
                self._send(session.route, message)

    def _send(self, route: bytes, message: m.Message) -> None:
        """Send or, when the client is gone or has stopped reading, end its session."""
        try:
            self._router.send_multipart([route, m.encode(message)], zmq.DONTWAIT)
            return
        except zmq.Again:
            reason = f"the client has left {QUEUED_MESSAGES} messages unread"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            reason = "its connection is gone"
        session = self._sessions.by_route.get(route)
        if session:
            self._drop(session, reason)

    def _drop(self, session: Session, reason: str) -> None:
        """Forget a session; its lines go with it."""
        if session.id not in self._sessions.by_id:
            return
        log.info("session %016x: closed: %s", session.id, reason)
        self._sessions.close(session)
        self._house.close_session(session.id)
        self._house.sessions_changed(len(self._sessions.by_id))
