"""A line as the game holds it: samples, events, and its one end.

Threads: every method may be called from any thread. All lines of a client share the client's lock, held
for microseconds; samples are read by whoever calls `read`, `audio` or the iterator, and one line should
have one reader. Knows no sockets; the C client is the one for an audio thread that may not take a lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Failure
from ..records import End, Event, EventType, Samples, Viseme
from ..shm.layout import CAPACITY
from ..wire.messages import ClauseInfo, Speak

if TYPE_CHECKING:
    from ..shm.lane import LaneReader
    from .session import Session
    from .tables import Tables

NOTHING: Samples = np.zeros(0, dtype=np.float32)
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
QUICK_WAITS = 40
QUICK_WAIT_S = 0.000_5
SLOW_WAIT_S = 0.005


class Line:
    """One line on its way from the daemon. Made by `Client.speak`.

    Iterating gives chunks of float32 samples as they come, until the line ends. `words`, `visemes` and
    `events` grow as the read position passes them; the last viseme of an ended line is always `SIL`.
    """

    id: int
    """Its number, within its tables."""
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
        self._attached = False
        self._paused = False
        self._cancelled = False
        self._read_ns = 0

    # ---- hearing it ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Samples]:
        """Chunks as they come, each at least one sample; waits for them. Ends when the line ends."""
        while (chunk := self._next(None)) is not None:
            yield chunk

    def audio(self, timeout_s: float | None = None) -> Samples:
        """All samples that are left, to the line's end; `end` then says whether it is whole.

        Raises Failure timeout; what was read until then is gone.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        chunks = []
        while (chunk := self._next(until)) is not None:
            chunks.append(chunk)
        return np.concatenate(chunks) if chunks else NOTHING.copy()

    def read(self, samples: int) -> Samples:
        """The next `samples` samples for a sound card that asks for them now; never waits.

        Zeros before the line has enough buffered to begin, in an underrun, while it is paused and after
        its end; the rest of a cancelled line is its fade.
        """
        with self._lock:
            self._attached = True
            lane = self._lane
            if lane is None:
                return np.zeros(samples, np.float32)
            try:
                block = lane.read_exact(samples)
                self._advance(lane)
            except Failure as error:  # impossible numbers in the mapping
                self._tables.drop(self.session, error)
                return np.zeros(samples, np.float32)
            return block

    def _next(self, until: float | None) -> Samples | None:
        """The next chunk, or None at the end. Raises Failure timeout."""
        waits = 0
        while True:
            with self._lock:
                self._attached = True
                if self._lane is None and self.end is None and waits < QUICK_WAITS:
                    self._tables.poll()
                chunk = self._take()
                if chunk.size:
                    return chunk
                if self.end is not None:
                    return None
                if until is not None and time.monotonic() >= until:
                    raise Failure(f"line {self.id} has not ended in the time given for it", "timeout")
                waits += 1
                self._tables.changed.wait(QUICK_WAIT_S if waits < QUICK_WAITS else SLOW_WAIT_S)

    def _take(self) -> Samples:
        """All samples that are there. Lock held."""
        lane = self._lane
        if lane is None or (self._paused and not self._cancelled):
            return NOTHING
        try:
            chunk = lane.read(CAPACITY)
            self._advance(lane)
        except Failure as error:
            self._tables.drop(self.session, error)
            return NOTHING
        return chunk

    def _advance(self, lane: LaneReader) -> None:
        """After a read: tell the events that it passed, and the end if this was the last."""
        if lane.read_pos != self.heard:
            self.heard = lane.read_pos
            self._read_ns = time.monotonic_ns()
        self.underrun_samples = lane.underrun_samples
        end = lane.ended
        if end is None and self._daemon_is_dead() and not lane.available():
            end = End.LOST
        if end is not None and self._word_is_due(end):
            # A lane gives all its events once it has ended; what a cut line did not reach stays untold.
            self._events.extend(event for event in lane.events() if event.sample <= self.heard)
            self.finish(*self._last_word(end))
        elif end is None:
            self._events.extend(lane.events())

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

    # ---- steering it -----------------------------------------------------------------------------

    def cancel(self, fade_ms: float = 20) -> None:
        """Stop it: what is being heard fades out over the next `fade_ms` of reading, and the line ends
        `cancelled`. A line that nobody hears yet ends at once. No effect on an ended line."""
        with self._lock:
            if self.end is not None or self._cancelled:
                return
            self._cancelled = True
            lane, session = self._lane, self.session
            fade = max(0, round(self._rate_hz * fade_ms / 1000))
            if lane is not None:
                lane.mark_cancel(fade)
            if session is not None and not session.dead:
                self._tables.order_cancel(self.id)
            if lane is None or fade == 0 or self.heard == 0 or self._paused:
                self.finish(End.CANCELLED, "cancelled", "the game cancelled it")
            else:
                self._read_ns = time.monotonic_ns()

    def pause(self) -> None:
        """Hold it at the sample it has reached; the others go on."""
        self._pause(True)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        with self._lock:
            self._paused = paused
            if self._lane is not None:
                self._lane.set_paused(paused)
            self._tables.changed.notify_all()

    def wait(self, timeout_s: float | None = None) -> End | None:
        """Its end, once it has come; None after `timeout_s`. Does not read: somebody else must, or the
        line must end in another way."""
        with self._lock:
            self._tables.changed.wait_for(lambda: self.end is not None, timeout_s)
            return self.end

    @property
    def paused(self) -> bool:
        """Whether `pause` holds it."""
        return self._paused

    @property
    def events(self) -> list[Event]:
        """All that the read position has passed, in order; text spans are UTF-8 byte offsets."""
        with self._lock:
            return list(self._events)

    @property
    def words(self) -> list[Event]:
        """The words begun so far."""
        return [event for event in self.events if event.type == EventType.WORD]

    @property
    def visemes(self) -> list[Event]:
        """The mouth's moves so far: `code` is a `records.Viseme`."""
        return [event for event in self.events if event.type == EventType.VISEME]

    # ---- for the client, lock held ---------------------------------------------------------------

    @property
    def has_lane(self) -> bool:
        """Whether its sound has begun to come."""
        return self._lane is not None

    def adopt(self, lane: LaneReader) -> None:
        """Its lane has been found."""
        self._lane = lane
        if self._paused:
            lane.set_paused(True)
        self._tables.changed.notify_all()

    def look(self) -> None:
        """What needs no reader: the moment of the first sample, the end of a line that is not read."""
        lane = self._lane
        if lane is None or self.end is not None:
            return
        if self.first_audio_ms is None and lane.available():
            self.first_audio_ms = (time.monotonic_ns() - self.spoken_ns) / 1e6
        if self._cancelled:
            if time.monotonic_ns() - self._read_ns > UNREAD_FADE_NS:
                self.finish(*self._last_word(End.CANCELLED))
        elif not self._paused:
            self._advance(lane)

    def restart(self) -> bool:
        """Its daemon is dead: True when it must be said again, for nobody has heard any of it yet."""
        if self._lane is not None and (
            self.heard or (self.session is not None and self.session.holds_all(self._lane))
        ):
            return False
        if self._lane is not None:
            self._lane.finish()
        self._lane, self.session, self._word = None, None, None
        self.first_audio_ms = None
        self.waits_since_ns = time.monotonic_ns()
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

    def __repr__(self) -> str:
        how = "live" if self.end is None else self.end.name.lower()
        return f"<Line {self.id} {how}, {self.heard} samples heard>"
