"""A session's lines as the feeder keeps them: what waits in memory, what lies in a lane, who is next.

No threads and no callbacks: the feeder calls, on its own thread. The daemon trusts only what it
remembers itself; of the mapping it reads the reader's fields alone, and checks each.
"""

from __future__ import annotations

import heapq
from collections import deque

from ..records import Chunk, End, Event, EventType, LineKey, Priority, Samples, Viseme
from . import layout
from .mapping import DaemonMapping, u32_at, u64_at
from .publish import fence, publish

BITE_SAMPLES = 4096
"""A ring is topped up when it has room for this much: 85 ms at 48 kHz of the 2.7 s it holds."""
EVENT_PATIENCE_LOOKS = 50
"""How long a line's end waits for a reader that takes no events out of a full ring: 250 ms."""
REMEMBERED = 4096
"""Lines that ended lately, by number, so that what comes late for them is dropped."""
MAX_UNDERRUN = 1 << 48
"""Samples: centuries. What is more would spoil the sum over all lines."""
_HEAD_ZEROS = bytes(layout.LANE_HEAD_BYTES)


class BadClient(Exception):
    """The reader's side of a mapping holds a number that cannot be."""


class Line:
    """One line. Positions in samples since its start."""

    __slots__ = (
        "cancel_told",
        "cancelled",
        "complete",
        "done",
        "end",
        "end_waits",
        "event_read",
        "event_write",
        "events",
        "generation",
        "key",
        "lane",
        "offset",
        "paused",
        "pending",
        "pending_samples",
        "preroll",
        "rate_hz",
        "read",
        "underrun",
        "write",
    )

    def __init__(self, key: LineKey, rate_hz: int, preroll: int) -> None:
        self.key = key
        self.rate_hz = rate_hz
        self.preroll = preroll
        self.lane = -1
        self.generation = 0
        self.pending: deque[Samples] = deque()
        self.offset = 0  # samples of pending[0] that are written already
        self.pending_samples = 0
        self.events: deque[Event] = deque()
        self.write = 0
        self.read = 0
        self.event_write = 0
        self.event_read = 0
        self.underrun = 0
        self.paused = False
        self.complete = False  # the last chunk is here
        self.end: End | None = None  # as published in the lane
        self.cancelled = False
        self.cancel_told = False
        self.done = False
        self.end_waits = 0  # looks since the last event was written, with all samples in the lane

    def add(self, chunk: Chunk) -> None:
        """Keep a chunk's samples and events until there is room."""
        if len(chunk.samples):
            self.pending.append(chunk.samples)
            self.pending_samples += len(chunk.samples)
        self.events.extend(chunk.events)
        self.complete = chunk.last

    def wants_filling(self) -> bool:
        """Whether something that waits has room: samples in no small bites, or events at once."""
        event_room = layout.EVENTS - (self.event_write - self.event_read)
        if event_room and self.events and self.events[0].sample <= self.write:
            return True
        if self.complete and self.end is None and not self.pending:
            return True  # only its end is missing
        room = layout.CAPACITY - (self.write - self.read)
        return 0 < min(self.pending_samples, BITE_SAMPLES) <= room


