"""The file by which a client finds a running daemon, and the lock that makes that daemon the only one.

    <runtime folder>/gleeman-1.json           gleeman-1-INSTANCE.json with `--instance`
    {"protocol", "minor", "version", "pid", "start_ns", "endpoints", "token", "model"}

Mode 0600, written under another name and renamed, so that a reader sees a whole file or none. The
token in it is what lets a client in: who can read the file may speak. Knows no socket.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from .. import host, paths
from ..errors import Failure
from .messages import PROTOCOL_MAJOR

MAX_FILE_BYTES = 65_536
TOKEN_BYTES = 32
LOCK_ATTEMPTS, LOCK_PAUSE_S = 4, 0.02
"""Another daemon's `sweep_instances` may hold a free lock for a moment."""


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says. Unknown fields are skipped."""

    protocol: int
    """The protocol's major, the same as in the file's name."""
    minor: int
    version: str
    """Of the package."""
    pid: int
    start_ns: int
    """When that process began, as `host.process_start_ns` says it: tells it from a later one with its pid."""
    endpoints: list[str]
    """ZeroMQ addresses, the best first: "ipc://…" (not on Windows), "tcp://127.0.0.1:PORT"."""
    token: str
    """64 hexadecimal digits, new at each start."""
    model: str


def new_token() -> str:
    """256 random bits as 64 hexadecimal digits."""
    return secrets.token_hex(TOKEN_BYTES)


def read_discovery(instance: str = "") -> Discovery | None:
    """The daemon that runs now, or None: no file, not a whole file, or its process is gone.

    Raises InputError bad-value for an instance name that no daemon can have.
    """
    found = _read(paths.discovery_path(instance))
    if found is None or found.protocol != PROTOCOL_MAJOR or not host.pid_alive(found.pid, found.start_ns):
        return None
    return found


def write_discovery(discovery: Discovery, instance: str = "") -> Path:
    """Put the file in place, over whatever a dead daemon left. Raises Failure bad-file."""
    path = paths.discovery_path(instance)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)  # of a dead process that had our pid
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(discovery))
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise Failure(f"cannot write the discovery file {path}: {error.strerror}", "bad-file") from error
    return path


def remove_discovery(discovery: Discovery, instance: str = "") -> None:
    """Remove the file if it is still this daemon's; a file of another one stays."""
    path = paths.discovery_path(instance)
    found = _read(path)
    if found is not None and found.token == discovery.token:
        with contextlib.suppress(OSError):
            path.unlink()


def take_lock(instance: str = "") -> host.FileLock:
    """The lock to hold for life. Raises Failure already-running, naming the other daemon."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            time.sleep(LOCK_PAUSE_S)
        lock = host.lock_file(paths.lock_path(instance))
        if lock is not None:
            return lock
    other = _read(paths.discovery_path(instance))
    who = "a daemon" if other is None else f"a daemon (pid {other.pid}, version {other.version})"
    name = f" as instance {instance!r}" if instance else ""
    raise Failure(
        f"{who} of this user runs already{name}; use it, end it, or start another with --instance NAME",
        "already-running",
    )


def sweep_instances() -> int:
    """Remove what daemons of any instance name left that were killed; returns how many. A daemon calls it at
    its start. Whoever holds the lock is alive, so what can be locked is dead."""
    swept = 0
    folder, stem = paths.runtime_dir(), f"gleeman-{PROTOCOL_MAJOR}"
    for path in (*folder.glob(f"{stem}.lock"), *folder.glob(f"{stem}-*.lock")):
        lock = host.lock_file(path)
        if lock is None:
            continue
        for ending in (".json", ".ipc"):
            with contextlib.suppress(OSError):
                path.with_suffix(ending).unlink()
        lock.release()  # removes the lock's file
        swept += 1
    return swept


def _read(path: Path) -> Discovery | None:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_FILE_BYTES:
        return None
    try:
        return msgspec.json.decode(data, type=Discovery)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
