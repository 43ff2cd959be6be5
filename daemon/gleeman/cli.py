"""The program `gleeman`: one verb a function. Imports what a verb needs when the verb runs.

Errors go to stderr as `gleeman: CODE: sentence`; exit status 2 for bad input, 1 for a failure of ours.
Verbs that answer take `--json`: one JSON object a line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .commands.models import models
from .errors import GleemanError

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = "kokoro, babble (a placeholder voice without weights) or silent (timings and subtitles only)"


class Program(click.Group):
    """Puts every error of ours into one line, in one format."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run; never returns."""
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
        except GleemanError as error:
            _fail(error.code, error.message, error.exit_status)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            sys.exit(2)
        except click.UsageError as error:
            where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
            _fail("bad-value", error.format_message() + where, 2)
        except click.ClickException as error:
            _fail("bad-file", error.format_message(), 2)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(130)
        except BrokenPipeError:  # the reader of our output has gone; nobody is left to tell
            sys.stderr.close()
            sys.exit(0)
        sys.exit(status if isinstance(status, int) else 0)


def _fail(code: str, message: str, status: int) -> None:
    click.echo(f"gleeman: {code}: {message}", err=True)
    sys.exit(status)


def _as_json(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(function)


def _engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """For the verbs that may start a daemon of their own."""
    function = click.option("--device", default="auto", help="auto, cpu or cuda[:N], when one is started.")(
        function
    )
    return click.option("--model", default="kokoro", help=f"When one is started: {MODELS}.")(function)


def _prosody_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--voice", default="", help="A voice's name; several, comma-separated: the first known."
        ),
        click.option("--emotion", default="neutral", help="neutral, happy, sad, angry, afraid, whisper ..."),
        click.option("--intensity", type=float, default=1.0, help="Of the emotion, 0 to 1."),
        click.option("--speed", type=float, default=1.0, help="2.0 is twice as fast; 0.25 to 4."),
        click.option("--pitch", type=float, default=0.0, help="Semitones, -12 to 12."),
        click.option("--energy", type=float, default=0.0, help="Decibels, -20 to 20."),
        click.option("--lang", "language", default="auto", help="auto, en, en-us, en-gb or zh."),
        click.option(
            "--seed", type=int, default=None, help="Same seed, same samples; else made of the text."
        ),
    ):
        function = option(function)
    return function


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gleeman")
def main() -> None:
    """Gives game characters a voice: a daemon for games, and tools for the people who make them."""


@main.command()
@click.option("--device", default=None, help="auto, cpu or cuda[:N].")
@click.option("--model", default=None, help=f"{MODELS}.")
@click.option("--quality", default=None, help="auto or high (the teacher's vocoder).")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="TOML with these names as keys."
)
@click.option("--precision", default=None, help="auto, float32, bfloat16 or float16: of the convolutions.")
@click.option("--parent-pid", type=int, default=None, help="Exit when this process has gone.")
@click.option(
    "--idle-exit", "idle_exit_s", type=float, default=None, help="Exit after S seconds without a client."
)
@click.option("--vram-mb", type=int, default=None, help="Cap on the GPU's memory, in MB of 10^6 bytes.")
@click.option(
    "--tick-hz", type=float, default=None, help="Frame rate of the game: how long a tick waits for more."
)
@click.option(
    "--threads", type=int, default=None, help="CPU threads of the engine; default half of the cores."
)
@click.option("--instance", default=None, help="A name, to run beside another daemon of this user.")
@click.option("--log-level", default=None, help="debug, info, warning or error.")
def serve(config_file: Path | None, **flags: Any) -> int:
    """Run the daemon until it is told to stop."""
    from .config import load
    from .daemon import serve as run

    return run(load(config_file, {name: value for name, value in flags.items() if value is not None}))


