"""Figures of a running daemon for `status`: counted by the rooms, put together here.

Knows no room; what it is given are numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

REMEMBERED = 1024
"""Lines whose time to first audio the percentiles are taken of: the latest."""


class FirstAudio:
    """Times from a line's arrival to its first samples in a lane. One thread."""

    def __init__(self) -> None:
        self._ms: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, took_ns: int) -> None:
        """One line's time."""
        self._ms.append(took_ns / 1e6)

    def percentile(self, percent: float) -> float | None:
        """Milliseconds that so many per cent of the lines did not exceed; None without lines."""
        return percentile(list(self._ms), percent)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest of `values` that `percent` of them do not exceed (nearest rank); None of none."""
    if not values:
        return None
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def padding_ratio(frames: int, padding_frames: int) -> float:
    """Frames rendered, pads among them, over frames that are heard; 1 without any."""
    return 1.0 + padding_frames / frames if frames else 1.0


def rss_mb() -> float:
    """Resident memory of this process in megabytes (10^6 bytes)."""
    return float(psutil.Process().memory_info().rss) / 1e6


@dataclass(frozen=True, slots=True)
class RoomFigures:
    """What the rooms behind the server count; put into `status_report`."""

    device: str = ""
    quality: str = ""
    dtype: str = ""
    device_reason: str = ""
    dtype_reason: str = ""
    device_mb_used: float | None = None
    device_mb_peak: float | None = None
    device_mb_cap: float | None = None
    queued_lines: int = 0
    """Lines in the scheduler that have clauses left."""
    batches: int = 0
    rows: int = 0
    """Rows of all batches together."""
    underrun_samples: int = 0
    text_restarts: int = 0
    frames: int = 0
    """Of all rows together."""
    padding_frames: int = 0
    """Rendered beside them as padding."""
