"""Pinned memory on the host that a batch's samples are copied into, once, while the device goes on.

By `cuda-python` where the extra `cuda` is installed: memory of our own that grows and is freed when we say.
Elsewhere torch's pinned memory, which gives back nothing until the process ends. Whichever it is is said in
the log. Knows no streams: whoever copies waits.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

GROWN_TO = 1 << 20
"""Sizes are rounded up to multiples of it, so that a slightly longer batch finds its room."""
Release = Callable[[], None]
Pin = Callable[[int], tuple[Tensor, Release]]
"""Pinned memory of so many bytes as a (bytes,) uint8 tensor, and how it is given back."""


class Staging:
    """One buffer, as large as the largest batch so far. One thread."""

    def __init__(self, pin: Pin) -> None:
        self._pin = pin
        self._held: tuple[Tensor, Release] | None = None

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor over the buffer. What was taken before it is overwritten through it."""
        count = int(np.prod(shape))
        wanted = count * dtype.itemsize
        if self._held is None or self._held[0].numel() < wanted:
            self.close()
            self._held = self._pin(-(-max(wanted, 1) // GROWN_TO) * GROWN_TO)
        return self._held[0][:wanted].view(dtype).view(shape)

    def close(self) -> None:
        """Give the buffer back. Nothing that was taken may be used any more."""
        if self._held is not None:
            release = self._held[1]
            self._held = None
            release()


def pinned() -> Pin:
    """The best way here, said in the log."""
    try:
        from cuda.bindings import runtime
    except ImportError as error:
        log.info("samples are staged in torch's pinned memory: cuda-python is not usable here (%s)", error)
        return pin_by_torch
    log.info("samples are staged in pinned memory by cuda-python")
    return lambda size: pin_by_cuda(runtime, size)


def pin_by_torch(size: int) -> tuple[Tensor, Release]:
    """By torch's allocator of pinned memory, which keeps what it once had."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True), lambda: None


def pin_by_cuda(runtime: Any, size: int) -> tuple[Tensor, Release]:
    """By the CUDA runtime. `runtime`: the module cuda.bindings.runtime, whose calls return the error first.
    Raises RuntimeError."""
    error, pointer = runtime.cudaHostAlloc(size, runtime.cudaHostAllocDefault)
    if error != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaHostAlloc of {size} bytes: {error}")
    place = int(pointer)
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(place))

    def release() -> None:
        (error,) = runtime.cudaFreeHost(place)
        if error != runtime.cudaError_t.cudaSuccess:
            log.warning("cudaFreeHost: %s", error)

    return torch.from_numpy(memory), release
