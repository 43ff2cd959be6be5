"""A sentence cut in clauses against the same sentence uncut: what is rendered, what is heard at the joint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gleeman.records import Clause, LineKey, Row, RowAudio
from gleeman.speech.models.kokoro.pipeline import KokoroPipeline
from gleeman.speech.models.kokoro.spans import ONSET_FRAMES, Context, span_of
from gleeman.speech.models.kokoro.vocoder import CONTEXT
from gleeman.text.frontend import accent_of, read
from gleeman.voices.store import VoiceStore
from tiny_kokoro import write_tiny

RATE_HZ = 24_000
PLAIN = Clause("", "", "en-us", 0, 9, (), 1, True)


def parts_of(*pieces: str) -> list[Clause]:
    """Clauses of the sentence that the pieces make."""
    sentence, clauses = "".join(pieces), []
    for piece in pieces:
        first = sum(len(clause.sentence[clause.sentence_first : clause.sentence_last]) for clause in clauses)
        clauses.append(
            dataclasses.replace(
                PLAIN,
                phonemes=piece.rstrip(),
                sentence=sentence,
                sentence_phonemes=len(sentence),
                sentence_first=first,
                sentence_last=first + len(piece),
                ends_sentence=False,
            )
        )
    return [*clauses[:-1], dataclasses.replace(clauses[-1], ends_sentence=True)]


def uncut(clause: Clause) -> Clause:
    return dataclasses.replace(
        clause,
        phonemes=clause.sentence,
        sentence="",
        sentence_first=0,
        sentence_last=0,
        words=(),
        ends_sentence=True,
    )


def row(clause: Clause, index: int = 0, voice: str = "af_heart", **changes: float) -> Row:
    plain = Row(LineKey(1, 1), index, clause, voice, "neutral", 1.0, 1.0, 0.0, 0.0, 5 + index)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


# ---- which frames --------------------------------------------------------------------------------


def ends_of(*lengths: int) -> np.ndarray:
    return np.cumsum(lengths)


def test_the_spans_of_a_sentence_follow_one_another() -> None:
    clauses = parts_of("ab, ", "cd, ", "ef.")
    ends = ends_of(12, 5, 5, 4, 2, 5, 5, 6, 3, 5, 5, 2, 14)
    spans = [span_of(clause, ends, Context(4, 0)) for clause in clauses]
    whole = span_of(uncut(clauses[0]), ends, Context(4, 0))
    assert (spans[0].begin, spans[-1].end) == (whole.begin, whole.end) == whole.whole
    assert [span.end for span in spans[:-1]] == [span.begin for span in spans[1:]]
    assert [span.pause for span in spans] == [0, 0, whole.pause]
    assert [(span.begin - span.first, span.last - span.end) for span in spans] == [(0, 4), (4, 4), (4, 0)]


@pytest.mark.parametrize(("comma", "space", "early"), [(8, 2, ONSET_FRAMES), (3, 1, 2), (1, 1, 1), (0, 1, 0)])
def test_a_clause_begins_in_the_pause_before_its_first_phoneme(comma: int, space: int, early: int) -> None:
    text = ("ab, ", "cd.") if comma else ("ab ", "cd.")
    pause = (comma, space) if comma else (space,)
    ends = ends_of(12, 5, 5, *pause, 5, 5, 2, 14)
    second = span_of(parts_of(*text)[1], ends, Context(4, 0))
    assert int(ends[second.tokens]) - second.begin == early


@pytest.mark.parametrize("least", [0, 30, 45, 1000])
def test_a_short_clause_is_rendered_with_more_of_its_sentence(least: int) -> None:
    ends = ends_of(12, 20, 20, 4, 2, 5, 5, 6, 3, 20, 20, 2, 14)
    for clause in parts_of("ab, ", "cd, ", "ef."):
        span = span_of(clause, ends, Context(4, least))
        first, last = span.whole
        assert first <= span.first <= span.begin < span.end <= span.last <= last
        assert span.last - span.first >= min(least, last - first)
        if span.last - span.first > max(least, 1):
            assert span.begin - span.first <= 4
            assert span.last - span.end <= 4


def test_a_clause_by_itself_is_rendered_as_it_is() -> None:
    span = span_of(dataclasses.replace(PLAIN, phonemes="ab."), ends_of(12, 5, 5, 2, 14), CONTEXT)
    assert (span.first, span.last) == (span.begin, span.end) == span.whole


# ---- what the tiny model makes of it -------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> KokoroPipeline:
    made = KokoroPipeline(
        write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.safetensors"), VoiceStore(), "cpu", 1
    )
    made.load(lambda state, progress: None)
    return made


@pytest.mark.parametrize("changes", [{}, {"speed": 0.6}, {"pitch": 3.0}, {"energy": -3.0}])
def test_events_run_on_over_a_cut(tiny: KokoroPipeline, changes: dict[str, float]) -> None:
    """Every phoneme begins where it begins in the sentence uncut."""
    clauses = parts_of("ðə kwˈɪk bɹˈWn, ", "fˈɑks sˈæt dˈWn, ", "wˈʌn tˈu.")
    whole = tiny.run([row(uncut(clauses[0]), **changes)])[0]
    parts = tiny.run([row(clause, index, **changes) for index, clause in enumerate(clauses)])
    assert sum(len(part.samples) for part in parts) == len(whole.samples)
    assert mouth(parts) == mouth([whole])


def mouth(parts: list[RowAudio]) -> list[tuple[int, int]]:
    """Shapes as they follow one another, without those that the next one replaces at the same sample."""
    shapes: list[tuple[int, int]] = []
    start = 0
    for part in parts:
        for event in part.events[1:]:
            at = start + event.sample
            if shapes and shapes[-1][0] == at:
                shapes.pop()
            if not shapes or shapes[-1][1] != event.code:
                shapes.append((at, event.code))
        start += len(part.samples)
    return shapes


def test_a_part_of_a_sentence_sounds_the_same_whoever_shares_its_batch(tiny: KokoroPipeline) -> None:
    rows = [
        row(clause, index) for index, clause in enumerate(parts_of("ðə kwˈɪk bɹˈWn, ", "fˈɑks sˈæt dˈWn."))
    ]
    other = row(dataclasses.replace(PLAIN, phonemes="nˈO nˈO nˈO."), 7)
    for one, many in zip([tiny.run([alone])[0] for alone in rows], tiny.run([*rows, other])[:2], strict=True):
        assert one.events == many.events
        assert np.quantile(np.abs(one.samples - many.samples), 0.9) < 1e-3


# ---- what the real model makes of it -------------------------------------------------------------


@pytest.fixture(scope="module")
def real(weights: Path) -> KokoroPipeline:
    (file,) = weights.glob("*.safetensors")
    made = KokoroPipeline(file, VoiceStore(), "cpu", 2)
    made.load(lambda state, progress: None)
    return made


LINES = [
    ("am_fenrir", "Halt, traveller, or my archers will shoot you where you stand."),
    ("zm_yunyang", "别担心，我会保护你的，直到我们离开这片森林。"),
]


@pytest.mark.weights
@pytest.mark.parametrize(("voice", "text"), LINES)
def test_a_joint_is_heard_no_more_than_the_same_place_uncut(
    real: KokoroPipeline, voice: str, text: str
) -> None:
    clauses = read(text, "auto", accent_of(voice), True).clauses
    assert len(clauses) == 2
    first, second = (real.run([row(clause, index, voice)])[0].samples for index, clause in enumerate(clauses))
    whole = real.run([row(uncut(clauses[0]), voice=voice)])[0].samples
    cut, at = np.concatenate([first, second]), len(first)
    assert len(cut) == len(whole)
    before, after = _last_voiced(whole[:at]), at + _first_voiced(whole[at:])
    step = np.log2(_pitch_hz(cut, after) / _pitch_hz(cut, before))
    uncut_step = np.log2(_pitch_hz(whole, after) / _pitch_hz(whole, before))
    assert abs(12 * (step - uncut_step)) <= 1
    ends = before + WINDOW - SYLLABLE, after
    louder = [_level_db(cut, place, SYLLABLE) - _level_db(whole, place, SYLLABLE) for place in ends]
    assert abs(louder[1] - louder[0]) <= 2
    assert _quiet_ms(cut, at) - _quiet_ms(whole, at) <= 150


WINDOW = 1_200
"""50 ms, for pitch and for what is voiced."""
SYLLABLE = 4_800
"""200 ms, for how loud it is on both sides of a joint: over ten lines of ten voices 1.4 dB apart in the mean,
3.6 at most, two above 2. In the last 50 ms alone, where a voice dies away, it is 4 and 9."""


def _pitch_hz(samples: np.ndarray, at: int) -> float:
    """By autocorrelation of 50 ms; nan where nothing is voiced."""
    part = samples[at : at + WINDOW] - samples[at : at + WINDOW].mean()
    alike = np.correlate(part, part, "full")[WINDOW - 1 :]
    low, high = RATE_HZ // 400, RATE_HZ // 60
    lag = low + int(np.argmax(alike[low:high]))
    return RATE_HZ / lag if alike[lag] > 0.5 * alike[0] else float("nan")


def _level_db(samples: np.ndarray, at: int, length: int = WINDOW) -> float:
    return float(10 * np.log10(np.square(samples[at : at + length]).mean() + 1e-12))


def _voiced(samples: np.ndarray) -> list[int]:
    """Where 50 ms of clearly voiced sound begin."""
    loud = float(10 * np.log10(np.square(samples).mean())) - 10
    starts = range(0, len(samples) - WINDOW, 240)
    return [at for at in starts if _level_db(samples, at) > loud and _pitch_hz(samples, at) > 0]


def _last_voiced(samples: np.ndarray) -> int:
    return _voiced(samples)[-1]


def _first_voiced(samples: np.ndarray) -> int:
    return _voiced(samples)[0]


def _quiet_ms(samples: np.ndarray, at: int) -> int:
    """How long the stretch below -50 dB around `at` lasts."""
    loud = np.square(samples[: len(samples) // 120 * 120].reshape(-1, 120)).mean(1) > 1e-5
    before, after = loud[: at // 120][::-1], loud[at // 120 :]
    return 5 * sum(int(np.argmax(side)) if side.any() else len(side) for side in (before, after))
