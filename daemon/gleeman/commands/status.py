"""`gleeman status`: what the running daemon is doing."""

from __future__ import annotations

import click
import msgspec

from ..client import Client
from .show import print_json


def status(instance: str, as_json: bool) -> None:
    """Ask the daemon. Raises Failure no-daemon when none runs."""
    with Client.connect(instance=instance, name="gleeman status") as client:
        report = client.status()
    facts = {name: value for name, value in msgspec.to_builtins(report).items() if name not in ("type", "re")}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{count} {end}" for end, count in value.items()) or "none"
        click.echo(f"{name:<20} {'-' if value is None or value == '' else value}")
