"""Finds a C compiler and builds the native halves of tests; says what to install when there is none."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

NATIVE = Path(__file__).parent / "native"


def find_cc() -> list[str]:
    """The command of a C compiler: $CC, what Python was built with, `cc`, gcc, clang, or PyPI's ziglang."""
    named = [os.environ.get("CC", ""), sysconfig.get_config_var("CC") or "", "cc", "gcc", "clang"]
    for candidate in named:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return command[:1] if candidate == named[1] else command  # Python's own flags are not ours
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no C compiler: install one, or run `python -m pip install ziglang`")


def build(source: Path, output: Path, *flags: str) -> Path:
    """Compile one C file with warnings as errors. Raises RuntimeError with the compiler's words."""
    command = [*find_cc(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", *flags]
    done = subprocess.run(
        [*command, "-o", str(output), str(source)], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} {source.name} failed:\n{done.stderr}")
    return output
