"""Where a cleaned text is cut: into sentences, and those into the clauses that are synthesised at once.

Cut by the text alone: the same text is cut in the same places whatever the load. A number, an
abbreviation or a word is never cut. Knows no phonemes; lengths are weights that stand for them.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

from .clean import is_han


class Sentence(NamedTuple):
    """A sentence: characters `start` to `end` of the cleaned text."""

    start: int
    end: int
    cuts: tuple[int, ...]
    """Where its clauses end; the last is `end`."""


HAN_WEIGHT = 4
"""A Chinese syllable is about four phonemes with its tone; a letter is about one."""
FIRST_LOW = 12
"""A line's first clause ends at the first mark after this much: "Halt, traveller," and not "Oh,"."""
FIRST_HIGH = 72
"""Without a mark so far, it ends before a joining word."""
REST_LOW = 110
REST_HIGH = 240
"""Even a long number in a clause of this weight stays far below the model's 510 phonemes."""
TAIL = 14
"""Less than this does not stand alone at a sentence's end."""

_BREAK = re.compile(r"\n+|[.!?…。]+[\"'”)]*|[,;:]+[\"'”)]*|—+| -+ ")
_NEVER_LAST = re.compile(
    r"mr|mrs|ms|mx|dr|prof|st|mt|ft|fr|sr|capt|col|gen|lt|sgt|cpl|cmdr|rev|hon|gov|sen|rep|vs|e\.g|i\.e|cf"
    r"|approx|fig|vols?|ch|pp|ed|est|dept"
)
_SELDOM_LAST = re.compile(r"etc|jr|inc|ltd|co|corp|[ap]\.m|u\.s|u\.k|u\.n|b\.c|a\.d")
_BEFORE_DOT = re.compile(r"[A-Za-z]+(?:\.[A-Za-z]+)*$")
_CAPITALISED_BEFORE = re.compile(r"(?:^|[A-Z][\w'-]*\.? )[A-Z]$")
_JOINING = re.compile(
    r" (?=(?:and|but|or|because|that|which|who|when|where|while|if|until|before|after|so|as|with|from)\b)"
)
_DIGITS_OR_LETTERS = re.compile(r"[0-9A-Za-z.,'%$-]")


def weights(text: str) -> list[int]:
    """Running weight before each character, and after the last: len(text) + 1 numbers."""
    return list(accumulate((HAN_WEIGHT if is_han(c) else 1 for c in text), initial=0))


def sentences(text: str) -> list[Sentence]:
    """The sentences of a cleaned text, without the white space around them. Linear in its length."""
    weight = weights(text)
    found: list[Sentence] = []
    start = 0
    weak: list[int] = []
    marks = [(position, strong) for position, strong in _breaks(text)]
    for position, strong in [*marks, (len(text), True)]:
        if not strong:
            weak.append(position)
            continue
        first, last = _strip(text, start, position)
        if first < last and any(c.isalnum() for c in text[first:last]):
            cuts = _cuts(text, weight, first, last, weak, first_clause=not found)
            found.append(Sentence(first, last, cuts))
            start = position
        elif found and first < last:  # marks alone belong to the sentence before
            before = found.pop()
            found.append(Sentence(before.start, last, (*before.cuts[:-1], last)))
            start = position
        # else: marks that stand before anything was said go with what follows
        weak = []
    return found


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _breaks(text: str) -> list[tuple[int, bool]]:
    """Positions after a mark, and whether the sentence ends there."""
    found = []
    for match in _BREAK.finditer(text):
        mark = match.group()
        start, end = match.span()
        before = text[start - 1] if start else " "
        after = text[end] if end < len(text) else " "
        open_after = after.isspace() or not after.isalnum() or is_han(after)
        if mark[0] == "\n" or "。" in mark:
            found.append((end, True))
        elif "!" in mark or "?" in mark:
            if open_after:
                found.append((end, True))
        elif mark[0] in ".…":
            if len(mark.rstrip("\"'”)")) > 1 or mark[0] == "…":
                rest = text[end : end + 8].lstrip(" \"'“(")
                found.append((end, not rest or rest[0].isupper()))
            elif (
                open_after
                and (after.isspace() or after in "“(" or is_han(after) or is_han(before))
                and not _abbreviates(text, start, end)
            ):
                found.append((end, True))
        elif mark[0] in ",;:":
            if after.isspace() or is_han(before) or is_han(after) or after in '“"(':
                found.append((end, False))
        else:
            found.append((end, False))
    return found


def _abbreviates(text: str, dot: int, end: int) -> bool:
    """Whether the dot at `dot` belongs to an abbreviation and ends no sentence."""
    rest = text[end : end + 8].lstrip(" \"'“(")
    word = _BEFORE_DOT.search(text, max(0, dot - 12), dot)
    if not rest or not word:
        return False
    name = word.group().lower()
    if name in ("no", "nos"):
        return rest[0].isdigit()
    if _NEVER_LAST.fullmatch(name):
        return True
    if _SELDOM_LAST.fullmatch(name):
        return not rest[0].isupper() and not is_han(rest[0])
    if len(name) == 1 and name != "i":
        return rest[0].isupper() and bool(_CAPITALISED_BEFORE.search(text[max(0, dot - 24) : dot]))
    return False


def _cuts(
    text: str, weight: list[int], start: int, end: int, weak: list[int], *, first_clause: bool
) -> tuple[int, ...]:
    """Where the clauses of the sentence `start` to `end` end."""
    cuts: list[int] = []
    at = start
    marks = [position for position in weak if start < position < end]
    index = 0
    while at < end:
        low, high = (FIRST_LOW, FIRST_HIGH) if first_clause else (REST_LOW, REST_HIGH)
        while index < len(marks) and weight[marks[index]] - weight[at] < low:
            index += 1
        cut = marks[index] if index < len(marks) else end
        if weight[cut] - weight[at] > high:
            cut = _soft_cut(text, weight, at, cut, high, joining_only=first_clause)
        if cut < end and weight[end] - weight[cut] < TAIL and weight[end] - weight[at] <= REST_HIGH:
            cut = end
        cuts.append(cut)
        at = cut
        first_clause = False
    return tuple(cuts)


def _soft_cut(text: str, weight: list[int], at: int, limit: int, high: int, *, joining_only: bool) -> int:
    """A cut between `at` and `limit` where no mark stands: before a joining word, else at a space,
    else anywhere but in a number or a word of letters."""
    reach = at + 1
    while reach < limit and weight[reach] - weight[at] <= high:
        reach += 1
    least = at + (reach - at) // 3
    joins = [match.end() for match in _JOINING.finditer(text, least, reach)]
    if joins:
        return joins[0] if joining_only else joins[-1]
    if joining_only:
        if weight[limit] - weight[at] <= REST_HIGH:
            return limit
        return _soft_cut(text, weight, at, limit, REST_HIGH, joining_only=False)
    space = text.rfind(" ", least, reach)
    if space > at:
        return space + 1
    cut = reach
    while cut > least and _DIGITS_OR_LETTERS.match(text[cut - 1]) and _DIGITS_OR_LETTERS.match(text[cut]):
        cut -= 1
    return cut if cut > least else reach
