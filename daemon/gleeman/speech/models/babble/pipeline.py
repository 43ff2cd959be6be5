"""The stand-ins: `babble`, a wordless voice of the right length, and `silent`, the same without sound.

No weights, no torch, ready at once. Games test against them, and a session may take one while the model
loads. Emotion is not heard; voice, speed, pitch, energy and seed are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....records import EventType, Row, RowAudio
from ...base import Report
from ...visemes import events_of
from .estimate import FRAME_SAMPLES, RATE_HZ, frames_of, timing_of
from .sound import Throat, babble, throat_of


class StandIn:
    """A pipeline whose rows are made one by one, each by itself. Any one thread."""

    rate_hz = RATE_HZ
    device = "cpu"
    device_reason = "needs no other"
    needs_phonemes = False

    def __init__(self, name: str, speak: Callable[[Row], RowAudio]) -> None:
        self.name = name
        self._speak = speak

    def load(self, report: Report) -> None:
        """Nothing to do."""
        report("warming", 1.0)

    def estimate_frames(self, row: Row) -> int:
        """Exact to a frame: it is what will be made."""
        return frames_of(row.clause, row.speed)

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        """Rows in order; a row's samples are bit-identical in any company."""
        return [self._speak(row) for row in rows]

    def close(self) -> None:
        """Nothing to free."""


def make_babble() -> StandIn:
    """A soft formant-like babble that moves its mouth with the text."""
    return StandIn("babble", _babbled)


def make_silent() -> StandIn:
    """Zeros of the same length, with the same events: for subtitles and lips alone."""
    return StandIn("silent", _hushed)


def _babbled(row: Row) -> RowAudio:
    audio = _hushed(row)
    f0_hz, formant_scale = throat_of(row.voice)
    samples = babble(
        [event for event in audio.events if event.type == EventType.VISEME],
        audio.samples.size,
        Throat(f0_hz * 2 ** (row.pitch / 12), formant_scale),
        row.seed,
        rises=row.clause.spoken.rstrip().endswith(("?", "？")),
        gain=10 ** (row.energy / 20),
    )
    return RowAudio(samples, audio.events, audio.frames)


def _hushed(row: Row) -> RowAudio:
    timing = timing_of(row.clause, row.speed)
    events = events_of(row.clause, timing.spans, timing.total_samples)
    frames = -(-timing.total_samples // FRAME_SAMPLES)
    return RowAudio(np.zeros(timing.total_samples, np.float32), events, frames)
