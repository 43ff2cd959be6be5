"""`spans` for a device: the same cuts as tensors, at sizes that are given, so that nothing is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...device.cuda import Device
from .spans import LEVEL_DB, Span


class Cut(NamedTuple):
    """Where the rows' clauses lie in their sentences, in frames, (B,) int64 on the device each."""

    whole: Tensor
    """Length of the sentence."""
    first: Tensor
    """Rendered are the sentence's frames `first` to `last`."""
    last: Tensor
    kept_first: Tensor
    """Of the whole sentence these would be rendered."""
    kept_last: Tensor

    @classmethod
    def of(cls, spans: Sequence[Span], ends: np.ndarray, rows: int, at: Device) -> Cut:
        """Sent in one piece; rows beyond the spans repeat the last."""
        table = [
            (int(own[-1]), span.first, span.last, *span.whole) for span, own in zip(spans, ends, strict=True)
        ]
        table += [table[-1]] * (rows - len(table))
        return cls(*at.send(torch.tensor(table).T.contiguous()))

    def out_of(self, x: Tensor, per_frame: int, frames: int) -> Tensor:
        """x (B, T, …), `per_frame` values a frame of the sentence -> (B, frames x per_frame, …) of what is
        rendered; pads are 0."""
        at = torch.arange(frames * per_frame, device=x.device)
        places = (self.first[:, None] * per_frame + at).clamp_(max=x.shape[1] - 1)  # (B, T')
        pads = at >= (self.last - self.first)[:, None] * per_frame
        if x.dim() == 2:
            return x.gather(1, places).masked_fill_(pads, 0)
        out = x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))
        return out.masked_fill_(pads[..., None], 0)

    def level(self, energy: Tensor) -> Tensor:
        """energy (B, 2 F) -> (B,), see `spans.level`."""
        here = _mean(energy, 2 * self.first, 2 * self.last)
        louder = here - _mean(energy, 2 * self.kept_first, 2 * self.kept_last)
        return torch.pow(10.0, LEVEL_DB / 20 * louder)


def _mean(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """x (B, T) -> the mean (B,) of each row's values from `first` to `last`."""
    at = torch.arange(x.shape[1], device=x.device)
    outside = (at < first[:, None]) | (at >= last[:, None])
    return x.masked_fill(outside, 0).sum(1) / (last - first)
