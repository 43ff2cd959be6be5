"""Mouth shapes of symbols, and the events of a clause from the spans of its symbols.

Two alphabets: the model's phonemes (misaki's for English and Chinese, all 114 symbols of Kokoro) and plain
letters for pipelines that only estimate. Knows no sample rate: positions come in and go out as samples.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..records import Clause, Event, EventType, Viseme, Word


class Shape(NamedTuple):
    """Where the mouth goes, and how far: weight 0 to 1."""

    viseme: Viseme
    weight: float


Shapes = tuple[Shape, ...]
"""One symbol's shapes in order, each for an equal part of its span. Empty: no shape of its own, the mouth
stays where it is (stress, length and tone marks, aspiration, h)."""

_KEEP: Shapes = ()
_SIL: Shapes = (Shape(Viseme.SIL, 1.0),)

# Lips that must be seen to close count fully; a consonant inside the mouth hardly shows.
_WEIGHTS: Mapping[Viseme, float] = {
    Viseme.SIL: 1.0,
    Viseme.PP: 1.0,
    Viseme.FF: 0.9,
    Viseme.TH: 0.8,
    Viseme.DD: 0.6,
    Viseme.KK: 0.5,
    Viseme.CH: 0.8,
    Viseme.SS: 0.7,
    Viseme.NN: 0.6,
    Viseme.RR: 0.7,
    Viseme.AA: 1.0,
    Viseme.E: 0.9,
    Viseme.IH: 0.8,
    Viseme.OH: 0.9,
    Viseme.OU: 0.9,
}


def _shapes(*visemes: Viseme, scale: float = 1.0) -> Shapes:
    return tuple(Shape(viseme, round(_WEIGHTS[viseme] * scale, 2)) for viseme in visemes)


def _table(*groups: tuple[str, Shapes]) -> dict[str, Shapes]:
    return {symbol: shapes for symbols, shapes in groups for symbol in symbols}


PUNCTUATION = ';:,.!?—–…"“”()«»、，。！？；：（）《》「」『』【】·～\n'
"""Read as a pause: the mouth closes."""

PHONEME_VISEMES: Mapping[str, Shapes] = _table(
    (PUNCTUATION, _SIL),
    ("ˈˌːʰʲ̃ᵝ→↗↘↓h", _KEEP),
    ("ʔ", _KEEP),
    ("pbmɸβ", _shapes(Viseme.PP)),
    ("fvʋ", _shapes(Viseme.FF)),
    ("θð", _shapes(Viseme.TH)),
    ("tdTʈɖɾɽ", _shapes(Viseme.DD)),
    ("kgɡcɟqxɣχçʝɰ", _shapes(Viseme.KK)),
    ("ʧʤʃʒꭧʂʨʥɕ", _shapes(Viseme.CH)),
    ("szSʦʣ", _shapes(Viseme.SS)),
    ("nlŋɳɲɴʎ", _shapes(Viseme.NN)),
    ("rɹɻʁɚ", _shapes(Viseme.RR)),
    ("aɑæ", _shapes(Viseme.AA)),
    ("ʌɐ", _shapes(Viseme.AA, scale=0.8)),
    ("eɛøœɜ", _shapes(Viseme.E)),
    ("əɤᵊ", _shapes(Viseme.E, scale=0.5)),
    ("iɪj", _shapes(Viseme.IH)),
    ("ᵻɨɯ", _shapes(Viseme.IH, scale=0.8)),
    ("oɔɒ", _shapes(Viseme.OH)),
    ("uʊwyɥ", _shapes(Viseme.OU)),
    # misaki's letters for diphthongs: day, my, go (US and GB), now, boy
    ("A", _shapes(Viseme.E, Viseme.IH)),
    ("I", _shapes(Viseme.AA, Viseme.IH)),
    ("OQ", _shapes(Viseme.OH, Viseme.OU)),
    ("W", _shapes(Viseme.AA, Viseme.OU)),
    ("Y", _shapes(Viseme.OH, Viseme.IH)),
)
"""Shapes of each symbol of the model's alphabet but the space, which `events_of` judges by its length."""