class Session:
    """A client's mapping and its lines."""

    def __init__(
        self, number: int, rate_hz: int, client_pid: int, client_start: int, mapping: DaemonMapping
    ) -> None:
        self.number = number
        self.rate_hz = rate_hz
        self.client_pid = client_pid
        self.client_start = client_start
        self.mapping = mapping
        self._u64, self._u32, self._raw = mapping.u64, mapping.u32, mapping.raw
        # One strided view a field: reading it for all lanes costs what reading it for one does.
        self._reads = mapping.column(layout.L_READ_POS)
        self._dones = mapping.column(layout.L_DONE_GENERATION)
        self._event_reads = mapping.column(layout.L_EVENT_READ)
        self._cancels = mapping.column(layout.L_CANCEL_GENERATION)
        self._underruns = mapping.column(layout.L_UNDERRUN_SAMPLES)
        self._fades = mapping.column(layout.L_FADE_SAMPLES)  # with `paused` as its upper half
        self._in_lane: dict[int, Line] = {}
        self._free = list(range(layout.LANES - 1, -1, -1))
        self._waiting: list[tuple[Priority, int, Line]] = []
        self._arrivals = 0
        self._generation = 0
        self._over: dict[int, None] = {}  # in order of their end

    @property
    def live(self) -> bool:
        """Whether a line has a lane or waits for one."""
        return bool(self._in_lane or self._waiting)

    def all_lines(self) -> list[Line]:
        """Those with a lane and those that wait."""
        return [*self._in_lane.values(), *(line for _, _, line in self._waiting)]

    def is_over(self, number: int) -> bool:
        """Whether a line of that number ended lately."""
        return number in self._over

    def add(self, key: LineKey, priority: Priority, preroll: int) -> Line:
        """A new line; it waits until `next_with_lane` gives it out."""
        line = Line(key, self.rate_hz, min(max(preroll, 0), layout.CAPACITY))
        self._arrivals += 1
        heapq.heappush(self._waiting, (priority, self._arrivals, line))
        return line

    def forget(self, number: int, line: Line | None) -> None:
        """A line that has no lane is over."""
        if line is not None:
            self._waiting = [entry for entry in self._waiting if entry[2] is not line]
            heapq.heapify(self._waiting)
        self._remember(number)

    def _remember(self, number: int) -> None:
        self._over[number] = None
        if len(self._over) > REMEMBERED:
            del self._over[next(iter(self._over))]

    def next_with_lane(self) -> Line | None:
        """Give the next waiting line a lane, if there is a line and a lane."""
        if not self._waiting or not self._free:
            return None
        line = heapq.heappop(self._waiting)[2]
        lane = self._free.pop()
        self._generation += 1
        line.lane, line.generation = lane, self._generation
        self._in_lane[lane] = line
        head = u64_at(lane, 0)
        self._u64[head + layout.L_LINE_ID // 8] = line.key.line
        self._u64[head + layout.L_PREROLL // 8] = line.preroll
        self._u64[head + layout.L_END_POS // 8] = layout.UNKNOWN_END
        publish(self._u64, head + layout.L_GENERATION // 8, line.generation)
        return line

    def fill(self, line: Line) -> bool:
        """Write what has room of a line with a lane. True when samples became visible."""
        head = u64_at(line.lane, 0)
        write = line.write
        room = layout.CAPACITY - (write - line.read)
        if room and line.pending:
            ring = self.mapping.samples[line.lane]
            while room and line.pending:
                part = line.pending[0]
                count = min(room, len(part) - line.offset)
                at = write & layout.MASK
                first = min(count, layout.CAPACITY - at)
                ring[at : at + first] = part[line.offset : line.offset + first]
                ring[: count - first] = part[line.offset + first : line.offset + count]
                line.offset += count
                if line.offset == len(part):
                    line.pending.popleft()
                    line.offset = 0
                write += count
                room -= count
        moved = write - line.write
        # Events first: who sees a sample has been able to see what happens at it.
        if line.events:
            self._write_events(line, write)
        if moved:
            line.write = write
            line.pending_samples -= moved
            publish(self._u64, head + layout.L_WRITE_POS // 8, write)
        if line.complete and not line.pending and line.end is None:
            # Behind the end no event is looked for, so it waits for those that found the ring full; not for
            # ever, as a reader need not take events.
            line.end_waits += 1
            if not line.events or line.end_waits > EVENT_PATIENCE_LOOKS:
                self._publish_end(line, End.DONE)
        return moved > 0

    def _write_events(self, line: Line, write: int) -> None:
        """Those whose samples are in the lane, as far as the event ring has room, in order."""
        at = line.event_write
        room = layout.EVENTS - (at - line.event_read)
        rings = layout.EVENT_RINGS + line.lane * layout.EVENT_RING_BYTES
        while room and line.events and line.events[0].sample <= write:
            event = line.events.popleft()
            place = rings + (at & layout.EVENT_MASK) * layout.EVENT_BYTES
            self._raw[place : place + layout.EVENT_BYTES] = layout.EVENT.pack(*event, 0)
            at += 1
            room -= 1
        if at != line.event_write:
            line.event_write, line.end_waits = at, 0
            publish(self._u64, u64_at(line.lane, layout.L_EVENT_WRITE), at)

    def end(self, line: Line, end: End) -> None:
        """End a line in its lane where it is written to; what waits is dropped, the mouth closes."""
        line.pending.clear()
        line.pending_samples = 0
        line.events = deque(event for event in line.events if event.sample <= line.write)
        line.events.append(Event(line.write, EventType.VISEME, Viseme.SIL, 1.0))
        self._write_events(line, line.write)
        self._publish_end(line, end)

    def _publish_end(self, line: Line, end: End) -> None:
        line.end = end
        self._u32[u32_at(line.lane, layout.L_END_CODE)] = end
        publish(self._u64, u64_at(line.lane, layout.L_END_POS), line.write)

    def free(self, line: Line) -> End:
        """The reader gave the lane back: zero it for the next line, and say how this one ended."""
        head = layout.LANE_HEADS + line.lane * layout.LANE_HEAD_BYTES
        publish(self._u64, (head + layout.L_GENERATION) // 8, 0)
        self._raw[head : head + layout.LANE_HEAD_BYTES] = _HEAD_ZEROS
        del self._in_lane[line.lane]
        self._free.append(line.lane)
        self._remember(line.key.line)
        if line.end is None or (line.end is End.DONE and line.read < line.write):
            return End.CANCELLED
        return line.end

    def look(self) -> list[Line]:
        """Read the readers' fields; the lines for which something is to be done. Raises BadClient."""
        dones = self._dones.tolist()
        fence()  # where `done` is set, what is read from here on is the reader's last word
        reads, event_reads = self._reads.tolist(), self._event_reads.tolist()
        cancels, underruns, fades = self._cancels.tolist(), self._underruns.tolist(), self._fades.tolist()
        fence()
        changed = []
        for lane, line in self._in_lane.items():
            read = reads[lane]
            if read != line.read:
                if not line.read <= read <= line.write:
                    raise BadClient(_sentence("read_pos", lane, read, line.read, line.write))
                line.read = read
            event_read = event_reads[lane]
            if event_read != line.event_read:
                if not line.event_read <= event_read <= line.event_write:
                    raise BadClient(
                        _sentence("event_read", lane, event_read, line.event_read, line.event_write)
                    )
                line.event_read = event_read
            underrun = underruns[lane]
            if underrun != line.underrun:
                if not line.underrun <= underrun <= MAX_UNDERRUN:
                    raise BadClient(
                        _sentence("underrun_samples", lane, underrun, line.underrun, MAX_UNDERRUN)
                    )
                line.underrun = underrun
            line.paused = fades[lane] >> 32 != 0
            cancel, done = cancels[lane], dones[lane]
            if cancel or done:
                for name, value in (("cancel_generation", cancel), ("done_generation", done)):
                    if value > self._generation:
                        raise BadClient(_sentence(name, lane, value, 0, self._generation))
                # Another generation's number is a late word of the lane's last reader: passed over.
                line.cancelled = line.cancelled or cancel == line.generation
                line.done = done == line.generation
            if line.done or (line.cancelled and not line.cancel_told) or line.wants_filling():
                changed.append(line)
        return changed

    def close(self) -> None:
        """Let go of the views, so that the mapping can be unmapped."""
        for view in (
            self._reads,
            self._dones,
            self._event_reads,
            self._cancels,
            self._underruns,
            self._fades,
        ):
            view.release()
        self._u64.release()
        self._u32.release()
        self._raw.release()


def _sentence(name: str, lane: int, value: int, low: int, high: int) -> str:
    return f"{name} {value} of lane {lane} must lie in {low} to {high}"
