"""Which clauses are read together, so that melody and timing go on over a cut within a sentence.

By the phonemes alone: the same text is grouped the same way whatever the load. Knows no frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST_TOGETHER = 160
"""Phonemes of a sentence's beginning that are read together, about ten seconds: its first clause waits for
the reading of all of them."""
REST_TOGETHER = 320
"""Phonemes read together after that; below the 510 that the model takes. A longer sentence is read in
stretches, and its melody starts anew between two of them."""


class Place(NamedTuple):
    """Where a clause lies in what is read together with it; the fields are those of `records.Clause`."""

    sentence: str = ""
    first: int = 0
    last: int = 0


def places(pieces: Sequence[str], gaps: Sequence[bool]) -> list[Place]:
    """The place of each clause of one sentence.

    pieces  phonemes of each clause, no space at their ends
    gaps    whether a space follows each in the sentence

    A clause that is read by itself has an empty `sentence`.
    """
    found: list[Place] = []
    for begin, end in _stretches(pieces):
        if end - begin == 1:
            found.append(Place())
            continue
        parts = [piece + " " * gap for piece, gap in zip(pieces[begin:end], gaps[begin:end], strict=True)]
        parts[-1] = pieces[end - 1]
        sentence, at = "".join(parts), 0
        for part in parts:
            found.append(Place(sentence, at, at + len(part)))
            at += len(part)
    return found


def _stretches(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """Runs of clauses as long as the limits allow, filled from the first."""
    runs: list[tuple[int, int]] = []
    begin = length = 0
    for index, piece in enumerate(pieces):
        limit = REST_TOGETHER if begin else FIRST_TOGETHER
        if index > begin and length + len(piece) > limit:
            runs.append((begin, index))
            begin, length = index, 0
        length += len(piece) + 1
    runs.append((begin, len(pieces)))
    return runs
