"""Convolutions over time, as fast as the device does them. Tensors are (B, C, T) to the reader and (B, T, C)
in memory. Knows no rows: pads are values like others here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WINDOW = 512
WINDOWED_KERNEL = 11
"""oneDNN 3.x takes a slower kernel for a long, wide, dilated float32 convolution: 128 channels, 16,921
values, kernel 11, dilation 3 take 82 ms on one thread, in windows 64."""


class TimeConv(nn.Conv1d):
    """A convolution over time for channels-last memory: its tensors are (B, C, T) to the reader and
    (B, T, C) in memory, which the libraries of CPUs and GPUs alike do fastest."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C_in, T) -> (B, C_out, T_out), in the weight's type."""
        x = x.to(self.weight.dtype)
        wide = self.dilation[0] > 1 and self.kernel_size[0] >= WINDOWED_KERNEL
        if wide and x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[2] > 2 * WINDOW:
            return self._in_windows(x)
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

    def _in_windows(self, x: Tensor) -> Tensor:
        """The same, each stretch of WINDOW values as a row of its own, with what lies beside it."""
        batch, channels, length = x.shape
        reach = int(self.padding[0])
        row = -(-(length + reach) // WINDOW) * WINDOW  # zeros enough that no row reaches into the next
        line = x.new_zeros(batch * row + 2 * reach, channels)
        inside = line[reach : reach + batch * row].view(batch, row, channels)
        inside[:, :length] = x.transpose(1, 2)
        windows = line.as_strided(
            (batch * row // WINDOW, channels, 1, WINDOW + 2 * reach),
            (WINDOW * channels, 1, channels, channels),
        )
        y = F.conv2d(windows, self.weight[:, :, None], self.bias, 1, 0, (1, *self.dilation))
        y = y.squeeze(2).transpose(1, 2).reshape(batch, row, -1)  # (B, row, C_out)
        return y[:, :length].transpose(1, 2)


class TimeConvTranspose(nn.ConvTranspose1d):
    """The same for an upsampling convolution."""

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
