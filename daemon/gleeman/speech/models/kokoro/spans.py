"""Which part of its sentence a clause is: what of it is rendered, what is kept, and how loud that must be.
Arithmetic on frames; knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....records import Clause
from .layers import Rows

LEAD_FRAMES = 2
"""Silence before a sentence's first phoneme, 50 ms: the model itself would give 300."""
TAIL_FRAMES = 6
"""Silence rendered after a sentence's last phoneme, 150 ms, in which its last sound dies away. The rest of
the pause that the model gives there is zeros, and is left out where a clause does not end its sentence."""
CONTEXT_FRAMES = 4
"""Rendered on the far side of a cut within a sentence, and thrown away, so that what the convolutions see
there is the sentence and not its edge: 100 ms."""
LEVEL_DB = 0.95
"""The vocoder norms over a clause's own time, so a clause that is louder than its sentence comes out softer
than there, and the other way round: by so many decibels a unit of the energy curve's mean (fitted to 15
clauses of five voices; they were up to 1.7 dB off, and at most 1 is left)."""


class Span(NamedTuple):
    """Which frames of its sentence a row renders, which of those it keeps, and what silence follows."""

    first: int
    """Rendered are the sentence's frames `first` to `last`."""
    last: int
    begin: int
    """Kept are `begin` to `end`."""
    end: int
    pause: int
    """Frames of zeros after them."""
    tokens: int
    """Index in `ends` of the frame where the clause's first phoneme starts."""
    whole: tuple[int, int]
    """What would be rendered of the whole sentence."""


def span_of(clause: Clause, ends: np.ndarray) -> Span:
    """The part of its sentence that a clause is. ends: frame at which each token of the sentence ends; token
    0 is the pad before the first phoneme."""
    first, last = clause.sentence_first, clause.sentence_last
    if not clause.sentence:
        first, last = 0, len(clause.phonemes)
    begin, end = int(ends[first]), int(ends[last])
    total = int(ends[-1])
    whole = (
        max(0, int(ends[0]) - LEAD_FRAMES),
        min(total, int(ends[len(clause.sentence or clause.phonemes)]) + TAIL_FRAMES),
    )
    starts, finishes = first == 0, not clause.sentence or last == len(clause.sentence)
    kept_begin = whole[0] if starts else begin
    kept_end = whole[1] if finishes else end
    return Span(
        first=kept_begin if starts else max(0, begin - CONTEXT_FRAMES),
        last=kept_end if finishes else min(total, end + CONTEXT_FRAMES),
        begin=kept_begin,
        end=kept_end,
        pause=total - kept_end if finishes and clause.ends_sentence else 0,
        tokens=first,
        whole=whole,
    )


def window(x: Tensor, spans: Sequence[Span], part: Rows, per_frame: int) -> Tensor:
    """x (B, T, …), `per_frame` values a frame, of whole sentences -> (B, T', …) of the frames that each row
    renders; pads are 0."""
    out = x.new_zeros(len(x), part.longest * per_frame, *x.shape[2:])
    for row, span in enumerate(spans):
        values = x[row, span.first * per_frame : span.last * per_frame]
        out[row, : len(values)] = values
    return out


def level(energy: Tensor, spans: Sequence[Span]) -> Tensor:
    """energy (B, 2 F) of whole sentences -> the factor (B,) that gives each row the level it has in its
    sentence."""
    factors = torch.ones(len(spans), device=energy.device)
    for row, span in enumerate(spans):
        first, last = span.whole
        if (span.first, span.last) != span.whole:
            curve = energy[row]
            louder = curve[2 * span.first : 2 * span.last].mean() - curve[2 * first : 2 * last].mean()
            factors[row] = 10 ** (LEVEL_DB / 20 * louder)
    return factors
