"""Which rows of a batch run padded together: rows of like length do, so that little of the work is padding.

Arithmetic on sizes; knows no model, no rows and no device.

A row's size is its work alone, by stage where stages go by different lengths: frames rendered and frames of
the whole sentence, say, each weighed by what it costs. A group of n rows costs n times its longest row of
each stage, and a fixed overhead. So a row joins longer ones as long as the pads that it gets cost less than
the overhead that it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Size = tuple[float, ...]


class Cost(NamedTuple):
    """What a group costs on a device, in the unit of the sizes."""

    overhead: float
    """Of a group, however small."""
    most: float = float("inf")
    """Rows times longest that a group of several rows may have."""

    def of(self, sizes: Sequence[Size]) -> float:
        """One group of these rows; infinite when it may not be."""
        work = padded(sizes)
        return work + self.overhead if len(sizes) == 1 or work <= self.most else float("inf")


def padded(sizes: Sequence[Size]) -> float:
    """The work of a group of these rows, pads included: at least one row."""
    longest: float = sum(max(stage) for stage in zip(*sizes, strict=True))
    return len(sizes) * longest


def grouped(sizes: Sequence[Size], cost: Cost) -> list[list[int]]:
    """Indices of `sizes` in groups, every index once: of all ways to cut the rows, in order of their work, in
    groups of neighbours, one that costs least, found by dynamic programming. Indices ascend within a group,
    and the groups by their first index, so that rows come out about as they went in.

    With one stage no partition at all costs less; with more, a row that is long in one and short in another
    may be where a better one would not have it.
    """
    order = sorted(range(len(sizes)), key=lambda index: (sum(sizes[index]), index))
    least, begins = [0.0], [0]  # of the n first in order: what they cost, where their last group begins
    for end in range(1, len(order) + 1):
        best, best_begin = float("inf"), end - 1
        for begin in range(end - 1, -1, -1):
            own = cost.of([sizes[index] for index in order[begin:end]])
            if own == float("inf"):  # with more rows it only grows
                break
            if least[begin] + own < best:
                best, best_begin = least[begin] + own, begin
        least.append(best)
        begins.append(best_begin)
    groups = []
    end = len(order)
    while end:
        groups.append(sorted(order[begins[end] : end]))
        end = begins[end]
    return sorted(groups)
