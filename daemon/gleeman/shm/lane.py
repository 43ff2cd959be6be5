"""The client's end of one lane: what it may read, what it must write, and no trust in what it finds.

Knows no sockets and no threads. One thread at a time (the audio thread) calls `read`, `read_exact`
and `finish`; one thread (the game thread, or the same) calls `events`, `mark_cancel`, `set_paused`.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import Failure
from ..records import End, Event, EventType, Samples, Viseme
from . import layout
from .mapping import ClientMapping, u32_at, u64_at
from .publish import fence, publish


class LaneReader:
    """Reads one line. Made when a poll of `ClientMapping.lanes` shows it; ends with `finish`."""

    def __init__(self, mapping: ClientMapping, lane: int, generation: int) -> None:
        """Attach. Raises Failure bad-daemon when the lane holds no line of that generation."""
        if not 0 <= lane < layout.LANES:
            raise Failure(f"lane {lane} is outside 0 to {layout.LANES - 1}", "bad-daemon")
        self._u64, self._u32, self._raw = mapping.u64, mapping.u32, mapping.raw
        self._ring = mapping.samples[lane]
        self._head = u64_at(lane, 0)
        self._head_u32 = u32_at(lane, 0)
        self._events_at = layout.EVENT_RINGS + lane * layout.EVENT_RING_BYTES
        if generation == 0 or self._get(layout.L_GENERATION) != generation:
            raise Failure(f"lane {lane} does not hold generation {generation}", "bad-daemon")
        self.lane = lane
        self.generation = generation
        self.line_id = self._get(layout.L_LINE_ID)
        self.preroll_samples = min(self._get(layout.L_PREROLL), layout.CAPACITY)
        self.read_pos = 0
        """Samples heard, from the line's start."""
        self.underrun_samples = 0
        self.paused = False
        self._write = 0
        self._end: int | None = None
        self._end_code = End.DONE
        self._event_read = 0
        self._event_write = 0
        self._started = False
        self._fade_samples: int | None = None  # set by mark_cancel
        self._faded = 0
        self._closed = False
        self._finished = False
        self.set_paused(False)  # a late write of the lane's last user must not pause this line

    def _get(self, offset: int) -> int:
        value: int = self._u64[self._head + offset // 8]
        fence()
        return value

    def _look(self) -> None:
        """Take in the daemon's positions. The end is read first: a position read after it is final."""
        if self._finished:
            return
        if self._end is None:
            end = self._get(layout.L_END_POS)
            if end != layout.UNKNOWN_END:
                code = self._u32[self._head_u32 + layout.L_END_CODE // 4]
                if code not in tuple(End):
                    raise Failure(f"end_code {code} of lane {self.lane} is none of 1 to 6", "bad-daemon")
                self._end_code = End(code)
                self._end = end
        write = self._get(layout.L_WRITE_POS)
        if write < self._write or write - self.read_pos > layout.CAPACITY:
            raise Failure(
                f"write_pos {write} of lane {self.lane} must lie in {self._write} to "
                f"{self.read_pos + layout.CAPACITY}",
                "bad-daemon",
            )
        if self._end is not None and write != self._end:
            raise Failure(f"end_pos {self._end} of lane {self.lane} is not write_pos {write}", "bad-daemon")
        self._write = write

    def available(self) -> int:
        """Samples that can be read now. Raises Failure bad-daemon for impossible positions."""
        self._look()
        return 0 if self._finished else self._write - self.read_pos

    @property
    def started(self) -> bool:
        """Whether enough is buffered to start playing (or the line is short). Stays true."""
        if not self._started:
            buffered = self.available()
            self._started = self._end is not None or buffered >= max(self.preroll_samples, 1)
        return self._started

    @property
    def ended(self) -> End | None:
        """How the line ended, once the reader has come there; None before. After it: take the last
        `events`, then `finish`."""
        if self._finished:
            return self._end_code
        self._look()
        fade = self._fade_samples
        if self._end is not None and self.read_pos >= self._end:
            return self._end_code if fade is None else End.CANCELLED
        if fade is not None and (self._faded >= fade or self._write == self.read_pos):
            return End.CANCELLED
        return None

    def read(self, max_samples: int) -> Samples:
        """Take up to `max_samples` that are there (a copy); their room goes back to the daemon. After
        `mark_cancel` they fade to silence, and nothing follows."""
        count = min(self.available(), max(max_samples, 0))
        fade = self._fade_samples
        if fade is not None:
            count = min(count, max(fade - self._faded, 0))
        if count <= 0 or self._finished:
            return np.zeros(0, np.float32)
        out = np.empty(count, np.float32)
        at = self.read_pos & layout.MASK
        first = min(count, layout.CAPACITY - at)
        out[:first] = self._ring[at : at + first]
        out[first:] = self._ring[: count - first]
        self.read_pos += count
        publish(self._u64, self._head + layout.L_READ_POS // 8, self.read_pos)
        if fade is not None:
            out *= 1 - np.arange(self._faded + 1, self._faded + count + 1, dtype=np.float32) / fade
            self._faded += count
        return out

    def read_exact(self, samples: int) -> Samples:
        """What an audio callback plays next: always `samples` long.

        Zeros while paused, before the preroll is buffered, after the end, and where the daemon is late;
        only the last are counted as underrun. The clock (`read_pos`) stands still for all zeros.
        """
        out = np.zeros(samples, np.float32)
        if self._finished or (self.paused and self._fade_samples is None):
            return out
        if self._fade_samples is None and not self.started:
            return out
        got = self.read(samples)
        out[: len(got)] = got
        if len(got) < samples and self.ended is None:
            self.underrun_samples += samples - len(got)
            publish(self._u64, self._head + layout.L_UNDERRUN_SAMPLES // 8, self.underrun_samples)
        return out

    def events(self) -> list[Event]:
        """Take the events that the read position has passed, oldest first; a cancelled line's last is a
        closed mouth. Raises Failure bad-daemon for impossible ones."""
        if self._finished:
            return []
        write = self._get(layout.L_EVENT_WRITE)
        if write < self._event_write or write - self._event_read > layout.EVENTS:
            raise Failure(
                f"event_write {write} of lane {self.lane} must lie in {self._event_write} to "
                f"{self._event_read + layout.EVENTS}",
                "bad-daemon",
            )
        self._event_write = write
        ended = self.ended
        limit = self.read_pos + (ended is not None)  # at the end nothing is left to pass the last ones
        due: list[Event] = []
        read = self._event_read
        while read < write:
            at = self._events_at + (read & layout.EVENT_MASK) * layout.EVENT_BYTES
            event = Event(*layout.EVENT.unpack_from(self._raw, at)[:7])
            if event.sample >= limit:
                break
            if not math.isfinite(event.weight) or event.text_end < event.text_begin:
                raise Failure(f"event {read} of lane {self.lane} holds nonsense: {event}", "bad-daemon")
            due.append(event)
            read += 1
        if due:
            self._event_read = read
            publish(self._u64, self._head + layout.L_EVENT_READ // 8, read)
        if ended is End.CANCELLED and not self._closed:
            self._closed = True
            due.append(Event(self.read_pos, EventType.VISEME, Viseme.SIL, 1.0))
        return due

    def mark_cancel(self, fade_samples: int) -> None:
        """Ask the daemon to drop the rest, and fade what is read from now on. The first call counts."""
        if self._fade_samples is not None or self.ended is not None:
            return
        fade = min(max(fade_samples, 0), layout.CAPACITY)
        self._u32[self._head_u32 + layout.L_FADE_SAMPLES // 4] = fade
        publish(self._u64, self._head + layout.L_CANCEL_GENERATION // 8, self.generation)
        self._fade_samples = fade

    def set_paused(self, paused: bool) -> None:
        """Hold the line (`read_exact` gives zeros); told to the daemon so that it does not hurry."""
        self.paused = paused
        if not self._finished:
            publish(self._u32, self._head_u32 + layout.L_PAUSED // 4, int(paused))

    def finish(self) -> None:
        """Give the lane back. Nothing of it is read or written afterwards. Harmless to repeat."""
        if self._finished:
            return
        self._end_code = self.ended or End.CANCELLED
        self._finished = True
        publish(self._u64, self._head + layout.L_DONE_GENERATION // 8, self.generation)
