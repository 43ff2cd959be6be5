"""How a number becomes visible to the process on the other side of a mapping.

`publish` is a release store: whatever was written before is visible to who sees the new number.
`fence` after plain reads makes them acquire loads: what is read next is not older than they are.

On x86-64 an assignment to an aligned item of a memoryview is one store and the processor keeps the
order, so both cost nothing. Elsewhere both need a compiled helper (publish.c), looked for beside this
file. Without it this module refuses: a mapping that is wrong once a day is worse than none.

`struct.pack_into` must never be used in shared memory: it zeroes before it writes.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

from ..errors import Failure

STRONG_MACHINES = ("x86_64", "amd64")
HELPER_STEM = "_publish"

Publish = Callable[["memoryview[int]", int, int], None]
Fence = Callable[[], None]


def _assign(view: memoryview[int], index: int, value: int) -> None:
    """Store `value` at item `index` of a view cast to "Q" (or "I"), aligned to its item, as a release."""
    view[index] = value


def _nothing() -> None:
    """Order the reads before it with those after it."""


def helper_functions(library: Path) -> tuple[Publish, Fence]:
    """`publish` and `fence` made of the compiled helper. Raises OSError or AttributeError when it is
    not what publish.c makes."""
    native = ctypes.CDLL(str(library))
    store_u64, store_u32, fence = native.gleeman_store_u64, native.gleeman_store_u32, native.gleeman_fence
    for function, kind in ((store_u64, ctypes.c_uint64), (store_u32, ctypes.c_uint32)):
        function.argtypes = [ctypes.c_void_p, kind]
        function.restype = None
    fence.argtypes = []
    fence.restype = None

    def store(view: memoryview[int], index: int, value: int) -> None:
        if not 0 <= index < len(view):
            raise IndexError(f"index {index} is outside a view of {len(view)}")
        size = view.itemsize
        address = ctypes.addressof(ctypes.c_char.from_buffer(view)) + index * size
        (store_u64 if size == 8 else store_u32)(address, value)

    return store, fence


def choose(machine: str, folder: Path) -> tuple[Publish, Fence]:
    """The two functions for a machine. Raises Failure unsupported-platform when it needs the helper and
    `folder` has none that works."""
    if machine.lower() in STRONG_MACHINES:
        return _assign, _nothing
    for suffix in (".so", ".dylib", ".dll"):
        library = folder / (HELPER_STEM + suffix)
        if library.exists():
            try:
                return helper_functions(library)
            except (OSError, AttributeError) as error:
                raise Failure(f"{library} cannot be used: {error}", "unsupported-platform") from None
    raise Failure(
        f"shared memory on {machine} needs the compiled helper {HELPER_STEM} in {folder} "
        f"(cc -shared -O2 -o {HELPER_STEM}.so publish.c); x86-64 needs none",
        "unsupported-platform",
    )


publish, fence = choose(platform.machine(), Path(__file__).parent)
