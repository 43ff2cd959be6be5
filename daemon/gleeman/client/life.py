"""What happens to a line between `speak` and its one end. Knows nothing of who reads it (line.py).

Every method is called with the client's lock held, from whichever thread.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from ..errors import Failure
from ..records import End, Event, EventType, Viseme
from ..wire.messages import ClauseInfo, Speak

if TYPE_CHECKING:
    from ..shm.lane import LaneReader
    from .session import Session
    from .tables import Tables

CODES = {
    End.CANCELLED: "cancelled",
    End.EXPIRED: "expired",
    End.FAILED: "internal",
    End.REFUSED: "bad-value",
    End.LOST: "lost",
}
"""What an end is called for which no word of the daemon's came."""
WORD_GRACE_NS = 250_000_000
"""A lane can tell a failure before the message with its code is here; so long the end waits for it."""
UNREAD_FADE_NS = 500_000_000
"""A cancelled line whose reader has not come for its fade for so long is ended without it."""


class LineLife:
    """The part of a `Line` that the client's tables, sessions and link deal with."""

    id: int
    """Its number, within its client."""
    text: str
    voice: str
    """The voice that was taken; before the daemon has answered, "" or the one asked for."""
    seed: int | None
    """What makes its samples; known with the daemon's answer."""
    warnings: list[str]
    """Sentences: an unknown emotion, a voice that was not the first choice."""
    clauses: list[ClauseInfo]
    """Subtitles: what will be said, with estimated lengths. Come without sound, too."""
    end: End | None
    """How it ended; None: it has not."""
    code: str
    """Why, out of `errors.CODES`; "" while it lives and when it was done."""
    message: str
    heard: int
    """Samples read; 0 is the line's first sample. Only grows, and not in an underrun or a pause."""
    underrun_samples: int
    """Zeros that `read` had to put into the middle of the line."""
    first_audio_ms: float | None
    """From `speak` until its first sample was seen in its lane."""

    def __init__(self, tables: Tables, line_id: int, speak: Speak | None) -> None:
        self.id = line_id
        self.text = speak.text if speak is not None else ""
        self.voice = speak.voice if speak is not None and isinstance(speak.voice, str) else ""
        self.seed = speak.seed if speak is not None else None
        self.warnings = []
        self.clauses = []
        self.end = None
        self.code = ""
        self.message = ""
        self.heard = 0
        self.underrun_samples = 0
        self.first_audio_ms = None
        self.asked = speak
        self.spoken_ns = time.monotonic_ns()
        self.waits_since_ns = self.spoken_ns
        """Since when it has been in nobody's hands but the client's."""
        self.session: Session | None = None
        self._tables = tables
        self._lock = tables.lock
        self._lane: LaneReader | None = None
        self._rate_hz = tables.rate_hz
        self._events: list[Event] = []
        self._word: tuple[End, str, str] | None = None
        self._word_due_ns = 0
        self._paused = False
        self._cancelled = False
        self._read_ns = 0

    def to_send(self) -> Speak | None:
        """What to say of it to the daemon; None when it has ended, or its deadline ends it now."""
        speak = self.asked
        if self.end is not None or speak is None or not speak.deadline_ms:
            return speak if self.end is None else None
        left_ms = speak.deadline_ms - (time.monotonic_ns() - self.spoken_ns) // 1_000_000
        if left_ms <= 0:
            self.finish(End.EXPIRED, "expired", "its deadline passed before a daemon could take it")
            return None
        return msgspec.structs.replace(speak, deadline_ms=left_ms)

    @property
    def has_lane(self) -> bool:
        """Whether its sound has begun to come."""
        return self._lane is not None

    def adopt(self, lane: LaneReader) -> None:
        """Its lane has been found."""
        self._lane = lane
        if self._paused:
            lane.set_paused(True)
        self._see_first(lane)
        self._tables.changed.notify_all()

    def _see_first(self, lane: LaneReader) -> None:
        if self.first_audio_ms is None and (self.heard or lane.available()):
            self.first_audio_ms = (time.monotonic_ns() - self.spoken_ns) / 1e6

    def look(self) -> None:
        """What needs no reader: the moment of the first sample, the end of a line that is not read."""
        lane = self._lane
        if lane is None or self.end is not None:
            return
        self._see_first(lane)
        if self._cancelled:
            if time.monotonic_ns() - self._read_ns > UNREAD_FADE_NS:
                self.finish(*self._last_word(End.CANCELLED))
        elif not self._paused and not lane.available():
            self._advance(lane)

    def restart(self) -> bool:
        """Its daemon is dead: True when it must be said again, for nobody has heard any of it yet."""
        if self._lane is not None and (
            self.heard or (self.session is not None and self.session.holds_all(self._lane))
        ):
            return False
        if self._lane is not None:
            with contextlib.suppress(Failure):
                self._lane.finish()
        self._lane, self.session, self._word = None, None, None
        self.first_audio_ms = None
        return True

    def daemon_ended(self, end: End, code: str, message: str, in_lane: bool) -> None:
        """The daemon's word on its end."""
        self._word = (end, code or CODES.get(end, ""), message)
        if not in_lane:
            self.finish(*self._word)

    def finish(self, end: End, code: str, message: str) -> None:
        """Tell its end, once. Whatever comes later is not told."""
        if self.end is not None:
            return
        last = next((event for event in reversed(self._events) if event.type == EventType.VISEME), None)
        if last is None or last.code != Viseme.SIL:
            self._events.append(Event(self.heard, EventType.VISEME, Viseme.SIL, 1.0))
        self.end, self.code, self.message = end, code, message
        lane, self._lane = self._lane, None
        if lane is not None:
            with contextlib.suppress(Failure):  # a lane full of nonsense: its session goes as a whole
                lane.finish()
        self._tables.forget(self)
        self._tables.changed.notify_all()

    def _advance(self, lane: LaneReader) -> None:
        """After a read: tell the events that it passed, and the end if this was the last."""
        if lane.read_pos != self.heard:
            self.heard = lane.read_pos
            self._read_ns = time.monotonic_ns()
            self._see_first(lane)
        self.underrun_samples = lane.underrun_samples
        end = lane.ended
        if end is None and self._daemon_is_dead() and not lane.available():
            end = End.LOST
        self._events.extend(lane.events())
        if end is not None and self._word_is_due(end):
            self.finish(*self._last_word(end))

    def _word_is_due(self, end: End) -> bool:
        """Whether all is known about an end that the lane tells."""
        if end is End.DONE or self._word is not None or self._cancelled or self._daemon_is_dead():
            return True
        now_ns = time.monotonic_ns()
        self._word_due_ns = self._word_due_ns or now_ns + WORD_GRACE_NS
        return now_ns >= self._word_due_ns

    def _last_word(self, end: End) -> tuple[End, str, str]:
        if end is End.DONE:
            return end, "", ""
        if self._cancelled and end is End.CANCELLED:
            return end, "cancelled", "the game cancelled it"
        if end is End.LOST:
            return end, "lost", "the daemon died in the middle of the line"
        return self._word or (end, CODES[end], f"the daemon ended the line as {end.name.lower()}")

    def _daemon_is_dead(self) -> bool:
        return self.session is not None and self.session.dead
