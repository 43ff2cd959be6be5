"""The arithmetic of the cap, what the driver tells, and pinned memory: without a device."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gleeman.errors import Failure
from gleeman.speech.device import driver, staging
from gleeman.speech.device.memory import (
    GUESSED_CONTEXT_BYTES,
    MB,
    Share,
    context_of,
    frames_bound,
    is_full,
    minimum,
    require,
)
from gleeman.speech.device.staging import Staging, pin_by_cuda

TOTAL = 8_585_740_288
"""Of an 8 GiB card, as its driver tells."""


@given(st.integers(1, 200_000 * MB), st.integers(0, 2_000 * MB), st.integers(1, 200_000 * MB))
def test_torch_never_gets_a_byte_more_than_the_cap_leaves_it(total: int, context: int, cap: int) -> None:
    share = Share(total, context, cap)
    assert 0.0 <= share.fraction <= 1.0
    allowed = int(share.fraction * total)  # as torch computes it
    assert allowed <= share.allocator <= max(0, cap - context)
    # and hardly a byte less: a float64 holds 2^53 steps
    assert share.allocator - allowed <= 1 + total / 2**50


def test_the_context_counts_into_the_cap() -> None:
    share = Share(TOTAL, 400 * MB, 1_000 * MB)
    assert share.allocator == 600 * MB
    assert share.fraction == pytest.approx(600 * MB / TOTAL)


def test_without_a_cap_or_with_one_above_it_the_device_is_the_cap() -> None:
    for cap in (0, 20_000 * MB):
        assert Share(TOTAL, 400 * MB, cap).allocator == TOTAL - 400 * MB
    assert Share(TOTAL, 400 * MB, 300 * MB).fraction == 0.0


def test_the_minimum_is_context_weights_and_a_short_line_and_is_named() -> None:
    parts = (400 * MB, 327 * MB + 1, 64 * MB)
    least = minimum(*parts)
    assert least == 791 * MB + 1
    require(0, *parts)
    require(least, *parts)
    named = r"vram-mb is 791; the least that this model can speak in is 792: 400 .* 328 .* 64 "
    with pytest.raises(Failure, match=named) as told:
        require(791 * MB, *parts)
    assert told.value.code == "vram-too-small"


@pytest.mark.parametrize(
    ("before", "after", "reserved", "context"),
    [
        (1_000 * MB, 1_422 * MB, 2 * MB, 420 * MB),
        (None, 1_422 * MB, 0, GUESSED_CONTEXT_BYTES),
        (1_000 * MB, None, 0, GUESSED_CONTEXT_BYTES),
        (1_000 * MB, 5_000 * MB, 0, GUESSED_CONTEXT_BYTES),  # a game loaded its textures meanwhile
        (1_000 * MB, 900 * MB, 0, GUESSED_CONTEXT_BYTES),  # another left
    ],
)
def test_the_context_is_what_came_into_use_by_it(
    before: int | None, after: int | None, reserved: int, context: int
) -> None:
    assert context_of(before, after, reserved) == context


def test_frames_of_a_batch_are_those_there_is_room_for() -> None:
    assert frames_bound(300 * MB, MB // 2, 6_400) == 600
    assert frames_bound(80_000 * MB, MB // 2, 6_400) == 6_400
    assert frames_bound(-100 * MB, MB // 2, 6_400) == 1


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
        (None, False),
    ],
)
def test_want_of_memory_is_told_from_other_errors(error: BaseException | None, full: bool) -> None:
    assert is_full(error) is full


# ---- what the driver tells --------------------------------------------------------------------------------


class FakeDriver:
    """NVML with one device."""

    def __init__(self, used: int, uuid: bytes = b"GPU-1234") -> None:
        self.used, self.uuid = used, uuid
        self.status = 0
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: ctypes.c_char_p, handle: object) -> int:
        return 0 if name.value == self.uuid else 6

    def nvmlDeviceGetMemoryInfo(self, handle: object, told: object) -> int:
        told._obj.used = self.used  # type: ignore[attr-defined]
        return self.status


@pytest.mark.parametrize("uuid", ["1234", "GPU-1234"])
def test_the_driver_is_asked_for_the_device_by_its_uuid_and_closed(uuid: str) -> None:
    nvml = FakeDriver(5_000 * MB)
    assert driver.used_bytes(uuid, nvml) == 5_000 * MB
    assert nvml.open == 0


def test_what_the_driver_does_not_tell_is_none() -> None:
    nvml = FakeDriver(5_000 * MB)
    assert driver.used_bytes("other", nvml) is None
    nvml.status = 3
    assert driver.used_bytes("1234", nvml) is None
    assert driver.used_bytes("1234", SimpleNamespace()) is None  # type: ignore[arg-type]
    assert nvml.open == 0


def test_without_a_driver_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "library", lambda: None)
    assert driver.used_bytes("1234") is None


# ---- pinned memory -----------------------------------------------------------------------------------------


class FakeRuntime:
    """cuda.bindings.runtime on ordinary memory: an error first, then what was asked for."""

    cudaHostAllocDefault = 0
    cudaError_t = SimpleNamespace(cudaSuccess=0, cudaErrorMemoryAllocation=2)

    def __init__(self) -> None:
        self.held: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.full = False

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int | None]:
        if self.full:
            return self.cudaError_t.cudaErrorMemoryAllocation, None
        memory = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(memory)] = memory
        return 0, ctypes.addressof(memory)

    def cudaFreeHost(self, place: int) -> tuple[int]:
        return (0,) if self.held.pop(place, None) is not None else (1,)


def test_staging_grows_frees_what_it_outgrew_and_gives_the_samples_as_they_are() -> None:
    runtime = FakeRuntime()
    made = Staging(lambda size: pin_by_cuda(runtime, size))
    for shape in ((2, 10), (3, 200_000), (1, 5)):
        samples = torch.randn(shape)
        there = made.take(shape, torch.float32)
        there.copy_(samples)
        assert np.array_equal(there.numpy(), samples.numpy())
        assert len(runtime.held) == 1
        assert there.data_ptr() in runtime.held
    lengths = made.take((4, 7), torch.int64)
    lengths.fill_(-(2**40))
    assert lengths.numpy().dtype == np.int64
    made.close()
    made.close()
    assert runtime.held == {}


def test_pinned_memory_that_is_refused_is_told() -> None:
    runtime = FakeRuntime()
    runtime.full = True
    with pytest.raises(RuntimeError, match="cudaHostAlloc of 4096 bytes"):
        pin_by_cuda(runtime, 4096)


@pytest.fixture
def cuda_python(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType | None], None]:
    def pretend(runtime: ModuleType | None) -> None:
        there = ModuleType("cuda.bindings")
        if runtime is not None:
            there.runtime = runtime  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        monkeypatch.setitem(sys.modules, "cuda.bindings", there if runtime is not None else None)

    return pretend


def test_cuda_python_is_taken_where_it_is_and_the_log_says_which(
    cuda_python: Callable[[ModuleType | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    runtime = FakeRuntime()
    cuda_python(runtime)  # type: ignore[arg-type]
    memory, release = staging.pinned()(64)
    assert memory.numel() == 64
    assert len(runtime.held) == 1
    release()
    assert runtime.held == {}
    cuda_python(None)
    assert staging.pinned() is staging.pin_by_torch
    by_cuda, by_torch = (record.getMessage() for record in caplog.records)
    assert "by cuda-python" in by_cuda
    assert "torch's pinned memory" in by_torch
