"""How much of a device's memory is ours: the arithmetic of `--vram-mb`, and what an error says of it.

    total            of the device
    cap              what the user lets us have; 0: no cap
      context        what the driver takes for us before the first tensor: kernels, stacks, handles
      allocator      the rest, which torch hands out; held to it by a fraction of `total`
        weights
        working space of a batch, by its padded frames

Knows no device: numbers in, numbers out. That the allocator keeps to its fraction and the context to its
measure is tested where there is a GPU. Two limits of that promise are torch's and the driver's: the allocator
checks its fraction before it asks the driver for more, and a library that takes memory past torch (cuDNN's
own handles) counts as context, which is why the context is measured again after the first lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...errors import Failure

MB = 1_000_000
"""`--vram-mb` and every figure told count 10^6 bytes, as `rss_mb` does."""
GUESSED_CONTEXT_BYTES = 500 * MB
"""Where the driver does not tell what is in use: contexts of current torch builds take 300 to 500 MB."""
LEAST_CONTEXT_BYTES = 100 * MB
MOST_CONTEXT_BYTES = 1_500 * MB
"""A difference outside these is another process's doing."""
_FULL_WORDS = ("out of memory", "alloc_failed", "memory allocation")


class DeviceMemory(NamedTuple):
    """What of a device is in use by this process, bytes."""

    used: int
    peak: int
    cap: int
    """0: none."""


@dataclass(frozen=True, slots=True)
class Share:
    """This process's part of a device, bytes."""

    total: int
    context: int
    cap: int = 0
    """0: none, the whole device."""

    @property
    def allocator(self) -> int:
        """What torch may hand out, at least 0."""
        return max(0, (min(self.cap, self.total) if self.cap else self.total) - self.context)

    @property
    def fraction(self) -> float:
        """The same as torch wants it: of the device's total memory, 0 to 1, rounded so that it never allows
        a byte more."""
        share = self.allocator / self.total
        # torch takes the whole part of fraction * total, which float noise could put one byte too high.
        while int(share * self.total) > self.allocator:
            share -= 2.0**-53
        return share


def minimum(context: int, weights: int, batch: int) -> int:
    """The smallest cap under which a model can speak, bytes: what is there at rest and the smallest batch."""
    return context + weights + batch


def require(cap: int, context: int, weights: int, batch: int) -> None:
    """Raises Failure vram-too-small, naming the minimum, when there is a cap and it is below that."""
    least = minimum(context, weights, batch)
    if cap and cap < least:
        raise Failure(
            f"vram-mb is {cap // MB}; the least that this model can speak in is {-(-least // MB)}: "
            f"{-(-context // MB)} for the driver's context, {-(-weights // MB)} for the weights, "
            f"{-(-batch // MB)} for one short line",
            "vram-too-small",
        )


def context_of(before: int | None, after: int | None, reserved: int) -> int:
    """What the context takes, from the device's memory in use before it was made and after, less what torch
    had reserved by then. A guess where the driver told nothing or another process moved at the time."""
    if before is None or after is None:
        return GUESSED_CONTEXT_BYTES
    taken = after - before - reserved
    return taken if LEAST_CONTEXT_BYTES <= taken <= MOST_CONTEXT_BYTES else GUESSED_CONTEXT_BYTES


def frames_bound(left: int, per_frame: int, most: int) -> int:
    """Padded frames of a batch that so many bytes hold, 1 to `most`; per_frame: bytes of working space."""
    return max(1, min(most, left // per_frame))


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, says that the device's memory was short. By its words: cuDNN and
    cuBLAS say so with plain RuntimeErrors, and a capture that failed for it with another on top."""
    while error is not None:
        # torch.OutOfMemoryError is known by its words too ("CUDA out of memory"), so torch need not be here.
        if isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _FULL_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False
