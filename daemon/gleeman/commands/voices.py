"""`gleeman voices ...`: the voices, listed and heard. Needs no daemon to list them."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ..voices.store import VoiceStore
from .say import say
from .show import print_json

SENTENCES = {
    "zh": "夜色已深，旅人，请到火边坐下，听我讲一个故事。",
    "en": "Come closer to the fire, traveller, and I will tell you a story.",
}
"""What `preview` says. Voices of languages that the text room cannot read yet speak English."""


def list_voices(as_json: bool) -> None:
    """Print every voice."""
    store = VoiceStore()
    for name in store.names():
        info = store.info(name)
        if as_json:
            print_json(msgspec.to_builtins(info))
        else:
            note = "" if _readable(info.language) else "  (speaks English and Chinese only, as yet)"
            default = "  (default)" if name == store.default() else ""
            click.echo(f"{info.name:<16} {info.language:<6} {info.gender:<7} {info.source}{default}{note}")


def _readable(language: str) -> bool:
    return language.split("-")[0] in SENTENCES


def preview(name: str, *, out: Path | None, play: bool, as_json: bool, model: str, device: str) -> None:
    """Let a voice say a sentence of its language. Raises InputError unknown-voice."""
    store = VoiceStore()
    info = store.info(store.resolve(name))
    say(
        SENTENCES.get(info.language.split("-")[0], SENTENCES["en"]),
        phonemes="",
        voice=info.name,
        out=out,
        play=play,
        as_json=as_json,
        model=model,
        device=device,
        instance="",
        rate_hz=24_000,
    )
