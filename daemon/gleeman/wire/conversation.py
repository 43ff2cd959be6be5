"""What is said to clients: every message answered, every word of the other rooms passed on.

Knows the sessions, not the sockets: it sends through a function, and is called on the server thread
alone. A client that sends nonsense gets an error; whatever goes wrong here costs one answer.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable

from ..errors import Failure, GleemanError, InputError
from ..records import End, LineEnded, LineKey, ModelState
from ..stats import FirstAudio
from . import answers
from . import messages as m
from .house import House
from .sessions import MAX_SESSIONS, Session, Sessions, admit, check_order

log = logging.getLogger(__name__)

Send = Callable[[bytes, m.Message], str]
"""Sends a message over a connection; "" or why that is not possible any more."""


class Conversation:
    """With all clients. One thread."""

    def __init__(self, house: House, token: str, model: str, send: Send) -> None:
        self._house = house
        self._token = token.encode()
        self._model = model
        self._send_to = send
        self._state = ModelState("loading")
        self._sessions = Sessions()
        self._byes: dict[int, tuple[bytes, int]] = {}
        """Who is told, as answer to what, when a session's mapping is gone."""
        self._first_audio = FirstAudio()
        self._started_ns = time.monotonic_ns()

    # ---- messages of clients ---------------------------------------------------------------------

    def take(self, route: bytes, data: bytes, frames: int) -> None:
        """Answer one message, whatever it holds."""
        session = self._sessions.by_route.get(route)
        last_line = session.last_line if session else 0
        try:
            if frames != 1 or not data:
                raise InputError(f"a message is one frame that is not empty; got {frames}", "bad-message")
            self._answer(route, session, m.decode_from_client(data))
        except GleemanError as error:
            self._complain(route, session, last_line, m.glimpse(data), error)
        except Exception:
            glimpse = m.glimpse(data)
            log.exception(
                "session %s: a mistake of ours in answering %r", session and session.id, glimpse.type
            )
            failure = Failure("a mistake of ours; please report it")
            self._complain(route, session, last_line, glimpse, failure)

    def _complain(
        self, route: bytes, session: Session | None, last_line: int, about: m.Glimpse, error: GleemanError
    ) -> None:
        """`ended` "refused" for a new line whose number could be read, else `error`: an old number would end
        the line that has it."""
        if session and session.welcomed and about.type == "speak" and about.line > last_line:
            self._refuse(session, about.line, about.id, error)
        else:
            self._send(route, m.Error(re=about.id, code=error.code, message=error.message))

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
                if session.unframed:  # a client cannot pile up more frames than lines
                    session.unframed = False
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
                self._byes[session.id] = (route, message.id)
                self._drop(session, "bye")
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
        if len(self._sessions.by_id) >= MAX_SESSIONS:
            self.tell_state()  # drops those whose connections broke just now
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
        except Exception:
            session.lines.pop(speak.line, None)
            raise
        session.unframed = True
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

    # ---- what the other rooms told --------------------------------------------------------------

    def opened(self, session_id: int, path: str, size: int) -> None:
        """A session's mapping is there."""
        session = self._sessions.by_id.get(session_id)
        if session is None:  # it went while its mapping was made; `close_session` removes that
            return
        session.welcomed = True
        welcome = answers.welcome(session, path, size, self._model, self._state, self._house)
        self._send(session.route, welcome)

    def not_opened(self, session_id: int, error: GleemanError) -> None:
        """A session's mapping could not be made."""
        session = self._sessions.by_id.get(session_id)
        if session:
            answer = m.Error(re=session.hello, code=error.code, message=error.message)
            self._send(session.route, answer)
            self._drop(session, error.code)

    def read(self, key: LineKey, clauses: list[m.ClauseInfo], warnings: list[str]) -> None:
        """A line's text was read."""
        session = self._sessions.by_id.get(key.session)
        if session and key.line in session.lines:
            self._send(session.route, m.Clauses(line=key.line, clauses=clauses, warnings=warnings))

    def heard(self, key: LineKey, now_ns: int) -> None:
        """A line's first samples are in its lane."""
        line = self._sessions.line(key)
        if line and not line.playing:
            line.playing = True
            self._first_audio.add(now_ns - line.arrived_ns)

    def ended(self, ended: LineEnded) -> None:
        """A line is over for the daemon."""
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

    def freed(self, key: LineKey, end: End) -> None:
        """A line's lane is free again, so the line is over if it was not before."""
        self._sessions.line_over(key, end)

    def gone(self, session_id: int, code: str, message: str) -> None:
        """A client's process is gone (code ""), or its mapping holds nonsense."""
        session = self._sessions.by_id.get(session_id)
        if session:
            if code:  # else its process is gone: nobody is there to be told
                self._send(session.route, m.Gone(code=code, message=message))
            self._drop(session, message)

    def closed(self, session_id: int) -> None:
        """What `close_session` was asked for is done."""
        self._sessions.closed(session_id)
        bye = self._byes.pop(session_id, None)
        if bye:
            self._send(bye[0], m.Ok(re=bye[1]))

    def new_state(self, state: ModelState) -> None:
        """The model's state changed."""
        self._state = state
        self.tell_state()

    # ---- to all, and to one ------------------------------------------------------------------------

    def tell_state(self) -> None:
        """`state` to every session; whose connection is gone is found by it."""
        self.to_all(answers.state(self._state))

    def to_all(self, message: m.Message) -> None:
        """A message to every session."""
        for session in list(self._sessions.by_id.values()):
            if session.welcomed:
                self._send(session.route, message)

    def _send(self, route: bytes, message: m.Message) -> None:
        """Send or, when that is not possible any more, end the session."""
        reason = self._send_to(route, message)
        session = self._sessions.by_route.get(route)
        if reason and session:
            self._drop(session, reason)

    def _drop(self, session: Session, reason: str) -> None:
        """Forget a session; its lines go with it."""
        if session.id not in self._sessions.by_id:
            return
        log.info("session %016x: closed: %s", session.id, reason)
        self._sessions.close(session)
        self._house.close_session(session.id)
        self._house.sessions_changed(len(self._sessions.by_id))
