"""A stage of a model at one padded size, captured once as a graph of kernels and replayed from then on, by
the policy of `buckets`. Knows no model and no CUDA: what captures is given.

A stage is a function of tensors alone: no number is read back, none is built from Python's, no shape depends
on a value. The discipline around it: inputs are copied into the buffers that the graph reads, so shapes and
types never change; outputs are copied out before the next graph runs, because all graphs share one pool of
memory, in which one's working space may be another's result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from .buckets import Policy, Size, Verdict
from .memory import is_full

log = logging.getLogger(__name__)

Stage = Callable[..., tuple[Tensor, ...]]


class Captured(Protocol):
    """A stage at one size, ready to be replayed."""

    inputs: tuple[Tensor, ...]
    """The buffers it reads."""
    outputs: tuple[Tensor, ...]
    """The buffers it writes; the next replay of any graph may overwrite them."""

    def replay(self) -> None:
        """Enqueue the whole stage; returns at once."""


Capture = Callable[[Stage, tuple[Tensor, ...]], Captured]
"""Runs the stage once as it is, so that libraries have set themselves up, then captures it. Keeps copies of
the inputs as its buffers."""


class Graphs:
    """Stages by their size. One thread, one stream."""

    def __init__(self, policy: Policy, capture: Capture) -> None:
        self.policy = policy
        self._capture = capture
        self._graphs: dict[Size, Captured] = {}

    def run(self, size: Size, stage: Stage, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the stage gives for the inputs, which fill the size exactly. The same `stage` must come with
        the same size every time. The result is the caller's own."""
        verdict = self.policy.verdict(size)
        if verdict is Verdict.CAPTURE:
            graph = self._captured(size, stage, tuple(inputs))
        else:
            graph = self._graphs[size] if verdict is Verdict.REPLAY else None
        if graph is None:
            return stage(*inputs)
        for buffer, given in zip(graph.inputs, inputs, strict=True):
            if buffer.shape != given.shape or buffer.dtype != given.dtype:
                raise ValueError(
                    f"{size}: {given.dtype} {tuple(given.shape)} is not the {buffer.dtype} "
                    f"{tuple(buffer.shape)} that was captured"
                )
            buffer.copy_(given)
        graph.replay()
        return tuple(output.clone() for output in graph.outputs)

    def drop(self) -> None:
        """Memory is short: give all graphs up, and make none for a while."""
        self._graphs.clear()
        self.policy.short_of_memory()

    def __len__(self) -> int:
        return len(self._graphs)

    def _captured(self, size: Size, stage: Stage, inputs: tuple[Tensor, ...]) -> Captured | None:
        for gone in self.policy.make_room():
            del self._graphs[gone]
        try:
            graph = self._capture(stage, inputs)
        except RuntimeError as error:
            if is_full(error):
                raise
            # Speech goes on without the graph; the log says what to look at.
            log.warning("%s cannot be captured here and runs plainly from now on: %s", size.stage, error)
            self.policy.ban(size.stage)
            return None
        self._graphs[size] = graph
        self.policy.captured(size)
        return graph
