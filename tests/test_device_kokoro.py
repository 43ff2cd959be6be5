"""The GPU's way through the model, on a stand-in device: the same sound as the CPU's way, from graphs that
hold no number of the host's, with two looks at the device a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from device_helpers import TEXTS, NotCapturable, Recorder, StandInDevice, StandInGraph
from device_helpers import spoken as row
from gleeman.errors import Failure
from gleeman.records import Row
from gleeman.speech.base import DeviceFull
from gleeman.speech.device.buckets import Policy
from gleeman.speech.models.kokoro import on_device
from gleeman.speech.models.kokoro.layers import BiLSTM, DeviceRows, Rows, moments
from gleeman.speech.models.kokoro.model import Kokoro
from gleeman.speech.models.kokoro.on_device import DeviceKokoro
from gleeman.speech.models.kokoro.pipeline import KokoroPipeline
from gleeman.speech.models.kokoro.source import ShortFourier, cycles
from gleeman.voices.store import VoiceStore
from tiny_kokoro import tiny_model, write_tiny

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield


@pytest.fixture(autouse=True, scope="module")
def _short_warm_up() -> Iterator[None]:
    """A masked norm is slow on a CPU; the tests make their own sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_device, "WARM_PHONEMES", "nˈO.")
        patch.setattr(on_device, "WARM_ROWS", (1, 2))
        yield


