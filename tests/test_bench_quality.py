"""The judged comparison's arithmetic: who said what, and what is made of verdicts."""

from __future__ import annotations

import sys
from pathlib import Path

from gleeman.records import Clause
from gleeman.voices.store import VoiceStore

sys.path.append(str(Path(__file__).resolve().parents[1]))  # benchmarks/ is no part of the package

from benchmarks.quality.__main__ import compare
from benchmarks.quality.lines import LINES, Said
from benchmarks.quality.render import sentences_of


def clause(phonemes: str, *, ends: bool) -> Clause:
    return Clause(phonemes, phonemes, "en-us", 0, 1, (), len(phonemes), ends)


def verdict(wer: float, ovrl: float) -> dict[str, object]:
    return {"wer": wer, "mos": {"ovrl": ovrl, "p808": ovrl + 0.5}}


def test_clauses_are_joined_up_to_the_end_of_their_sentence() -> None:
    cut = [
        clause("a,", ends=False),
        clause("b.", ends=True),
        clause("c.", ends=True),
        clause("d", ends=False),
    ]
    assert sentences_of(cut) == ["a, b.", "c.", "d"]


def test_words_wrong_are_weighed_by_length_and_the_worst_line_is_named() -> None:
    lines = [Said("x", "en", "a" * 30), Said("y", "en", "b" * 10)]
    told = compare(
        lines,
        [
            {"plain": verdict(0.0, 3.5), "gleeman": verdict(0.2, 3.4)},
            {"plain": verdict(0.0, 3.0), "gleeman": verdict(0.0, 3.3)},
        ],
    )
    assert told["gleeman_wer"] == 0.15
    assert told["ovrl_less"] == 0.1
    assert told["worst"]["voice"] == "x"
    assert told["worst"]["ovrl_less"] == -0.1


def test_the_lines_are_thirty_of_voices_that_exist() -> None:
    assert len(LINES) == 30
    assert {said.voice for said in LINES} <= set(VoiceStore().names())
    assert {said.language for said in LINES} == {"en", "zh"}