LETTER_VISEMES: Mapping[str, Shapes] = _table(
    (PUNCTUATION, _SIL),
    ("'’-h", _KEEP),
    ("pbm", _shapes(Viseme.PP)),
    ("fv", _shapes(Viseme.FF)),
    ("td", _shapes(Viseme.DD)),
    ("kgcq", _shapes(Viseme.KK)),
    ("x", _shapes(Viseme.KK, Viseme.SS)),
    ("j", _shapes(Viseme.CH)),
    ("sz", _shapes(Viseme.SS)),
    ("nl", _shapes(Viseme.NN)),
    ("r", _shapes(Viseme.RR)),
    ("a", _shapes(Viseme.AA)),
    ("e", _shapes(Viseme.E)),
    ("iy", _shapes(Viseme.IH)),
    ("o", _shapes(Viseme.OH)),
    ("uw", _shapes(Viseme.OU)),
)
"""Shapes of lower-case Latin letters and punctuation, for text that was not turned into phonemes."""

_SYLLABLE_BEGINS = (Viseme.PP, Viseme.DD, Viseme.KK, Viseme.CH, Viseme.SS, Viseme.NN)
_SYLLABLE_VOWELS = (Viseme.AA, Viseme.E, Viseme.IH, Viseme.OH, Viseme.OU)

LONG_SPACE = 2.0
"""A space longer than this many mean symbols is heard as a pause, so the mouth closes."""


def shapes_of(symbol: str, *, phonemes: bool) -> Shapes:
    """The shapes of one symbol of a clause's `phonemes`, or of its `spoken` text."""
    if phonemes:
        return PHONEME_VISEMES.get(symbol, _KEEP)
    known = LETTER_VISEMES.get(symbol)
    if known is not None:
        return known
    plain = unicodedata.normalize("NFD", symbol.lower())[:1]
    known = LETTER_VISEMES.get(plain)
    if known is not None:
        return known
    if symbol.isalnum():  # a Han character, a digit: some syllable, always the same one
        code = ord(symbol)
        return _shapes(
            _SYLLABLE_BEGINS[code % len(_SYLLABLE_BEGINS)],
            _SYLLABLE_VOWELS[code // len(_SYLLABLE_BEGINS) % len(_SYLLABLE_VOWELS)],
        )
    return _KEEP


def symbols_of(clause: Clause) -> str:
    """What a clause's spans, and its words' `first` and `last`, are counted in."""
    return clause.phonemes or clause.spoken


def events_of(clause: Clause, spans: Sequence[tuple[int, int]], total_samples: int) -> tuple[Event, ...]:
    """The CLAUSE, its WORDs and VISEMEs, and a closing VISEME SIL at `total_samples`; sorted by sample.

    spans: begin and end sample of each symbol of `symbols_of(clause)`, growing, within 0 and
    `total_samples`. Neighbouring shapes of the same viseme become one event with the larger weight.
    """
    symbols = symbols_of(clause)
    if len(spans) != len(symbols):
        raise ValueError(f"{len(spans)} spans for {len(symbols)} symbols; there must be one for each")
    events = [
        Event(0, EventType.CLAUSE, 0, 0.0, clause.begin, clause.end, total_samples),
        *_words(clause.words, spans),
        *_visemes(symbols, spans, phonemes=bool(clause.phonemes)),
        Event(total_samples, EventType.VISEME, Viseme.SIL, 1.0),
    ]
    first, *middle, last = events
    middle.sort(key=lambda event: event.sample)
    return (first, *middle, last)


def _words(words: Sequence[Word], spans: Sequence[tuple[int, int]]) -> list[Event]:
    events = []
    for word in words:
        last = min(word.last, len(spans))
        if not 0 <= word.first < last:
            continue
        begin = spans[word.first][0]
        duration = max(0, spans[last - 1][1] - begin)
        events.append(Event(begin, EventType.WORD, 0, 0.0, word.begin, word.end, duration))
    return events


def _visemes(symbols: str, spans: Sequence[tuple[int, int]], *, phonemes: bool) -> list[Event]:
    pause = LONG_SPACE * (spans[-1][1] - spans[0][0]) / len(spans) if spans else 0.0
    runs: list[Event] = []
    for symbol, (begin, end) in zip(symbols, spans, strict=True):
        if end <= begin:
            continue
        if symbol.isspace():
            shapes = _SIL if end - begin > pause else _KEEP
        else:
            shapes = shapes_of(symbol, phonemes=phonemes)
        for part, shape in enumerate(shapes):
            if runs and runs[-1].code == shape.viseme:
                if runs[-1].weight < shape.weight:
                    runs[-1] = runs[-1]._replace(weight=shape.weight)
                continue
            at = begin + (end - begin) * part // len(shapes)
            runs.append(Event(at, EventType.VISEME, shape.viseme, shape.weight))
    return runs
