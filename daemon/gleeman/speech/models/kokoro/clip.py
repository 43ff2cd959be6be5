"""The clause alone out of what was rendered of its sentence: samples and events. Knows no model and
no tensors."""

from __future__ import annotations

import itertools

import numpy as np

from ....errors import Failure
from ....records import Clause, RowAudio, Samples
from ...visemes import events_of
from .spans import Span

FADE_SAMPLES = 72
"""At both ends of a clause, 3 ms: a cut in the middle of a voiced sound must not click."""


def clip(
    clause: Clause, span: Span, ends: np.ndarray, rendered: Samples, per_frame: int, longest: int
) -> RowAudio:
    """rendered: at least the samples of the span, `per_frame` a frame. ends: as for `span_of`. longest:
    frames of the longest row that was rendered beside it. Raises Failure model-failed where a sample is not
    a number."""
    frames = span.last - span.first
    if not np.isfinite(rendered[: frames * per_frame]).all():
        raise Failure("the model gave samples that are not numbers", "model-failed")
    kept = (span.end - span.begin) * per_frame
    total = kept + span.pause * per_frame
    out = np.zeros(total, np.float32)
    skipped = (span.begin - span.first) * per_frame
    out[:kept] = rendered[skipped : skipped + kept]
    fade = np.linspace(0, 1, FADE_SAMPLES, dtype=np.float32)
    out[:FADE_SAMPLES] *= fade
    out[kept - FADE_SAMPLES : kept] *= fade[::-1]
    count = len(clause.phonemes)
    edges = np.minimum(ends[span.tokens : span.tokens + count + 1] - span.begin, span.end - span.begin)
    places = [(int(begin), int(end)) for begin, end in itertools.pairwise(edges * per_frame)]
    return RowAudio(
        out,
        tuple(events_of(clause, places, total)),
        frames,
        longest - frames,
    )
