"""A CUDA device as the pipelines use it: every call of torch.cuda is made here. Knows no model.

All work goes on one stream of the lowest priority CUDA has (0; others are higher), which orders it behind
other streams of this process; against another process's graphics the driver takes turns by time, whatever the
priority. The host waits for the device by events alone, asleep, not spinning.

What cannot be seen without a device: that a captured graph gives the bits of the plain run, that nothing
waits but where this file says so, that the cap holds. `make test-gpu` tests those.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..base import DeviceFull
from . import driver
from .buckets import Policy
from .graphs import Captured, Graphs, Stage
from .memory import MB, DeviceMemory, Share, context_of, is_full
from .staging import Staging, pinned

log = logging.getLogger(__name__)

LOWEST_PRIORITY = 0


class Device(Protocol):
    """What a pipeline asks of a device. The tests have a stand-in that runs on the CPU."""

    torch_device: torch.device
    graphs: Graphs
    share: Share

    def at_work(self) -> AbstractContextManager[None]:
        """What is enqueued within goes where this device wants it. Raises DeviceFull when memory was short,
        with everything given back that can be: hold no tensors where you catch it."""

    def send(self, values: Tensor) -> Tensor:
        """A host tensor on the device, without waiting for it."""

    def fetch(self, values: Tensor) -> np.ndarray:
        """A contiguous device tensor on the host, when everything before it is done: the only wait. The array
        lies over a buffer that the next call overwrites."""

    def memory(self) -> DeviceMemory:
        """What this process has of the device. Any thread."""

    def tensors(self) -> tuple[int, int]:
        """Bytes in tensors now, and the most there have been."""

    def settled(self) -> None:
        """The first batches have run, so the libraries have loaded what they need: measure again."""

    def free(self) -> None:
        """Give back what is held without need."""

    def close(self) -> None:
        """The device is not used any more."""


class CudaDevice:
    """See the module. One thread, but for `memory`."""

    def __init__(self, device: torch.device, vram_bytes: int = 0) -> None:
        """Makes the context and measures it. vram_bytes: the cap; 0: none. Loader's thread."""
        index = device.index or 0
        self.torch_device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self._uuid = str(getattr(properties, "uuid", ""))
        self._before = driver.used_bytes(self._uuid) if self._uuid else None
        torch.cuda.set_device(index)
        torch.zeros(1, device=self.torch_device)  # makes the context
        _exact_float32()
        cuda: Any = torch.cuda  # of these two torch has no types
        self.stream: torch.cuda.Stream = cuda.Stream(self.torch_device, priority=LOWEST_PRIORITY)
        self._done: torch.cuda.Event = cuda.Event(blocking=True)
        self._staging = Staging(pinned())
        self.graphs = Graphs(Policy(), self._capture)
        self._cap = vram_bytes
        self.share = Share(properties.total_memory, self._context(), vram_bytes)
        self._apply_cap()

    # ---- work ------------------------------------------------------------------------------------

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """See `Device`."""
        try:
            with torch.cuda.device(self.torch_device), torch.cuda.stream(self.stream):
                yield
        except RuntimeError as error:
            if not is_full(error):
                raise
            # The error holds the frames that it passed, and those the tensors that are to be freed.
            passed: BaseException | None = error
            while passed is not None:
                traceback.clear_frames(passed.__traceback__)
                passed = passed.__cause__ or passed.__context__
            self.free()
            told = str(error).partition("\n")[0]
            raise DeviceFull(f"the device's memory does not hold this batch: {told}") from None

    def send(self, values: Tensor) -> Tensor:
        """See `Device`. torch keeps the pinned copy until the device has read it."""
        return values.pin_memory().to(self.torch_device, non_blocking=True)

    def fetch(self, values: Tensor) -> np.ndarray:
        """See `Device`."""
        there = self._staging.take(tuple(values.shape), values.dtype)
        there.copy_(values, non_blocking=True)
        self._done.record()
        self._done.synchronize()
        return there.numpy()

    def _capture(self, stage: Stage, inputs: tuple[Tensor, ...]) -> Captured:
        if not len(self.graphs):
            # A pool goes with the last of its graphs, and its name must not be used again.
            self._pool = torch.cuda.graph_pool_handle()
        buffers = tuple(each.clone() for each in inputs)
        stage(*buffers)  # on the stream of the capture: libraries keep a workspace for each
        graph = torch.cuda.CUDAGraph()
        # Other threads ask for memory figures meanwhile, which must not spoil the capture.
        with torch.cuda.graph(graph, self._pool, self.stream, capture_error_mode="thread_local"):
            outputs = stage(*buffers)
        return _CudaGraph(graph, buffers, outputs)

    # ---- memory ----------------------------------------------------------------------------------

    def memory(self) -> DeviceMemory:
        """What this process has of the device. Any thread."""
        reserved = torch.cuda.memory_reserved(self.torch_device)
        peak = torch.cuda.max_memory_reserved(self.torch_device)
        return DeviceMemory(self.share.context + reserved, self.share.context + peak, self._cap)

    def tensors(self) -> tuple[int, int]:
        """See `Device`."""
        now = torch.cuda.memory_allocated(self.torch_device)
        return now, torch.cuda.max_memory_allocated(self.torch_device)

    def settled(self) -> None:
        """See `Device`: the driver loads kernels when they are first run, and the context grows by them."""
        self.share = Share(self.share.total, max(self.share.context, self._context()), self._cap)
        self._apply_cap()

    def free(self) -> None:
        """Give up the graphs and everything that torch holds without need. Waits for the device."""
        self.graphs.drop()
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.empty_cache()

    def close(self) -> None:
        """Nothing of the device may be used any more."""
        self.free()
        self._staging.close()

    def _context(self) -> int:
        torch.cuda.synchronize(self.torch_device)
        after = driver.used_bytes(self._uuid) if self._uuid else None
        return context_of(self._before, after, torch.cuda.memory_reserved(self.torch_device))

    def _apply_cap(self) -> None:
        if self._cap:
            torch.cuda.set_per_process_memory_fraction(self.share.fraction, self.torch_device)
        cap = f"{self._cap // MB} MB" if self._cap else "none"
        log.info("device memory: context %d MB, cap %s", self.share.context // MB, cap)


class _CudaGraph:
    """Implements `graphs.Captured`."""

    def __init__(
        self, graph: torch.cuda.CUDAGraph, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> None:
        self._graph, self.inputs, self.outputs = graph, inputs, outputs

    def replay(self) -> None:
        """On the current stream."""
        self._graph.replay()


def _exact_float32() -> None:
    """What is float32 is computed in float32: TF32 keeps 10 bits, which moves durations and the pitch's
    phase. And the same bits each time. Of the whole process."""
    backends: Any = torch.backends  # torch has no types for all of them
    for kind in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        kind.fp32_precision = "ieee"
    backends.cudnn.deterministic = True
    backends.cudnn.benchmark = False
