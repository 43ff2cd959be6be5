"""What `gleeman serve` was told: flags over the configuration file over the defaults here.

The file is TOML, flat, with the names of the flags as keys (`tick-hz` or `tick_hz`). Whether a model
or a device exists is not known here; the rooms that need them say so.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .errors import InputError

DEFAULT_MODEL = "kokoro"
"""The model whose weights `gleeman models fetch` brings."""
DEFAULT_TICK_HZ = 60.0
"""The frame rate most games aim at; a tick waits at most one such frame for more lines."""
MAX_TICK_HZ = 1000.0
MAX_THREADS = 1024
MAX_IDLE_EXIT_S = 86_400.0 * 365
MAX_PID = (1 << 32) - 1
MAX_VRAM_MB = 1 << 20
QUALITIES = ("auto", "high", "fast")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_FILE_BYTES = 1 << 20

_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_INSTANCE = re.compile(r"[A-Za-z0-9_-]{0,32}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def default_threads() -> int:
    """Half of the cores this process may use, at least one: the other half is the game's."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, cores // 2)


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration of a daemon. Raises InputError bad-config for a value it cannot use."""

    device: str = "auto"
    """"auto", "cpu", "cuda" or "cuda:N"."""
    model: str = DEFAULT_MODEL
    quality: str = "auto"
    """"auto", "high" (the teacher vocoder) or "fast"."""
    precision: str = "auto"
    """"auto", "float32", "bfloat16" or "float16" of the convolutions; auto is bfloat16 where the processor
    has it, float16 is for a GPU."""
    parent_pid: int = 0
    """Exit when this process has gone; 0: watch none."""
    idle_exit_s: float = 0.0
    """Exit after so many seconds without a session; 0: never."""
    vram_mb: int = 0
    """Cap on a GPU's memory, in 10^6 bytes, the driver's context included; 0: none."""
    tick_hz: float = DEFAULT_TICK_HZ
    threads: int = 0
    """CPU threads of the engine; 0 becomes half of the cores."""
    instance: str = ""
    """A name, to run beside another daemon of this user."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _CHECKS[field.name](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        if self.threads == 0:
            object.__setattr__(self, "threads", default_threads())

    @property
    def max_wait_ns(self) -> int:
        """How long a tick waits for clients that have not framed: one frame."""
        return int(1e9 / self.tick_hz)


def load(file: Path | None, overrides: Mapping[str, Any]) -> Config:
    """The configuration of `file` (None: of no file) under `overrides`, whose None values were not given.

    Raises InputError bad-config for an unknown key (naming the near one) or a bad value (saying what
    would be accepted), bad-file when the file cannot be read.
    """
    values = _read(file) if file is not None else {}
    values |= {_field(key, ""): value for key, value in overrides.items() if value is not None}
    return Config(**values)


def as_flags(config: Config) -> dict[str, Any]:
    """The effective values under the names of the flags, for the log."""
    return {_flag(name): value for name, value in asdict(config).items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the configuration {file}: {error.strerror}", "bad-file") from error
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"the configuration {file} is longer than {MAX_FILE_BYTES} bytes", "bad-config")
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError, and others are not named
        raise InputError(f"the configuration {file} is not TOML: {error}", "bad-config") from error
    return {_field(key, f" in {file}"): value for key, value in table.items()}


def _field(key: str, where: str) -> str:
    """The field that a key of the file or an override means."""
    name = key.replace("-", "_")
    name = "idle_exit_s" if name == "idle_exit" else name
    names = [field.name for field in fields(Config)]
    if name in names:
        return name
    flags = [_flag(each) for each in names]
    near = difflib.get_close_matches(key.replace("_", "-"), flags, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(flags)}"
    raise InputError(f"unknown key {key[:60]!r}{where}; {hint}", "bad-config")


def _flag(name: str) -> str:
    return name.removesuffix("_s").replace("_", "-")


def _wrong(name: str, value: object, accepted: str) -> InputError:
    return InputError(f"{_flag(name)} is {str(value)[:60]!r}; it must be {accepted}", "bad-config")


def _whole(low: int, high: int) -> Callable[[str, object], int]:
    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _wrong(name, value, f"a whole number from {low} to {high}")
        return value

    return check


def _number(low: float, high: float) -> Callable[[str, object], float]:
    def check(name: str, value: object) -> float:
        # NaN is in no range, and an int too long for a float is compared as it is.
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if not fits:
            raise _wrong(name, value, f"a number from {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]

    return check


def _word(pattern: re.Pattern[str], accepted: str) -> Callable[[str, object], str]:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _wrong(name, value, accepted)
        return value

    return check


def _one_of(words: tuple[str, ...]) -> Callable[[str, object], str]:
    return _word(re.compile("|".join(words)), f"one of {', '.join(words)}")


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "device": _word(_DEVICE, "auto, cpu, cuda or cuda:N"),
    "model": _word(_MODEL, "a model's name (`gleeman models list`)"),
    "quality": _one_of(QUALITIES),
    "precision": _one_of(PRECISIONS),
    "parent_pid": _whole(0, MAX_PID),
    "idle_exit_s": _number(0, MAX_IDLE_EXIT_S),
    "vram_mb": _whole(0, MAX_VRAM_MB),
    "tick_hz": _number(1, MAX_TICK_HZ),
    "threads": _whole(0, MAX_THREADS),
    "instance": _word(_INSTANCE, "at most 32 letters, digits, '-' or '_'"),
    "log_level": _one_of(LOG_LEVELS),
}
