"""Mouth shapes of symbols, and the events of a clause from its symbols' spans."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleeman.records import Clause, Event, EventType, Viseme, Word
from gleeman.speech.models.kokoro.alphabet import symbols as alphabet
from gleeman.speech.visemes import LETTER_VISEMES, PHONEME_VISEMES, events_of, shapes_of
from tick_helpers import clause

V = Viseme


def even(symbols: str, samples: int = 100) -> list[tuple[int, int]]:
    return [(index * samples, (index + 1) * samples) for index in range(len(symbols))]


def mouth(made: Clause, spans=None) -> list[tuple[int, int]]:
    symbols = made.phonemes or made.spoken
    spans = even(symbols) if spans is None else spans
    events = events_of(made, spans, spans[-1][1] if spans else 0)
    return [(event.sample, event.code) for event in events if event.type == EventType.VISEME]


def test_every_symbol_of_the_models_alphabet_has_an_entry():
    assert set(alphabet()) - {" "} <= set(PHONEME_VISEMES)


@pytest.mark.parametrize("table", [PHONEME_VISEMES, LETTER_VISEMES])
def test_weights_lie_between_nothing_and_one(table):
    for symbol, shapes in table.items():
        assert len(symbol) == 1
        assert all(0 < shape.weight <= 1 for shape in shapes)


@pytest.mark.parametrize(
    ("symbol", "shapes"),
    [
        ("p", [V.PP]),
        ("v", [V.FF]),
        ("ð", [V.TH]),
        ("ŋ", [V.NN]),
        ("ʃ", [V.CH]),
        ("A", [V.E, V.IH]),
        ("I", [V.AA, V.IH]),
        ("O", [V.OH, V.OU]),
        ("Q", [V.OH, V.OU]),
        ("W", [V.AA, V.OU]),
        ("Y", [V.OH, V.IH]),
        ("ꭧ", [V.CH]),
        ("ʦ", [V.SS]),
        ("ɥ", [V.OU]),
        ("↘", []),
        ("ˈ", []),
        (".", [V.SIL]),
    ],
)
def test_phonemes_have_the_shapes_one_sees(symbol, shapes):
    assert [shape.viseme for shape in shapes_of(symbol, phonemes=True)] == shapes


def test_a_clause_is_told_first_and_a_closed_mouth_last():
    made = dataclasses.replace(clause("hello", "həlˈO"), begin=3, end=8)
    events = events_of(made, even("həlˈO"), 600)
    assert events[0] == Event(0, EventType.CLAUSE, 0, 0.0, 3, 8, 600)
    assert events[-1] == Event(600, EventType.VISEME, V.SIL, 1.0)


def test_words_carry_their_text_and_how_long_they_last():
    made = dataclasses.replace(clause("go on", "ɡˈO ˈɔn"), words=(Word(0, 2, 0, 3), Word(3, 5, 4, 7)))
    words = [event for event in events_of(made, even("ɡˈO ˈɔn"), 700) if event.type == EventType.WORD]
    assert words == [
        Event(0, EventType.WORD, 0, 0.0, 0, 2, 300),
        Event(400, EventType.WORD, 0, 0.0, 3, 5, 300),
    ]


def test_words_and_shapes_are_told_in_one_order():
    made = dataclasses.replace(clause("go on", "ɡˈO ˈɔn"), words=(Word(0, 2, 0, 3), Word(3, 5, 4, 7)))
    events = events_of(made, even("ɡˈO ˈɔn"), 700)
    assert [event.sample for event in events] == sorted(event.sample for event in events)


def test_a_word_without_symbols_is_not_told():
    made = dataclasses.replace(clause("ab", "ab"), words=(Word(0, 1, 1, 1), Word(1, 2, 7, 9)))
    assert [event.type for event in events_of(made, even("ab"), 200)].count(EventType.WORD) == 0


def test_neighbours_of_the_same_shape_are_one_event():
    assert mouth(clause("", "pbm")) == [(0, V.PP), (300, V.SIL)]


def test_a_run_has_the_weight_of_its_strongest():
    events = events_of(clause("", "əɛ"), even("əɛ"), 200)
    assert [event.weight for event in events[1:]] == [0.9, 1.0]


def test_marks_keep_the_mouth_where_it_is():
    assert mouth(clause("", "ˈɑːt")) == [(100, V.AA), (300, V.DD), (400, V.SIL)]


def test_a_diphthong_moves_in_its_middle():
    assert mouth(clause("", "W")) == [(0, V.AA), (50, V.OU), (100, V.SIL)]


def test_the_mouth_closes_in_a_long_space_only():
    made = clause("", "a a a")
    spans = [(0, 100), (100, 120), (120, 220), (220, 520), (520, 620)]
    assert mouth(made, spans) == [(0, V.AA), (220, V.SIL), (520, V.AA), (620, V.SIL)]


def test_symbols_without_a_length_are_not_shown():
    assert mouth(clause("", "apa"), [(0, 100), (100, 100), (100, 200)]) == [(0, V.AA), (200, V.SIL)]


def test_plain_text_moves_the_mouth_too_capitals_and_accents_included():
    assert [code for _, code in mouth(clause("Bé!"))] == [V.PP, V.E, V.SIL, V.SIL]


def test_a_han_character_opens_the_mouth():
    codes = [code for _, code in mouth(clause("你"))]
    assert len(codes) == 3
    assert codes[1] >= V.AA


def test_a_span_for_each_symbol_is_wanted():
    with pytest.raises(ValueError, match="1 spans for 2 symbols"):
        events_of(clause("ab"), [(0, 1)], 1)


def test_nothing_to_say_is_a_clause_and_a_closed_mouth():
    assert [event.type for event in events_of(clause(""), [], 0)] == [EventType.CLAUSE, EventType.VISEME]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.booleans(), st.data())
def test_events_of_any_text_are_in_order_and_within_the_clause(text, phonemes, data):
    lengths = data.draw(st.lists(st.integers(0, 500), min_size=len(text), max_size=len(text)))
    ends = [sum(lengths[: index + 1]) for index in range(len(text))]
    spans = [(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    total = ends[-1] if ends else 0
    made = clause("" if phonemes else text, text if phonemes else "")
    events = events_of(made, spans, total)
    samples = [event.sample for event in events]
    assert samples == sorted(samples)
    assert samples[0] == 0
    assert samples[-1] == total
    shapes = [event for event in events if event.type == EventType.VISEME]
    assert all(V.SIL <= event.code <= V.OU and 0 < event.weight <= 1 for event in shapes)
    assert all(one.code != two.code for one, two in itertools.pairwise(shapes[:-1]))
