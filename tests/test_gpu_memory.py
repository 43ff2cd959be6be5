"""On a GPU: that the cap holds, that a batch without memory gets smaller, that samples come through the
staging buffer unchanged. `make test-gpu`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import StartDaemon
from device_helpers import TEXTS, spoken
from gleeman.client import Client
from gleeman.records import End, LineKey
from gleeman.speech.base import DeviceFull
from gleeman.speech.device import driver, staging
from gleeman.speech.device.cuda import CudaDevice
from gleeman.speech.device.memory import MB, Share
from gleeman.speech.models.kokoro.on_device import DeviceKokoro
from gleeman.tick.bound import Bound
from gleeman.tick.running import synthesise
from gleeman.voices.store import VoiceStore

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda:0")
NEAR = 32 * MB
"""torch takes memory in blocks of 2 to 20 MB."""


@pytest.fixture(autouse=True)
def _whole_device() -> Iterator[None]:
    """No test's cap outlives it."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, GPU)
    torch.cuda.empty_cache()


def test_the_allocator_stops_where_the_arithmetic_says() -> None:
    device = CudaDevice(GPU, 2_000 * MB)
    allowed = device.share.allocator
    held: list[torch.Tensor] = []

    def fill() -> None:
        while True:
            held.append(torch.empty(20 * 1024 * 1024, dtype=torch.uint8, device=GPU))

    with pytest.raises(torch.OutOfMemoryError):
        fill()
    taken = torch.cuda.memory_reserved(GPU)
    held.clear()
    assert allowed - NEAR <= taken <= allowed
    device.close()


