"""What a figure was measured on: processor, what it can do, the day, how busy it was. Knows no model."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
SMI_TIMEOUT_S = 10.0
LEVELS = (
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("asimd", "neon"),
)
"""The first that is there names the width of the vectors: a flag of the kernel, our word."""
EXTRAS = (
    ("avx512_bf16", "bf16"),
    ("avx512_vnni", "vnni"),
    ("avx_vnni", "vnni"),
    ("amx_tile", "amx"),
    ("bf16", "bf16"),
)


def isa_of(flags: Iterable[str], machine: str) -> str:
    """What the engine can use of a processor: "avx512 bf16 vnni"; the machine's name when `flags` say
    nothing."""
    there = set(flags)
    words = [word for flag, word in LEVELS if flag in there][:1]
    words += [word for flag, word in EXTRAS if flag in there]
    return " ".join(dict.fromkeys(words)) or machine


def isa() -> str:
    """Of this machine, by what the kernel tells of it (Linux); elsewhere the architecture's name."""
    flags = _cpuinfo("flags") or _cpuinfo("Features")
    return isa_of(flags.split(), platform.machine())


def describe() -> str:
    """Processor, cores this process may use, system."""
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return f"{name}, {cores} core{'s' if cores > 1 else ''}, {platform.system()} {platform.machine()}"


def now() -> str:
    """The date and time in UTC, as ISO has it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def load_average() -> float | None:
    """Of the last minute: what else ran while we measured; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def device_mb(pid: int) -> float | None:
    """Device memory that a process holds now, by nvidia-smi; None where it does not tell."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return used_by(pid, told.stdout)


def used_by(pid: int, table: str) -> float | None:
    """The megabytes of `pid` in nvidia-smi's rows "pid, MiB"; None when it has no row that holds a number."""
    held = [row.split(",") for row in table.splitlines() if row.count(",") == 1]
    found = [mb.strip() for number, mb in held if number.strip() == str(pid)]
    numbers = [float(mb) for mb in found if mb.replace(".", "", 1).isdigit()]
    return sum(numbers) * 1.048576 if numbers else None


def _cpuinfo(key: str) -> str:
    """The first value of a key in the kernel's table; "" without one."""
    if not CPUINFO.is_file():
        return ""
    for row in CPUINFO.read_text("utf-8", "replace").splitlines():
        name, _, value = row.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