def a_batch() -> list[Row]:
    whispered = {"emotion": "whisper", "pitch": 2.0}
    return [row(text, seed, **(whispered if seed == 2 else {})) for seed, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.safetensors")


@pytest.fixture(scope="module")
def on_cpu(weights: Path) -> KokoroPipeline:
    made = KokoroPipeline(weights, VoiceStore(), "cpu", 1)
    made.load(lambda state, progress: None)
    return made


class Placed:
    """A pipeline on a stand-in device, and the device."""

    def __init__(self, weights: Path, **options: object) -> None:
        self.made: list[StandInDevice] = []

        def make(device: torch.device, cap: int) -> StandInDevice:
            self.made.append(StandInDevice(device, cap, policy=Policy(**options)))  # type: ignore[arg-type]
            return self.made[-1]

        self.pipeline = DeviceKokoro(weights, VoiceStore(), "cpu", make=make)

    def load(self) -> Placed:
        self.pipeline.load(lambda state, progress: None)
        return self

    @property
    def device(self) -> StandInDevice:
        return self.made[-1]


@pytest.fixture(scope="module")
def placed(weights: Path) -> Placed:
    return Placed(weights).load()


def same_sound(one: np.ndarray, other: np.ndarray) -> None:
    """As `test_kokoro_pipeline` compares batches: a random model makes a turned angle loud for a moment."""
    assert one.shape == other.shape
    assert np.abs(one).max() > 1e-3
    assert np.quantile(np.abs(one - other), 0.9) < 1e-3


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_batch_sounds_on_the_device_as_it_does_on_the_cpu(
    placed: Placed, on_cpu: KokoroPipeline, count: int
) -> None:
    rows = a_batch()[-count:]
    expected = on_cpu.run(rows)
    for _ in range(3):  # plain, captured, replayed
        for one, other in zip(expected, placed.pipeline.run(rows), strict=True):
            assert one.events == other.events
            assert one.frames == other.frames
            same_sound(one.samples, other.samples)


def test_a_cut_sentence_sounds_on_the_device_as_it_does_on_the_cpu(
    placed: Placed, on_cpu: KokoroPipeline
) -> None:
    first, second = "ðə kwˈɪk bɹˈWn,", "fˈɑks sˈæt dˈWn."
    sentence = f"{first} {second}"
    at = len(first) + 1
    rows = [
        row(
            phonemes,
            place,
            clause=dataclasses.replace(
                row(phonemes).clause,
                sentence=sentence,
                sentence_phonemes=len(sentence),
                sentence_first=begin,
                sentence_last=end,
                ends_sentence=last,
            ),
        )
        for place, (phonemes, begin, end, last) in enumerate(
            ((first, 0, at, False), (second, at, len(sentence), True))
        )
    ]
    for one, other in zip(on_cpu.run(rows), placed.pipeline.run(rows), strict=True):
        assert one.events == other.events
        same_sound(one.samples, other.samples)


def test_a_graph_of_one_batch_serves_other_lengths_of_its_size(placed: Placed) -> None:
    long, short = row(TEXTS[1]), row(TEXTS[1][:-2] + ".")
    plain = Placed(placed.pipeline.weights, captured_cells=0).load()
    for _ in range(3):
        placed.pipeline.run([long])
    made, replays = len(placed.device.made), sum(graph.replays for graph in placed.device.made)
    got = placed.pipeline.run([short])[0]
    assert len(placed.device.made) == made, "the shorter line needs no graph of its own"
    assert sum(graph.replays for graph in placed.device.made) == replays + 3
    assert np.array_equal(got.samples, plain.pipeline.run([short])[0].samples)
    assert plain.device.made == []


def test_the_same_row_twice_gives_the_same_bits_plain_or_replayed(weights: Path) -> None:
    fresh = Placed(weights).load()
    rows = [row(TEXTS[2]), row(TEXTS[0], 8)]
    runs = [fresh.pipeline.run(rows) for _ in range(4)]
    assert fresh.device.made
    for other in runs[1:]:
        for one, again in zip(runs[0], other, strict=True):
            assert np.array_equal(one.samples, again.samples)


def test_the_device_is_looked_at_twice_a_batch(placed: Placed) -> None:
    before = placed.device.fetches
    placed.pipeline.run(a_batch())
    assert placed.device.fetches == before + 2


def test_loading_captures_the_common_sizes_and_sets_the_budget(placed: Placed) -> None:
    stages = {size.stage for size in placed.device.graphs.policy.live}
    assert stages == {"read", "curves", "wave"}
    assert not placed.device.graphs.policy.banned
    budget = placed.pipeline.budget
    assert budget is not None
    assert budget.run_ns == 30_000_000
    assert 1 <= budget.frames <= 6_400


def test_a_tighter_cap_means_fewer_frames_a_batch(weights: Path) -> None:
    def frames(vram_mb: int) -> int:
        made = DeviceKokoro(weights, VoiceStore(), "cpu", vram_mb=vram_mb, make=StandInDevice)
        made.load(lambda *_: None)
        assert made.budget is not None
        return made.budget.frames

    # 400 MB of context, 350 of tensors at rest; half of what is left, at 0.25 MB a frame or more
    assert frames(1_000) <= 500 < frames(4_000)


def test_a_cap_below_the_minimum_is_refused_and_the_minimum_named(weights: Path) -> None:
    refused = Placed(weights)
    refused.pipeline = DeviceKokoro(weights, VoiceStore(), "cpu", vram_mb=450, make=StandInDevice)
    with pytest.raises(Failure, match=r"vram-mb is 450; the least .* is 465: 400 for .* 64 for") as told:
        refused.load()
    assert told.value.code == "vram-too-small"


def test_a_batch_that_does_not_fit_gives_everything_back_and_a_smaller_one_runs(weights: Path) -> None:
    short = Placed(weights).load()
    rows = a_batch()
    expected = short.pipeline.run(rows[:1])[0].samples
    assert len(short.device.graphs) > 0
    frames = short.pipeline.run([rows[3]])[0].frames
    short.device.most_cells = frames * 600 * 2  # two long rows are too many
    with pytest.raises(DeviceFull) as told:
        short.pipeline.run(rows)
    assert told.value.code == "busy"
    assert len(short.device.graphs) == 0
    assert short.device.freed == 1
    assert np.array_equal(short.pipeline.run(rows[:1])[0].samples, expected)
    made = len(short.device.made)
    for _ in range(5):
        short.pipeline.run(rows[:1])
    assert len(short.device.made) == made, "nothing is captured while memory is short"


def test_another_error_is_not_taken_for_want_of_memory(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Placed(weights).load()
    monkeypatch.setattr(Kokoro, "read", lambda *_: (_ for _ in ()).throw(RuntimeError("device-side assert")))
    broken.device.graphs.drop()
    with pytest.raises(RuntimeError, match="device-side assert"):
        broken.pipeline.run(a_batch())


def test_what_is_not_loaded_or_was_closed_says_so(weights: Path) -> None:
    closed = Placed(weights)
    assert closed.pipeline.device_memory() is None
    with pytest.raises(Failure, match="not loaded"):
        closed.pipeline.run(a_batch())
    closed.load()
    memory = closed.pipeline.device_memory()
    assert memory is not None
    assert memory.peak >= memory.used > 0
    closed.pipeline.close()
    with pytest.raises(Failure, match="not loaded"):
        closed.pipeline.run(a_batch())


# ---- layers with lengths that only the device knows ------------------------------------------------------


def both(lengths: tuple[int, ...], size: int) -> tuple[Rows, DeviceRows]:
    return Rows(lengths, CPU), DeviceRows(torch.tensor(lengths), size)


def test_rows_on_the_device_have_the_masks_of_rows_on_the_host() -> None:
    host, device = both((3, 5, 1), 8)
    assert device.longest == 8
    assert torch.equal(device.mask[..., :5], host.mask)
    assert (device.mask[..., 5:] == 0).all()
    assert torch.equal(device.counts, host.counts)
    doubled = device.times(6, plus=1)
    assert doubled.longest == 49
    assert torch.equal(doubled.on_device, host.times(6, plus=1).on_device)
    x = torch.randn(3, 2, 8)
    assert torch.equal(device.zero_pads(x.clone())[..., :5], host.zero_pads(x[..., :5].clone()))
    assert not device.even


def test_moments_by_mask_are_those_row_by_row_whatever_the_pads_hold() -> None:
    host, device = both((3, 7), 12)
    x = torch.randn(2, 4, 12) * 3 + 5
    x[0, :, 3:] = float("nan")
    for one, other in zip(moments(x[..., :7], host), moments(x, device), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_an_lstm_over_turned_rows_is_the_packed_one() -> None:
    lstm = BiLSTM(4, 6).eval()
    lstm.split()
    host, device = both((5, 8, 1), 11)
    x = torch.randn(3, 11, 4)
    packed = lstm.run(x[:, :8].contiguous(), host)
    turned = lstm.run(x, device)
    torch.testing.assert_close(turned[:, :8], packed, rtol=0, atol=1e-6)
    assert (turned[:, 8:] == 0).all()
    assert lstm._halves is not None
    assert lstm._halves[1].weight_ih_l0 is lstm.weight_ih_l0_reverse


def test_phase_and_fourier_take_their_edges_from_the_device() -> None:
    host, device = both((6, 9), 12)
    f0 = torch.rand(2, 12) * 200
    f0[0, 6:] = 0
    f0[1, 9:] = 0
    one = cycles(f0[:, :9], host, 300, 24_000)
    other = cycles(f0, device, 300, 24_000)
    assert torch.equal(one[0, : 6 * 300], other[0, : 6 * 300])
    assert torch.equal(one[1], other[1, : 9 * 300])
    fourier = ShortFourier(20, 5)
    signal = torch.randn(2, 600)
    host, device = both((300, 450), 600)
    bins, more = fourier.forward(signal[:, :450], host), fourier.forward(signal, device)
    for place, frames in enumerate((61, 91)):
        assert torch.equal(bins[place, :, :frames], more[place, :, :frames])
    host, device = host.times(1), device.times(1)
    back = fourier.inverse(more[:, :11], more[:, 11:], DeviceRows(torch.tensor((61, 91)), 121))
    expected = fourier.inverse(bins[:, :11], bins[:, 11:], Rows((61, 91), CPU))
    assert torch.equal(back[:, :450], expected)
    assert (back[:, 450:] == 0).all()


# ---- the stand-in itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stage",
    [
        lambda x: x * x.max().item(),
        lambda x: x * torch.tensor([1.0, 2.0]),
        lambda x: x[x > 0],
        lambda x: x[:, [0, -1]],
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x[: int(x.sum())],
        lambda x: nn_pack(x),
    ],
)
def test_the_stand_in_refuses_what_a_capture_refuses(stage: object) -> None:
    with pytest.raises((NotCapturable, RuntimeError)), Recorder():
        stage(torch.rand(2, 2))  # type: ignore[operator]


def nn_pack(x: Tensor) -> Tensor:
    packed = torch.nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True)
    return packed.data


def test_the_stand_in_replays_what_was_recorded_and_nothing_else() -> None:
    calls = []

    def stage(x: Tensor) -> tuple[Tensor, ...]:
        calls.append(1)
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 1]
        y.add_(len(calls))
        return (y.cumsum(1),)

    graph = StandInGraph(stage, (torch.ones(1, 3),))
    graph.inputs[0].copy_(torch.tensor([[0.0, 5.0, 0.0]]))
    graph.replay()
    assert graph.outputs[0].tolist() == [[7.0, 9.0, 11.0]], "the count is that of the capture"
    assert len(calls) == 2


def test_the_models_stages_of_rows_on_the_host_could_not_be_captured() -> None:
    """What the stand-in is worth: the CPU's way does not pass it."""
    model = tiny_model().prepare()
    ids = torch.ones(2, 8, dtype=torch.long)
    with pytest.raises((NotCapturable, RuntimeError)), Recorder():
        model.read(ids, torch.randn(2, 128), Rows((8, 5), CPU))
