"""The record that the languages hand to the front end, and small helpers on it. Knows no language."""

from __future__ import annotations

import re
from typing import NamedTuple

from .alphabet import PAUSES, keep_known


class Spoken(NamedTuple):
    """A word, or marks, on the way to a clause."""

    text: str
    """As it is read, marks included."""
    phonemes: str
    """Within the alphabet, marks included, no space at its ends; "" in a plain reading."""
    begin: int
    """UTF-8 bytes, in the text as sent, of the word without its marks (of the marks if there is no word)."""
    end: int
    language: str
    """"en" or "zh"."""
    space: bool
    """A space follows in the text."""
    gap: bool
    """A space follows in the phonemes."""


_REPEATED = re.compile(r"([;:,!?—…\"“”()])\1+")
_DOTS = re.compile(r"\.{2,}")
_SPACES = re.compile(r" +")


def tidy(phonemes: str) -> str:
    """`phonemes` within the alphabet, each repeated mark once, dots as an ellipsis, single spaces."""
    phonemes = _DOTS.sub("…", keep_known(phonemes))
    return _SPACES.sub(" ", _REPEATED.sub(r"\1", phonemes)).strip()


def core(text: str) -> tuple[int, int]:
    """Where the word lies within `text`, its marks stripped; (0, 0) when there is none."""
    first, last = 0, len(text)
    while first < last and not text[first].isalnum() and text[first] not in "-$€£¥+#&@%":
        first += 1
    while last > first and not text[last - 1].isalnum() and text[last - 1] not in "%°+#&@":
        last -= 1
    return (first, last) if any(c.isalnum() or c in "%&@+#" for c in text[first:last]) else (0, 0)


def sounds(phonemes: str) -> tuple[int, int]:
    """Where the sounds lie within `phonemes`, the marks around them stripped; (0, 0) when there are none."""
    first, last = 0, len(phonemes)
    while first < last and phonemes[first] in PAUSES:
        first += 1
    while last > first and phonemes[last - 1] in PAUSES:
        last -= 1
    return (first, last) if first < last else (0, 0)
