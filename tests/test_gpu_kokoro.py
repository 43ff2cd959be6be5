"""On a GPU: that graphs, the plain way and the CPU give one sound, and that a batch waits for the device
twice.

`make test-gpu`. None of this has a stand-in: what can be tested without a device is in `test_device_*`.
Bounds against the CPU are wider than those of a batch against its rows, as every kernel differs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from device_helpers import TEXTS, spoken
from gleeman.records import Row
from gleeman.speech.device.buckets import Policy, padded_length
from gleeman.speech.device.cuda import CudaDevice
from gleeman.speech.models.kokoro.layers import BiLSTM, DeviceRows, Rows
from gleeman.speech.models.kokoro.model import Kokoro, load
from gleeman.speech.models.kokoro.on_device import DeviceKokoro
from gleeman.speech.models.kokoro.pipeline import KokoroPipeline
from gleeman.speech.models.kokoro.prosody import spread, whole_frames
from gleeman.speech.models.kokoro.source import draw_noise
from gleeman.voices.store import VoiceStore
from tiny_kokoro import write_tiny

pytestmark = pytest.mark.gpu

GPU = "cuda:0"
MEL_DB = 0.1
"""Of two runs of one line in float32: mean distance of their log spectra in 32 bands."""
REDUCED_MEL_DB = 1.5
"""The same for a reduced type against float32."""


def a_batch() -> list[Row]:
    return [spoken(text, seed) for seed, text in enumerate(TEXTS)]


def bands_db(samples: np.ndarray) -> np.ndarray:
    """(frames, 32): log energy in bands of 375 Hz, floored at -60 dB of full scale."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(samples, 512), 1024)[::256]
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(1024)))[:, :512])
    return 10 * np.log10(power.reshape(len(power), 32, 16).mean(2) + 1e-3)


