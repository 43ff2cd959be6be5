"""Stage by stage: a row in a padded batch is the row alone. The batch holds rows of very unlike lengths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from gleeman.speech.models.kokoro.layers import AdaIN, BiLSTM, Rows
from gleeman.speech.models.kokoro.model import Kokoro, Reading
from gleeman.speech.models.kokoro.prosody import bend_pitch, spread, whole_frames
from gleeman.speech.models.kokoro.source import ShortFourier, cycles, draw_noise
from tiny_kokoro import TINY, tiny_model

TOKENS = (9, 3, 17, 4)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def model() -> Kokoro:
    torch.set_num_threads(1)  # a tiny model only waits for a second thread
    return tiny_model().prepare()


def alone(length: int) -> Rows:
    return Rows((length,), CPU)


def a_batch() -> tuple[Tensor, Tensor, Rows]:
    draw = torch.Generator().manual_seed(1)
    rows = Rows(TOKENS, CPU)
    ids = torch.randint(1, TINY.tokens, (len(TOKENS), rows.longest), generator=draw)
    ids[:, 0] = 0
    for row, length in enumerate(TOKENS):
        ids[row, length - 1 :] = 0
    return ids, torch.randn(len(TOKENS), 2 * TINY.style, generator=draw), rows


def close(batch: Tensor, single: Tensor, tolerance: float = 1e-4) -> None:
    assert torch.isfinite(single).all()
    assert single.abs().max() > 1e-3, "a test on nothing"
    torch.testing.assert_close(batch, single, rtol=0, atol=tolerance * max(1.0, float(single.abs().max())))


def readings(model: Kokoro) -> tuple[Reading, Tensor, Rows]:
    ids, style, rows = a_batch()
    reading = model.read(ids, style[:, TINY.style :], rows)
    return reading, whole_frames(reading.durations, torch.ones(len(TOKENS)), rows), rows


def test_reading_a_batch_gives_each_rows_own_states_and_durations(model: Kokoro) -> None:
    ids, style, _ = a_batch()
    reading, frames, _ = readings(model)
    for row, length in enumerate(TOKENS):
        one = model.read(ids[row : row + 1, :length], style[row : row + 1, TINY.style :], alone(length))
        close(reading.text[row, :length], one.text[0])
        close(reading.prosody[row, :length], one.prosody[0])
        close(reading.durations[row, :length], one.durations[0])
        assert (
            frames[row, :length].tolist()
            == whole_frames(one.durations, torch.ones(1), alone(length))[0].tolist()
        )
        assert (frames[row, length:] == 0).all()
        assert (frames[row, :length] >= 1).all()


def test_curves_of_a_batch_are_each_rows_own(model: Kokoro) -> None:
    reading, frames, _ = readings(model)
    _, style, _ = a_batch()
    lengths = Rows(tuple(frames.sum(1).tolist()), CPU)
    assert len(set(lengths.lengths)) == len(TOKENS)
    f0, energy = model.curves(reading.prosody, frames, style[:, TINY.style :], lengths)
    assert (f0 > 10).any()
    assert (f0 < 10).any()
    for row, (tokens, length) in enumerate(zip(TOKENS, lengths.lengths, strict=True)):
        one_f0, one_energy = model.curves(
            reading.prosody[row : row + 1, :tokens],
            frames[row : row + 1, :tokens],
            style[row : row + 1, TINY.style :],
            alone(length),
        )
        close(f0[row, : 2 * length], one_f0[0])
        close(energy[row, : 2 * length], one_energy[0])
        assert (f0[row, 2 * length :] == 0).all()
        bent = bend_pitch(f0, torch.full((4,), 1.2), torch.full((4,), 1.5))
        one_bent = bend_pitch(one_f0, torch.tensor([1.2]), torch.tensor([1.5]))
        close(bent[row, : 2 * length], one_bent[0])


def test_features_of_a_batch_are_each_rows_own(model: Kokoro) -> None:
    reading, frames, _ = readings(model)
    _, style, _ = a_batch()
    lengths = Rows(tuple(frames.sum(1).tolist()), CPU)
    draw = torch.Generator().manual_seed(2)
    f0 = torch.rand(len(TOKENS), 2 * lengths.longest, generator=draw) * 200
    energy = torch.randn(len(TOKENS), 2 * lengths.longest, generator=draw)
    f0, energy = f0 * lengths.times(2).mask[:, 0], energy * lengths.times(2).mask[:, 0]
    features = model.features(reading.text, frames, f0, energy, style[:, : TINY.style], lengths)
    for row, (tokens, length) in enumerate(zip(TOKENS, lengths.lengths, strict=True)):
        one = model.features(
            reading.text[row : row + 1, :tokens],
            frames[row : row + 1, :tokens],
            f0[row : row + 1, : 2 * length],
            energy[row : row + 1, : 2 * length],
            style[row : row + 1, : TINY.style],
            alone(length),
        )
        close(features[row, :, : 2 * length], one[0])


FRAMES = (11, 4, 23, 5)


def vocoder_inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Rows]:
    """Features, timbre, pitch and noise; the pads hold rubbish where rubbish is allowed."""
    draw = torch.Generator().manual_seed(3)
    lengths = Rows(FRAMES, CPU)
    features = torch.randn(len(FRAMES), TINY.upsample_channels, 2 * lengths.longest, generator=draw)
    f0 = torch.rand(len(FRAMES), 2 * lengths.longest, generator=draw) * 300
    f0[f0 < 60] = 0
    f0 = f0 * lengths.times(2).mask[:, 0]
    noise = draw_noise([5, 6, 7, 8], lengths.times(TINY.samples_per_frame))
    return features, torch.randn(len(FRAMES), TINY.style, generator=draw), f0, noise, lengths


def test_the_source_of_a_batch_is_each_rows_own(model: Kokoro) -> None:
    _, _, f0, noise, lengths = vocoder_inputs()
    voicing = torch.tensor([1.0, 0.5, 1.0, 0.0])
    source = model.source(f0, voicing, noise, lengths)
    for row, length in enumerate(FRAMES):
        samples = length * TINY.samples_per_frame
        one = model.source(
            f0[row : row + 1, : 2 * length],
            voicing[row : row + 1],
            noise[row : row + 1, :samples],
            alone(length),
        )
        close(source[row, :samples], one[0], 1e-5)


def test_the_vocoder_given_the_same_features_pitch_and_noise_makes_each_rows_own_wave(model: Kokoro) -> None:
    features, timbre, f0, noise, lengths = vocoder_inputs()
    source = model.source(f0, torch.ones(len(FRAMES)), noise, lengths)
    wave = model.wave(features, timbre, source, lengths)
    assert wave.shape == (len(FRAMES), lengths.longest * 600)
    for row, length in enumerate(FRAMES):
        samples = length * TINY.samples_per_frame
        one = model.wave(
            features[row : row + 1, :, : 2 * length],
            timbre[row : row + 1],
            source[row : row + 1, :samples],
            alone(length),
        )
        close(wave[row, :samples], one[0])
        assert (wave[row, samples:] == 0).all()


def test_rows_of_one_length_need_no_mask_and_give_the_same(model: Kokoro) -> None:
    features, timbre, f0, noise, _ = vocoder_inputs()
    length = min(FRAMES)
    even = Rows((length,) * 2, CPU)
    cut = length * TINY.samples_per_frame
    source = model.source(f0[:2, : 2 * length], torch.ones(2), noise[:2, :cut], even)
    wave = model.wave(features[:2, :, : 2 * length], timbre[:2], source, even)
    one = model.wave(features[1:2, :, : 2 * length], timbre[1:2], source[1:2], alone(length))
    assert even.even
    close(wave[1], one[0])


def test_noise_is_drawn_from_each_rows_seed_at_its_own_length() -> None:
    both = draw_noise([11, 12], Rows((40, 100), CPU))
    assert torch.equal(both[0, :40], draw_noise([11], Rows((40,), CPU))[0])
    assert torch.equal(both[1], draw_noise([12], Rows((100,), CPU))[0])
    assert (both[0, 40:] == 0).all()
    assert not torch.equal(both[0, :40], both[1, :40])
    assert torch.isfinite(draw_noise([(1 << 63) - 1], Rows((40,), CPU))).all()


def test_a_masked_norm_takes_no_notice_of_what_the_pads_hold() -> None:
    norm = AdaIN(3, 2)
    x, style = torch.randn(1, 3, 9), torch.randn(1, 2)
    padded = torch.full((2, 3, 20), 1e3)
    padded[0, :, :9] = x
    many = norm(padded, style.expand(2, -1), Rows((9, 20), CPU))
    close(many[0, :, :9], norm(x, style, alone(9))[0])


def test_the_backward_lstm_starts_at_the_rows_own_end() -> None:
    lstm = BiLSTM(4, 6)
    x = torch.randn(2, 8, 4)
    many = lstm.run(x, Rows((5, 8), CPU))
    close(many[0, :5], lstm.run(x[:1, :5], alone(5))[0])
    assert (many[0, 5:] == 0).all()


def test_the_phase_of_a_long_steady_tone_does_not_drift() -> None:
    values = 80 * 60  # a minute
    turns = cycles(torch.full((1, values), 123.5), alone(values), 300, 24_000)
    assert turns.min() >= 0
    assert turns.max() <= 1
    # from one centre to the last but one: (values - 2) whole steps of 300 samples
    gone = float(turns[0, 300 * (values - 2) + 150] - turns[0, 150])
    expected = 123.5 * 300 / 24_000 * (values - 2)
    assert abs((gone - expected + 0.5) % 1 - 0.5) < 1e-6


def test_the_short_fourier_transform_undoes_itself_and_agrees_with_torch() -> None:
    fourier = ShortFourier(20, 5)
    signal = torch.randn(2, 300)
    bins = fourier.forward(signal, Rows((300, 300), CPU))
    window = torch.hann_window(20, periodic=True)
    theirs = torch.stft(signal, 20, 5, 20, window, return_complex=True)
    torch.testing.assert_close(bins[:, :11], theirs.abs(), rtol=0, atol=1e-5)
    back = fourier.inverse(bins[:, :11], bins[:, 11:], Rows((61, 61), CPU))
    torch.testing.assert_close(back, signal, rtol=0, atol=1e-5)


def test_spreading_repeats_each_phoneme_for_its_frames() -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [9.0]]])
    frames = torch.tensor([[2, 1, 3], [1, 2, 0]])
    out = spread(x, frames, 6)[..., 0]
    assert out[0].tolist() == [1, 1, 2, 3, 3, 3]
    assert out[1, :3].tolist() == [4, 5, 5]
