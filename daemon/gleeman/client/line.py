"""A line as the game holds it: samples, events, and its one end.

Threads: every method may be called from any thread. All lines of a client share the client's lock, held
for microseconds; samples are read by whoever calls `read`, `audio` or the iterator, and one line should
have one reader. Knows no sockets; the C client is the one for an audio thread that may not take a lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from ..errors import Failure
from ..records import End, Event, EventType, Samples
from ..shm.layout import CAPACITY
from .life import LineLife

NOTHING: Samples = np.zeros(0, dtype=np.float32)
QUICK_WAITS = 40
"""How often a reader looks in short steps before it takes to longer ones."""
QUICK_WAIT_S = 0.000_5
SLOW_WAIT_S = 0.005


class Line(LineLife):
    """One line on its way from the daemon. Made by `Client.speak`.

    Iterating gives chunks of float32 samples as they come, until the line ends. `words`, `visemes` and
    `events` grow as the read position passes them; the last viseme of an ended line is always `SIL`.
    """

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
                try:
                    lane.mark_cancel(fade)
                except Failure as error:
                    self._tables.drop(session, error)
                    return
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

    def __repr__(self) -> str:
        how = "live" if self.end is None else self.end.name.lower()
        return f"<Line {self.id} {how}, {self.heard} samples heard>"
