"""A soft, wordless voice: harmonics under formants that follow the mouth, and a little breath.

Additive synthesis in numpy, a few milliseconds for a second of sound. Knows nothing of clauses or text: it
gets mouth shapes on a sample clock and a pitch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....records import Event, Samples

RATE_HZ = 24_000
HOP_SAMPLES = 120
"""Formants and pitch are computed once in 5 ms and run straight between."""
BLOCK_HOPS = 64
"""Hops done at once, so that a block's arrays stay in the processor's second cache."""
LEVEL = 0.09
"""Root mean square of a full vowel: clearly below the speech of a model."""
BREATH_LEVEL = 0.05
GLIDE_HOPS = 7
"""The mouth takes about 35 ms from one shape to the next."""
FADE_SAMPLES = 240
TOP_HZ = 3_600.0
"""No harmonic above: what makes it soft."""
LOUDEST = 0.95

# In order of the viseme numbers: SIL PP FF TH DD KK CH SS NN RR AA E IH OH OU. By ear.
_F1_HZ = (500, 300, 350, 350, 350, 350, 350, 350, 300, 400, 750, 550, 350, 520, 350)
_F2_HZ = (1500, 900, 1200, 1400, 1700, 1900, 1900, 1700, 1600, 1300, 1250, 1800, 2150, 900, 800)
_VOICED = (0.0, 0.15, 0.12, 0.2, 0.15, 0.12, 0.05, 0.02, 0.45, 0.6, 1.0, 0.9, 0.8, 0.9, 0.75)
_BREATH = (0.0, 0.05, 0.5, 0.35, 0.2, 0.2, 1.0, 0.9, 0.0, 0.0, 0.02, 0.02, 0.02, 0.02, 0.02)
_SHAPES = np.array([_F1_HZ, _F2_HZ, _VOICED, _BREATH], np.float32)  # (4, visemes)
_F3_HZ = 2_600.0
_BANDWIDTHS_HZ = (90.0, 130.0, 200.0)
_GAINS = (1.0, 0.6, 0.25)

_Track = npt.NDArray[np.float32]


class Throat(NamedTuple):
    """What makes one babbling voice differ from another."""

    f0_hz: float
    formant_scale: float


def throat_of(voice: str) -> Throat:
    """The same for the same name, always. Names like `af_heart` and `bm_george` say who speaks."""
    digest = hashlib.blake2b(voice.encode(), digest_size=2).digest()
    place, build = digest[0] / 255, digest[1] / 255
    gender = voice[1] if len(voice) > 2 and voice[2] == "_" else ""
    if gender == "f":
        return Throat(178 + 62 * place, 1.08 + 0.1 * build)
    if gender == "m":
        return Throat(94 + 42 * place, 0.93 + 0.1 * build)
    return Throat(125 + 80 * place, 0.98 + 0.14 * build)


def babble(
    mouth: Sequence[Event],
    total_samples: int,
    throat: Throat,
    seed: int,
    *,
    rises: bool = False,
    gain: float = 1.0,
) -> Samples:
    """Samples (total_samples,) in [-1, 1] at 24 kHz, faded at both ends; the same for the same arguments.

    mouth: VISEME events in order of sample. rises: the pitch goes up at the end, as in a question.
    gain: linear; what would leave [-1, 1] is bent back.
    """
    if total_samples <= 0:
        return np.zeros(0, np.float32)
    hops = -(-total_samples // HOP_SAMPLES)
    rng = np.random.default_rng(seed)
    f1_hz, f2_hz, voiced, breath = _tracks(mouth, hops + 1)  # each (hops + 1,)
    f0_hz = _pitch(throat.f0_hz, hops + 1, rng, rises)
    strengths = _harmonics(f0_hz, f1_hz * throat.formant_scale, f2_hz * throat.formant_scale, throat)
    strengths *= (voiced * LEVEL * np.sqrt(2))[:, None]

    voice = _sing(f0_hz, strengths)
    noise = rng.random(voice.size + 2, np.float32)
    hiss = noise[2:] - noise[:-2]  # most at 6 kHz, nothing at 0 and 12: breath, neither rumble nor crackle
    voice += hiss * _between(breath * BREATH_LEVEL)

    samples = voice[:total_samples] * np.float32(gain)
    fade = min(FADE_SAMPLES, total_samples // 2)
    ramp = np.linspace(0, 1, fade, endpoint=False, dtype=np.float32)
    samples[:fade] *= ramp
    samples[total_samples - fade :] *= ramp[::-1]
    if np.abs(samples).max() > LOUDEST:
        samples = np.tanh(samples)
    return samples


def _tracks(mouth: Sequence[Event], points: int) -> _Track:
    """(4, points): first and second formant, voice and breath at each control point, gliding."""
    at = np.array([0, *(event.sample for event in mouth)])
    codes = np.array([0, *(event.code for event in mouth)])
    now = codes[np.searchsorted(at, np.arange(points) * HOP_SAMPLES, side="right") - 1]
    steps = _SHAPES[:, now]
    padded: npt.NDArray[np.floating] = np.pad(steps, ((0, 0), (GLIDE_HOPS, GLIDE_HOPS - 1)), mode="edge")
    for _ in range(2):  # a box twice is a triangle: no corner that could click
        sums = np.cumsum(np.pad(padded, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
        padded = (sums[:, GLIDE_HOPS:] - sums[:, :-GLIDE_HOPS]) / GLIDE_HOPS
    tracks: _Track = padded[:, :points].astype(np.float32)
    np.maximum(tracks[2:], 0, out=tracks[2:])
    return tracks


def _pitch(f0_hz: float, points: int, rng: np.random.Generator, rises: bool) -> _Track:
    """(points,) in Hz: falling over the clause, with a slow wander of its own."""
    place = np.linspace(0, 1, points)
    turns = max(2, points // 50)  # one every quarter of a second
    wander = np.interp(place, np.linspace(0, 1, turns), rng.uniform(-1, 1, turns))
    melody = 1.09 - 0.2 * place + 0.07 * wander
    if rises:
        melody += 0.4 * np.clip(place * 2.5 - 1.5, 0, None)
    return (f0_hz * melody).astype(np.float32)


def _harmonics(f0_hz: _Track, f1_hz: _Track, f2_hz: _Track, throat: Throat) -> _Track:
    """(points, harmonics): strengths under three resonances, of unit power at each point."""
    count = max(4, int(TOP_HZ / float(f0_hz.mean())))
    number = np.arange(1, count + 1, dtype=np.float32)
    hz = f0_hz[:, None] * number
    strengths = np.zeros_like(hz)
    f3_hz = np.full_like(f1_hz, _F3_HZ * throat.formant_scale)
    for formant, width, gain in zip((f1_hz, f2_hz, f3_hz), _BANDWIDTHS_HZ, _GAINS, strict=True):
        strengths += gain / (1 + ((hz - formant[:, None]) / width) ** 2)
    strengths += 0.25 / number  # never quite without a fundamental
    strengths /= np.sqrt((strengths**2).sum(axis=1, keepdims=True))
    return strengths


def _sing(f0_hz: _Track, strengths: _Track) -> Samples:
    """The sum of the harmonics: (hops * HOP_SAMPLES,)."""
    step = 2 * np.pi / RATE_HZ * _between(f0_hz).astype(np.float64)
    phase = np.cumsum(step)
    voice = np.zeros(phase.size, np.float32)
    ramp = np.arange(HOP_SAMPLES, dtype=np.float32) / HOP_SAMPLES
    for first in range(0, len(f0_hz) - 1, BLOCK_HOPS):
        here = strengths[first : first + BLOCK_HOPS + 1]
        part = slice(first * HOP_SAMPLES, (first + len(here) - 1) * HOP_SAMPLES)
        sine = np.sin(phase[part]).astype(np.float32)
        twice_cosine = (2 * np.cos(phase[part])).astype(np.float32)
        before = np.zeros_like(sine)
        sung = np.zeros_like(sine)
        for k in range(here.shape[1]):
            column = here[:, k]
            envelope = column[:-1, None] + ramp * (column[1:] - column[:-1])[:, None]
            sung += envelope.reshape(-1) * sine
            # sin((k+1)x) = 2 cos(x) sin(kx) - sin((k-1)x): a sine for the price of a product
            before, sine = sine, twice_cosine * sine - before
        voice[part] = sung
    return voice


def _between(track: _Track) -> _Track:
    """(points,) -> ((points - 1) * HOP_SAMPLES,), straight lines."""
    ramp = np.arange(HOP_SAMPLES, dtype=np.float32) / HOP_SAMPLES
    lines: _Track = (track[:-1, None] + ramp * (track[1:] - track[:-1])[:, None]).reshape(-1)
    return lines
