"""How much of a device is in use, by whomever: from the driver's own library (NVML), which, unlike CUDA, can
be asked without making a context. Knows no torch. Answers None wherever anything is not as expected.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Protocol

_SUCCESS = 0


class _Memory(ctypes.Structure):
    """nvmlMemory_t: total, free, used, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Library(Protocol):
    """The calls that are made of NVML; each returns 0 for success."""

    nvmlInit_v2: Any
    nvmlShutdown: Any
    nvmlDeviceGetHandleByUUID: Any
    nvmlDeviceGetMemoryInfo: Any


def library() -> Library | None:
    """The driver's library, or None where there is no driver."""
    name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
    try:
        found: Library = ctypes.CDLL(name)
    except OSError:
        return None
    return found


def used_bytes(uuid: str, nvml: Library | None = None) -> int | None:
    """Bytes in use of the device with this UUID, "GPU-" in front or not; all processes together."""
    nvml = nvml or library()
    if nvml is None:
        return None
    try:
        if nvml.nvmlInit_v2() != _SUCCESS:
            return None
        try:
            handle, told = ctypes.c_void_p(), _Memory()
            name = (uuid if uuid.startswith("GPU-") else f"GPU-{uuid}").encode()
            if nvml.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(name), ctypes.byref(handle)) != _SUCCESS:
                return None
            if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(told)) != _SUCCESS:
                return None
            return int(told.used)
        finally:
            nvml.nvmlShutdown()
    except AttributeError:  # a library without one of the calls
        return None
