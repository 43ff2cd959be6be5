"""The layers that the model's parts share, each exact for a padded batch: what a row gives does not depend on
how far its neighbours reach.

Where padding could change a row: a norm over time takes in the pads (so `centre` counts true positions
only), an LSTM runs backwards out of them (so rows are packed, or turned round each within its own length), a
convolution reads them (so they are zeroed before each one that is wider than a point). Tensors may hold any
number in their pads everywhere else. When all rows are of one length, as when there is one row, there are no
pads and none of that is done.

`Rows` are lengths that the host knows. `DeviceRows` are lengths that only the device knows, under a padded
size that is given: a layer then is a function of tensors alone, reads nothing back and builds nothing out of
Python numbers, so that it can be captured in a CUDA graph and replayed for other lengths.

Parameter names are those of the original Kokoro weights, weight norm folded in. Knows no phonemes and no
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .convs import TimeConv, TimeConvTranspose

EPSILON = 1e-5
"""Of the instance and layer norms, as the model was trained."""


@dataclass(frozen=True)
class Rows:
    """How long each row of a batch truly is along its time axis (axis -1 of (B, C, T)), and the mask that
    follows."""

    lengths: tuple[int, ...]
    """Empty where only the device knows them, see `DeviceRows`."""
    device: torch.device

    @property
    def loops(self) -> bool:
        """The work may be done row by row: the lengths are known here and the rows are in this memory."""
        return bool(self.lengths) and self.device.type == "cpu"

    @property
    def longest(self) -> int:
        """The padded size."""
        return max(self.lengths)

    @property
    def even(self) -> bool:
        """All of one length: there are no pads."""
        return min(self.lengths) == self.longest

    def times(self, factor: int, plus: int = 0) -> Rows:
        """The lengths after an upsampling."""
        return Rows(tuple(length * factor + plus for length in self.lengths), self.device)

    @cached_property
    def on_device(self) -> Tensor:
        """(B,) int64: the lengths."""
        return torch.tensor(self.lengths, device=self.device)

    @cached_property
    def counts(self) -> Tensor:
        """(B, 1, 1) float32: the lengths."""
        return self.on_device.float().reshape(-1, 1, 1)

    @cached_property
    def pads(self) -> Tensor:
        """(B, 1, T) bool: where a row is padded."""
        at = torch.arange(self.longest, device=self.device)
        return (at >= self.on_device[:, None])[:, None]

    @cached_property
    def mask(self) -> Tensor:
        """(B, 1, T) float32: 1 where a row is, 0 where it is padded."""
        return (~self.pads).float()

    @cached_property
    def turned(self) -> Tensor:
        """(B, T) int64: the place that each place changes with when every row is turned round within its own
        length; pads stay."""
        at = torch.arange(self.longest, device=self.device).expand(len(self.on_device), -1)
        return torch.where(self.pads[:, 0], at, self.on_device[:, None] - 1 - at)

    def zero_pads(self, x: Tensor) -> Tensor:
        """x (B, C, T) with zeros in its pads, in place. Nothing is done where there are none."""
        if self.even:
            return x
        if not self.loops:
            return x.masked_fill_(self.pads, 0)
        for row, length in enumerate(self.lengths):
            x[row, :, length:] = 0
        return x


class DeviceRows(Rows):
    """Rows whose lengths only the device knows, each at most the given size. Never `even`: whether there are
    pads cannot be asked without waiting for the device."""

    def __init__(self, on_device: Tensor, longest: int) -> None:
        """on_device: (B,) int64, 1 to `longest` each."""
        super().__init__((), on_device.device)
        self.__dict__["on_device"] = on_device
        self.__dict__["_longest"] = longest

    @property
    def longest(self) -> int:
        size: int = self.__dict__["_longest"]
        return size

    @property
    def even(self) -> bool:
        return False

    def times(self, factor: int, plus: int = 0) -> DeviceRows:
        return DeviceRows(self.on_device * factor + plus, self.longest * factor + plus)


def moments(x: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """x (B, C, T) -> mean and 1 / standard deviation over each row's true time, (B, C, 1) float32 each."""
    if rows.loops:
        # One fused pass a row; torch's var_mean and vector_norm are 20 times slower on channels-last memory.
        own = torch.empty(2, x.shape[1])  # float32 here makes the sums float32 for a bfloat16 x
        pairs = [
            torch.batch_norm_update_stats(x[row : row + 1, :, None, :length], own[0], own[1], 0.0)
            for row, length in enumerate(rows.lengths)
        ]
        mean, variance = (torch.stack(parts)[..., None] for parts in zip(*pairs, strict=True))
        return mean, torch.rsqrt(variance + EPSILON)
    x = x.float()
    mean = x.masked_fill(rows.pads, 0).sum(-1, keepdim=True) / rows.counts
    variance = (x - mean).masked_fill_(rows.pads, 0).square_().sum(-1, keepdim=True) / rows.counts
    return mean, torch.rsqrt(variance + EPSILON)


