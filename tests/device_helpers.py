"""A device that is not there: graphs and staging on the CPU, with the discipline of a real one.

While a stage is captured every operation of torch passes by: one that reads a value back, that makes a tensor
of Python's numbers or whose shape depends on a value is refused, as CUDA would. What was recorded is all that
is replayed: no line of Python runs again, so a number that crept into the stage keeps its old value and
shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from gleeman.records import Clause, LineKey, Row, Word
from gleeman.speech.base import DeviceFull
from gleeman.speech.device.buckets import Policy
from gleeman.speech.device.graphs import Captured, Graphs, Stage
from gleeman.speech.device.memory import MB, DeviceMemory, Share, is_full
from gleeman.speech.device.staging import Release, Staging

TEXTS = ("nˈO.", "ðə kwˈɪk bɹˈWn fˈɑks.", "hˈɔlt! hˌu ɡˈOz ðˈɛɹ?", "wˈʌn tˈu θɹˈi, ðə wˈɛðəɹ ɪz fˈaɪn.")


def spoken(phonemes: str, seed: int = 5, **changes: object) -> Row:
    """A row of these phonemes, one word."""
    clause = Clause(phonemes, phonemes, "en-us", 0, 9, (Word(0, 9, 0, len(phonemes)),), len(phonemes), True)
    plain = Row(LineKey(1, seed), 0, clause, "af_heart", "neutral", 1.0, 1.0, 0.0, 0.0, seed)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


READS_BACK = {
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::bincount",
    "aten::_pack_padded_sequence",
}
HOST_MADE = {"aten::lift_fresh", "aten::lift_fresh_copy", "aten::detach_copy"}


class NotCapturable(RuntimeError):
    """What a CUDA stream says to this while it is capturing."""


class Recorder(TorchDispatchMode):
    """Writes down every operation, and refuses what a graph cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Callable[..., Any], Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name in READS_BACK:
            raise NotCapturable(f"{func} reads from the device")
        if func._schema.name in HOST_MADE:
            raise NotCapturable(f"{func} makes a tensor of numbers that the host has")
        if func._schema.name.startswith(("aten::index", "aten::_unsafe_index")):
            for index in args[1] if isinstance(args[1], list | tuple) else ():
                if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                    raise NotCapturable(f"{func} with a mask has a shape that depends on values")
        if func._can_decompose() and func.namespace == "aten":
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        self.tape.append((func, args, kwargs, out))
        return out


class StandInGraph:
    """Implements `graphs.Captured`."""

    def __init__(self, stage: Stage, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(each.clone() for each in inputs)
        stage(*self.inputs)
        recorder = Recorder()
        with recorder:
            self.outputs = stage(*self.inputs)
        self._tape = recorder.tape
        self._named = [id(each) for each in self.outputs]
        self._kept = self.outputs  # so that no later tensor gets one of these ids
        self.replays = 0

    def replay(self) -> None:
        """Run what was recorded on what the input buffers hold now."""
        self.replays += 1
        now: dict[int, Any] = {}

        def current(value: Any) -> Any:
            return now.get(id(value), value) if isinstance(value, Tensor) else value

        for func, args, kwargs, out in self._tape:
            made = func(*tree_map(current, args), **tree_map(current, kwargs))
            for old, new in zip(_flat(out), _flat(made), strict=True):
                now[id(old)] = new
        self.outputs = tuple(now[name] for name in self._named)


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def pin_plainly(size: int) -> tuple[Tensor, Release]:
    """Memory like any other."""
    return torch.zeros(size, dtype=torch.uint8), lambda: None


class StandInDevice:
    """Implements `device.cuda.Device` on the CPU. Tests read what it counted, and set when memory is
    short."""

    def __init__(self, device: torch.device, vram_bytes: int = 0, *, policy: Policy | None = None) -> None:
        self.torch_device = torch.device("cpu")
        self.share = Share(8_000 * MB, 400 * MB, vram_bytes)
        self.graphs = Graphs(policy or Policy(), self._capture)
        self.made: list[StandInGraph] = []
        self.fetches = 0
        self.sent_types: list[torch.dtype] = []
        self.freed = 0
        self.most_cells = 1 << 30
        """A larger batch finds no memory."""
        self._staging = Staging(pin_plainly)

    def _capture(self, stage: Stage, inputs: tuple[Tensor, ...]) -> Captured:
        self._take(inputs)
        self.made.append(StandInGraph(stage, inputs))
        return self.made[-1]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not is_full(error):
                raise
            self.free()
            raise DeviceFull("the device's memory does not hold this batch") from None

    def send(self, values: Tensor) -> Tensor:
        self._take((values,))
        self.sent_types.append(values.dtype)
        return values.clone()

    def _take(self, values: tuple[Tensor, ...]) -> None:
        if any(value.dim() > 1 and value.shape[0] * value.shape[1] > self.most_cells for value in values):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is.")

    def fetch(self, values: Tensor) -> np.ndarray:
        assert values.is_contiguous()
        self.fetches += 1
        there = self._staging.take(tuple(values.shape), values.dtype)
        there.copy_(values)
        return there.numpy()

    def memory(self) -> DeviceMemory:
        return DeviceMemory(self.share.context + 350 * MB, self.share.context + 380 * MB, self.share.cap)

    def tensors(self) -> tuple[int, int]:
        return 340 * MB, 360 * MB

    def settled(self) -> None:
        pass

    def free(self) -> None:
        self.freed += 1
        self.graphs.drop()

    def close(self) -> None:
        self.free()
        self._staging.close()
