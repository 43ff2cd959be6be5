"""Which piece of a changed sequence stands for which piece of the one before. Knows no language."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

_CELLS = 10_000
"""Up to this many, the exact table costs a few milliseconds at the most."""


class Block(NamedTuple):
    """`before[first:last]` became `after[new_first:new_last]`; both have one length where `equal`."""

    equal: bool
    first: int
    last: int
    new_first: int
    new_last: int


def align(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Blocks in order that cover both sequences, equal and changed ones in turn. With the fewest changes
    for sequences of ordinary length, near to that for very long ones."""
    head = 0
    while head < len(before) and head < len(after) and before[head] == after[head]:
        head += 1
    tail = 0
    room = min(len(before), len(after)) - head
    while tail < room and before[len(before) - 1 - tail] == after[len(after) - 1 - tail]:
        tail += 1
    inner, new_inner = before[head : len(before) - tail], after[head : len(after) - tail]
    exact = len(inner) * len(new_inner) <= _CELLS
    pairs = [(at, at) for at in range(head)]
    pairs += [(head + i, head + j) for i, j in (_fewest if exact else _quick)(inner, new_inner)]
    pairs += [(len(before) - back, len(after) - back) for back in range(tail, 0, -1)]
    return _blocks(pairs, len(before), len(after))


def _fewest(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Equal pairs on a way of fewest insertions, deletions and substitutions."""
    rows, columns = len(before), len(after)
    cost = [
        [row + column if not row or not column else 0 for column in range(columns + 1)]
        for row in range(rows + 1)
    ]
    for row in range(1, rows + 1):
        above, here, old = cost[row - 1], cost[row], before[row - 1]
        for column in range(1, columns + 1):
            kept = above[column - 1] + (old != after[column - 1])
            here[column] = min(kept, above[column] + 1, here[column - 1] + 1)
    pairs = []
    row, column = rows, columns
    while row and column:
        same = before[row - 1] == after[column - 1]
        if cost[row][column] == cost[row - 1][column - 1] + (not same):
            row, column = row - 1, column - 1
            if same:
                pairs.append((row, column))
        elif cost[row][column] == cost[row - 1][column] + 1:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]


def _quick(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [(i + at, j + at) for i, j, size in matcher.get_matching_blocks() for at in range(size)]


def _blocks(pairs: list[tuple[int, int]], length: int, new_length: int) -> list[Block]:
    blocks: list[Block] = []
    at = new_at = 0
    for i, j in [*pairs, (length, new_length)]:
        if i > at or j > new_at:
            blocks.append(Block(False, at, i, new_at, j))
        if i == length:
            break
        if blocks and blocks[-1].equal and blocks[-1].last == i and blocks[-1].new_last == j:
            blocks[-1] = blocks[-1]._replace(last=i + 1, new_last=j + 1)
        else:
            blocks.append(Block(True, i, i + 1, j, j + 1))
        at, new_at = i + 1, j + 1
    return blocks
