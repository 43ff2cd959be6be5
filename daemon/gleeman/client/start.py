"""Starting a daemon for a client that asked for one. Knows no sockets and no protocol.

Two clients may start one at the same moment: the daemons settle it by their lock file, the second
leaves by itself, and both clients find the first through the discovery file.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ..children import no_window, own_command, own_folder

IDLE_EXIT_S = 60
"""A daemon that a client started leaves this long after its last session."""

_started: list[subprocess.Popen[bytes]] = []
"""Kept until they end, so that Python neither warns about nor waits for a daemon that outlives us."""


def start_daemon(instance: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start `gleeman serve` detached from this process, its terminal and its signals; does not wait.

    `arguments` are added to the command, after ours. Raises OSError.
    """
    command = own_command("serve", "--idle-exit", str(IDLE_EXIT_S))
    if instance:
        command = [*command, "--instance", instance]
    flags = no_window()
    if sys.platform == "win32":
        flags |= subprocess.CREATE_NEW_PROCESS_GROUP
    child = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=own_folder(),
        creationflags=flags,
        start_new_session=sys.platform != "win32",
    )
    _started[:] = [old for old in _started if old.poll() is None]
    _started.append(child)
    return child
