"""Chinese text to phonemes. Imports its libraries at first use (seconds). Cuts no clauses."""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from typing import Any, NamedTuple

from .align import align
from .clean import Marked
from .spoken import Spoken, tidy

log = logging.getLogger("gleeman.text")


class _Tools(NamedTuple):
    normaliser: Any
    segmenter: Any
    to_phonemes: Any


_lock = threading.Lock()
_tools: list[_Tools] = []
_PART = re.compile(r"(?:[^\"“”()!?。…—\n\\,;]|(?<=\d),(?=\d))+")
"""What the normaliser may see: it escapes quotes and backslashes, and marks end a number anyway."""
_MODEL_NUMBER = re.compile(r"(?<=[A-Za-z])-(?=\d)")
_SYLLABLES_KEPT = 8192


def load() -> _Tools:
    """The libraries; loaded once, from any thread."""
    with _lock:
        if not _tools:
            logging.getLogger("jieba").setLevel(logging.WARNING)
            import jieba

            from .. import host, paths

            jieba.setLogLevel(logging.WARNING)
            # jieba keeps a marshalled dictionary in the shared temporary folder, where another user could
            # plant one: ours lies in a folder that only we can write.
            jieba.dt.tmp_dir = str(host.private_folder(paths.cache_dir() / "jieba"))
            jieba.dt.cache_file = "jieba.cache"
            jieba.initialize()
            from misaki.zh import ZHG2P
            from wetext import Normalizer

            tools = _Tools(Normalizer(lang="zh", operator="tn"), jieba.dt, ZHG2P)
            tools.normaliser.normalize("3枚")
            tools.to_phonemes.word2ipa("你好")
            _tools.append(tools)
        return _tools[0]


def normalise(marked: Marked) -> Marked:
    """The text with its numbers, dates and units in words; each new character keeps the bytes of what
    it stands for."""
    if not any(c.isdigit() for c in marked.text):
        return marked
    tools = load()
    text = _MODEL_NUMBER.sub(" ", marked.text)
    characters: list[str] = []
    begins: list[int] = []
    ends: list[int] = []

    def keep(start: int, end: int) -> None:
        characters.append(text[start:end])
        begins.extend(marked.begins[start:end])
        ends.extend(marked.ends[start:end])

    at = 0
    for start, end in _parts(text):
        keep(at, start)
        at = end
        before = text[start:end]
        after = _normalised(tools, before)
        if after == before:
            keep(start, end)
            continue
        for block in align(before, after):
            if block.equal:
                keep(start + block.first, start + block.last)
                continue
            first, last = block.first, max(block.last, block.first + 1)
            if block.first == block.last:  # inserted: with the character before
                first, last = max(0, first - 1), max(1, first)
            begin, stop = marked.span(start + first, start + last)
            characters.append(after[block.new_first : block.new_last])
            begins.extend([begin] * (block.new_last - block.new_first))
            ends.extend([stop] * (block.new_last - block.new_first))
    keep(at, len(text))
    return _in_order(Marked("".join(characters), begins, ends))


def _in_order(marked: Marked) -> Marked:
    """Spans that never go back: an inserted word takes the place before it."""
    begins, last = [], 0
    for begin in marked.begins:
        last = max(last, begin)
        begins.append(last)
    ends = [max(begin, end) for begin, end in zip(begins, marked.ends, strict=True)]
    return Marked(marked.text, begins, ends)


def _parts(text: str) -> list[tuple[int, int]]:
    """Stretches with a digit that are normalised at once, none longer than about a clause: the
    normaliser's time and the alignment's grow faster than the length."""
    parts = []
    for match in _PART.finditer(text):
        start, stop = match.span()
        while start < stop:
            end = stop
            if end - start > 80:
                end = start + 60
                while end < stop and end - start < 120 and re.match(r"[0-9A-Za-z.,:/%-]", text[end - 1]):
                    end += 1
            first, last = start, end
            while first < last and text[first].isspace():
                first += 1
            while last > first and text[last - 1].isspace():
                last -= 1
            if any(c.isdigit() for c in text[first:last]):
                parts.append((first, last))
            start = end
    return parts


def _normalised(tools: _Tools, text: str) -> str:
    try:
        return str(tools.normaliser.normalize(text))
    except (ValueError, IndexError, KeyError, RuntimeError, AttributeError) as error:
        log.warning("normalising %r failed (%r); it is read as written", text[:80], error)
        return text


def read(marked: Marked, warnings: list[str]) -> list[Spoken]:
    """The words of a run of Chinese characters, each with the bytes it came from."""
    tools = load()
    spoken: list[Spoken] = []
    at = 0
    for word in tools.segmenter.lcut(marked.text, cut_all=False):
        begin, _ = marked.span(at, at + 1)
        end = max(marked.ends[at : at + len(word)])
        at += len(word)
        phonemes = _word(word)
        if not phonemes:
            warnings.append(f"{word!r} has no reading in Chinese and is left out")
        spoken.append(Spoken(word, phonemes, begin, end, "zh", False, True))
    return spoken


@lru_cache(maxsize=_SYLLABLES_KEPT)
def _word(word: str) -> str:
    to_phonemes = load().to_phonemes
    try:
        return tidy(to_phonemes.word2ipa(word))
    except (ValueError, IndexError, KeyError, AssertionError):
        if len(word) > 1:
            return "".join(_word(character) for character in word)
        return ""
