"""Emotions by name, as vectors over what the prosody predictor gives: duration, pitch level, pitch range,
energy, and how much is whispered. Knows no model and no torch.

The numbers are a first set, tried by ear-like measures on two voices (every word still understood, DNSMOS
within 0.3 of neutral but for the whisper).
"""

from __future__ import annotations

import difflib
import math
from typing import NamedTuple


class Manner(NamedTuple):
    """How neutral prosody is changed."""

    speed: float = 1.0
    """2.0 is twice as fast."""
    pitch: float = 1.0
    """Factor on F0."""
    pitch_range: float = 1.0
    """Factor on the distance of log F0 from its mean over the clause."""
    energy: float = 0.0
    """Added to the energy curve, in the model's own log units."""
    whisper: float = 0.0
    """Share of the voicing that is taken away, 0 to 1."""


NEUTRAL = "neutral"

_MANNERS: dict[str, Manner] = {
    NEUTRAL: Manner(),
    "happy": Manner(speed=1.10, pitch=1.18, pitch_range=1.5, energy=0.5),
    "sad": Manner(speed=0.82, pitch=0.92, pitch_range=0.55, energy=-1.0),
    "angry": Manner(speed=1.12, pitch=1.10, pitch_range=1.35, energy=1.5),
    "afraid": Manner(speed=1.20, pitch=1.30, pitch_range=0.8, energy=-0.3),
    "whisper": Manner(energy=-0.5, whisper=1.0),
}

EMOTIONS: tuple[str, ...] = tuple(_MANNERS)
"""Every name that `resolve` takes as it is."""


def resolve(name: str) -> tuple[str, str]:
    """The emotion that `name` means, and a warning for the game, "" if there is none to give. Letter case and
    surrounding space do not count; "" is neutral; an unknown name is neutral with a warning, so that a line
    is still spoken."""
    plain = name.strip().casefold()
    if not plain:
        return NEUTRAL, ""
    if plain in _MANNERS:
        return plain, ""
    near = difflib.get_close_matches(plain[:64], EMOTIONS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return NEUTRAL, f"emotion {name[:64]!r} is not known, spoken neutral{hint} Known: {', '.join(EMOTIONS)}."


def manner_of(name: str, intensity: float) -> Manner:
    """The emotion at an intensity from 0 (neutral) to 1 (as listed): factors move on a log scale, sums and
    shares straight. An unknown name is neutral."""
    full = _MANNERS[resolve(name)[0]]
    share = min(1.0, max(0.0, intensity))
    return Manner(
        speed=full.speed**share,
        pitch=full.pitch**share,
        pitch_range=full.pitch_range**share,
        energy=full.energy * share,
        whisper=full.whisper * share,
    )


def semitones(steps: float) -> float:
    """The factor on a frequency."""
    return math.pow(2.0, steps / 12)


def decibels(level: float) -> float:
    """The factor on an amplitude."""
    return math.pow(10.0, level / 20)
