"""The excitation of the vocoder: sines at the pitch and its harmonics, noise, and the short Fourier transform
both ways. Every edge is each row's own: the phase's interpolation, the reflection, the tail of the
overlap-add.

The phase is summed in float64 and wrapped: in float32 a line of 19 s differs by 0.03 at the waveform between
one thread and two. Knows no style.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import Rows
from .prosody import VOICED_HZ

SINE_LEVEL = 0.1
VOICED_NOISE = 0.003
UNVOICED_NOISE = SINE_LEVEL / 3


def draw_noise(seeds: Sequence[int], rows: Rows) -> Tensor:
    """Normal noise (B, S), each row drawn from its own seed at its true length; pads are 0.

    Drawn on the CPU so that a seed means the same noise on every device.
    """
    noise = torch.zeros(len(seeds), rows.longest)
    for row, (seed, length) in enumerate(zip(seeds, rows.lengths, strict=True)):
        torch.randn(length, generator=torch.Generator().manual_seed(seed), out=noise[row, :length])
    return noise.to(rows.device)


def cycles(f0: Tensor, rows: Rows, samples_per_f0: int, rate_hz: int) -> Tensor:
    """Phase of the pitch in turns, 0 to 1, at every sample.

    f0 (B, T) in Hz -> (B, S) float32, S = T * samples_per_f0. Between the centres of two pitch values the
    phase runs straight; before the first and after a row's last centre it stands.
    """
    at_centre = torch.cumsum(f0.double() * (samples_per_f0 / rate_hz), dim=1)  # (B, T)
    steps = torch.arange(f0.shape[1] * samples_per_f0, device=f0.device, dtype=torch.float64)
    place = ((steps + 0.5) / samples_per_f0 - 0.5).clamp_(min=0)
    left = place.long()  # (S,)
    share = place - left
    if rows.even:
        right = (left + 1).clamp_(max=f0.shape[1] - 1)
        before, after = at_centre[:, left], at_centre[:, right]
    else:
        last = rows.on_device[:, None] - 1  # (B, 1)
        before = at_centre.gather(1, torch.minimum(left[None], last))
        after = at_centre.gather(1, torch.minimum(left[None] + 1, last))
    return (torch.lerp(before, after, share.expand_as(before)) % 1.0).float()


def harmonic_source(
    f0: Tensor, turns: Tensor, voicing: Tensor, noise: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Sines and noise merged into one signal.

    f0       (B, T)   Hz; above VOICED_HZ is voiced
    turns    (B, S)   its phase, see `cycles`
    voicing  (B,)     0 whispers what is voiced, 1 voices it
    noise    (B, S)   normal
    weight   (1, harmonics), bias (1,): the merger

    Returns (B, S) in -1 to 1; pads undefined.

    The model was trained with noise of its own for every harmonic; merged, independent noises are one noise
    with the weights' norm, so one is drawn.
    """
    samples_per_f0 = noise.shape[1] // f0.shape[1]
    angle = turns * (2 * math.pi)
    harmonics = weight.shape[1]
    sines = torch.zeros_like(angle)
    for number in range(harmonics):
        sines.add_(torch.sin(angle * (number + 1)).mul_(weight[0, number]))
    voiced = ((f0 > VOICED_HZ).float() * voicing[:, None]).repeat_interleave(samples_per_f0, dim=1)  # (B, S)
    noise_level = (UNVOICED_NOISE + (VOICED_NOISE - UNVOICED_NOISE) * voiced) * torch.linalg.vector_norm(
        weight
    )
    return torch.tanh(sines * (SINE_LEVEL * voiced) + noise * noise_level + bias)


class _Tables(NamedTuple):
    analysis: Tensor
    """(n_fft, 2 bins): window, then real and imaginary parts."""
    synthesis: Tensor
    """(2 bins, n_fft): real and imaginary parts back to a windowed frame."""
    window_power: Tensor
    """(n_fft,)"""


