"""The engine thread: owns the device, asks the scheduler what to run, runs it, hands the samples on.

The only room that sees both scheduler and pipeline. Knows no socket and no lane: what it makes goes out
through the callbacks it was given, which it calls on its own thread (`state` on the loader's) and which must
not block. Asleep when nothing is due.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .. import paths
from ..errors import GleemanError, InputError
from ..records import Chunk, Clause, End, LineKey, LineRequest, LineRoom, ModelState
from ..speech.base import Pipeline
from . import loading
from .batch import Batch, Limits
from .bound import Bound
from .running import synthesise
from .scheduler import Scheduler
from .speaking import Speaking

log = logging.getLogger(__name__)

MAIN = "main"
"""What lines call the pipeline that the daemon was started for, whatever its name."""
STOP_S = 2.0
AFTER_MISTAKE_S = 0.1


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """What the engine has done since its start."""

    batches: int
    rows: int
    """Of all batches together."""
    frames: int
    """Of all rows together, as they were made."""
    padding_frames: int
    """Rendered beside them to fill up their groups."""
    queued_lines: int
    """Lines with clauses that no batch has taken or finished yet."""


class Engine:
    """See the module. Every public method may be called from any thread, but `turn` and `load`."""

    def __init__(
        self,
        main: Pipeline,
        standins: Mapping[str, Pipeline],
        hand: Callable[[Chunk], None],
        end: Callable[[LineKey, End, str, str], None],
        room: Callable[[], Mapping[LineKey, LineRoom]],
        state: Callable[[ModelState], None],
        beat: Callable[[int, bool], None],
        limits: Limits,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        load_times: Path | None = None,
    ) -> None:
        """standins: pipelines by the name that lines call them. They must load at once.

        beat: (batches so far, one is running). load_times: where the seconds of the last load are kept; None:
        in the cache folder. clock: nanoseconds on `LineRequest.arrived_ns`'s clock.
        """
        self._main = main
        self._pipelines: dict[str, Pipeline] = {MAIN: main, **standins}
        self._bounds = {name: Bound() for name in self._pipelines}
        self._runnable: set[str] = set()
        # As the loader thread says; the engine thread hears of it a little later.
        self._loaded = False
        self._broken: GleemanError | None = None  # why main will never run
        self._end = end
        self._room = room
        self._state = state
        self._beat = beat
        self._clock = clock
        self._load_times = load_times
        self._limits = limits
        self._scheduler = Scheduler(limits)
        self._speaking = Speaking(hand)
        self._batches = 0
        self._rows = 0
        self._frames = 0
        self._padding_frames = 0

        self._wake = threading.Condition()  # guards the four below
        self._inbox: deque[Callable[[], None]] = deque()
        self._inbox_lines = 0
        self._room_changed = False
        self._stopping = False
        self._threads: tuple[threading.Thread, ...] = ()

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine thread and the loader thread; waits for neither."""
        self._threads = (
            threading.Thread(target=self._loop, name="gleeman-engine", daemon=True),
            threading.Thread(target=self.load, name="gleeman-loader", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the engine thread after the batch it is in, and free the device. Waits at most 2 s; no line is
        ended by it."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._threads:
            self._threads[0].join(STOP_S)
            if self._threads[0].is_alive():
                return  # in the middle of a long batch: the device is freed with the process
        if self._loaded:
            self._main.close()

    # ---- what the other rooms tell -----------------------------------------------------------------

    def add(self, request: LineRequest, clauses: Sequence[Clause]) -> None:
        """A line whose text has been read. Ends it at once as `refused` when a queue is full."""
        with self._wake:
            full = self._inbox_lines >= self._limits.total_lines
            if not full:
                self._inbox_lines += 1
                self._inbox.append(partial(self._add, request, tuple(clauses)))
                self._wake.notify()
        if full:
            self._end(
                request.key, End.REFUSED, "busy", "the engine's queue is full; send the line again later"
            )

    def frame(self, session: int) -> None:
        """The session's game frame is over."""
        self._tell(partial(self._scheduler.frame, session))

    def cancel(self, key: LineKey) -> None:
        """Forget a line; what of it is in flight is thrown away. Whoever cancels it tells its end, and brings
        it no more if `add` has not brought it yet."""
        self._tell(partial(self._forget, key))

    def drop_session(self, session: int) -> None:
        """Forget all lines of a session; none is ended, as nobody is there to be told."""
        self._tell(partial(self._drop_session, session))

    def room_changed(self) -> None:
        """A lane has room that it had not. Cheap when no line waits."""
        if len(self._scheduler):
            with self._wake:
                self._room_changed = True
                self._wake.notify()

    def counters(self) -> EngineCounters:
        """Figures for `status`."""
        return EngineCounters(
            batches=self._batches,
            rows=self._rows,
            frames=self._frames,
            padding_frames=self._padding_frames,
            queued_lines=len(self._scheduler) + self._inbox_lines,
        )

    def _tell(self, call: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(call)
            self._wake.notify()

    # ---- the loader thread -------------------------------------------------------------------------

    def load(self) -> None:
        """Load the main pipeline; what the loader thread does."""
        times = self._load_times or paths.cache_dir() / "load-seconds.json"

        def told(state: ModelState) -> None:
            if state.state == "ready":
                self._loaded = True
                self._tell(self._main_ready)
            self._state(state)

        error = loading.load(self._main, told, self._clock, times)
        if error is not None:
            self._tell(partial(self._give_up_main, error))

    def _main_ready(self) -> None:
        """On the engine thread."""
        self._runnable.add(MAIN)
        budget = getattr(self._main, "budget", None)
        if budget is not None:
            self._scheduler.limit(replace(self._limits, run_ns=budget.run_ns, frames=budget.frames))

    # ---- the engine thread -------------------------------------------------------------------------

    def _loop(self) -> None:
        self.load_standins()
        while not self._stopping:
            try:
                busy = self.turn()
                timeout_s = 0.0 if busy else self._sleep_s()
            except Exception:
                log.exception("a mistake of ours in the engine's turn")
                busy, timeout_s = False, AFTER_MISTAKE_S
            if busy:
                continue
            with self._wake:
                if not (self._inbox or self._room_changed or self._stopping):
                    self._wake.wait(timeout_s)

    def load_standins(self) -> None:
        """Make the stand-ins ready; what the engine thread does first."""
        for name, pipeline in self._pipelines.items():
            if name == MAIN:
                continue
            try:
                pipeline.load(lambda _stage, _progress: None)
            except Exception:
                log.exception("stand-in %s cannot be used", name)
            else:
                self._runnable.add(name)

    def _sleep_s(self) -> float | None:
        due_ns = self._scheduler.next_due_ns()
        return None if due_ns is None else max(0.0, (due_ns - self._clock()) / 1e9)

    def turn(self) -> bool:
        """Everything that was told, then at most one batch; False when there was none to run. What the engine
        thread does over and over; tests call it themselves."""
        self._hear()
        now_ns = self._clock()
        for key in self._scheduler.expired(now_ns):
            self._end(key, End.EXPIRED, "expired", "its deadline passed before it could start")
        batch = self._scheduler.tick(now_ns, self._room(), self._runnable)
        if batch is None:
            return False
        self._beat(self._batches, True)
        try:
            self._run(batch)
        except Exception:
            for row in batch.rows:
                if self._scheduler.knows(row.key):
                    self._fail(row.key, "in running its batch")
        finally:
            self._batches += 1
            self._rows += len(batch.rows)
            self._beat(self._batches, False)
        return True

    def _hear(self) -> None:
        with self._wake:
            calls = list(self._inbox)
            self._inbox.clear()
            self._room_changed = False
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("a mistake of ours in what the engine was told")

    def _add(self, request: LineRequest, clauses: tuple[Clause, ...]) -> None:
        with self._wake:
            self._inbox_lines -= 1
        try:
            self._queue(request, clauses)
        except Exception:
            self._fail(request.key, "in queueing it")

    def _fail(self, key: LineKey, where: str) -> None:
        """End a line because of a mistake of ours; to be called in its `except`."""
        log.exception("session %016x line %d: a mistake of ours %s", *key, where)
        self._forget(key)
        self._end(key, End.FAILED, "internal", "the daemon made a mistake on this line")

    def _queue(self, request: LineRequest, clauses: tuple[Clause, ...]) -> None:
        key = request.key
        if request.pipeline == MAIN and self._broken is not None:
            self._end(key, End.FAILED, self._broken.code, self._broken.message)
            return
        if request.pipeline not in self._pipelines:
            self._end(key, End.FAILED, "internal", f"no pipeline {request.pipeline!r}")
            return
        if not clauses:
            self._speaking.nothing(request, self._pipelines[request.pipeline].rate_hz)
            return
        estimate = self._pipelines[request.pipeline].estimate_frames
        try:
            self._scheduler.add(request, clauses, estimate, self._clock())
        except InputError as error:
            self._end(key, End.REFUSED, error.code, error.message)

    def _forget(self, key: LineKey) -> None:
        self._speaking.forget(key)
        self._scheduler.cancel(key)

    def _drop_session(self, session: int) -> None:
        self._scheduler.drop_session(session)
        self._speaking.drop_session(session)

    def _give_up_main(self, error: GleemanError) -> None:
        self._broken = error
        for key in self._scheduler.drop_pipeline(MAIN):
            self._end(key, End.FAILED, error.code, error.message)

    def _run(self, batch: Batch) -> None:
        began_ns = self._clock()
        audios, errors = synthesise(self._pipelines[batch.pipeline], batch.rows, self._bounds[batch.pipeline])
        took_ns = self._clock() - began_ns
        self._hear()  # what was cancelled meanwhile is thrown away
        requests = {
            row.key: self._scheduler.request(row.key) for row in batch.rows if self._scheduler.knows(row.key)
        }
        for key, (code, message) in errors.items():
            if key in requests:
                self._forget(key)
                self._end(key, End.FAILED, code, message)
        frames = sum(audio.frames for audio in audios.values())
        self._frames += frames
        self._padding_frames += sum(audio.padding for audio in audios.values())
        rate_hz = self._pipelines[batch.pipeline].rate_hz
        finished = self._scheduler.complete(batch, 0 if errors else took_ns, frames)
        for row in batch.rows:
            if row.key not in audios or row.key not in requests:
                continue
            try:
                self._speaking.hand_on(requests[row.key], rate_hz, audios[row.key], row.key in finished)
            except Exception:
                self._fail(row.key, "in handing it on")