def distance_db(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    assert np.abs(one).max() > 1e-3
    return float(np.abs(bands_db(one) - bands_db(other)).mean())


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device is an error, but for events."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is an experiment
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Placed:
    """A pipeline on the GPU, and its device."""

    def __init__(self, weights: Path, precision: str = "float32", **options: int) -> None:
        def make(device: torch.device, cap: int) -> CudaDevice:
            self.device = CudaDevice(device, cap)
            self.device.graphs.policy = Policy(**options)
            return self.device

        self.pipeline = DeviceKokoro(weights, VoiceStore(), GPU, 1, precision, make=make)
        self.pipeline.load(lambda *_: None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.safetensors")


@pytest.fixture
def place() -> Iterator[object]:
    """Make `Placed`; all are closed with the test."""
    made: list[Placed] = []

    def place(*given: object, **options: int) -> Placed:
        made.append(Placed(*given, **options))  # type: ignore[arg-type]
        return made[-1]

    yield place
    for each in made:
        each.pipeline.close()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_replayed_graph_gives_the_bits_of_the_plain_way(tiny: Path, place, precision: str) -> None:
    graphs, plain = place(tiny, precision), place(tiny, precision, captured_cells=0)
    rows = a_batch()
    expected = plain.pipeline.run(rows)
    assert len(plain.device.graphs) == 0
    for _ in range(4):  # plain, captured, replayed, replayed
        for one, other in zip(expected, graphs.pipeline.run(rows), strict=True):
            assert one.events == other.events
            assert np.array_equal(one.samples, other.samples)
    assert graphs.device.graphs.policy.banned == set()
    assert {size.stage for size in graphs.device.graphs.policy.live} == {"read", "curves", "wave"}


def test_replays_in_any_order_do_not_disturb_one_another(tiny: Path, place) -> None:
    """All graphs share one pool of memory, so one's working space is another's result."""
    placed = place(tiny)
    batches = [[spoken(text, seed)] for seed, text in enumerate(TEXTS)] + [a_batch(), a_batch()[:2]]
    expected = [placed.pipeline.run(rows) for rows in batches]
    order = [place for place in range(len(batches)) for _ in range(2)]
    for at in [*order, *reversed(order), *order[::3]]:
        for one, other in zip(expected[at], placed.pipeline.run(batches[at]), strict=True):
            assert np.array_equal(one.samples, other.samples)


def test_a_batch_waits_for_the_device_by_two_events_and_nothing_else(tiny: Path, place) -> None:
    placed = place(tiny)
    rows = a_batch()
    for _ in range(3):
        expected = placed.pipeline.run(rows)
    with no_waiting():
        got = placed.pipeline.run(rows)
    assert np.array_equal(got[0].samples, expected[0].samples)


def test_the_plain_way_waits_no_more_than_a_replay(tiny: Path, place) -> None:
    """A size that is met for the first time must not stall the device either."""
    placed = place(tiny, captured_cells=0)
    placed.pipeline.run(a_batch())
    with no_waiting():
        placed.pipeline.run(a_batch())


def test_the_wait_is_an_error_where_it_is_looked_for(tiny: Path) -> None:
    """What `no_waiting` is worth."""
    values = torch.ones(4, device=GPU)
    with pytest.raises(RuntimeError), no_waiting():
        values.sum().item()
    with pytest.raises(RuntimeError), no_waiting():
        torch.ones(4).to(GPU)


def test_work_goes_on_a_stream_of_its_own_of_the_lowest_priority(tiny: Path, place) -> None:
    device = place(tiny).device
    default = torch.cuda.default_stream(device.torch_device)
    assert device.stream != default
    assert device.stream.priority == 0
    with device.at_work():
        assert torch.cuda.current_stream() == device.stream
    assert torch.cuda.current_stream() == default


def test_closing_gives_the_memory_back(tiny: Path) -> None:
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        placed = Placed(tiny)
        placed.pipeline.run(a_batch())
        placed.pipeline.close()
        del placed
    assert torch.cuda.memory_allocated() <= before + 20_000_000, "cuBLAS keeps its workspaces"


def test_memory_is_flat_over_many_batches(tiny: Path, place) -> None:
    placed = place(tiny)
    batches = [a_batch()[: 1 + place % 4] for place in range(8)]
    for rows in batches * 3:
        placed.pipeline.run(rows)
    held = placed.pipeline.device_memory()
    for rows in batches * 10:
        placed.pipeline.run(rows)
    assert placed.pipeline.device_memory() == held


# ---- against the CPU, on the real weights --------------------------------------------------------------


@pytest.fixture
def real(weights: Path) -> Path:
    return weights / "kokoro-82m-v1.0.safetensors"


def apart(one: Tensor, other: Tensor) -> float:
    """Greatest distance, in units of the other's own size where that is above 1."""
    one, other = one.float().cpu(), other.float().cpu()
    assert torch.isfinite(other).all()
    return float((one - other).abs().max()) / max(1.0, float(other.abs().max()))


@pytest.mark.weights
@pytest.mark.timeout(600)
def test_every_stage_is_that_of_the_cpu_in_float32(real: Path) -> None:
    """Each stage is given the CPU's inputs, under padded sizes, so that no distance adds to the next."""
    device = CudaDevice(torch.device(GPU))
    cpu, gpu = load(real, torch.device("cpu")), load(real, device.torch_device)
    for module in gpu.modules():
        if isinstance(module, BiLSTM):
            module.split()
    rows, styles = a_batch(), VoiceStore().style("af_heart")
    made = KokoroPipeline(real, VoiceStore())
    tokens = [[0, *made._ids(row, 510), 0] for row in rows]
    at = Rows(tuple(map(len, tokens)), torch.device("cpu"))
    size = padded_length(at.longest, 512)
    ids = torch.zeros(len(rows), size, dtype=torch.long)
    for place, own in enumerate(tokens):
        ids[place, : len(own)] = torch.tensor(own)
    style = torch.from_numpy(np.stack([styles[len(own) - 3] for own in tokens]))
    timbre, manner = style.chunk(2, dim=1)

    def there(x: Tensor) -> Tensor:
        return x.to(device.torch_device)

    def within(x: Tensor, lengths: Rows, dim: int = 1) -> Tensor:
        """With what the pads hold made zero, cut to the longest."""
        x = x.float().cpu().narrow(dim, 0, lengths.longest)
        mask = lengths.mask[:, 0]
        return x * (mask[..., None] if x.dim() == 3 and dim == 1 else mask[:, None] if x.dim() == 3 else mask)

    with torch.inference_mode():
        reading = cpu.read(ids[:, : at.longest], manner, at)
        far = DeviceRows(there(at.on_device), size)
        other = gpu.read(there(ids), there(manner), far)
        assert apart(within(other.prosody, at), within(reading.prosody, at)) < 1e-3
        assert apart(within(other.text, at), within(reading.text, at)) < 1e-3
        assert apart(within(other.durations, at), within(reading.durations, at)) < 1e-3

        frames = whole_frames(reading.durations, torch.ones(len(rows)), at)
        whole = Rows(tuple(frames.sum(1).tolist()), torch.device("cpu"))
        size = padded_length(whole.longest)
        far = DeviceRows(there(whole.on_device), size)
        f0, energy = cpu.curves(reading.prosody, frames, manner, whole)
        hidden = spread(there(reading.prosody), there(frames), size)
        other_f0, other_energy = gpu.predictor.curves(hidden, there(manner), far)
        assert float((within(other_f0, whole.times(2)) - f0).abs().max()) < 0.05, "Hz"
        assert apart(within(other_energy, whole.times(2)), energy) < 1e-3

        features = cpu.features(reading.text, frames, f0, energy, timbre, whole)
        padded = torch.zeros(2, len(rows), 2 * size)
        padded[:, :, : f0.shape[1]] = torch.stack([f0, energy])
        said = spread(there(reading.text), there(frames), size).transpose(1, 2)
        other_features = gpu.decoder.features(said, *there(padded), there(timbre), far)
        doubled = whole.times(2)
        assert apart(within(other_features, doubled, 2), within(features, doubled, 2)) < 1e-3

        noise = draw_noise(range(len(rows)), whole.times(600))
        voicing = torch.ones(len(rows))
        source = cpu.source(f0, voicing, noise, whole)
        padded_noise = torch.zeros(len(rows), 600 * size)
        padded_noise[:, : noise.shape[1]] = noise
        other_source = gpu.source(there(padded[0]), there(voicing), there(padded_noise), far)
        assert apart(within(other_source, whole.times(600)), within(source, whole.times(600))) < 1e-3

        wave = cpu.wave(features, timbre, source, whole)
        heard = torch.zeros(len(rows), features.shape[1], 2 * size)
        heard[..., : features.shape[2]] = features
        excited = torch.zeros(len(rows), 600 * size)
        excited[:, : source.shape[1]] = source
        other_wave = gpu.wave(there(heard), there(timbre), there(excited), far)
        assert apart(within(other_wave, whole.times(600)), wave) < 1e-3
    device.close()


@pytest.mark.weights
def test_a_line_sounds_on_the_gpu_as_on_the_cpu_and_alone_as_among_others(real: Path, place) -> None:
    placed, rows = place(real), a_batch()
    cpu = KokoroPipeline(real, VoiceStore(), "cpu", 1)
    cpu.load(lambda *_: None)
    expected, together = cpu.run(rows), placed.pipeline.run(rows)
    for row, one, other in zip(rows, expected, together, strict=True):
        assert one.events == other.events
        assert distance_db(one.samples, other.samples) < MEL_DB
        alone = placed.pipeline.run([row])[0]
        assert alone.events == other.events
        assert distance_db(alone.samples, other.samples) < MEL_DB


@pytest.mark.weights
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_reduced_type_keeps_the_timing_and_nearly_the_sound(real: Path, place, precision: str) -> None:
    rows = a_batch()
    plain, reduced = place(real), place(real, precision)
    for one, other in zip(plain.pipeline.run(rows), reduced.pipeline.run(rows), strict=True):
        assert one.events == other.events
        assert np.isfinite(other.samples).all()
        assert distance_db(one.samples, other.samples) < REDUCED_MEL_DB


@pytest.mark.weights
def test_only_the_convolutions_are_of_the_reduced_type(real: Path, place) -> None:
    model = place(real, "bfloat16").pipeline._model
    assert isinstance(model, Kokoro)
    heavy = {id(module) for module in model.decoder.heavy()}
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            assert weight.device.type == "cuda"
            assert weight.dtype == torch.float32 or id(module) in heavy


# ---- layers ---------------------------------------------------------------------------------------------


def test_cudnns_lstm_over_turned_rows_is_the_cpus_packed_one() -> None:
    device = CudaDevice(torch.device(GPU))
    torch.manual_seed(1)
    lstm = BiLSTM(640, 512).eval().requires_grad_(False)
    x, lengths = torch.randn(3, 40, 640), (40, 7, 23)
    with torch.inference_mode():
        expected = lstm.run(x, Rows(lengths, torch.device("cpu")))
    lstm.to(device.torch_device).split()
    with torch.inference_mode(), device.at_work():
        got = lstm.run(device.send(x), DeviceRows(device.send(torch.tensor(lengths)), 40))
        got = torch.from_numpy(device.fetch(got.contiguous()).copy())
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    device.close()
