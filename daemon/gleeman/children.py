"""How this program starts itself again as a child process. Knows nothing of what the child does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def own_command(*arguments: str) -> list[str]:
    """The command line that runs this same program with `arguments`: `own_command("_text")`.

    In a frozen build the executable is the program; else it is the interpreter's module. Start it in
    `own_folder()`: `python -m` puts the current folder first on the import path, and a game's folder
    must not be able to shadow a module of ours.
    """
    if getattr(sys, "frozen", False):
        return [sys.executable, *arguments]
    return [sys.executable, "-m", "gleeman", *arguments]


def own_folder() -> Path:
    """The folder a child is started in: the one that holds this package (frozen: the executable)."""
    if getattr(sys, "frozen", False):
        return Path(sys.executable).resolve().parent
    return Path(__file__).resolve().parent.parent


def own_environment() -> dict[str, str]:
    """The environment a child is started with: a relative $GLEEMAN_HOME means our current folder, not its."""
    from . import paths  # brings psutil, which the text process does without

    environment = dict(os.environ)
    if environment.get("GLEEMAN_HOME"):
        environment["GLEEMAN_HOME"] = str(paths.home())
    return environment


def no_window() -> int:
    """`creationflags` that keep Windows from flashing a console; 0 elsewhere."""
    if sys.platform == "win32":
        return subprocess.CREATE_NO_WINDOW
    return 0
