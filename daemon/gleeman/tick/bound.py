"""How large a batch a device has memory for, learnt from those that it had none for. Arithmetic; knows no
device and no clock.

A batch counts by what it takes: its rows times the longest of them, as they are padded to that.
"""

from __future__ import annotations

from collections.abc import Sequence

HELD_BATCHES = 100
"""A bound stays for so many batches, then doubles, and so on until it binds nothing. What took the memory, a
game's new scene or another program, stays for minutes, and a failed try costs a batch's time."""


class Bound:
    """Of one pipeline. One thread."""

    def __init__(self) -> None:
        self._cells = 0  # 0: no bound
        self._largest = 0  # of those that failed
        self._clean = 0

    @property
    def cells(self) -> int | None:
        """Rows times longest row, in predicted frames, that a batch may have; None: any."""
        return self._cells or None

    def failed(self, frames: Sequence[int]) -> None:
        """A batch of rows of these predicted frames found no memory."""
        tried = cells_of(frames)
        self._largest = max(self._largest, tried)
        half = max(1, tried // 2)
        self._cells = min(self._cells or half, half)
        self._clean = 0

    def ran(self) -> None:
        """A batch ran whole."""
        if not self._cells:
            return
        self._clean += 1
        if self._clean >= HELD_BATCHES:
            self._clean = 0
            self._cells *= 2
            if self._cells > self._largest:
                self._cells = self._largest = 0

    def pieces(self, frames: Sequence[int]) -> list[slice]:
        """Which rows may run together: all in one piece without a bound, else as many in order as it holds,
        at least one."""
        if not self._cells:
            return [slice(0, len(frames))]
        pieces, first, longest = [], 0, 0
        for place, length in enumerate(frames):
            longest = max(longest, length)
            if place > first and longest * (place - first + 1) > self._cells:
                pieces.append(slice(first, place))
                first, longest = place, length
        pieces.append(slice(first, len(frames)))
        return pieces


def cells_of(frames: Sequence[int]) -> int:
    """What a batch of rows of these frames takes."""
    return len(frames) * max(frames)
