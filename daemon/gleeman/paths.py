"""Where our files lie. Makes folders only where it says so; knows nothing of what is in the files.

    $GLEEMAN_HOME set    $GLEEMAN_HOME/{models,voices,cache,run}
    otherwise            <user data>/gleeman/{models,voices}, <user cache>/gleeman, and for runtime files
                         $XDG_RUNTIME_DIR/gleeman when that is set, else <user data>/gleeman/run

Never a folder of a guessable name in the shared temporary folder: another user could be there first.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import platformdirs

from . import host
from .errors import Failure, InputError

PROTOCOL_MAJOR = 1
"""Repeated from wire/messages.py, which this file must not import; a test compares the two."""
MAX_IPC_BYTES = 107
"""`sun_path` holds 108 bytes, one of them the closing zero."""
MAX_INSTANCE = 32

_FALLBACK = re.compile(r"gleeman-(\d+)-(\d+)-[A-Za-z0-9_]+")


def _given_home() -> Path | None:
    home = os.environ.get("GLEEMAN_HOME", "")
    return Path(home).expanduser().absolute() if home else None


def home() -> Path:
    """`$GLEEMAN_HOME`, else our folder among the user's data. Need not exist."""
    return _given_home() or Path(platformdirs.user_data_dir("gleeman", appauthor=False))


def models_dir() -> Path:
    """Weights. Need not exist."""
    return home() / "models"


def cache_dir() -> Path:
    """What can be made again. Need not exist."""
    given = _given_home()
    return given / "cache" if given else Path(platformdirs.user_cache_dir("gleeman", appauthor=False))


def runtime_dir() -> Path:
    """The private folder of sockets, locks, discovery files and spare mappings; made (0700) if need be.

    Raises Failure bad-file when it cannot be made or is not ours alone.
    """
    return host.private_folder(runtime_path())


def runtime_path() -> Path:
    """The same without making or checking it."""
    given = _given_home()
    if given:
        return given / "run"
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and os.path.isabs(session) and sys.platform != "win32":
        return Path(session) / "gleeman"
    return home() / "run"


def _stem(instance: str) -> str:
    if not instance:
        return f"gleeman-{PROTOCOL_MAJOR}"
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_INSTANCE}}}", instance):
        raise InputError(
            f"instance {instance[:60]!r} must be 1 to {MAX_INSTANCE} letters, digits, '-' or '_'", "bad-value"
        )
    return f"gleeman-{PROTOCOL_MAJOR}-{instance}"


def discovery_path(instance: str = "") -> Path:
    """The file by which clients find a running daemon. Its folder need not exist (a client only looks).

    Raises InputError bad-value for an instance name that could not be a file name.
    """
    return runtime_path() / f"{_stem(instance)}.json"


def lock_path(instance: str = "") -> Path:
    """The lock that a daemon holds for life. Its folder exists."""
    return runtime_dir() / f"{_stem(instance)}.lock"


def ipc_path(instance: str = "") -> Path:
    """Where a daemon's Unix socket goes, at most MAX_IPC_BYTES bytes; its folder exists and is private.

    When the runtime folder's path is too long, a new private folder in the temporary folder, with a
    random part in its name, to be removed by `remove_ipc_folder` (or by `sweep_ipc_folders` of a later
    process).
    Each call makes another: call it once.
    """
    path = runtime_dir() / f"{_stem(instance)}.ipc"
    if len(os.fsencode(path)) <= MAX_IPC_BYTES:
        return path
    for place in (tempfile.gettempdir(), "/tmp"):
        folder = None
        with contextlib.suppress(OSError):
            prefix = f"gleeman-{os.getpid()}-{host.own_start_ns()}-"
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))  # 0700
        if folder is None:
            continue
        if len(os.fsencode(folder / "s")) <= MAX_IPC_BYTES:
            return folder / "s"
    raise Failure(
        f"no folder with a path short enough for a Unix socket ({MAX_IPC_BYTES} bytes); "
        "set GLEEMAN_HOME or TMPDIR to a shorter one",
        "unsupported-platform",
    )


def remove_ipc_folder(path: Path) -> None:
    """Remove the short folder that `ipc_path` made for this socket; nothing where it made none."""
    if _FALLBACK.fullmatch(path.parent.name):
        shutil.rmtree(path.parent, ignore_errors=True)


def sweep_ipc_folders() -> int:
    """Remove the short socket folders of daemons that are gone; returns how many. A daemon calls it at
    its start."""
    removed = 0
    for place in {Path(tempfile.gettempdir()), Path("/tmp")}:
        with contextlib.suppress(OSError):
            for folder in place.iterdir():
                named = _FALLBACK.fullmatch(folder.name)
                if not named or host.pid_alive(int(named[1]), int(named[2])):
                    continue
                if folder.is_symlink() or not folder.is_dir() or not _ours(folder):
                    continue
                shutil.rmtree(folder, ignore_errors=True)
                removed += not folder.exists()
    return removed


def _ours(folder: Path) -> bool:
    return sys.platform == "win32" or folder.lstat().st_uid == os.getuid()