def test_the_driver_sees_no_more_than_the_cap() -> None:
    """In a process of its own, whose context is not there yet. Nothing else may use the device meanwhile."""
    program = (
        "import torch\n"
        "from gleeman.speech.device import driver\n"
        "from gleeman.speech.device.cuda import CudaDevice\n"
        "uuid = str(torch.cuda.get_device_properties(0).uuid)\n"
        "before = driver.used_bytes(uuid)\n"
        "device = CudaDevice(torch.device('cuda:0'), 2_000_000_000)\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(torch.empty(2 << 20, dtype=torch.uint8, device='cuda:0'))\n"
        "except torch.OutOfMemoryError: pass\n"
        "print(before, driver.used_bytes(uuid), device.share.context)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    if "None" in result.stdout:
        pytest.skip("the driver tells nothing here")
    before, after, context = map(int, result.stdout.split())
    assert 100 * MB <= context <= 1_500 * MB
    assert 2_000 * MB - NEAR <= after - before <= 2_000 * MB + 8 * MB


def test_want_of_memory_at_work_is_told_as_such_and_everything_is_given_back() -> None:
    device = CudaDevice(GPU, 2_000 * MB)
    before = torch.cuda.memory_reserved(GPU)

    def work() -> None:
        held = [torch.empty(200 * MB, dtype=torch.uint8, device=GPU) for _ in range(100)]
        assert not held, "the cap does not hold"

    with pytest.raises(DeviceFull) as told, device.at_work():
        work()
    assert told.value.code == "busy"
    assert torch.cuda.memory_reserved(GPU) <= before + NEAR
    with device.at_work():
        assert device.fetch(torch.ones(3, device=GPU)).tolist() == [1, 1, 1]
    device.close()


def test_a_share_of_this_device_is_exact() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    share = Share(total, 400 * MB, 1_500 * MB)
    torch.cuda.set_per_process_memory_fraction(share.fraction, GPU)
    assert int(torch.cuda.get_per_process_memory_fraction(GPU) * total) <= share.allocator


@pytest.mark.weights
@pytest.mark.timeout(600)
def test_lines_that_the_cap_has_no_room_for_together_are_all_heard(weights: Path) -> None:
    """An artificial cap: room for the model and some seconds of speech."""
    cap_mb = 1_200
    pipeline = DeviceKokoro(
        weights / "kokoro-82m-v1.0.safetensors", VoiceStore(), "cuda:0", 1, "float32", vram_mb=cap_mb
    )
    pipeline.load(lambda *_: None)
    long = " ".join(TEXTS * 6)
    rows = [spoken(long, seed, key=LineKey(1, seed)) for seed in range(32)]
    rows.append(spoken(TEXTS[1], 99, key=LineKey(1, 99)))
    bound = Bound()
    audios, errors = synthesise(pipeline, rows, bound)
    assert bound.cells is not None, "the batch was too small for this test"
    assert audios.keys() | errors.keys() == {row.key for row in rows}
    assert {code for code, _ in errors.values()} <= {"busy"}
    assert LineKey(1, 99) in audios
    memory = pipeline.device_memory()
    assert memory is not None
    assert memory.peak <= cap_mb * MB
    alone = pipeline.run(rows[-1:])[0]
    assert np.isfinite(alone.samples).all()
    assert alone.events == audios[LineKey(1, 99)].events
    pipeline.close()


@pytest.mark.weights
def test_a_cap_below_the_minimum_makes_serve_leave_and_name_it(home: Path, weights: Path) -> None:
    command = [sys.executable, "-m", "gleeman", "serve", "--device", "cuda", "--vram-mb", "500"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("gleeman: vram-too-small: vram-mb is 500; the least that this model can speak in")


@pytest.mark.weights
@pytest.mark.usefixtures("weights")
def test_a_daemon_on_the_gpu_speaks_and_tells_its_memory(start_daemon: StartDaemon) -> None:
    start_daemon("--device", "cuda", "--vram-mb", "3000", model="kokoro")
    with Client.connect() as client:
        client.wait_ready(120)
        lines = [client.speak(f"Line {number} of the tavern.", seed=number) for number in range(16)]
        client.frame()
        for line in lines:
            assert line.audio(60).size
            assert line.end is End.DONE
        status = client.status()
    assert status.device == "cuda:0"
    assert status.dtype in ("bfloat16", "float32")
    assert status.dtype_reason
    assert status.device_mb_cap == 3_000
    assert status.device_mb_used is not None
    assert status.device_mb_peak is not None
    assert 300 < status.device_mb_used <= status.device_mb_peak <= 3_000


def test_samples_come_through_the_staging_buffer_unchanged() -> None:
    device = CudaDevice(GPU)
    for shape in ((1, 600), (16, 72_000), (3, 7)):
        there = torch.randn(shape, device=GPU)
        with device.at_work():
            got = device.fetch(there).copy()
        assert np.array_equal(got, there.cpu().numpy())
    sent = torch.randint(-(2**40), 2**40, (5, 9))
    with device.at_work():
        assert np.array_equal(device.fetch(device.send(sent)), sent.numpy())
    device.close()


def test_many_sends_in_a_row_do_not_overwrite_one_another() -> None:
    """torch keeps a pinned buffer until the device has read it; the device is kept busy meanwhile."""
    device = CudaDevice(GPU)
    with device.at_work():
        busy = torch.randn(4_000, 4_000, device=GPU)
        for _ in range(20):
            busy = busy @ busy * 1e-3
        there = [device.send(torch.full((1_000,), float(number))) for number in range(200)]
        got = device.fetch(torch.stack([each.mean() for each in there]))
    assert got.tolist() == list(range(200))
    device.close()


def test_cuda_pythons_memory_is_pinned_and_freed() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="the extra cuda is not installed")
    torch.zeros(1, device=GPU)
    memory, release = staging.pin_by_cuda(runtime, 1 << 20)
    assert memory.is_pinned()
    memory.fill_(7)
    assert int(memory.sum()) == 7 << 20
    del memory
    release()


def test_the_driver_tells_what_is_in_use() -> None:
    if driver.library() is None:
        pytest.skip("no NVML on this machine")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    before = driver.used_bytes(uuid)
    held = torch.empty(512 * MB, dtype=torch.uint8, device=GPU)
    after = driver.used_bytes(uuid)
    assert before is not None
    assert after is not None
    assert held.numel() - 64 * MB <= after - before <= held.numel() + 64 * MB
