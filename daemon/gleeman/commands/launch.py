"""A daemon for one call: use the running one, else start one that ends with us."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import click

from ..children import own_command, own_environment, own_folder
from ..client import Client
from ..errors import Failure, GleemanError
from ..records import ModelState
from ..wire.discovery import read_discovery

START_TIMEOUT_S = 20.0
"""For the daemon's first answer: it promises one second; a cold disk may need more."""
READY_TIMEOUT_S = 300.0
"""For the model: reading 330 MB from a slow disk and a first run."""
PROGRESS_EVERY_S = 0.25

Watch = Callable[[ModelState], None]


@contextlib.contextmanager
def client_for_call(
    *,
    instance: str = "",
    model: str = "kokoro",
    device: str = "auto",
    rate_hz: int = 24_000,
    threads: int | None = None,
    own: bool = False,
    watch: Watch | None = None,
) -> Iterator[Client]:
    """A connected client whose daemon is ready.

    Takes the running daemon `instance` unless `own`; else starts `gleeman serve` with `model`, `device` and
    `threads`, which ends with this process at the latest. `watch` is told of loading progress.

    Raises Failure when the daemon does not come up or its model fails (with the model's code).
    """
    with contextlib.ExitStack() as stack:
        running = None if own else read_discovery(instance)
        if running is not None and running.model != model:
            click.echo(f"gleeman: note: the running daemon speaks with model {running.model}", err=True)
        if running is None:
            instance = own_instance()
            stack.enter_context(_running(instance, model, device, threads))
        client = stack.enter_context(
            Client.connect(instance=instance, rate_hz=rate_hz, name="gleeman command line")
        )
        _wait_ready(client, watch)
        yield client


def own_instance() -> str:
    """What a daemon of this call's own is named: for more clients of it."""
    return f"call-{os.getpid()}"


@contextlib.contextmanager
def _running(instance: str, model: str, device: str, threads: int | None) -> Iterator[None]:
    command = own_command("serve", "--instance", instance, "--model", model, "--device", device)
    command += ["--parent-pid", str(os.getpid()), "--log-level", "warning"]
    if threads is not None:
        command += ["--threads", str(threads)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd=own_folder(), env=own_environment()
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while read_discovery(instance) is None:
            if process.poll() is not None:
                # It has said why on stderr, which is ours.
                raise Failure(f"the daemon left at once with exit status {process.returncode}", "no-daemon")
            if time.monotonic() > deadline:
                raise Failure(f"the daemon did not come up in {START_TIMEOUT_S:.0f} s", "timeout")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(client: Client, watch: Watch | None) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        state = client.state
        if watch:
            watch(state)
        if state.state == "ready":
            return
        if state.state == "failed":
            raise Failure(state.message or "the model could not be loaded", state.code or "model-failed")
        if time.monotonic() > deadline:
            raise Failure(f"the model was not ready in {READY_TIMEOUT_S:.0f} s", "timeout")
        try:
            client.wait_ready(PROGRESS_EVERY_S)
        except GleemanError as error:
            if error.code != "timeout":
                raise
