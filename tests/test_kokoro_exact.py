"""Random batches, stage by stage: a row in a padded batch is the row alone, in float32.

Durations are equal (but where a sum lies within 1e-4 of a half), features within 1e-4, pitch within 0.01 Hz,
and the wave, given the same features and source, within 1e-4. Each stage is given the batch's own inputs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from gleeman.speech.models.kokoro.layers import Rows
from gleeman.speech.models.kokoro.model import Kokoro, load
from gleeman.speech.models.kokoro.prosody import whole_frames
from gleeman.speech.models.kokoro.source import draw_noise
from gleeman.voices.store import VoiceStore
from tiny_kokoro import tiny_model

CPU = torch.device("cpu")


class Draw(NamedTuple):
    """One random batch."""

    ids: Tensor
    styles: Tensor
    speed: Tensor
    tokens: Rows
    frames: Rows
    """Lengths for the vocoder alone."""
    row: int
    """The one that is run alone too."""


def draws(count: int, rows: int, phonemes: int, frames: int, symbols: int) -> Iterator[Draw]:
    """The same batches each time: 1 to `rows` rows, 1 to `phonemes` phonemes, short ones more often."""
    voices = VoiceStore()
    names = voices.names()
    for seed in range(count):
        chance = random.Random(seed)
        size = chance.randint(1, rows)
        lengths = [round(phonemes ** chance.random() ** 1.5) for _ in range(size)]
        tokens = Rows(tuple(length + 2 for length in lengths), CPU)
        ids = torch.zeros(size, tokens.longest, dtype=torch.long)
        for row, length in enumerate(lengths):
            ids[row, 1 : length + 1] = torch.tensor([chance.randrange(1, symbols) for _ in range(length)])
        styles = torch.stack(
            [torch.from_numpy(voices.style(chance.choice(names))[length - 1].copy()) for length in lengths]
        )
        speed = torch.tensor([chance.uniform(0.5, 2.0) for _ in lengths])
        parts = Rows(tuple(chance.randint(1, frames) for _ in lengths), CPU)
        yield Draw(ids, styles, speed, tokens, parts, chance.randrange(size))


def apart(batch: Tensor, single: Tensor) -> float:
    """Greatest distance, in units of the single's own size where that is above 1."""
    assert torch.isfinite(single).all()
    return float((batch - single).abs().max()) / max(1.0, float(single.abs().max()))


def check(model: Kokoro, drawn: Draw) -> None:
    """Every stage of the batch against one of its rows alone."""
    config = model.config
    timbre, manner = drawn.styles.chunk(2, dim=1)
    reading = model.read(drawn.ids, manner, drawn.tokens)
    frames = whole_frames(reading.durations, drawn.speed, drawn.tokens)
    lengths = Rows(tuple(frames.sum(1).tolist()), CPU)
    f0, energy = model.curves(reading.prosody, frames, manner, lengths)
    features = model.features(reading.text, frames, f0, energy, timbre, lengths)
    source_f0 = torch.rand(len(frames), 2 * drawn.frames.longest) * 300
    source_f0 = source_f0 * drawn.frames.times(2).mask[:, 0]
    noise = draw_noise(list(range(len(frames))), drawn.frames.times(config.samples_per_frame))
    source = model.source(source_f0, torch.ones(len(frames)), noise, drawn.frames)
    heard = torch.randn(len(frames), config.upsample_channels, 2 * drawn.frames.longest)
    wave = model.wave(heard, timbre, source, drawn.frames)

    row = drawn.row
    one = slice(row, row + 1)
    count, length, part = (at.lengths[row] for at in (drawn.tokens, lengths, drawn.frames))
    alone = Rows((count,), CPU)
    own = model.read(drawn.ids[one, :count], manner[one], alone)
    assert apart(reading.prosody[row, :count], own.prosody[0]) < 1e-4
    assert apart(reading.text[row, :count], own.text[0]) < 1e-4
    own_frames = whole_frames(own.durations, drawn.speed[one], alone)[0]
    near_half = ((own.durations[0] / drawn.speed[row]) % 1 - 0.5).abs() < 1e-4
    assert ((frames[row, :count] == own_frames) | near_half).all()

    own_f0, own_energy = model.curves(
        reading.prosody[one, :count], frames[one, :count], manner[one], Rows((length,), CPU)
    )
    assert float((f0[row, : 2 * length] - own_f0[0]).abs().max()) < 0.01
    assert apart(energy[row, : 2 * length], own_energy[0]) < 1e-4
    own_features = model.features(
        reading.text[one, :count],
        frames[one, :count],
        f0[one, : 2 * length],
        energy[one, : 2 * length],
        timbre[one],
        Rows((length,), CPU),
    )
    assert apart(features[row, :, : 2 * length], own_features[0]) < 1e-4
    samples = part * config.samples_per_frame
    own_wave = model.wave(heard[one, :, : 2 * part], timbre[one], source[one, :samples], Rows((part,), CPU))
    assert apart(wave[row, :samples], own_wave[0]) < 1e-4


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def test_200_random_batches_are_exact_on_the_tiny_model() -> None:
    torch.set_num_threads(1)
    model = tiny_model().prepare()
    for drawn in draws(200, rows=16, phonemes=300, frames=12, symbols=model.config.tokens):
        check(model, drawn)


@pytest.mark.exact
@pytest.mark.weights
@pytest.mark.timeout(1200)
def test_12_random_batches_are_exact_on_the_real_model(weights: Path) -> None:
    model = load(weights / "kokoro-82m-v1.0.safetensors", CPU)
    for drawn in draws(12, rows=6, phonemes=80, frames=60, symbols=model.config.tokens):
        check(model, drawn)


def test_the_same_shape_and_threads_give_the_same_bits_twice() -> None:
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model().prepare(dtype)
        for drawn in itertools.islice(draws(3, 6, 60, 12, model.config.tokens), 3):
            timbre, manner = drawn.styles.chunk(2, dim=1)
            heard = torch.randn(len(timbre), model.config.upsample_channels, 2 * drawn.frames.longest)
            source = torch.randn(len(timbre), drawn.frames.longest * model.config.samples_per_frame).tanh()
            first, again = (model.wave(heard.clone(), timbre, source, drawn.frames) for _ in range(2))
            assert torch.equal(first, again)
            one, other = (model.read(drawn.ids, manner, drawn.tokens).durations for _ in range(2))
            assert torch.equal(one, other)
