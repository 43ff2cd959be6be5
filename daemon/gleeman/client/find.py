"""Finding the daemon to talk to, and starting one for a client that may. Knows no sockets.

Two clients may start one at the same moment: the daemons settle it by their lock file, the second
leaves by itself, and both clients find the first through the discovery file.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import time
from collections.abc import Sequence

from ..children import no_window, own_command, own_environment, own_folder
from ..errors import Failure
from ..wire.discovery import Discovery, read_discovery

IDLE_EXIT_S = 60
"""A daemon that a client started leaves this long after its last session."""
RESTART_NS = 5_000_000_000
"""Between two daemons that we start: so long the first, or the one it left to, may take to come up."""
BAD_INPUT = 2
"""The exit status of a daemon that will not do better the next time."""

_started: list[subprocess.Popen[bytes]] = []
"""Kept, so that those which end are reaped and Python does not warn of those which outlive us."""


def _leave_running() -> None:
    for child in _started:
        child.returncode = child.returncode or 0  # else Popen warns, at exit, that it still runs


atexit.register(_leave_running)


class Finder:
    """Looks for the daemon of one instance. One thread only."""

    def __init__(self, instance: str, arguments: tuple[str, ...] | None) -> None:
        """`arguments` for `gleeman serve` where we may start one; None: we may not."""
        self._instance = instance
        self._arguments = arguments
        self._leaving: Discovery | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._started_ns = 0

    def leaves(self, daemon: Discovery | None) -> None:
        """A daemon has said that it goes: not to be found again, though it may still be there."""
        self._leaving = daemon

    def look(self) -> Discovery | None:
        """The daemon that is there, or None: look again, one has been started or was just ending.

        Raises Failure no-daemon where none is there and none may be started, or the one started has
        left; InputError for an instance name that none can have; OSError when starting fails.
        """
        found = read_discovery(self._instance)
        if found is not None and found != self._leaving:
            return found
        if self._arguments is None:
            raise Failure(
                "no daemon runs; start one with `gleeman serve` or connect with autostart", "no-daemon"
            )
        now_ns = time.monotonic_ns()
        status = None if self._child is None else self._child.poll()
        waited = now_ns - self._started_ns > RESTART_NS
        if self._child is None or status == BAD_INPUT or (status is not None and waited):
            if status:
                self._child = None  # the next look starts another
                raise Failure(
                    f"the daemon that was started left with status {status}; `gleeman serve` shows why",
                    "no-daemon",
                )
            self._child = start_daemon(self._instance, self._arguments)
            self._started_ns = now_ns
        return None


def endpoint_of(daemon: Discovery) -> str:
    """The best of its endpoints that works here. Raises Failure no-daemon when there is none."""
    kinds = ("tcp://127.0.0.1:",) if sys.platform == "win32" else ("ipc://", "tcp://127.0.0.1:")
    for kind in kinds:
        for endpoint in daemon.endpoints:
            if endpoint.startswith(kind):
                return endpoint
    raise Failure(f"the discovery file names no endpoint that begins with {' or '.join(kinds)}", "no-daemon")


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
        env=own_environment(),
        creationflags=flags,
        start_new_session=sys.platform != "win32",
    )
    _started[:] = [old for old in _started if old.poll() is None]
    _started.append(child)
    return child
