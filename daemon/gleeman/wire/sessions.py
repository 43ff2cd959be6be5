"""What the server knows of each session and of each of its lines, and whether a line may come in.

Pure: no socket, no clock, no thread, no room of the daemon. The server calls it from its one thread.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import InputError
from ..records import End, LineKey, LineRequest, Priority
from .messages import MAX_TEXT_BYTES, MAX_TEXT_CHARS, PRIORITIES, RATES_HZ, WHILE_LOADING, Hello, Speak

MAX_SESSIONS = 64
"""A mapping takes 17 MB of shared memory, so these are 1.1 GB at most."""
MAX_QUEUED_LINES = 256
"""Lines of one session that were accepted and have not ended."""
DEFAULT_RATE_HZ = 24_000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class VoiceNames(Protocol):
    """What admission asks of the voice store."""

    def resolve(self, names: str | list[str]) -> str:
        """The first known name. Raises InputError unknown-voice."""

    def default(self) -> str:
        """The voice of a line that names none."""


@dataclass(slots=True)
class Line:
    """An accepted line that has not ended."""

    arrived_ns: int
    playing: bool = False
    """Its first samples are in its lane."""


@dataclass(slots=True)
class Session:
    """One client. Lives from its `hello` to `bye`, the loss of its connection or of its process."""

    id: int
    """Random u64, not 0."""
    route: bytes
    """The ROUTER's name of the connection."""
    hello: int
    """The `id` of its `hello`."""
    client: str
    pid: int
    rate_hz: int
    standin: str
    """What speaks while the model loads: "main" (wait for it), "babble" or "silent"."""
    welcomed: bool = False
    """Its mapping is there and it was told so."""
    last_line: int = 0
    unframed: bool = False
    """A line was accepted since its last `frame`."""
    lines: dict[int, Line] = field(default_factory=dict)


