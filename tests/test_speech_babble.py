"""The stand-ins: how long they speak, that they sound the same each time, that they stay soft."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleeman.records import EventType, LineKey, Viseme
from gleeman.speech.models.babble.estimate import FRAME_SAMPLES, RATE_HZ, frames_of, timing_of
from gleeman.speech.models.babble.pipeline import make_babble, make_silent
from gleeman.speech.models.babble.sound import throat_of
from tick_helpers import clause, row

TEXT = "Well met, traveller! The road north is closed, and the wolves are hungry."


def babbled(spoken=TEXT, **changes):
    (audio,) = make_babble().run([row(spoken, **changes)])
    return audio


def pitch_hz(samples: np.ndarray) -> float:
    """Of the strongest harmonic pattern between 60 and 500 Hz: the cepstrum's peak."""
    spectrum = np.log(np.abs(np.fft.rfft(samples, 1 << 17)) + 1e-3)
    cepstrum = np.fft.irfft(spectrum)
    low, high = RATE_HZ // 500, RATE_HZ // 60
    return RATE_HZ / (low + int(np.argmax(cepstrum[low:high])))


def test_english_is_spoken_at_a_readers_pace():
    text = "the quick brown fox jumps over the lazy dog while seven old kings watch from the hill. " * 2
    words_a_minute = len(text.split()) * 60 / (timing_of(clause(text), 1.0).total_samples / RATE_HZ)
    assert 140 < words_a_minute < 190


def test_chinese_is_spoken_at_a_readers_pace():
    characters = "今天晚上我们在老地方见面请你不要忘记带上那封信"
    seconds = timing_of(clause(characters), 1.0).total_samples / RATE_HZ
    assert 4 < len(characters) / seconds < 6


def test_phonemes_and_letters_of_a_sentence_last_about_the_same():
    letters = timing_of(clause("The road north is closed."), 1.0).total_samples
    phonemes = timing_of(clause("", "ðə ɹˈOd nˈɔɹθ ɪz klˈOzd."), 1.0).total_samples
    assert 0.75 < phonemes / letters < 1.33


def test_twice_the_speed_is_half_the_length():
    once, twice = (timing_of(clause(TEXT), speed).total_samples for speed in (1.0, 2.0))
    assert abs(once - 2 * twice) <= 2


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.booleans(), st.floats(0.25, 4))
def test_spans_of_any_text_follow_one_another_without_gaps(text, phonemes, speed):
    made = clause("" if phonemes else text, text if phonemes else "")
    spans, total = timing_of(made, speed)
    assert len(spans) == len(text)
    begins = [begin for begin, _ in spans]
    ends = [end for _, end in spans]
    assert begins == [0, *ends[:-1]][: len(spans)]
    assert begins == sorted(begins)
    assert (ends[-1] if ends else 0) == total
    assert abs(frames_of(made, speed) * FRAME_SAMPLES - total) <= FRAME_SAMPLES


@pytest.mark.parametrize("make", [make_babble, make_silent])
def test_a_row_is_as_long_as_estimated_with_events_to_its_end(make):
    pipeline = make()
    made = row(TEXT)
    (audio,) = pipeline.run([made])
    assert audio.samples.dtype == np.float32
    assert audio.samples.size == timing_of(made.clause, 1.0).total_samples
    assert abs(pipeline.estimate_frames(made) - audio.frames) <= 1
    assert audio.events[0].type == EventType.CLAUSE
    assert audio.events[-1][:4] == (audio.samples.size, EventType.VISEME, Viseme.SIL, 1.0)


def test_silence_tells_the_same_events_as_babble():
    (audio,) = make_silent().run([row(TEXT)])
    assert not audio.samples.any()
    assert audio.events == babbled().events


def test_babble_is_soft_and_begins_and_ends_in_silence():
    samples = babbled().samples
    assert np.isfinite(samples).all()
    assert 0.1 < np.abs(samples).max() < 0.5
    assert 0.02 < np.sqrt(np.mean(samples**2)) < 0.1
    assert abs(samples[0]) < 1e-3
    assert abs(samples[-1]) < 1e-3
    assert np.abs(np.diff(samples)).max() < 0.2  # no click


@pytest.mark.parametrize("spoken", ["", " ", "a", "?", "…", "你好。", "🐺", "x" * 600])
@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_any_text_at_any_speed_gives_playable_samples(spoken, speed):
    audio = babbled(spoken, speed=speed)
    assert np.isfinite(audio.samples).all()
    assert audio.samples.size == 0 or np.abs(audio.samples).max() <= 1


def test_the_loudest_energy_stays_within_range():
    assert 0.5 < np.abs(babbled(energy=20.0).samples).max() <= 1


def test_the_same_row_gives_the_same_samples_in_any_company():
    pipeline = make_babble()
    rows = [row(TEXT, key=LineKey(1, n), seed=n) for n in (1, 2, 3)]
    together = pipeline.run(rows)
    for made, audio in zip(rows, together, strict=True):
        np.testing.assert_array_equal(pipeline.run([made])[0].samples, audio.samples)
    assert not np.array_equal(together[0].samples, together[1].samples)


def test_voices_have_a_pitch_of_their_own():
    assert throat_of("af_heart") == throat_of("af_heart")
    assert throat_of("af_heart") != throat_of("af_bella")
    assert throat_of("bm_george").f0_hz < 140 < 175 < throat_of("zf_xiaobei").f0_hz
    assert throat_of("guard") != throat_of("smith")


def test_the_pitch_asked_for_is_heard():
    low, high = (pitch_hz(babbled("a" * 12, voice="am_adam", pitch=pitch).samples) for pitch in (0.0, 7.0))
    assert abs(low / throat_of("am_adam").f0_hz - 1) < 0.15
    assert abs(high / low / 2 ** (7 / 12) - 1) < 0.15


def test_a_question_rises_at_its_end():
    question, statement = (babbled("a" * 24 + mark, voice="am_adam").samples for mark in "?.")
    part = slice(int(1.8 * RATE_HZ), int(2.0 * RATE_HZ))
    assert pitch_hz(question[part]) > 1.1 * pitch_hz(statement[part])


def test_the_mouth_is_heard_an_open_vowel_is_louder_than_a_closed_lip():
    samples = babbled("aaaammmmaaaa").samples
    spans, _ = timing_of(clause("aaaammmmaaaa"), 1.0)
    inside = [np.sqrt(np.mean(samples[spans[n][0] : spans[n + 1][1]] ** 2)) for n in (1, 5, 9)]
    assert inside[1] < 0.4 * min(inside[0], inside[2])
