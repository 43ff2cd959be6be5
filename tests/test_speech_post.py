"""Sample rate, limiter and the events' clock, over the seams of chunks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleeman.records import Event, EventType
from gleeman.speech.post import RELEASE_S, THRESHOLD, Limiter, LinePost


def tone(count: int, level: float = 0.5, hz: float = 440.0, rate: int = 24_000) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz / rate * np.arange(count))).astype(np.float32)


def in_parts(process, samples: np.ndarray, cuts: list[int]) -> np.ndarray:
    edges = [0, *sorted(cuts), samples.size]
    parts = [samples[begin:end] for begin, end in itertools.pairwise(edges)]
    return np.concatenate([process(part, index == len(parts) - 1) for index, part in enumerate(parts)])


def test_equal_rates_pass_bit_for_bit():
    samples = np.random.default_rng(1).uniform(-0.98, 0.98, 5000).astype(np.float32)
    out, _ = LinePost(24_000, 24_000).process(samples, (), True)
    assert out is samples


@pytest.mark.parametrize("rate_out", [44_100, 48_000])
@pytest.mark.parametrize("cuts", [[], [1], [700, 701, 9000], [11_999]])
def test_a_line_in_chunks_sounds_as_the_line_at_once(rate_out, cuts):
    samples = tone(12_000)
    whole = LinePost(24_000, rate_out)
    expected, _ = whole.process(samples, (), True)
    post = LinePost(24_000, rate_out)
    out = in_parts(lambda part, last: post.process(part, (), last)[0], samples, cuts)
    assert out.size == expected.size == 12_000 * rate_out // 24_000
    np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.parametrize("rate_out", [44_100, 48_000])
def test_resampling_keeps_time_and_tone(rate_out):
    out, _ = LinePost(24_000, rate_out).process(tone(24_000), (), True)
    middle = slice(2_000, -2_000)
    np.testing.assert_allclose(out[middle], tone(rate_out, rate=rate_out)[middle], atol=1e-3)


def test_an_empty_last_chunk_pushes_out_the_rest():
    post = LinePost(24_000, 48_000)
    first, _ = post.process(tone(2_400), (), False)
    rest, _ = post.process(np.zeros(0, np.float32), (), True)
    assert first.size < 4_800
    assert first.size + rest.size == 4_800


def test_a_line_without_samples_is_an_empty_line():
    out, events = LinePost(24_000, 48_000).process(np.zeros(0, np.float32), (), True)
    assert out.size == 0
    assert events == ()


def test_events_count_from_the_lines_first_sample_at_the_sessions_rate():
    post = LinePost(24_000, 48_000)
    event = Event(100, EventType.WORD, 0, 0.0, 3, 9, 50)
    assert post.process(tone(1_000), (event,), False)[1] == (
        event._replace(sample=200, duration_samples=100),
    )
    assert post.process(tone(1_000), (event,), True)[1] == (
        event._replace(sample=2_200, duration_samples=100),
    )


def test_words_that_touch_still_touch_at_another_rate():
    post = LinePost(24_000, 44_100)
    words = [Event(at, EventType.WORD, 0, 0.0, 0, 0, 101) for at in range(0, 1010, 101)]
    _, moved = post.process(tone(2_000), words, True)
    assert all(one.sample + one.duration_samples == two.sample for one, two in itertools.pairwise(moved))


def test_the_limiter_returns_what_stays_below_as_it_is():
    samples = tone(4_000, THRESHOLD)
    assert Limiter(24_000).process(samples) is samples


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 30), st.lists(st.integers(0, 3_000), max_size=4), st.integers(0, 99))
def test_nothing_leaves_the_range_and_chunks_do_not_show(level, cuts, seed):
    samples = (np.random.default_rng(seed).standard_normal(3_000) * level).astype(np.float32)
    expected = Limiter(24_000).process(samples)
    limiter = Limiter(24_000)
    out = in_parts(lambda part, _: limiter.process(part), samples, cuts)
    assert np.abs(out).max() <= 1
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_samples_before_a_peak_are_untouched_and_after_it_the_gain_comes_back():
    samples = tone(24_000, 0.5)
    samples[8_000] = 2.0
    out = Limiter(24_000).process(samples)
    np.testing.assert_array_equal(out[:8_000], samples[:8_000])
    assert THRESHOLD < out[8_000] <= 1
    assert np.all(np.sign(out) == np.sign(samples))
    released = 8_000 + int(np.log(2.0 / THRESHOLD) * RELEASE_S * 24_000) + 2
    np.testing.assert_array_equal(out[released:], samples[released:])
    assert np.abs(out[8_001:8_100]).max() < 0.75 * np.abs(samples[8_001:8_100]).max()


def test_the_gain_goes_on_recovering_across_a_seam():
    limiter = Limiter(24_000)
    limiter.process(np.array([2.0], np.float32))
    quiet = tone(4_000, 0.5)
    out = limiter.process(quiet)
    assert np.abs(out[:100]).max() < 0.75 * np.abs(quiet[:100]).max()
    np.testing.assert_array_equal(out[-1_000:], quiet[-1_000:])
    assert limiter.process(quiet) is quiet
