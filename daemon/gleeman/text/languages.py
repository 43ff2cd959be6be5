"""Which language a stretch of text is in, and its words. Cuts no clauses.

A sentence has a base language, in which its numbers are read; a run in the other one is read by the
other one's rules, whoever's voice it is.
"""

from __future__ import annotations

import re

from . import chinese, english
from .clean import Marked, is_han
from .spoken import Spoken, core, tidy

_HAN = "\u3400-\u4dbf\u4e00-\u9fff〇\U00020000-\U0003134f"
_RUN = re.compile(f"[{_HAN}]+|[^{_HAN}]+")
_WORD = re.compile(r"[^\W\d_]+")
_LEAD = re.compile(r"[,.;:!?…。—”)]+\s*(?!\d)")
_CHUNK = re.compile(r"\S+")


def base_language(text: str, fallback: str) -> str:
    """ "zh" or "en" by what there is more of, a Chinese character counting as a word; `fallback` when
    there are no letters at all."""
    han = sum(map(is_han, text))
    words = sum(1 for word in _WORD.finditer(text) if not is_han(word.group()[0]))
    if not han and not words:
        return fallback
    return "zh" if han >= words else "en"


def read(marked: Marked, base: str, british: bool, warnings: list[str]) -> list[Spoken]:
    """The words of a sentence in reading order, with phonemes."""
    if base == "zh":
        marked = chinese.normalise(marked)
    spoken: list[Spoken] = []
    for match in _RUN.finditer(marked.text):
        run = marked.cut(*match.span())
        if is_han(run.text[0]):
            if spoken and spoken[-1].phonemes[-1:] not in ("“", "("):
                spoken[-1] = spoken[-1]._replace(gap=True)
            spoken += chinese.read(run, warnings)
        elif any(c.isalnum() or c in "%&@+" for c in run.text):
            lead = _LEAD.match(run.text) if spoken else None
            if lead:  # marks that belong to the Chinese word before
                _marks(spoken, run.cut(0, lead.end()))
                run = run.cut(lead.end(), len(run.text))
            _join(spoken, run)
            words = english.read(run._replace(text=run.text.replace("。", ".")), british, warnings)
            spoken += map(_letter, words) if base == "zh" else words
        else:
            _marks(spoken, run)
    return spoken


def read_plain(marked: Marked) -> list[Spoken]:
    """The same words as written, without phonemes; Chinese ones are single characters."""
    spoken: list[Spoken] = []
    for match in _RUN.finditer(marked.text):
        start, end = match.span()
        if is_han(marked.text[start]):
            for index in range(start, end):
                begin, stop = marked.span(index, index + 1)
                spoken.append(Spoken(marked.text[index], "", begin, stop, "zh", False, False))
            continue
        if marked.text[start].isspace() and spoken:
            spoken[-1] = spoken[-1]._replace(space=True)
        for chunk in _CHUNK.finditer(marked.text, start, end):
            first, last = core(chunk.group())
            if (first, last) == (0, 0):
                last = len(chunk.group())
            begin, stop = marked.span(chunk.start() + first, chunk.start() + last)
            spaced = chunk.end() < len(marked.text) and marked.text[chunk.end()].isspace()
            spoken.append(Spoken(chunk.group(), "", begin, stop, "en", spaced, spaced))
    return spoken


def _letter(word: Spoken) -> Spoken:
    """A lone A within Chinese is the letter, not the article."""
    return (
        word._replace(phonemes=word.phonemes.replace("ɐ", "ˈA")) if word.text.strip(",.!?") in "Aa" else word
    )


def _join(spoken: list[Spoken], run: Marked) -> None:
    """Tell the word before a run whether a space follows it."""
    if spoken:
        before = spoken[-1]
        opens = run.text[0].isspace()
        leans = run.text[0] in ",.;:!?…)”。"
        spoken[-1] = before._replace(space=opens or before.space, gap=not leans)


def _marks(spoken: list[Spoken], run: Marked) -> None:
    """Marks between or after words."""
    _join(spoken, run)
    text = run.text.strip()
    if not text:
        return
    at = run.text.index(text[0])
    begin, end = run.span(at, at + len(text))
    language = spoken[-1].language if spoken else "zh"
    phonemes = tidy(text.replace("。", "."))
    opening = phonemes[-1:] in ("“", "(")
    spoken.append(Spoken(text, phonemes, begin, end, language, run.text[-1].isspace(), not opening))