class AdaIN(nn.Module):
    """Instance norm over time, then a scale and a shift made of the style."""

    def __init__(self, channels: int, style: int) -> None:
        super().__init__()
        self.fc = nn.Linear(style, 2 * channels)

    def forward(self, x: Tensor, style: Tensor, rows: Rows, gain: Tensor | None = None) -> Tensor:
        """x (B, C, T), style (B, style) -> (B, C, T), times `gain` (1, C, 1) if there is one; pads
        undefined."""
        gamma, shift = F.linear(style, self.fc.weight, self.fc.bias)[..., None].chunk(
            2, dim=1
        )  # (B, C, 1) each
        mean, rate = moments(x, rows)
        scale = (1 + gamma) * rate
        shift = shift - mean * scale
        if gain is not None:
            scale, shift = scale * gain, shift * gain
        return torch.addcmul(shift.to(x.dtype), x, scale.to(x.dtype))


class AdaLayerNorm(nn.Module):
    """Layer norm over channels, then a scale and a shift made of the style."""

    def __init__(self, channels: int, style: int) -> None:
        super().__init__()
        self.channels = channels
        self.fc = nn.Linear(style, 2 * channels)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """x (B, P, C), style (B, style) -> (B, P, C)."""
        gamma, shift = F.linear(style, self.fc.weight, self.fc.bias)[:, None].chunk(
            2, dim=-1
        )  # (B, 1, C) each
        return torch.addcmul(shift, F.layer_norm(x, (self.channels,), eps=EPSILON), 1 + gamma)


class StyledBlock(nn.Module):
    """Two convolutions of width 3, each after a styled norm, with a shortcut; may double the time axis."""

    def __init__(self, channels_in: int, channels_out: int, style: int, *, doubles: bool = False) -> None:
        super().__init__()
        self.doubles = doubles
        self.conv1 = TimeConv(channels_in, channels_out, 3, padding=1)
        self.conv2 = TimeConv(channels_out, channels_out, 3, padding=1)
        self.norm1 = AdaIN(channels_in, style)
        self.norm2 = AdaIN(channels_out, style)
        self.conv1x1 = (
            TimeConv(channels_in, channels_out, 1, bias=False) if channels_in != channels_out else None
        )
        self.pool = (
            TimeConvTranspose(
                channels_in, channels_in, 3, stride=2, padding=1, output_padding=1, groups=channels_in
            )
            if doubles
            else None
        )

    def forward(self, x: Tensor, style: Tensor, rows: Rows, rows_out: Rows) -> Tensor:
        """x (B, C_in, T) with `rows` -> (B, C_out, T or 2 T) with `rows_out` (twice as long when
        doubling)."""
        y = self.norm1(x, style, rows)
        y = rows.zero_pads(F.leaky_relu_(y, 0.2))
        if self.pool is not None:
            y = rows_out.zero_pads(self.pool(y))  # (B, C_in, 2 T)
        y = self.norm2(self.conv1(y), style, rows_out)
        y = self.conv2(rows_out.zero_pads(F.leaky_relu_(y, 0.2)))
        if self.conv1x1 is not None:
            x = self.conv1x1(x)  # a point in time sees only itself, so this may come before the doubling
        if self.doubles:
            x = x.repeat_interleave(2, dim=-1)
        out: Tensor = y.add_(x).mul_(0.5**0.5)
        return out


class BiLSTM(nn.LSTM):
    """An LSTM in both directions whose backward pass starts at each row's own end."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out // 2, batch_first=True, bidirectional=True)
        self._halves: tuple[nn.LSTM, nn.LSTM] | None = None

    def run(self, x: Tensor, rows: Rows) -> Tensor:
        """x (B, P, C_in) -> (B, P, C_out); pads are 0."""
        out: Tensor
        if not rows.lengths:
            return self._run_turned(x, rows)
        if rows.even:
            out, _ = self(x)
            return out
        packed = nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(rows.lengths), batch_first=True, enforce_sorted=False
        )
        packed_out, _ = self(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(packed_out, batch_first=True, total_length=rows.longest)
        return out

    def split(self) -> None:
        """Make an LSTM of each direction, once, when the weights are where they will be: what `run` needs for
        lengths that the host does not know. The weights are shared, not copied; cuDNN wants each LSTM's in
        one piece of memory, into which they are moved."""
        forwards, backwards = (
            nn.LSTM(self.input_size, self.hidden_size, batch_first=True, device="meta") for _ in range(2)
        )
        for half, suffix in ((forwards, ""), (backwards, "_reverse")):
            for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                setattr(half, name, getattr(self, name + suffix))
            half.train(self.training).flatten_parameters()
        self._halves = forwards, backwards

    def _run_turned(self, x: Tensor, rows: Rows) -> Tensor:
        """Backwards is forwards over each row turned round: exact, as a pad then comes after its row in both
        directions."""
        assert self._halves is not None, "split() comes first"
        forwards, backwards = self._halves
        there, _ = forwards(x)
        back, _ = backwards(_turn(x, rows))
        return torch.cat([there, _turn(back, rows)], dim=-1).masked_fill_(rows.pads.transpose(1, 2), 0)


def _turn(x: Tensor, rows: Rows) -> Tensor:
    """x (B, P, C), every row turned round within its own length."""
    return x.gather(1, rows.turned[..., None].expand(-1, -1, x.shape[2]))