class Sessions:
    """All sessions, found by connection and by id, and the count of lines that ended."""

    def __init__(self) -> None:
        self.by_route: dict[bytes, Session] = {}
        self.by_id: dict[int, Session] = {}
        self.ended: dict[str, int] = {end.name.lower(): 0 for end in End}
        """Lines by end, over all sessions that ever were."""
        self._leaving: dict[int, set[int]] = {}
        """Lines of forgotten sessions whose readers may have come to their end unseen."""

    def open(self, route: bytes, hello: Hello) -> Session:
        """A new session for this `hello`, whose token and protocol were checked. Raises InputError
        hello-twice, busy, bad-value."""
        if route in self.by_route:
            raise InputError("this connection has said hello already; say bye before another", "hello-twice")
        if len(self.by_route) >= MAX_SESSIONS:
            raise InputError(f"{MAX_SESSIONS} clients are connected, which is the limit", "busy")
        if hello.while_loading not in WHILE_LOADING:
            raise InputError(
                f"while_loading {hello.while_loading[:40]!r} is not one of {', '.join(WHILE_LOADING)}"
            )
        rate_hz = hello.rate_hz if hello.rate_hz in RATES_HZ else DEFAULT_RATE_HZ
        standin = "main" if hello.while_loading == "wait" else hello.while_loading
        session = Session(self._new_id(), route, hello.id, hello.client, hello.pid, rate_hz, standin)
        self.by_route[route] = self.by_id[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """Forget a session. Its lines are counted when `closed` says that all is known of them."""
        self.by_route.pop(session.route, None)
        self.by_id.pop(session.id, None)
        self._leaving[session.id] = set(session.lines)
        session.lines.clear()

    def closed(self, session: int) -> None:
        """A forgotten session's mapping was looked at for the last time. What had not ended counts as
        cancelled: nobody is there to be told."""
        self.ended["cancelled"] += len(self._leaving.pop(session, ()))

    def line_over(self, key: LineKey, end: End) -> Session | None:
        """Count a line's end, once. Its session; None when nobody is to be told: the line is unknown, had
        ended before, or its session is forgotten."""
        leaving = self._leaving.get(key.session, set())
        if key.line in leaving:
            leaving.remove(key.line)
            self.ended[end.name.lower()] += 1
            return None
        session = self.by_id.get(key.session)
        if session is None or session.lines.pop(key.line, None) is None:
            return None
        self.ended[end.name.lower()] += 1
        return session

    def line(self, key: LineKey) -> Line | None:
        """A live line; None when it is unknown or has ended."""
        session = self.by_id.get(key.session)
        return session.lines.get(key.line) if session else None

    def live_lines(self) -> int:
        """Accepted and not ended, over all sessions and those that are leaving."""
        lines = [*(session.lines for session in self.by_id.values()), *self._leaving.values()]
        return sum(map(len, lines))

    def _new_id(self) -> int:
        while True:
            number = secrets.randbits(64)
            if number and number not in self.by_id:
                return number


def check_order(session: Session, line: int) -> None:
    """Line numbers of a session grow. Raises InputError bad-value; else the number is used up."""
    if line <= session.last_line:
        raise InputError(f"line {line} must be above {session.last_line}, the session's last", "bad-value")
    session.last_line = line


def admit(
    session: Session,
    speak: Speak,
    voices: VoiceNames,
    emotion_of: Callable[[str], tuple[str, str]],
    pipeline: str,
    now_ns: int,
) -> tuple[LineRequest, list[str]]:
    """The line as the other rooms take it, and sentences for people; it counts as live from now on.

    Raises InputError bad-value, busy, empty-text, text-too-long, bad-text, bad-phonemes, unknown-voice.
    `emotion_of` gives the emotion meant by a name, and a warning or "". `pipeline` is where the line would
    be spoken now; `now_ns` is its arrival.
    """
    check_order(session, speak.line)
    if len(session.lines) >= MAX_QUEUED_LINES:
        raise InputError(f"{MAX_QUEUED_LINES} lines of this session wait or play, which is the limit", "busy")
    _check_words(speak)
    warnings = []
    wanted = speak.voice or voices.default()
    voice = voices.resolve(wanted)
    first = wanted[0] if isinstance(wanted, list) else wanted
    if first and voice != first:
        warnings.append(f"voice {first!r} is not known; {voice!r} speaks")
    emotion, warning = emotion_of(speak.emotion)
    if warning:
        warnings.append(warning)
    request = LineRequest(
        key=LineKey(session.id, speak.line),
        text=speak.text,
        phonemes=speak.phonemes,
        voice=voice,
        emotion=emotion,
        intensity=speak.intensity,
        speed=speak.speed,
        pitch=speak.pitch,
        energy=speak.energy,
        language=speak.language,
        priority=Priority(PRIORITIES.index(speak.priority)),
        arrived_ns=now_ns,
        deadline_ns=now_ns + speak.deadline_ms * 1_000_000 if speak.deadline_ms else 0,
        seed=make_seed(voice, speak.text or speak.phonemes) if speak.seed is None else speak.seed,
        rate_hz=session.rate_hz,
        pipeline=pipeline,
    )
    session.lines[speak.line] = Line(now_ns)
    return request, warnings


def make_seed(voice: str, text: str) -> int:
    """The seed of a line that gave none: u63 out of blake2b("voice\\0text"), so a line sounds the same
    each time it is said."""
    digest = hashlib.blake2b(f"{voice}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _check_words(speak: Speak) -> None:
    if speak.text and speak.phonemes:
        raise InputError("give `text` or `phonemes`, not both", "bad-value")
    given, what = (speak.phonemes, "phonemes") if speak.phonemes else (speak.text, "text")
    if not given.strip():
        raise InputError(f"the {what} is empty; give at least one word", "empty-text")
    if len(given) > MAX_TEXT_CHARS:
        raise InputError(
            f"the {what} has {len(given)} characters; the limit is {MAX_TEXT_CHARS}", "text-too-long"
        )
    if len(given.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise InputError(f"the {what} has more than {MAX_TEXT_BYTES} bytes of UTF-8", "text-too-long")
    bad = _CONTROL.search(given)
    if bad:
        code = "bad-phonemes" if speak.phonemes else "bad-text"
        allowed = "line feed, tab and carriage return are the only control characters allowed"
        raise InputError(f"the {what} holds U+{ord(bad[0]):04X} at character {bad.start()}; {allowed}", code)
