"""English text to phonemes, American or British. Imports its library at first use (about a second)."""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import Any

from .align import align
from .clean import Marked
from .spoken import Spoken, core, sounds, tidy

log = logging.getLogger("gleeman.text")

_lock = threading.Lock()
_readers: dict[bool, Any] = {}
_CHUNK = re.compile(r"\S+")


def load(british: bool) -> Any:
    """The reader of an accent; loaded once, from any thread."""
    with _lock:
        reader = _readers.get(british)
        if reader is None:
            # onnxruntime, which hibari runs on, keeps a device id and reports events unless told not to.
            os.environ["ORT_DISABLE_TELEMETRY"] = "1"
            from hibari.g2p import G2P

            reader = G2P(british=british)
            reader.oov("gleeman")  # brings up the net for unknown words too
            _readers[british] = reader
        return reader


def read(marked: Marked, british: bool, warnings: list[str]) -> list[Spoken]:
    """The words of an English run, each with the bytes it came from. Nothing readable is left out:
    what the library cannot read is spelled, what cannot be spelled is named in `warnings`."""
    reader = load(british)
    source = [match.span() for match in _CHUNK.finditer(marked.text)]
    if not source:
        return []
    before = [marked.text[start:end] for start, end in source]
    after = _normalise(" ".join(before)).split()
    if not after:
        after = before
    spans = _spans(marked, source, before, after)
    readings = _phonemes(reader, after)
    spaced = marked.text[-1:].isspace()
    spoken = []
    for index, (text, reading, (begin, end)) in enumerate(zip(after, readings, spans, strict=True)):
        phonemes = tidy(reading)
        if sounds(phonemes) == (0, 0) and any(c.isalnum() for c in text):
            phonemes = tidy(_spell(reader, text))
            if sounds(phonemes) == (0, 0):
                warnings.append(f"{text!r} has no reading in English and is left out")
        follows = spaced if index == len(after) - 1 else True
        spoken.append(Spoken(text, phonemes, begin, end, "en", follows, follows))
    return spoken


def _normalise(text: str) -> str:
    from hibari.g2p.normalize import normalize

    try:
        return str(normalize(text))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        log.warning("normalising %r failed (%r); it is read as written", text[:80], error)
        return text


def _spans(
    marked: Marked, source: list[tuple[int, int]], before: list[str], after: list[str]
) -> list[tuple[int, int]]:
    """For each word after normalising: the bytes of the word, or group of words, it stands for."""

    def span(first: int, last: int) -> tuple[int, int]:
        begin_at, end_at = source[first][0], source[last - 1][1]
        inner = core(marked.text[begin_at:end_at])
        if inner != (0, 0):
            begin_at, end_at = begin_at + inner[0], begin_at + inner[1]
        return marked.span(begin_at, end_at)

    # by the words without their marks: "Dr." and "Dr" are the same word
    old = [word[slice(*core(word))] or word for word in before]
    new = [word[slice(*core(word))] or word for word in after]
    spans: list[tuple[int, int]] = []
    for block in align(old, new):
        if block.equal:
            spans += [span(index, index + 1) for index in range(block.first, block.last)]
        elif block.first < block.last:
            spans += [span(block.first, block.last)] * (block.new_last - block.new_first)
        else:  # a word that stands for nothing of its own: with the one before
            near = min(block.first, len(source) - 1)
            beside = spans[-1] if spans else span(near, near + 1)
            spans += [beside] * (block.new_last - block.new_first)
    return spans


def _phonemes(reader: Any, words: list[str]) -> list[str]:
    """One reading for each of `words`, made together: a word's reading depends on its neighbours."""
    try:
        tokens = reader.phonemize_tokens(reader._tokens(" ".join(words)))
        readings = [""]
        for token in tokens:
            readings[-1] += token.phonemes or ""
            if token.whitespace:
                readings.append("")
        if not tokens or not tokens[-1].whitespace:
            readings.append("")
        if len(readings) == len(words) + 1:
            return readings[:-1]
        log.warning("%d readings for %d words of %r", len(readings) - 1, len(words), " ".join(words)[:80])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        log.warning("reading %r failed (%r); its words are read one by one", " ".join(words)[:80], error)
    return [_alone(reader, word) for word in words]


def _alone(reader: Any, word: str) -> str:
    try:
        return "".join(token.phonemes or "" for token in reader.phonemize_tokens(reader._tokens(word)))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return _spell(reader, word)


def _spell(reader: Any, word: str) -> str:
    """Letter by letter and digit by digit, its marks kept."""
    names = []
    for character in word:
        try:
            names.append(reader(character, normalize_text=False) if character.isalnum() else character)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError):
            continue
    return " ".join(names)
