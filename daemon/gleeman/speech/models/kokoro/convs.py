"""Convolutions over time, as fast as the device does them. Tensors are (B, C, T) to the reader and (B, T, C)
in memory. Knows no rows: pads are values like others here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .tiles import TiledConv, pays


class TimeConv(nn.Conv1d):
    """A convolution over time for channels-last memory: its tensors are (B, C, T) to the reader and
    (B, T, C) in memory, which the libraries of CPUs and GPUs alike do fastest."""

    tiled: TiledConv | None = None
    """Set by `lay_out` where that is the faster way; the weight is then empty."""

    def lay_out(self, dtype: torch.dtype) -> None:
        """Bring the weight into the type and the memory order that `forward` does fastest, for good."""
        weight = self.weight.data.to(dtype)
        if self.bias is not None:
            self.bias.data = self.bias.data.to(dtype)
        kernel, dilation = self.kernel_size[0], self.dilation[0]
        keeps_length = self.stride == (1,) and self.padding == (dilation * (kernel // 2),)
        if keeps_length and self.groups == 1 and weight.device.type == "cpu" and pays(weight):
            self.tiled = TiledConv(weight, None if self.bias is None else self.bias.data, dilation)
            weight = weight.new_empty(0)
        self.weight.data = channels_last(weight) if weight.numel() else weight

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C_in, T) -> (B, C_out, T_out), in the weight's type."""
        x = x.to(self.weight.dtype)
        if self.tiled is not None:
            return self.tiled(x)
        y = F.conv2d(
            x[:, :, None],
            self.weight[:, :, None],
            self.bias,
            (1, *self.stride),
            (0, *self.padding),
            (1, *self.dilation),
            self.groups,
        )
        return y.squeeze(2)


class TimeConvTranspose(nn.ConvTranspose1d):
    """The same for an upsampling convolution."""

    def lay_out(self, dtype: torch.dtype) -> None:
        """See `TimeConv.lay_out`."""
        self.weight.data = channels_last(self.weight.data.to(dtype))
        if self.bias is not None:
            self.bias.data = self.bias.data.to(dtype)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """x (B, C_in, T) -> (B, C_out, T_out), in the weight's type."""
        y = F.conv_transpose2d(
            x.to(self.weight.dtype)[:, :, None],
            self.weight[:, :, None],
            self.bias,
            (1, *self.stride),
            (0, *self.padding),
            (0, *self.output_padding),
            self.groups,
        )
        return y.squeeze(2)


def channels_last(weight: Tensor) -> Tensor:
    """A weight (O, I, K), its memory ordered O, K, I."""
    return weight.transpose(1, 2).contiguous().transpose(1, 2)


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors (B, C, T) in one along `dim` 1 or -1, channels-last in memory."""
    return torch.cat([part.transpose(1, 2) for part in parts], dim=-1 if dim == 1 else 1).transpose(1, 2)
