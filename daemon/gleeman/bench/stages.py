"""Where the time goes inside the pipeline, in this process, without daemon, scheduler or lanes.

A `Probe` stands around the stages of a loaded model and adds up the time of each, its own only: what a stage
calls that is itself a stage counts there. On a GPU it waits for the device after each stage, so that the time
is where the work was; the total is then a little longer than without it. The trace is another run, under
torch's own profiler, with the stages as ranges; Perfetto (ui.perfetto.dev) and chrome://tracing open it.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ..records import LineKey, Row
from ..speech.base import Pipeline
from ..speech.post import LinePost
from ..speech.registry import make_pipeline
from ..text.frontend import accent_of, read
from ..voices.store import VoiceStore
from .script import DIALOGUE, MIXED, VOICES, voice_of

STAGES = ("read", "prosody", "curves", "features", "source", "wave", "post")
"""In the order of the data flow. `post` is what is in no other: noise, limiter, copies, events, the joint of
clauses."""
PLACES = (
    ("read", "read"),
    ("prosody", "predictor.text_encoder.forward"),
    ("prosody", "predictor.durations"),
    ("curves", "curves"),
    ("features", "features"),
    ("source", "turns"),
    ("source", "source"),
    ("wave", "wave"),
)
"""Which call of a model belongs to which stage; what a model does not have is left out."""
TRACED_ROWS = (1, 4)
"""Sizes of the batches in the trace."""


class BatchTimes(NamedTuple):
    """One batch, medians over the runs."""

    what: str
    rows: int
    speech_s: float
    ms: dict[str, float]
    """By stage."""
    total_ms: float

    @property
    def row_ms(self) -> float:
        """A row's share."""
        return self.total_ms / self.rows

    @property
    def rtf(self) -> float:
        """Seconds of work a second of speech."""
        return self.total_ms / 1e3 / self.speech_s


class Probe:
    """Times the stages of a model while it is in place. One thread."""

    def __init__(self, model: object | None, wait: Callable[[], None] = lambda: None) -> None:
        """model: None when there is none to look into. wait: until the device has done what it was given."""
        self._model = model
        self._wait = wait
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._inner_s = [0.0]
        """What the stages inside the running ones have taken, outermost first."""
        self._marks: Callable[[str], Any] | None = None

    @contextmanager
    def placed(self, marks: Callable[[str], Any] | None = None) -> Iterator[None]:
        """Stand around the stages until the end of the block. `marks(name)` is a context manager to hold
        around each as well."""
        self._marks = marks
        undo = [self._wrap(stage, path) for stage, path in PLACES]
        try:
            yield
        finally:
            for take_off in undo:
                take_off()

    def take(self) -> dict[str, float]:
        """Milliseconds by stage since the last call."""
        spent = {stage: 1e3 * seconds for stage, seconds in self._spent.items()}
        self._spent.clear()
        return spent

    def _wrap(self, stage: str, path: str) -> Callable[[], None]:
        owner: Any = self._model
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        inner = getattr(owner, name, None)
        if inner is None:
            return lambda: None

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._timing(stage):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)
        return lambda: delattr(owner, name)  # the class's own is there again

    @contextmanager
    def _timing(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inner_s.append(0.0)
        try:
            if self._marks is None:
                yield
            else:
                with self._marks(stage):
                    yield
            self._wait()
        finally:
            took_s = time.perf_counter() - began
            self._spent[stage] += took_s - self._inner_s.pop()
            self._inner_s[-1] += took_s


def measure(model: str, device: str, threads: int, runs: int, trace: Path | None) -> list[BatchTimes]:
    """Load a model and time batches of it: one short row, four, sixteen, sixteen of mixed length, and those
    sixteen one by one. Writes the trace when asked. Raises what loading raises; OSError."""
    pipeline = make_pipeline(model, device=device, threads=threads, voices=VoiceStore())
    pipeline.load(lambda _stage, _progress: None)
    probe = Probe(_innermost(pipeline), _waiter(getattr(pipeline, "device", "cpu")))
    phonemes = pipeline.needs_phonemes
    mixed = [_row(text, voice_of(place), place, phonemes) for place, text in enumerate(MIXED)]
    batches: list[tuple[str, list[list[Row]]]] = [
        ("1 short", [_short(1, phonemes)]),
        ("4 short", [_short(4, phonemes)]),
        ("16 short", [_short(16, phonemes)]),
        ("16 mixed", [mixed]),
        ("16 mixed alone", [[row] for row in mixed]),
    ]
    with probe.placed():
        times = [_time(pipeline, probe, what, groups, runs) for what, groups in batches]
    if trace is not None:
        _trace(pipeline, probe, [_short(rows, phonemes) for rows in TRACED_ROWS], trace)
    pipeline.close()
    return times


def cost_ratios(times: Sequence[BatchTimes]) -> dict[str, float]:
    """Time a row in a batch over time of a row alone: for the short ones, and for the mixed ones."""
    by_name = {each.what: each for each in times}
    alone, mixed_alone = by_name["1 short"], by_name["16 mixed alone"]
    ratios = {what: by_name[what].row_ms / alone.row_ms for what in ("4 short", "16 short")}
    return ratios | {"16 mixed": by_name["16 mixed"].row_ms / mixed_alone.row_ms}


def _time(
    pipeline: Pipeline, probe: Probe, what: str, groups: Sequence[Sequence[Row]], runs: int
) -> BatchTimes:
    """`groups` one after the other, as one measurement. Of several runs the first, which warms, does not
    count."""
    stages: list[dict[str, float]] = []
    totals: list[float] = []
    samples = 0
    warm_runs = int(runs > 1)
    for run in range(runs + warm_runs):
        began = time.perf_counter()
        audios = [audio for rows in groups for audio in pipeline.run(rows)]
        for audio in audios:
            LinePost(pipeline.rate_hz, pipeline.rate_hz).process(audio.samples, audio.events, True)
        total_ms = 1e3 * (time.perf_counter() - began)
        spent = probe.take()
        spent["post"] = max(0.0, total_ms - sum(spent.values()))
        if run >= warm_runs:
            stages.append(spent)
            totals.append(total_ms)
        samples = sum(audio.samples.size for audio in audios)
    ms = {stage: median(spent.get(stage, 0.0) for spent in stages) for stage in STAGES}
    rows_in_all = sum(len(rows) for rows in groups)
    return BatchTimes(what, rows_in_all, samples / pipeline.rate_hz, ms, median(totals))


def _trace(pipeline: Pipeline, probe: Probe, batches: Sequence[Sequence[Row]], path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if getattr(pipeline, "device", "cpu").startswith("cuda"):
        activities.append(ProfilerActivity.CUDA)
    with probe.placed(record_function), profile(activities=activities) as profiler:
        for rows in batches:
            with record_function(f"batch of {len(rows)}"):
                pipeline.run(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))


def _short(rows: int, phonemes: bool) -> list[Row]:
    return [_row(DIALOGUE, VOICES[0], place, phonemes) for place in range(rows)]


def _row(text: str, voice: str, place: int, phonemes: bool) -> Row:
    """The first clause of a line, as a batch's row."""
    clause = read(text, "auto", accent_of(voice), phonemes).clauses[0]
    return Row(LineKey(0, place), 0, clause, voice, "neutral", 1.0, 1.0, 0.0, 0.0, seed=place)


def _innermost(pipeline: object) -> object | None:
    """The network itself, under what loads it late."""
    for name in ("_inner", "_model"):
        pipeline = getattr(pipeline, name, None)
    return pipeline


def _waiter(device: str) -> Callable[[], None]:
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return torch.cuda.synchronize
