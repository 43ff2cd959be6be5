"""A line of text -> what will be said, clause by clause. Pure: the same text is always read the same way.

    clean (bytes kept) -> sentences and cuts -> words and phonemes of each sentence -> clauses

The words of a sentence are read together, before it is cut: a word's reading depends on its neighbours.
A clause keeps the phoneme count of its sentence, and its place in it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InputError
from ..records import Clause, Word
from . import carried, languages
from .alphabet import ALPHABET, MAX_PHONEMES, unknown
from .clauses import Sentence, sentences, weights
from .clean import Marked, byte_length, clean
from .spoken import Spoken, core, sounds


class Reading(NamedTuple):
    """How a line will be read."""

    spoken: str
    """Every word as it will be said."""
    clauses: tuple[Clause, ...]
    """In order; at least one."""
    warnings: tuple[str, ...]
    """Sentences for people: what could not be read."""


def accent_of(voice: str) -> bool:
    """Whether a voice of that name reads English the British way (bf_…, bm_…)."""
    return voice.startswith(("bf_", "bm_"))


def language_of(voice: str) -> str:
    """What a voice reads bare numbers in: "zh" (zf_…, zm_…) or "en"."""
    return "zh" if voice.startswith(("zf_", "zm_")) else "en"


def read(text: str, language: str, accent_gb: bool, phonemes: bool, *, bare: str = "en") -> Reading:
    """Read a line.

    language    "auto", "en", "en-us", "en-gb" or "zh"; with "auto" each sentence is what there is more of
    accent_gb   of "auto" and "en": British
    phonemes    False: clauses, words and estimated lengths only; nothing heavy is imported
    bare        with "auto": the language of a text without letters, such as "7"

    Raises InputError nothing-to-say.
    """
    british = language == "en-gb" or (accent_gb and language != "en-us")
    marked = clean(text)
    whole = bare if language == "auto" else language[:2]
    if language == "auto":
        whole = languages.base_language(marked.text, bare)
    warnings: list[str] = []
    clauses: list[Clause] = []
    for sentence in sentences(marked.text):
        part = marked.cut(sentence.start, sentence.end)
        base = languages.base_language(part.text, whole) if language == "auto" else whole
        if phonemes:
            words = languages.read(part, base, british, warnings)
            clauses += _clauses(marked, sentence, words, british)
        else:
            clauses += _clauses(marked, sentence, languages.read_plain(part), british, plain=True)
    if not clauses:
        raise InputError(
            f"nothing speakable in {text[:60]!r}; it needs a letter of English or Chinese, or a digit",
            "nothing-to-say",
        )
    return Reading(" ".join(clause.spoken for clause in clauses), tuple(clauses), tuple(warnings))


def read_phonemes(given: str, language: str, accent_gb: bool, phonemes: bool) -> Reading:
    """Clauses of phonemes that the client gave itself; spans are bytes of `given`.

    Raises InputError bad-phonemes, naming the symbols outside the alphabet, or nothing-to-say.
    """
    strange = unknown(given)
    if strange:
        shown = ", ".join(f"{symbol!r} (U+{ord(symbol):04X})" for symbol in strange[:8])
        accepted = "".join(sorted(ALPHABET))
        raise InputError(f"phonemes outside the alphabet: {shown}; accepted are {accepted}", "bad-phonemes")
    british = language == "en-gb" or (accent_gb and language != "en-us")
    base = "zh" if language == "zh" else "en"
    begins, ends, offset = [], [], 0
    for character in given:
        begins.append(offset)
        offset += byte_length(character)
        ends.append(offset)
    marked = Marked(given, begins, ends)
    clauses: list[Clause] = []
    for sentence in sentences(given):
        part = marked.cut(sentence.start, sentence.end)
        words = [word._replace(language=base) for word in languages.read_plain(part)]
        words = [word._replace(phonemes=word.text) for word in words] if phonemes else words
        clauses += _clauses(marked, sentence, words, british, plain=not phonemes)
    if not clauses:
        raise InputError(f"nothing speakable in the phonemes {given[:60]!r}", "nothing-to-say")
    return Reading(" ".join(clause.spoken for clause in clauses), tuple(clauses), ())


def _clauses(
    marked: Marked, sentence: Sentence, words: list[Spoken], british: bool, *, plain: bool = False
) -> list[Clause]:
    """The clauses of one sentence; none when nothing of it can be said."""
    groups = _grouped(marked, sentence, words, plain)
    if not groups:
        return []
    whole = "" if plain else _joined(words, plain=False)[0]
    length = len(whole) or weights(marked.text[sentence.start : sentence.end])[-1]
    sounding = [("", []) if plain else _joined(group, plain=False) for group, _, _ in groups]
    pieces = [phonemes for phonemes, _ in sounding]
    beside = [] if plain else carried.places(pieces, [_gap(group) for group, _, _ in groups])
    clauses: list[Clause] = []
    for index, (group, begin, end) in enumerate(groups):
        spoken, written = _joined(group, plain=True)
        phonemes, places = sounding[index]
        place = carried.Place() if plain else beside[index]
        last = index == len(groups) - 1
        clauses.append(
            Clause(
                spoken=spoken,
                phonemes=phonemes,
                language=_language(group, british),
                begin=begin,
                end=end,
                words=tuple(written if plain else places),
                sentence_phonemes=max(1, length),
                ends_sentence=last,
                sentence=place.sentence,
                sentence_first=place.first,
                sentence_last=place.last,
            )
        )
    return clauses


_Group = tuple[list[Spoken], int, int]


def _grouped(marked: Marked, sentence: Sentence, words: list[Spoken], plain: bool) -> list[_Group]:
    """The words of each clause with its bytes. A word belongs where it begins; marks alone, and words
    without a reading, go with the clause before them."""
    groups: list[_Group] = []
    at = 0
    start = sentence.start
    waiting: list[Spoken] = []
    begin = marked.begins[sentence.start]
    for cut in sentence.cuts:
        limit = marked.ends[sentence.end - 1] + 1 if cut == sentence.end else marked.begins[cut]
        group = waiting
        waiting = []
        while at < len(words) and (words[at].begin < limit or cut == sentence.end):
            group.append(words[at])
            at += 1
        stop = cut
        while stop > start and marked.text[stop - 1].isspace():
            stop -= 1
        end = max([marked.ends[max(stop, sentence.start + 1) - 1], *(word.end for word in group)])
        end = max(end, begin)
        if not any(_said(word, plain) for word in group):
            if groups:
                before, first, _ = groups[-1]
                groups[-1] = ([*before, *group], first, end)
            else:
                waiting = group
                continue
        else:
            groups.append((group, begin, end))
        start = cut
        while start < sentence.end and marked.text[start].isspace():
            start += 1
        begin = max(end, marked.begins[start] if start < sentence.end else end)
    if plain:
        return groups
    return [piece for group in groups for piece in _bounded(group)]


def _said(word: Spoken, plain: bool) -> bool:
    return core(word.text) != (0, 0) if plain else sounds(word.phonemes) != (0, 0)


def _bounded(group: _Group) -> list[_Group]:
    """The same clause in pieces that the model can take; nearly always one."""
    words, begin, end = group
    if len(_joined(words, plain=False)[0]) <= MAX_PHONEMES:
        return [group]
    pieces: list[list[Spoken]] = [[]]
    length = 0
    for word in (part for whole in words for part in _shortened(whole)):
        if pieces[-1] and length + len(word.phonemes) + 1 > MAX_PHONEMES:
            pieces.append([])
            length = 0
        pieces[-1].append(word)
        length += len(word.phonemes) + 1
    bounded: list[_Group] = []
    for index, piece in enumerate(pieces):
        stop = end if index == len(pieces) - 1 else min(end, max(word.end for word in piece))
        if bounded and not any(_said(word, plain=False) for word in piece):
            before, first, _ = bounded[-1]
            bounded[-1] = ([*before, *piece], first, stop)
            continue
        bounded.append((piece, begin if not bounded else max(begin, piece[0].begin), stop))
    return bounded


def _shortened(word: Spoken) -> list[Spoken]:
    """A word of more phonemes than a clause may have (a very long number), in pieces."""
    pieces = []
    rest = word.phonemes
    while len(rest) > MAX_PHONEMES:
        cut = rest.rfind(" ", 1, MAX_PHONEMES)
        cut = cut if cut > 0 else MAX_PHONEMES - 1
        pieces.append(word._replace(phonemes=rest[:cut].strip()))
        rest = rest[cut:].strip()
    return [*pieces, word._replace(phonemes=rest)]


def _gap(words: list[Spoken]) -> bool:
    """Whether a space follows the last phonemes of a clause."""
    return next((word.gap for word in reversed(words) if word.phonemes), False)


def _joined(words: list[Spoken], *, plain: bool) -> tuple[str, list[Word]]:
    """The words in one string (their text when `plain`, else their phonemes), and where each lies in it."""
    pieces: list[str] = []
    places: list[Word] = []
    length = 0
    for word in words:
        piece = word.text if plain else word.phonemes
        if not plain and not pieces:
            piece = piece.lstrip(",.;:!? ")  # no pause before anything was said
        if not piece:
            continue
        first, last = core(piece) if plain else sounds(piece)
        if last > first:
            places.append(Word(word.begin, word.end, length + first, length + last))
        if word.space if plain else word.gap:
            piece += " "
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces).rstrip(), places


def _language(words: list[Spoken], british: bool) -> str:
    chinese = sum(len(word.text) for word in words if word.language == "zh")
    latin = sum(len(word.text) for word in words if word.language == "en") / 4
    if chinese and chinese >= latin:
        return "zh"
    return "en-gb" if british else "en-us"
