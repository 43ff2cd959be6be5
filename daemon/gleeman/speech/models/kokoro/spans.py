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
ONSET_FRAMES = 3
"""A sound is heard up to 75 ms before the frames of its phoneme begin. Within a sentence a clause therefore
begins so much before its first phoneme, as far as the pause there allows: the clause before, which norms over
other sounds, would leave the onset out."""
PAUSES = frozenset(';:,.!?—…"()“” ')
"""Symbols in which nothing is said."""
LEVEL_DB = 0.95
"""The vocoder norms over a clause's own time, so a clause that is louder than its sentence comes out softer
than there, and the other way round: by so many decibels a unit of the energy curve's mean (fitted to 15
clauses of five voices; they were up to 1.7 dB off, and at most 1 is left)."""


class Context(NamedTuple):
    """What a vocoder renders of the sentence around a clause, and throws away."""

    frames: int
    """On the far side of every cut, so that what the convolutions see there is the sentence and not its
    edge."""
    least: int
    """Frames that are rendered in all, as far as the sentence has them."""


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


def span_of(clause: Clause, ends: np.ndarray, context: Context) -> Span:
    """The part of its sentence that a clause is. ends: frame at which each token of the sentence ends; token
    0 is the pad before the first phoneme."""
    first, last = clause.sentence_first, clause.sentence_last
    text = clause.sentence or clause.phonemes
    if not clause.sentence:
        first, last = 0, len(text)
    total = int(ends[-1])
    whole = max(0, int(ends[0]) - LEAD_FRAMES), min(total, int(ends[len(text)]) + TAIL_FRAMES)
    begin = _joint(text, ends, first) if first else whole[0]
    end = _joint(text, ends, last) if last < len(text) else whole[1]
    rendered = _around(begin, end, whole, context)
    return Span(
        first=rendered[0],
        last=rendered[1],
        begin=begin,
        end=end,
        pause=total - end if last == len(text) and clause.ends_sentence else 0,
        tokens=first,
        whole=whole,
    )


def _joint(text: str, ends: np.ndarray, at: int) -> int:
    """The frame at which the clause whose first phoneme is `text[at]` begins within its sentence."""
    silent = at
    while silent > 1 and text[silent - 1] in PAUSES:
        silent -= 1
    pause = int(ends[at] - ends[silent])
    return int(ends[at]) - min(ONSET_FRAMES, pause // 2)


def _around(begin: int, end: int, whole: tuple[int, int], context: Context) -> tuple[int, int]:
    """The frames rendered so that `begin` to `end` can be kept, within the sentence."""
    first, last = max(whole[0], begin - context.frames), min(whole[1], end + context.frames)
    before, after = first - whole[0], whole[1] - last
    missing = min(max(0, context.least - (last - first)), before + after)
    more = min(before, max(missing // 2, missing - after))
    return first - more, last + missing - more


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
