"""`gleeman doctor`: what on this machine is in the way, in plain words.

Each check looks at one thing and never raises: it answers ok, warning or problem, and what to do.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click

from .. import host, paths
from ..errors import GleemanError
from ..shm.layout import TOTAL_BYTES
from ..wire.discovery import read_discovery
from .show import print_json

Level = Literal["ok", "warning", "problem"]

WEIGHTS_BYTES = 600 * 1024**2
"""The download, the joined file and the converted one together, about."""
FILES_WANTED = 512
"""Sockets, mappings and pipes for 64 clients, with a margin."""


class Finding(NamedTuple):
    """One check's answer."""

    check: str
    level: Level
    says: str


def doctor(as_json: bool) -> int:
    """Run every check, print the findings; 1 when there is a problem."""
    worst = 0
    for finding in findings():
        worst = max(worst, ("ok", "warning", "problem").index(finding.level))
        if as_json:
            print_json(finding._asdict())
        else:
            mark = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}[finding.level]
            click.echo(f"{mark}  {finding.check:<14} {finding.says}")
    return 1 if worst == 2 else 0


def findings() -> Iterator[Finding]:
    """Every finding, in the order in which a start would meet it."""
    for check in CHECKS:
        name = check.__name__.strip("_")
        try:
            level, says = check()
        except GleemanError as error:
            level, says = "problem", error.message
        except OSError as error:
            level, says = "problem", str(error)
        yield Finding(name, level, says)


def _system() -> tuple[Level, str]:
    machine = platform.machine().lower()
    says = f"Python {platform.python_version()}, {platform.system()} on {machine}, {os.cpu_count()} cores"
    if sys.maxsize < 2**32:
        return "problem", f"{says}: a 64-bit Python is needed"
    if machine not in ("x86_64", "amd64"):
        return "warning", f"{says}: positions in shared memory need the C helper here (see SHM.md)"
    return "ok", says


def _home() -> tuple[Level, str]:
    folder = paths.models_dir()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    with tempfile.TemporaryFile(dir=there):
        pass
    free = shutil.disk_usage(there).free
    says = f"models live in {folder}, {free / 1024**3:.1f} GiB free"
    return ("ok" if free > WEIGHTS_BYTES else "warning"), says


def _runtime() -> tuple[Level, str]:
    return "ok", f"private runtime folder {paths.runtime_dir()}"


def _mapping() -> tuple[Level, str]:
    folders = host.mapping_folders(paths.runtime_dir())
    for folder in folders:
        if not folder.is_dir():
            continue
        room = shutil.disk_usage(folder).free // TOTAL_BYTES
        if room:
            return "ok", f"shared memory in {folder}, room for {room} clients"
    return (
        "problem",
        f"no room for {TOTAL_BYTES / 1e6:.0f} MB of shared memory in {' or '.join(map(str, folders))}",
    )


def _loopback() -> tuple[Level, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "ok", f"loopback TCP works (got port {probe.getsockname()[1]})"


def _files() -> tuple[Level, str]:
    if sys.platform == "win32":
        return "ok", "no limit on open files that matters"
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        return "warning", f"only {soft} files may be open; `ulimit -n {min(hard, 4096)}` raises it"
    return "ok", f"{soft} files may be open"


def _daemon() -> tuple[Level, str]:
    found = read_discovery()
    if found is None:
        return "ok", "none runs"
    return "ok", f"version {found.version} runs as pid {found.pid} with model {found.model}"


def _text() -> tuple[Level, str]:
    absent = [name for name in ("hibari", "wetext", "misaki", "jieba", "pypinyin") if not _importable(name)]
    if absent:
        return "problem", f"not installed: {', '.join(absent)}; install gleeman anew"
    return "ok", "English and Chinese front ends are installed"


def _importable(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _torch() -> tuple[Level, str]:
    if not _importable("torch"):
        return "problem", "torch is not installed; only the models babble and silent can run"
    import torch

    isa = torch.backends.cpu.get_cpu_capability()
    if not torch.cuda.is_available():
        return "ok", f"torch {torch.__version__}, CPU only ({isa}); no CUDA device is visible"
    free, total = torch.cuda.mem_get_info()
    name = torch.cuda.get_device_name()
    level: Level = "ok" if free > 1.5 * 1024**3 else "warning"
    return level, f"torch {torch.__version__}, {name}, {free / 1024**3:.1f} of {total / 1024**3:.1f} GiB free"


def _weights() -> tuple[Level, str]:
    from ..weights.verify import check

    try:
        return "ok", f"kokoro: {_size(check('kokoro'))}"
    except GleemanError as error:
        return ("warning" if error.code == "model-missing" else "problem"), error.message


def _size(path: Path) -> str:
    return f"{path.name}, {path.stat().st_size / 1e6:.0f} MB"


CHECKS: tuple[Callable[[], tuple[Level, str]], ...] = (
    _system,
    _home,
    _runtime,
    _mapping,
    _loopback,
    _files,
    _daemon,
    _text,
    _torch,
    _weights,
)
