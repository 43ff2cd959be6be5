"""What differs by operating system, behind one set of plain functions.

    processes   process_start_ns, pid_alive, own_identity, lower_priority, suspend, resume
    mappings    mapping_folders, create_mapping_file, map_file, remove_file
    files       lock_file -> FileLock, private_folder, user_tag

posix.py and windows.py hold the same names; this file picks one and adds what both share. Nothing
here knows what a mapping holds, nor where our own folders are (paths.py does). Every function may
be called from any thread.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import psutil

if sys.platform == "win32":
    from .windows import (
        FileLock,
        allow_many_files,
        create_mapping_file,
        lock_file,
        lower_priority,
        map_file,
        mapping_folders,
        private_folder,
        process_start_ns,
        remove_file,
        user_tag,
    )
else:
    from .posix import (
        FileLock,
        allow_many_files,
        create_mapping_file,
        lock_file,
        lower_priority,
        map_file,
        mapping_folders,
        private_folder,
        process_start_ns,
        remove_file,
        user_tag,
    )

__all__ = [
    "FileLock",
    "allow_many_files",
    "create_mapping_file",
    "lock_file",
    "lower_priority",
    "map_file",
    "mapping_folders",
    "own_start_ns",
    "pid_alive",
    "private_folder",
    "process_start_ns",
    "remove_file",
    "resume",
    "suspend",
    "user_tag",
]


@cache
def _start_of(pid: int) -> int:
    return process_start_ns(pid) or 0


def own_start_ns() -> int:
    """`process_start_ns` of this process; 0 where the system does not tell."""
    return _start_of(os.getpid())  # by pid: a forked child must not answer with its parent's


def pid_alive(pid: int, start_ns: int) -> bool:
    """Whether the process that had `pid` and began at `start_ns` still runs. False when the pid was
    given to another process since, or the process is a zombie; True where it cannot be found out."""
    try:
        return pid > 0 and process_start_ns(pid) == start_ns
    except OSError:
        return True


def suspend(pid: int) -> bool:
    """Stop a process until `resume`. False when it is gone or not ours."""
    try:
        psutil.Process(pid).suspend()
    except (psutil.Error, ValueError):
        return False
    return True


def resume(pid: int) -> bool:
    """Let a suspended process go on. False when it is gone or not ours."""
    try:
        psutil.Process(pid).resume()
    except (psutil.Error, ValueError):
        return False
    return True
