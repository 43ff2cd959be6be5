"""Decoder features and a harmonic source -> samples. Normalises over a row's whole time, so it renders a row
at once. Knows no phonemes and no seeds."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import KokoroConfig
from .convs import TimeConv, TimeConvTranspose, joined
from .layers import AdaIN, Rows
from .source import ShortFourier, harmonic_source
from .spans import Context

CONTEXT = Context(frames=4, least=80)
"""Four frames are what the convolutions reach. Its norms take mean and variance over what is rendered, and
over less than about 80 frames, two seconds, they find other figures than over the sentence: with 31 frames of
175 the last syllable before a cut came out 9 dB softer than uncut, with 60 four, with 80 one."""


class SnakeBlock(nn.Module):
    """Three pairs of convolutions, each after a styled norm and a snake, x + sin(alpha x)^2 / alpha."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...], style: int) -> None:
        super().__init__()

        def conv(dilation: int) -> TimeConv:
            return TimeConv(channels, channels, kernel, dilation=dilation, padding=dilation * (kernel // 2))

        def alphas() -> nn.ParameterList:
            return nn.ParameterList(torch.ones(1, channels, 1) for _ in dilations)

        self.convs1 = nn.ModuleList(conv(dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.adain1 = nn.ModuleList(AdaIN(channels, style) for _ in dilations)
        self.adain2 = nn.ModuleList(AdaIN(channels, style) for _ in dilations)
        self.alpha1, self.alpha2 = alphas(), alphas()

    def forward(self, x: Tensor, timbre: Tensor, rows: Rows) -> Tensor:
        """x (B, C, T), timbre (B, style) -> (B, C, T); pads undefined."""
        steps = zip(self.adain1, self.alpha1, self.convs1, self.adain2, self.alpha2, self.convs2, strict=True)
        for norm1, alpha1, conv1, norm2, alpha2, conv2 in steps:
            y = _snake(norm1(x, timbre, rows, alpha1), rows, conv1)
            y = _snake(norm2(y, timbre, rows, alpha2), rows, conv2)
            x = y.add_(x)
        return x

    def fold(self) -> None:
        """Divide each convolution's weight by the alpha of the snake before it, which `forward` leaves
        out."""
        for alpha, conv in zip((*self.alpha1, *self.alpha2), (*self.convs1, *self.convs2), strict=True):
            conv.weight.data = conv.weight.data / alpha


def _snake(x: Tensor, rows: Rows, conv: TimeConv) -> Tensor:
    """alpha times the snake, of alpha times its input, x + sin(x)^2; then the convolution. Overwrites x."""
    wave = x.sin()
    if conv.tiled is None:
        return conv.forward(rows.zero_pads(x.addcmul_(wave, wave)))
    room = conv.tiled.room(x)
    torch.addcmul(x, wave, wave, out=room.values)
    rows.zero_pads(room.values)
    return conv.tiled.convolve(room)


class _Source(nn.Module):
    def __init__(self, harmonics: int) -> None:
        super().__init__()
        self.l_linear = nn.Linear(harmonics, 1)


class Generator(nn.Module):
    """Upsamples features to the frame rate of a short Fourier transform, whose inverse is the wave."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        rates, style, bins = config.upsample_rates, config.style, config.n_fft + 2
        self.rates, self.kernels = rates, len(config.resblock_kernels)
        self.m_source = _Source(config.harmonics)
        self.ups, self.noise_convs, self.noise_res = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.resblocks = nn.ModuleList()
        channels = config.upsample_channels
        for stage, (rate, kernel) in enumerate(zip(rates, config.upsample_kernels, strict=True)):
            self.ups.append(
                TimeConvTranspose(channels, channels // 2, kernel, stride=rate, padding=(kernel - rate) // 2)
            )
            channels //= 2
            rest = math.prod(rates[stage + 1 :])
            last = stage == len(rates) - 1
            self.noise_convs.append(
                TimeConv(bins, channels, 1)
                if last
                else TimeConv(bins, channels, 2 * rest, stride=rest, padding=(rest + 1) // 2)
            )
            self.noise_res.append(SnakeBlock(channels, 11 if last else 7, config.resblock_dilations, style))
            for width in config.resblock_kernels:
                self.resblocks.append(SnakeBlock(channels, width, config.resblock_dilations, style))
        self.conv_post = TimeConv(channels, bins, 7, padding=3)
        self.fourier = ShortFourier(config.n_fft, config.hop)

    def source(self, f0: Tensor, turns: Tensor, voicing: Tensor, noise: Tensor) -> Tensor:
        """See `harmonic_source`."""
        merger = self.m_source.l_linear
        return harmonic_source(f0, turns, voicing, noise, merger.weight, merger.bias)

    def forward(self, x: Tensor, timbre: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """The wave.

        x       (B, C, T)   decoder features; pads undefined
        timbre  (B, style)
        source  (B, S)      S = 300 T; pads undefined
        rows    lengths in features

        Returns (B, S); pads are 0.
        """
        scale = source.shape[1] // x.shape[2]
        frames = rows.times(scale // self.fourier.hop, plus=1)
        excitation = frames.zero_pads(self.fourier.forward(source, rows.times(scale)))  # (B, 2 bins, frames)
        for stage, rate in enumerate(self.rates):
            last = stage == len(self.rates) - 1
            x = self.ups[stage](rows.zero_pads(F.leaky_relu(x, 0.1)))
            rows = frames if last else rows.times(rate)
            if last:
                # Reflected: one frame more than hops. Only the left end moves.
                x = joined((x[..., 1:2], x), -1)
            heard = self.noise_convs[stage](excitation).to(x.dtype)
            x = x + self.noise_res[stage](heard, timbre, rows)
            blocks = self.resblocks[stage * self.kernels : (stage + 1) * self.kernels]
            total = blocks[0](x, timbre, rows)
            for block in blocks[1:]:
                total = total.add_(block(x, timbre, rows))
            x = total.div_(self.kernels)
        x = self.conv_post(rows.zero_pads(F.leaky_relu(x, 0.01)))
        magnitude, angle = x.tensor_split([self.fourier.bins], dim=1)  # (B, bins, frames) each
        return self.fourier.inverse(magnitude.exp(), angle.sin(), rows)
