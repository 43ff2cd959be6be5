"""How the verbs show loading and results. Knows no daemon."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from ..records import ModelState


def print_json(value: dict[str, Any]) -> None:
    """One object, one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


@contextlib.contextmanager
def loading_bar() -> Iterator[Callable[[ModelState], None]]:
    """A bar on stderr while the model loads; on anything but a terminal a line for each change of state."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def watch(state: ModelState) -> None:
            eta = f", about {state.eta_s:.0f} s" if state.eta_s else ""
            bar.update(task, description=f"model {state.state}{eta}", completed=state.progress)

        yield watch


def _lines() -> Callable[[ModelState], None]:
    told = ""

    def watch(state: ModelState) -> None:
        nonlocal told
        if state.state != told and state.state != "ready":
            eta = f", about {state.eta_s:.0f} s" if state.eta_s else ""
            click.echo(f"gleeman: model {state.state}{eta}", err=True)
        told = state.state

    return watch
