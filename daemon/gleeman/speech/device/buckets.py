"""Which padded sizes there are, and what to do at each: capture, replay, or run kernel by kernel. Arithmetic
and counting; knows no torch, no device and no model.

A graph of kernels is for one size only, so sizes are few: rows and lengths are rounded up. Capturing takes
tens of runs' time and its buffers stay, so a size is captured when it is met for the second time, unless it
is so large that the kernels themselves are what takes the time. None of these numbers was tuned on a GPU:
they are the first set, chosen so that at most a quarter of a padded length is waste.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import NamedTuple

SMALLEST_LENGTH = 32
STEPS_AN_OCTAVE = 4
"""Lengths between one power of two and the next: 32, 40, 48, 56, 64, 80, ... At most a quarter is padding."""
ROW_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Rows of a batch are rounded up to these, above the last to multiples of it."""
CAPTURED_CELLS = 8_192
"""Rows x length of the largest size that is captured. Launching the some 1,500 kernels of a batch takes a
host about 10 ms; at 8,192 frames, 3 minutes of speech, they work for much longer than that."""
CAPTURED_AT_USE = 2
MOST_GRAPHS = 48
"""Alive at once, of all stages together; each holds its inputs, its outputs and its kernels' arguments."""
CALM_USES = 200
"""After memory ran short nothing is captured for so many uses."""
MOST_COUNTED = 1_024
"""Sizes whose uses are remembered, the latest."""


class Size(NamedTuple):
    """A padded size of a stage's inputs."""

    stage: str
    rows: int
    length: int

    @property
    def cells(self) -> int:
        """Places, pads included."""
        return self.rows * self.length


class Verdict(Enum):
    """What to do with a batch of a size."""

    PLAIN = "plain"
    """Kernel by kernel."""
    CAPTURE = "capture"
    """Make a graph of it, then replay that."""
    REPLAY = "replay"


def padded_length(length: int, most: int | None = None) -> int:
    """The smallest size that holds `length`, but at most `most`, which must hold it."""
    if length < 1 or (most is not None and length > most):
        raise ValueError(f"a length of {length} is not within 1 to {most}")
    size = SMALLEST_LENGTH
    while size < length:
        octave = 1 << (size.bit_length() - 1)
        size += octave // STEPS_AN_OCTAVE
    return size if most is None else min(size, most)


def padded_rows(rows: int) -> int:
    """The smallest number of rows of `ROW_STEPS` that holds `rows`."""
    if rows < 1:
        raise ValueError(f"{rows} rows are no batch")
    largest = ROW_STEPS[-1]
    if rows > largest:
        return -(-rows // largest) * largest
    return next(step for step in ROW_STEPS if step >= rows)


class Policy:
    """Counts uses and says what to do; whoever asks does it, and tells. One thread."""

    def __init__(self, most_graphs: int = MOST_GRAPHS, captured_cells: int = CAPTURED_CELLS) -> None:
        self._most_graphs = most_graphs
        self._captured_cells = captured_cells
        self._uses: OrderedDict[Size, int] = OrderedDict()
        self._live: OrderedDict[Size, None] = OrderedDict()  # least recently used first
        self.banned: set[str] = set()
        """Stages that could not be captured."""
        self._calm_uses = 0

    @property
    def live(self) -> tuple[Size, ...]:
        """Sizes that have a graph, least recently used first."""
        return tuple(self._live)

    def verdict(self, size: Size) -> Verdict:
        """A batch of this size has come: what to do with it."""
        calm = self._calm_uses > 0
        self._calm_uses = max(0, self._calm_uses - 1)
        if size in self._live:
            self._live.move_to_end(size)
            return Verdict.REPLAY
        if size.cells > self._captured_cells or size.stage in self.banned:
            return Verdict.PLAIN
        uses = self._uses.pop(size, 0) + 1
        self._uses[size] = uses
        if len(self._uses) > MOST_COUNTED:
            self._uses.popitem(last=False)
        return Verdict.CAPTURE if uses >= CAPTURED_AT_USE and not calm else Verdict.PLAIN

    def make_room(self) -> list[Size]:
        """The sizes whose graphs must go before one more is made: forgotten here."""
        gone = []
        while len(self._live) >= self._most_graphs:
            gone.append(self._live.popitem(last=False)[0])
        return gone

    def captured(self, size: Size) -> None:
        """A graph of this size is there."""
        self._live[size] = None

    def ban(self, stage: str) -> None:
        """This stage cannot be captured on this device: it is not tried again."""
        self.banned.add(stage)

    def short_of_memory(self) -> None:
        """Every graph has been dropped, and for a while none is made."""
        self._live.clear()
        self._calm_uses = CALM_USES
