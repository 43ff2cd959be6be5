"""What a client knows: its lines, its sessions, what is to be sent and what was asked.

One lock, held by whoever touches any of it, lines and lanes included; nobody waits while holding it
(`changed` lets go of it). Knows no sockets: what is put in here is sent by link.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import CODES, Failure, GleemanError, InputError
from ..records import End, ModelState
from ..wire.messages import (
    Accepted,
    Cancel,
    Clauses,
    Ended,
    Error,
    FromDaemon,
    Message,
    Ok,
    Pong,
    State,
    StatusReport,
    VoiceList,
    encode,
)
from .session import Session

if TYPE_CHECKING:
    from .life import LineLife

WAIT_FOR_DAEMON_NS = 30_000_000_000
"""A line that no daemon takes ends `lost` after this."""
MENDABLE = ("bad-", "empty-", "hello-", "nothing-", "text-too", "too-", "unknown-", "unsupported")
"""How the codes begin that the caller can mend."""
NOT_MENDABLE = ("bad-token", "bad-daemon", "bad-client", "bad-file", "unsupported-platform")


def as_error(code: str, message: str) -> GleemanError:
    """The exception for a code of the daemon's; codes of a newer daemon become `internal`."""
    if code not in CODES:
        return Failure(f"{code}: {message}")
    kind = InputError if code.startswith(MENDABLE) and code not in NOT_MENDABLE else Failure
    return kind(message, code)


class Tables:
    """Shared by a client, its lines and its link."""

    def __init__(self, rate_hz: int) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Notified when a line gets its lane or its end, an answer comes or the state changes."""
        self.rate_hz = rate_hz
        self.wake: Callable[[], None] = lambda: None
        """Set by the link: lets it look at what is to be sent; from any thread."""
        self.lines: dict[int, LineLife] = {}
        """All that have not ended."""
        self.waiting: deque[LineLife | None] = deque()
        """Lines to be sent, in order; None: a frame's end."""
        self.orders: deque[bytes] = deque()
        """Messages for the present daemon that need not wait for its feeder."""
        self.answers: dict[int, Message | GleemanError | None] = {}
        """What was asked, by number; None: not answered yet."""
        self.model = ModelState("loading")
        self.session: Session | None = None
        """With the daemon that is there."""
        self.last: Session | None = None
        self.stalled = False
        self.closed = False
        self._old: list[Session] = []
        self._next_number = 0

    def next_number(self) -> int:
        """For a line or a request: one row of numbers, so that an answer's `re` finds either."""
        self._next_number += 1
        return self._next_number

    def poll(self) -> None:
        """Adopt new lanes, see first samples, tell the ends that need no reader. Takes the lock."""
        with self.lock:
            for session in self.sessions():
                try:
                    session.scan()
                    for line in list(session.lines.values()):
                        line.look()
                except Failure as error:
                    self.drop(session, error)

    def sessions(self) -> list[Session]:
        """The present session and those whose lanes are still read."""
        return self._old if self.session is None else [*self._old, self.session]

    def opened(self, session: Session, model: ModelState) -> None:
        """A daemon has welcomed us."""
        self.session = self.last = session
        self.rate_hz = session.rate_hz
        self.model = model
        self.stalled = False
        self.changed.notify_all()

    def sent(self, line: LineLife) -> None:
        """A line is in the hands of the daemon that is there."""
        if self.session is not None:
            line.session = self.session
            self.session.lines[line.id] = line

    def end_forsaken(self, now_ns: int) -> None:
        """Lines that have waited for a daemon too long are lost."""
        for line in list(self.lines.values()):
            if line.session is None and now_ns - line.waits_since_ns > WAIT_FOR_DAEMON_NS:
                line.finish(End.LOST, "lost", "no daemon came that could speak it")

    def lost(self, reason: str) -> None:
        """The present session is over: what had begun plays out, the rest is to be sent again."""
        session, self.session = self.session, None
        for line in self.lines.values():
            line.waits_since_ns = time.monotonic_ns()
        for number, answer in self.answers.items():
            if answer is None:
                self.answers[number] = Failure(reason, "no-daemon")
        self.orders.clear()
        if session is not None:
            with contextlib.suppress(Failure):  # lanes given in the daemon's last moment count
                session.scan()
            session.dead = True
            again = [line for line in list(session.lines.values()) if line.restart()]
            if again:
                self.waiting.extendleft([None, *sorted(again, key=lambda line: -line.id)])
            for line in again:
                session.lines.pop(line.id)
            self._old = [old for old in [*self._old, session] if old.lines]
            session.close_when_read_out()
        self.changed.notify_all()

    def take(self, message: FromDaemon) -> None:
        """A message that is about what the tables hold."""
        match message:
            case Accepted() if (line := self.lines.get(message.line)) is not None:
                line.voice, line.seed, line.warnings = message.voice, message.seed, message.warnings
            case Clauses() if (line := self.lines.get(message.line)) is not None:
                line.clauses = message.clauses
                line.warnings = [*line.warnings, *message.warnings]
            case Ended() if (line := self.lines.get(message.line)) is not None:
                end = End[message.end.upper()] if message.end.upper() in End.__members__ else End.FAILED
                line.daemon_ended(end, message.code, message.message, message.in_lane)
            case State():
                self.model = ModelState(
                    message.state, message.progress, message.eta_s, message.message, message.code
                )
                self.changed.notify_all()
            case Error():
                self.answered(message.re, as_error(message.code, message.message))
            case VoiceList() | StatusReport() | Pong() | Ok():
                self.answered(message.re, message)
            case _:
                pass

    def drop(self, session: Session | None, error: Failure) -> None:
        """A mapping holds impossible numbers: its lines that have a lane fail, the session ends."""
        if session is None:
            return
        for line in list(session.lines.values()):
            if line.has_lane:
                line.finish(End.FAILED, error.code, error.message)
        if not session.dead:
            session.dead = True
            self.wake()

    def answered(self, number: int, answer: Message | GleemanError) -> None:
        """The answer to a request, or the refusal of a line by `error`."""
        line = self.lines.get(number)
        if number in self.answers:
            self.answers[number] = answer
            self.changed.notify_all()
        elif line is not None and isinstance(answer, GleemanError):
            line.finish(End.REFUSED, answer.code, answer.message)

    def forget(self, line: LineLife) -> None:
        """A line has ended."""
        self.lines.pop(line.id, None)
        if line.session is not None:
            line.session.forget(line.id)

    def order_cancel(self, line_id: int) -> None:
        """Tell the daemon that a line is not wanted any more."""
        self.orders.append(encode(Cancel(line=line_id)))
        self.wake()

    def close(
        self, end: End = End.CANCELLED, code: str = "cancelled", message: str = "the client was closed"
    ) -> None:
        """Every line ends; nothing new is taken."""
        if not self.closed:
            self.closed = True
            for line in list(self.lines.values()):
                line.finish(end, code, message)

    def unmap(self) -> None:
        """The end of all sessions."""
        for session in self.sessions():
            session.dead = True
            session.close_when_read_out()
        self.session = None
        self._old.clear()
