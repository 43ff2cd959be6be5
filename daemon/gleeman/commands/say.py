"""`gleeman say`: one line, spoken, written, played, told about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..client import Client, Line
from ..errors import Failure, InputError
from ..records import End, EventType, Samples, Viseme
from ..voices.store import VoiceStore
from ..wire.discovery import read_discovery
from . import sound
from .launch import client_for_call
from .show import loading_bar, print_json


def say(
    text: str,
    *,
    phonemes: str,
    voice: str,
    out: Path | None,
    play: bool,
    as_json: bool,
    model: str,
    device: str,
    instance: str,
    rate_hz: int,
    **prosody: Any,
) -> None:
    """Speak `text` (or `phonemes`); raises what the line ended with if that was not `done`."""
    play = play or not (out or as_json)
    if out:
        sound.check_wav_path(out)
    if play:
        sound.player()
    if read_discovery(instance) is None and voice:  # before a model is loaded for nothing
        VoiceStore().resolve(_voices(voice))
    with (
        loading_bar() as watch,
        client_for_call(
            instance=instance, model=model, device=device, rate_hz=rate_hz, watch=watch
        ) as client,
    ):
        line = client.speak(text, phonemes=phonemes, voice=_voices(voice), **prosody)
        client.frame()
        samples = collect(line)
        if out:
            sound.write_wav(out, samples, client.rate_hz, line.voice)
        if as_json:
            print_json(facts(client, line, samples, out))
        else:
            for warning in line.warnings:
                click.echo(f"gleeman: note: {warning}", err=True)
            seconds = samples.size / client.rate_hz
            click.echo(
                f"{line.voice}: {seconds:.2f} s of speech, first audio after {line.first_audio_ms:.0f} ms"
                + (f", {out}" if out else "")
            )
        if play:
            sound.play(samples, client.rate_hz)


def collect(line: Line) -> Samples:
    """Every sample of a line. Raises InputError or Failure with the line's code if it did not end `done`."""
    samples = line.audio()
    if line.end is not End.DONE:
        found_late = line.code in ("nothing-to-say", "bad-phonemes", "unknown-language")
        kind = InputError if line.end is End.REFUSED or found_late else Failure
        raise kind(line.message or "the line did not come to its end", line.code or "internal")
    return samples


def facts(client: Client, line: Line, samples: Samples, out: Path | None) -> dict[str, Any]:
    """A finished line as JSON: times in seconds on the sample clock, text spans in UTF-8 bytes."""
    rate = client.rate_hz
    return {
        "voice": line.voice,
        "seed": line.seed,
        "seconds": round(samples.size / rate, 4),
        "rate_hz": rate,
        "first_audio_ms": round(line.first_audio_ms or 0.0, 2),
        "peak": round(float(np.abs(samples).max(initial=0.0)), 4),
        "out": str(out) if out else None,
        "warnings": list(line.warnings),
        "clauses": [{"spoken": c.spoken, "start": c.begin, "end": c.end} for c in line.clauses],
        "words": [
            {"at": round(e.sample / rate, 4), "start": e.text_begin, "end": e.text_end}
            for e in line.events
            if e.type == EventType.WORD
        ],
        "visemes": [
            {
                "at": round(e.sample / rate, 4),
                "viseme": Viseme(e.code).name.lower(),
                "weight": round(e.weight, 3),
            }
            for e in line.events
            if e.type == EventType.VISEME
        ],
    }


def _voices(names: str) -> str | list[str]:
    several = [name.strip() for name in names.split(",") if name.strip()]
    return several if len(several) > 1 else names.strip()
