"""Which clauses go through a pipeline together, and when. Pure: time is an argument.

Knows no torch, no clock, no sockets, no threads and no samples; one thread calls it. The life of a line:

    add -> waiting for its tick to close -> admitted -> (clause taken -> complete) for each clause -> gone

A line's first clause waits until the tick it came in closes: when every session that submitted since the
last one has framed, or `max_wait_ns` after the first line that no frame has followed. `immediate` lines wait
for nothing. After that clauses are taken one at a time, in the order of `_rank`, as many at once as the three
budgets allow, but always at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..errors import InputError
from ..records import Clause, LineKey, LineRequest, LineRoom, Priority, Row
from .batch import Batch, Limits, row_of
from .pace import Pace

__all__ = ["Batch", "Limits", "Scheduler"]


@dataclass(slots=True)
class _Line:
    request: LineRequest
    rows: tuple[Row, ...]
    frames: tuple[int, ...]
    number: int
    """Counts arrivals."""
    tick: int
    """Counts closed ticks: the one that it came in."""
    since_ns: int
    """When it came, or its last clause was taken: what ages."""
    next: int = 0
    admitted: bool = False
    in_flight: bool = False

    @property
    def begun(self) -> bool:
        return self.next > 0


class Scheduler:
    """See the module. One thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: dict[LineKey, _Line] = {}
        self._of_session: dict[int, int] = {}
        self._unframed: dict[int, int] = {}  # session -> when its first line came that no frame has followed
        self._paces: dict[str, Pace] = {}
        self._numbers = 0
        self._ticks = 0

    def limit(self, limits: Limits) -> None:
        """Hold batches to other limits from now on; what waits goes on waiting."""
        self._limits = limits

    def __len__(self) -> int:
        """Lines that wait or are half spoken."""
        return len(self._lines)

    def add(
        self,
        request: LineRequest,
        clauses: tuple[Clause, ...],
        estimate: Callable[[Row], int],
        now_ns: int,
    ) -> None:
        """Queue a line of at least one clause. Raises InputError busy when a queue is full; a key that is
        known already is our own mistake."""
        key = request.key
        assert clauses
        assert key not in self._lines
        if self._of_session.get(key.session, 0) >= self._limits.session_lines:
            raise InputError(
                f"{self._limits.session_lines} lines of this session wait; send it again when one ends",
                "busy",
            )
        if len(self._lines) >= self._limits.total_lines:
            raise InputError(f"{self._limits.total_lines} lines wait already; send it again later", "busy")
        rows = tuple(row_of(request, index, clause) for index, clause in enumerate(clauses))
        self._numbers += 1
        frames = tuple(max(1, estimate(row)) for row in rows)
        line = _Line(request, rows, frames, self._numbers, self._ticks, now_ns)
        line.admitted = request.priority == Priority.IMMEDIATE
        self._lines[key] = line
        self._of_session[key.session] = self._of_session.get(key.session, 0) + 1
        if not line.admitted:
            self._unframed.setdefault(key.session, now_ns)

    def frame(self, session: int) -> None:
        """The session's frame is over: the tick need not wait for it."""
        self._unframed.pop(session, None)

    def knows(self, key: LineKey) -> bool:
        """Whether the line waits or is half spoken: not cancelled, not finished, not expired."""
        return key in self._lines

    def request(self, key: LineKey) -> LineRequest:
        """Of a line that is known."""
        return self._lines[key].request

    def cancel(self, key: LineKey) -> bool:
        """Forget a line; what of it is in flight will be thrown away. True if it was known."""
        if key not in self._lines:
            return False
        self._remove(key)
        return True

    def drop_session(self, session: int) -> None:
        """Forget all lines of a session."""
        self._unframed.pop(session, None)
        for key in [key for key in self._lines if key.session == session]:
            self._remove(key)

    def drop_pipeline(self, pipeline: str) -> tuple[LineKey, ...]:
        """Forget all lines for a pipeline that will never run; returns them."""
        keys = tuple(key for key, line in self._lines.items() if line.request.pipeline == pipeline)
        for key in keys:
            self._remove(key)
        return keys

    def expired(self, now_ns: int) -> list[LineKey]:
        """Lines whose deadline has passed before their first clause was taken: forgotten, each told once."""
        keys = [key for key, line in self._lines.items() if _overdue(line, now_ns)]
        for key in keys:
            self._remove(key)
        return keys

    def tick(self, now_ns: int, room: Mapping[LineKey, LineRoom], pipelines: Collection[str]) -> Batch | None:
        """The next batch, or None when nothing can be run now. `pipelines`: those that can run.

        Its rows count as in flight until `complete`. A line that `room` does not name has nothing buffered.
        """
        self._close_tick(now_ns)
        ready = [
            (self._rank(line, now_ns, room.get(key)), line)
            for key, line in self._lines.items()
            if line.admitted
            and not line.in_flight
            and line.request.pipeline in pipelines
            and not _overdue(line, now_ns)
            and not _lane_full(room.get(key))
        ]
        if not ready:
            return None
        ready.sort(key=lambda ranked: ranked[0])
        urgent = [line for rank, line in ready if rank[0] <= _IMMEDIATE]
        # An immediate line shares its batch only with others that cannot wait either.
        hurried = any(rank[0] == _IMMEDIATE for rank, _ in ready)
        taken = self._fill(urgent if hurried else [line for _, line in ready])
        for line in taken:
            line.in_flight = True
            line.since_ns = now_ns
        rows = tuple(line.rows[line.next] for line in taken)
        frames = sum(line.frames[line.next] for line in taken)
        for line in taken:
            line.next += 1
        return Batch(taken[0].request.pipeline, rows, frames)

    def complete(self, batch: Batch, took_ns: int, frames: int) -> tuple[LineKey, ...]:
        """A batch has run: `took_ns` for `frames` frames in truth (0, 0: it failed, learn nothing).

        Returns the lines whose last clause it was; they are forgotten.
        """
        if took_ns > 0 and batch.estimated_frames:
            pace = self._paces.setdefault(batch.pipeline, Pace())
            pace.learn(batch.estimated_frames, frames, took_ns)
        finished = []
        for row in batch.rows:
            line = self._lines.get(row.key)
            if line is None:
                continue
            line.in_flight = False
            if line.next == len(line.rows):
                finished.append(row.key)
                self._remove(row.key)
        return tuple(finished)

    def next_due_ns(self) -> int | None:
        """When, if nothing new is told, `tick` or `expired` could have something; None: never."""
        due = [
            line.request.deadline_ns
            for line in self._lines.values()
            if line.request.deadline_ns and not line.begun
        ]
        if self._unframed and any(not line.admitted for line in self._lines.values()):
            due.append(min(self._unframed.values()) + self._limits.max_wait_ns)
        return min(due, default=None)

    # ---- the decisions ---------------------------------------------------------------------------

    def _close_tick(self, now_ns: int) -> None:
        """Admit everything that waits, if all have framed or one has waited long enough."""
        if self._unframed and now_ns < min(self._unframed.values()) + self._limits.max_wait_ns:
            return
        self._unframed.clear()
        self._ticks += 1
        for line in self._lines.values():
            line.admitted = True

    def _rank(self, line: _Line, now_ns: int, room: LineRoom | None) -> tuple[float, ...]:
        """What goes first, smallest first: lines about to fall silent, by how soon; immediate ones; then by
        priority with ageing, lines that are not heard yet before those that have enough buffered, deadline,
        tick, and the shortest first: of lines that were asked for at once that makes the mean wait least, and
        neighbours are of like length."""
        request = line.request
        # A background line is for a file or a cache: its reader takes all at once and is always dry.
        reads_live = request.priority != Priority.BACKGROUND and not (room is not None and room.paused)
        if line.begun and reads_live:
            dry_ns = room.buffered_samples * 1_000_000_000 // room.rate_hz if room is not None else 0
            if dry_ns < self._horizon_ns(line):
                return (_DRY, dry_ns, line.number)
        aged = request.priority - (now_ns - line.since_ns) / self._limits.ageing_ns
        if request.priority == Priority.IMMEDIATE or aged <= Priority.IMMEDIATE:
            return (_IMMEDIATE, aged, line.number)
        # Whole steps, so that a deadline counts among lines of about the same age.
        order = (line.begun, request.deadline_ns or _NEVER, line.tick, line.frames[line.next], line.number)
        return (_ORDINARY, int(aged), *order)

    def _horizon_ns(self, line: _Line) -> float:
        """Twice the predicted time of a batch: the pipeline's usual one, or this row alone if longer."""
        pace = self._paces.get(line.request.pipeline)
        if pace is None:
            return 2.0 * self._limits.run_ns
        return 2 * max(pace.batch_ns(), pace.ns(line.frames[line.next]))

    def _fill(self, ready: Iterable[_Line]) -> list[_Line]:
        """The first of `ready`, and those after it of the same pipeline that the budgets hold."""
        taken: list[_Line] = []
        frames = ns = 0.0
        pace, most_frames = Pace(), self._limits.frames
        for line in ready:
            if not taken:
                known = self._paces.get(line.request.pipeline)
                if known:
                    pace = known
                else:
                    most_frames = min(most_frames, self._limits.first_frames)
            elif line.request.pipeline != taken[0].request.pipeline:
                continue
            estimated = line.frames[line.next]
            frames += pace.frames(estimated)
            ns += pace.ns(estimated)
            # Stop at the first that does not fit: a shorter one behind it must not overtake it for ever.
            if taken and (frames > most_frames or ns > self._limits.run_ns):
                break
            taken.append(line)
            if len(taken) == self._limits.rows:
                break
        return taken

    def _remove(self, key: LineKey) -> None:
        del self._lines[key]
        left = self._of_session[key.session] - 1
        if left:
            self._of_session[key.session] = left
        else:
            del self._of_session[key.session]


_DRY, _IMMEDIATE, _ORDINARY = 0, 1, 2
_NEVER = 1 << 63


def _overdue(line: _Line, now_ns: int) -> bool:
    deadline_ns = line.request.deadline_ns
    return bool(deadline_ns) and not line.begun and now_ns >= deadline_ns


def _lane_full(room: LineRoom | None) -> bool:
    return room is not None and room.pending_samples > 0
