"""Where a text is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleeman.text.clauses import FIRST_HIGH, REST_HIGH, sentences, weights


def cut(text: str) -> list[list[str]]:
    """The clauses of each sentence of `text`."""
    found = []
    for sentence in sentences(text):
        starts = [sentence.start, *sentence.cuts[:-1]]
        found.append([text[a:b].strip() for a, b in zip(starts, sentence.cuts, strict=True)])
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The idol weighs 217.36 kilos. Put it down.", ["The idol weighs 217.36 kilos.", "Put it down."]),
        ("Dr. Marsh lives on St. Mary's hill. Ask him.", ["Dr. Marsh lives on St. Mary's hill.", "Ask him."]),
        ("Is the bridge safe? No. Take the path.", ["Is the bridge safe?", "No.", "Take the path."]),
        ("Deliver it to hut No. 7. Now.", ["Deliver it to hut No. 7.", "Now."]),
        ("Rope, oil, etc. Nobody sleeps.", ["Rope, oil, etc.", "Nobody sleeps."]),
        ("Bring rope, etc. before noon.", ["Bring rope, etc. before noon."]),
        ("J. R. Hood is here. Run!", ["J. R. Hood is here.", "Run!"]),
        ("Hmm.. who left this here?", ["Hmm.. who left this here?"]),
        ("Wait... What was that?", ["Wait...", "What was that?"]),
        ("“Stop!” he said. “Who goes?”", ["“Stop!”", "he said.", "“Who goes?”"]),
        ("国库里还有3.27亿枚金币。快走!", ["国库里还有3.27亿枚金币。", "快走!"]),
        ("他……他真的走了?不会吧。", ["他……他真的走了?", "不会吧。"]),
        ("one line\nanother line", ["one line", "another line"]),
        ("Visit www.example.com/a.b now.", ["Visit www.example.com/a.b now."]),
        ("7", ["7"]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert [text[s.start : s.end] for s in sentences(text)] == expected


def test_the_first_clause_is_short_and_the_rest_is_long() -> None:
    text = (
        "Well met, traveller, I have waited here, under this tree, since the first frost, and my feet are "
        "cold, my bread is gone, my fire is out, my dog has left me, and the road, as you can see, is empty."
    )
    (clauses,) = cut(text)
    assert clauses[0] == "Well met, traveller,"
    assert all(len(clause) > 40 for clause in clauses[1:])
    assert all(len(clause) <= REST_HIGH for clause in clauses)


def test_a_long_opening_without_marks_is_cut_before_a_joining_word() -> None:
    text = (
        "The old man walked down to the river every single morning because nobody had told him that the "
        "bridge was gone"
    )
    (clauses,) = cut(text)
    assert clauses[0] == "The old man walked down to the river every single morning"
    assert len(clauses[0]) <= FIRST_HIGH
    assert " ".join(clauses) == text


def test_numbers_are_never_cut_even_in_a_run_without_marks() -> None:
    text = "你" * 59 + "3281.5" + "好" * 200
    pieces = [piece for clauses in cut(text) for piece in clauses]
    assert "".join(pieces) == text
    assert sum("3281.5" in piece for piece in pieces) == 1


def test_words_are_never_cut_in_a_run_without_marks() -> None:
    words = ["stone", "river", "lantern", "copper", "window", "garden", "thunder"] * 60
    pieces = [piece for clauses in cut(" ".join(words)) for piece in clauses]
    assert " ".join(pieces).split() == words
    assert len(pieces) > 5


def test_marks_alone_are_no_sentence() -> None:
    assert sentences("…!? --- ;;") == []


@given(st.text(alphabet="abZ.,!?;:… \n\"'“”()你好。—-3", max_size=300))
def test_cuts_are_in_order_and_leave_nothing_speakable_out(text: str) -> None:
    covered = [False] * len(text)
    last = 0
    for sentence in sentences(text):
        assert last <= sentence.start < sentence.end
        assert sentence.cuts[-1] == sentence.end
        assert list(sentence.cuts) == sorted(set(sentence.cuts))
        assert all(sentence.start < c <= sentence.end for c in sentence.cuts)
        covered[sentence.start : sentence.end] = [True] * (sentence.end - sentence.start)
        last = sentence.end
    assert all(covered[i] for i, character in enumerate(text) if character.isalnum())


@given(st.text(alphabet="ab ,你好3.", min_size=1, max_size=600))
def test_no_clause_is_heavier_than_the_limit(text: str) -> None:
    weight = weights(text)
    for sentence in sentences(text):
        at = sentence.start
        for end in sentence.cuts:
            inner = text[at:end]
            if not re.search(r"[0-9A-Za-z.,]{60}", inner):
                assert weight[end] - weight[at] <= REST_HIGH + 4 * 20
            at = end
