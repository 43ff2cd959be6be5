"""Cleaning: what is left of a text, and which bytes each character came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleeman.text.clean import clean


@pytest.mark.parametrize(
    ("sent", "cleaned"),
    [
        ("The\tnorth\xa0gate\u2009is\u3000open.", "The north gate is open."),
        ("ＡＢＣ１２３！", "ABC123!"),
        ("你好，世界？", "你好,世界?"),
        ("don’t", "don't"),
        ("<b>Halt!</b> Who goes?", " Halt! Who goes?"),
        ("<<Shadow Guild>> has joined", " Shadow Guild has joined"),
        ("3 < 5", "3 < 5"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("Run 🏃‍♀️ now", "Run now"),
        ("cafe\u0301", "café"),
        ("one\r\ntwo", "one\ntwo"),
        ("「走」", "“走”"),
    ],
)
def test_folds_what_looks_alike_and_drops_what_cannot_be_said(sent: str, cleaned: str) -> None:
    assert clean(sent).text == cleaned


def test_a_very_long_word_is_taken_apart_and_loses_no_letter() -> None:
    cleaned = clean("a" * 1000).text
    assert cleaned.replace(" ", "") == "a" * 1000
    assert max(map(len, cleaned.split())) <= 64


@given(st.text(max_size=200))
def test_every_character_knows_bytes_that_begin_and_end_between_characters(sent: str) -> None:
    marked = clean(sent)
    sent_bytes = sent.encode("utf-8", "surrogatepass")
    assert len(marked.text) == len(marked.begins) == len(marked.ends)
    assert marked.begins == sorted(marked.begins)
    assert all(begin <= end <= len(sent_bytes) for begin, end in zip(marked.begins, marked.ends, strict=True))
    inside = {i for i, byte in enumerate(sent_bytes) if byte & 0xC0 == 0x80}
    assert inside.isdisjoint(marked.begins)
    assert inside.isdisjoint(marked.ends)


@given(st.text(alphabet="abc 你好1.,", max_size=80))
def test_plain_characters_come_through_in_place(sent: str) -> None:
    marked = clean(sent)
    sent_bytes = sent.encode()
    for index, character in enumerate(marked.text):
        if not character.isspace():
            assert sent_bytes[marked.begins[index] : marked.ends[index]].decode() == character