@functools.cache
def _tables(n_fft: int, device: torch.device) -> _Tables:
    bins = n_fft // 2 + 1
    window = torch.hann_window(n_fft, periodic=True, dtype=torch.float64)
    angle = torch.outer(torch.arange(bins), torch.arange(n_fft)).double() * (2 * math.pi / n_fft)
    real, imaginary = torch.cos(angle), -torch.sin(angle)  # (bins, n_fft) each
    imaginary[[0, -1]] = 0.0  # the lowest and highest bin are real
    fold = torch.full((bins, 1), 2.0, dtype=torch.float64)
    fold[[0, -1]] = 1.0
    parts = torch.cat([real, imaginary]) * window
    tables = (parts.T, parts * torch.cat([fold, fold]) / n_fft, window.square())
    return _Tables(*(table.float().contiguous().to(device) for table in tables))


class ShortFourier:
    """The transform with a periodic Hann window, as two small matrices: at 20 points that is quick, and the
    real bins have an exact sign. Not a module: it has no weights."""

    def __init__(self, n_fft: int, hop: int) -> None:
        if n_fft % hop:
            raise ValueError(f"the window {n_fft} must be a multiple of the hop {hop}")
        self.n_fft, self.hop, self.bins = n_fft, hop, n_fft // 2 + 1

    def forward(self, signal: Tensor, rows: Rows) -> Tensor:
        """signal (B, S), `rows` its lengths -> (B, 2 bins, S / hop + 1): magnitudes, then angles, of windows
        centred on every hop; each row is reflected at its own two ends. Pads undefined."""
        half = self.n_fft // 2
        at = torch.arange(-half, signal.shape[1] + half, device=signal.device)
        if rows.even:
            last = signal.shape[1] - 1
            padded = signal[:, torch.where(at > last, 2 * last - at, at.abs())]  # (B, S + n_fft)
        else:
            lasts = rows.on_device[:, None] - 1
            padded = signal.gather(1, torch.where(at > lasts, (2 * lasts - at).clamp(min=0), at.abs()))
        bins = (
            padded.unfold(1, self.n_fft, self.hop) @ _tables(self.n_fft, signal.device).analysis
        )  # (B, frames, 2 bins)
        real, imaginary = bins.transpose(1, 2).contiguous().chunk(2, dim=1)  # (B, bins, frames) each
        # What is real but for float noise is made so, or its angle would be pi or -pi by chance: the two end
        # bins, and the first window, which its reflection makes symmetric. abs() leaves no negative zero.
        # Bin by bin: a list of indices is sent to the device, for which it must be waited.
        imaginary[:, 0].abs_()
        imaginary[:, -1].abs_()
        imaginary[:, :, 0].zero_()
        return torch.cat([torch.hypot(real, imaginary), torch.atan2(imaginary, real)], dim=1)

    def inverse(self, magnitude: Tensor, angle: Tensor, rows: Rows) -> Tensor:
        """magnitude and angle (B, bins, frames), `rows` their lengths -> (B, (frames - 1) hop); pads are
        0."""
        bins = torch.cat([magnitude * torch.cos(angle), magnitude * torch.sin(angle)], dim=1)
        bins = rows.zero_pads(bins)
        tables = _tables(self.n_fft, bins.device)
        frames = bins.transpose(1, 2) @ tables.synthesis  # (B, frames, n_fft)
        power = tables.window_power.expand(1, frames.shape[1], -1)
        if not rows.even:
            power = power * rows.mask.transpose(1, 2)
        signal, weight = self._overlap_add(frames), self._overlap_add(power)
        half = self.n_fft // 2
        out = signal[:, half:-half] / weight[:, half:-half].clamp(min=1e-8)
        # past a row's last half window the frames are zero, but the half window itself is cut off
        ends = rows.times(self.hop, -self.hop)
        return ends.zero_pads(out[:, None]).squeeze(1)

    def _overlap_add(self, frames: Tensor) -> Tensor:
        """(B, frames, n_fft) -> (B, (frames - 1) hop + n_fft)."""
        shifts = self.n_fft // self.hop
        parts = frames.reshape(*frames.shape[:2], shifts, self.hop)  # (B, frames, shifts, hop)
        return (
            torch.stack(
                [F.pad(parts[:, :, shift], (0, 0, shift, shifts - 1 - shift)) for shift in range(shifts)]
            )
            .sum(0)
            .flatten(1)
        )
