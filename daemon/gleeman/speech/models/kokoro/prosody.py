"""How it is said: how long each phoneme lasts, and the curves of pitch and energy. The plain functions below
turn durations into frames and bend the pitch curve; emotion is applied there, between predictor and decoder.
Knows no emotion by name and no samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import KokoroConfig
from .convs import TimeConv
from .layers import AdaLayerNorm, BiLSTM, Rows, StyledBlock

VOICED_HZ = 10.0
"""A pitch above it means a voiced sound; the model's own threshold."""


class DurationEncoder(nn.Module):
    """LSTMs over the phonemes, the style fed in again after each."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        self.lstms = nn.ModuleList()
        for _ in range(config.text_layers):
            self.lstms.append(BiLSTM(config.hidden + config.style, config.hidden))
            self.lstms.append(AdaLayerNorm(config.hidden, config.style))

    def forward(self, x: Tensor, style: Tensor, rows: Rows) -> Tensor:
        """x (B, P, D), style (B, style) -> (B, P, D + style)."""
        beside = style[:, None].expand(-1, x.shape[1], -1)  # (B, P, style)
        x = torch.cat([x, beside], dim=-1)
        for layer in self.lstms:
            if isinstance(layer, BiLSTM):
                x = layer.run(x, rows)
            else:
                x = torch.cat([layer(x, style), beside], dim=-1)
        return x


class ProsodyPredictor(nn.Module):
    """Durations of phonemes; pitch and energy at two values a frame."""

    def __init__(self, config: KokoroConfig) -> None:
        super().__init__()
        size, style = config.hidden, config.style
        self.text_encoder = DurationEncoder(config)
        self.lstm = BiLSTM(size + style, size)
        self.duration_proj = nn.ModuleDict({"linear_layer": nn.Linear(size, config.max_duration)})
        self.shared = BiLSTM(size + style, size)
        self.F0 = _curve_blocks(size, style)
        self.N = _curve_blocks(size, style)
        self.F0_proj = TimeConv(size // 2, 1, 1)
        self.N_proj = TimeConv(size // 2, 1, 1)

    def durations(self, hidden: Tensor, rows: Rows) -> Tensor:
        """hidden (B, P, D + style) -> (B, P) float32: frames at speed 1, not rounded; pads undefined."""
        x = self.duration_proj["linear_layer"](self.lstm.run(hidden, rows))
        return torch.sigmoid(x).sum(-1)

    def curves(self, hidden: Tensor, style: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """hidden (B, F, D + style), one state a frame -> pitch in Hz and log energy, (B, 2 F) each; pads are
        0."""
        shared = self.shared.run(hidden, rows).transpose(1, 2)  # (B, D, F)
        doubled = rows.times(2)
        out = []
        for blocks, project in ((self.F0, self.F0_proj), (self.N, self.N_proj)):
            x = blocks[0](shared, style, rows, rows)
            x = blocks[1](x, style, rows, doubled)  # (B, D / 2, 2 F)
            x = blocks[2](x, style, doubled, doubled)
            out.append(doubled.zero_pads(project(x)).squeeze(1))  # (B, 2 F)
        return out[0], out[1]


def _curve_blocks(size: int, style: int) -> nn.ModuleList:
    return nn.ModuleList(
        [
            StyledBlock(size, size, style),
            StyledBlock(size, size // 2, style, doubles=True),
            StyledBlock(size // 2, size // 2, style),
        ]
    )


def whole_frames(durations: Tensor, speed: Tensor, rows: Rows) -> Tensor:
    """Predicted durations (B, P) at speed 1 and each row's speed (B,) -> frames (B, P) int64, at least 1 a
    phoneme, 0 in pads. A duration within float noise of .5 may round either way when it is computed in
    another batch; that is the one place where a row's neighbours can be seen."""
    frames = torch.round(durations / speed[:, None]).clamp(min=1).long()
    return frames if rows.even else frames * rows.mask[:, 0].long()


def spread(x: Tensor, frames: Tensor, longest: int) -> Tensor:
    """Phoneme states (B, P, C) repeated for their frames (B, P) -> (B, F, C), F = `longest`; pads
    undefined."""
    ends = frames.cumsum(1)
    at = torch.arange(longest, device=x.device).expand(len(x), -1).contiguous()
    phoneme = torch.searchsorted(ends, at, right=True).clamp_(max=x.shape[1] - 1)  # (B, F)
    return x.gather(1, phoneme[..., None].expand(-1, -1, x.shape[2]))


def bend_pitch(f0: Tensor, level: Tensor, width: Tensor) -> Tensor:
    """The pitch curve (B, T) in Hz, moved and widened on a log scale about each row's own mean over its
    voiced values; unvoiced values stay.

    level  (B,)  factor on the mean
    width  (B,)  factor on the distance from the mean; 1 keeps the melody
    """
    voiced = f0 > VOICED_HZ  # pads are 0
    log = torch.log(f0.clamp(min=VOICED_HZ))
    mean = (log * voiced).sum(-1, keepdim=True) / voiced.sum(-1, keepdim=True).clamp(min=1)
    bent = torch.exp(mean + (log - mean) * width[:, None]) * level[:, None]
    return torch.where(voiced, bent, f0)