@main.command()
@click.argument("text")
@_prosody_options
@_engine_options
@click.option("--phonemes", is_flag=True, help="TEXT is phonemes in the model's alphabet.")
@click.option("--rate", "rate_hz", type=int, default=24_000, help="24000, 44100 or 48000 Hz.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a WAV (float32, so that no bit is lost).")
@click.option(
    "--play", is_flag=True, help="Play it through the machine's sound player; so too without --out."
)
@click.option("--instance", default="", help="Which daemon, when several run.")
@_as_json
def say(text: str, phonemes: bool, as_json: bool, **options: Any) -> None:
    """Speak one line, through the running daemon or one started for the call."""
    from .commands.say import say as run

    run("" if phonemes else text, phonemes=text if phonemes else "", as_json=as_json, **options)


@main.command("phonemes")
@click.argument("text")
@click.option("--voice", default="", help="Its accent is used.")
@click.option("--lang", "language", default="auto", help="auto, en, en-us, en-gb or zh.")
@_as_json
def phonemes_(text: str, voice: str, language: str, as_json: bool) -> None:
    """Show what the text room makes of TEXT: the words as read, clauses, phonemes."""
    import json

    from .text.show import explain

    result = explain(text, voice=voice, language=language)
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    click.echo(f"spoken    {result['spoken']}")
    for clause in result["clauses"]:
        click.echo(
            f"{clause['start']:>4}-{clause['end']:<4} {clause['spoken']}\n          {clause['phonemes']}"
        )


@main.command()
@click.option("--instance", default="", help="Which daemon, when several run.")
@_as_json
def status(instance: str, as_json: bool) -> None:
    """What the running daemon is doing."""
    from .commands.status import status as run

    run(instance, as_json)


@main.command()
@_as_json
def doctor(as_json: bool) -> int:
    """Say in plain words what on this machine is in the way."""
    from .commands.doctor import doctor as run

    return run(as_json)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-out"), help="Folder for the WAVs.")
@_engine_options
@click.option(
    "--threads", type=int, default=None, help="CPU threads; default all cores, as nothing else runs."
)
@_as_json
def demo(out: Path, model: str, device: str, threads: int | None, as_json: bool) -> None:
    """A dozen lines in several voices, moods and two languages, spoken in one tick, with their latencies."""
    from .commands.demo import demo as run

    run(out, model=model, device=device, threads=threads, as_json=as_json)


@main.command()
@click.option("--model", default="kokoro", help=f"{MODELS}.")
@click.option("--device", default="auto", help="auto, cpu or cuda[:N].")
@click.option(
    "--threads", type=click.IntRange(1, 1024), default=None, help="CPU threads; default half of the cores."
)
@click.option("--quick", is_flag=True, help="Fewer runs of everything: figures to look at, not to keep.")
@click.option(
    "--lines", type=click.IntRange(1, 1_000_000), default=None, help="Of the memory run; default 100."
)
@click.option(
    "--profile",
    "trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Instead of the figures: where the time goes by stage, and FILE, a trace for Perfetto.",
    metavar="FILE",
)
@_as_json
def bench(trace: Path | None, lines: int | None, as_json: bool, **options: Any) -> None:
    """Measure this machine on a daemon of its own; the last line is one JSON object."""
    from .commands import bench as run

    if trace is not None:
        run.profile(trace, as_json=as_json, **options)
    else:
        run.bench(lines=lines, as_json=as_json, **options)


@main.group()
def voices() -> None:
    """The voices."""


@voices.command("list")
@_as_json
def voices_list(as_json: bool) -> None:
    """Every voice with its language and gender."""
    from .commands.voices import list_voices

    list_voices(as_json)


@voices.command("preview")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), help="Write a WAV.")
@click.option("--play", is_flag=True, help="Play it.")
@_engine_options
@_as_json
def voices_preview(name: str, as_json: bool, **options: Any) -> None:
    """Hear a voice say a sentence of its language."""
    from .commands.voices import preview

    preview(name, as_json=as_json, **options)


@main.command("_text", hidden=True)
def text_process() -> None:
    """The text process: a child of the daemon, not for people."""
    from .text.child import main as run

    run()


main.add_command(models)
