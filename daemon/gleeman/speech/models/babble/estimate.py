"""How long a clause will be, guessed from its symbols alone, and its symbols' spans.

Used by the stand-ins, which speak exactly this long, and by anyone who must know a length before a model has
run. Pure arithmetic: no model, no clock.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ....records import Clause, Viseme
from ...visemes import shapes_of, symbols_of

RATE_HZ = 24_000
FRAME_SAMPLES = 600

# Milliseconds at speed 1. Chosen so that English text comes to about 165 words a minute and Chinese to about
# 270 characters, which is what the stock voices speak at.
VOWEL_MS = 85
CONSONANT_MS = 62
SYLLABLE_MS = 205
"""A Han character or a digit: one syllable and its share of the pauses."""
MARK_MS = 8
LENGTH_MS = 45
SPACE_MS = 28
COMMA_MS = 170
STOP_MS = 300
_STOPS = ".!?…。！？\n"
_SILENT_MARKS = "\"“”()«»（）《》「」『』【】'’-"
_VOWELS = frozenset((Viseme.AA, Viseme.E, Viseme.IH, Viseme.OH, Viseme.OU))


class Timing(NamedTuple):
    """When each symbol of a clause sounds."""

    spans: tuple[tuple[int, int], ...]
    """Begin and end sample of each symbol, at 24 kHz, without gaps."""
    total_samples: int


def timing_of(clause: Clause, speed: float) -> Timing:
    """The spans of `symbols_of(clause)` at `speed` (2.0 is twice as fast; above 0)."""
    phonemes = bool(clause.phonemes)
    samples_per_ms = RATE_HZ / 1000 / speed
    spans = []
    elapsed_ms = begin = 0
    for symbol in symbols_of(clause):
        elapsed_ms += symbol_ms(symbol, phonemes)
        end = round(elapsed_ms * samples_per_ms)  # rounding the sum, so that errors do not add up
        spans.append((begin, end))
        begin = end
    return Timing(tuple(spans), begin)


def frames_of(clause: Clause, speed: float) -> int:
    """Predicted frames of 600 samples at 24 kHz; at least 1."""
    phonemes = bool(clause.phonemes)
    total_ms = sum(symbol_ms(symbol, phonemes) for symbol in symbols_of(clause))
    return max(1, round(total_ms * RATE_HZ / 1000 / speed / FRAME_SAMPLES))


@functools.lru_cache(maxsize=4096)
def symbol_ms(symbol: str, phonemes: bool) -> int:
    """Milliseconds of one symbol at speed 1."""
    if symbol in _STOPS:
        return STOP_MS
    if symbol == " ":
        return SPACE_MS
    if symbol in _SILENT_MARKS:
        return MARK_MS
    if symbol == "ː":
        return LENGTH_MS
    shapes = shapes_of(symbol, phonemes=phonemes)
    if not shapes:
        return CONSONANT_MS if symbol in "hH" else MARK_MS
    if shapes[0].viseme == Viseme.SIL:
        return COMMA_MS
    if len(shapes) == 2 and not phonemes and symbol not in "xX":
        return SYLLABLE_MS
    if shapes[0].viseme in _VOWELS and symbol not in "jwɥ":
        return VOWEL_MS * (3 + len(shapes)) // 4
    return CONSONANT_MS
