"""Emotions by name."""

from __future__ import annotations

import pytest

from gleeman.speech.emotion import EMOTIONS, Manner, decibels, manner_of, resolve, semitones


def test_every_listed_name_resolves_to_itself_without_a_warning() -> None:
    assert EMOTIONS[0] == "neutral"
    for name in EMOTIONS:
        assert resolve(name) == (name, "")
        assert resolve(f" {name.upper()} ") == (name, "")
    assert resolve("") == ("neutral", "")


def test_an_unknown_name_is_neutral_and_warns_with_the_near_one() -> None:
    name, warning = resolve("hapy")
    assert name == "neutral"
    assert "'hapy'" in warning
    assert "'happy'" in warning
    name, warning = resolve("x" * 5000)
    assert name == "neutral"
    assert len(warning) < 300


def test_intensity_interpolates_between_neutral_and_the_table() -> None:
    assert manner_of("sad", 0.0) == Manner()
    full = manner_of("sad", 1.0)
    half = manner_of("sad", 0.5)
    assert full.speed < half.speed < 1
    assert half.speed**2 == pytest.approx(full.speed)
    assert half.energy == pytest.approx(full.energy / 2)
    assert manner_of("whisper", 0.5).whisper == pytest.approx(0.5)
    assert manner_of("sad", 7.0) == full


def test_emotions_point_where_their_names_say() -> None:
    assert manner_of("happy", 1).pitch > 1 > manner_of("sad", 1).pitch
    assert manner_of("angry", 1).energy > 0 > manner_of("sad", 1).energy
    assert manner_of("afraid", 1).speed > 1 > manner_of("sad", 1).speed


def test_an_octave_doubles_and_twenty_decibels_are_ten_times() -> None:
    assert semitones(12) == pytest.approx(2)
    assert decibels(-20) == pytest.approx(0.1)
