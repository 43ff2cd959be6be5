"""Sound files and the machine's own player. Knows no daemon."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import soundfile

from .. import __version__
from ..errors import Failure, InputError
from ..records import Samples

PLAYERS: tuple[tuple[str, ...], ...] = (
    ("pw-play",),
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "error"),
    ("play", "-q"),
)
"""Programs that play a WAV given as their last argument, the likeliest first."""


def check_wav_path(path: Path) -> None:
    """Raises InputError bad-file for a name that does not say what the file will be, and for what is there
    already and no plain file."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path!r} is not UTF-8", "bad-file") from None
    if path.suffix.lower() != ".wav":
        raise InputError(f"{str(path)!r} must end in .wav, which is what is written", "bad-file")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is there already and no plain file", "bad-file")


def write_wav(path: Path, samples: Samples, rate_hz: int, voice: str) -> None:
    """Write mono float32 samples, bit for bit, whole or not at all.

    The file says in its comment that it is synthetic and by which voice. Raises InputError bad-file.
    """
    check_wav_path(path)
    path = path.resolve()  # a link stays a link
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with soundfile.SoundFile(scratch, "w", rate_hz, 1, "FLOAT", format="WAV") as file:
            file.comment = f"synthetic speech, voice {voice}"
            file.software = f"gleeman {__version__}"
            file.write(samples)
        scratch.replace(path)
    except (OSError, soundfile.LibsndfileError) as error:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error}", "bad-file") from None


def play(samples: Samples, rate_hz: int) -> None:
    """Play through the machine's sound player and wait. Raises Failure unsupported-platform without one."""
    program, *flags = player()
    with tempfile.TemporaryDirectory(prefix="gleeman-play-") as folder:
        path = Path(folder) / "line.wav"
        soundfile.write(path, samples, rate_hz, subtype="PCM_16")
        if sys.platform == "win32":
            import winsound

            winsound.PlaySound(str(path), winsound.SND_FILENAME)
            return
        result = subprocess.run([program, *flags, str(path)], stdin=subprocess.DEVNULL, check=False)
        if result.returncode:
            raise Failure(f"{program} could not play (exit status {result.returncode})", "no-device")


def player() -> tuple[str, ...]:
    """The command that plays a WAV. Raises Failure unsupported-platform when there is none."""
    if sys.platform == "win32":
        return ("winsound",)
    for name, *flags in PLAYERS:
        if program := shutil.which(name):
            return (program, *flags)
    names = ", ".join(name for name, *_ in PLAYERS)
    raise Failure(f"no sound player found; install one of {names}, or use --out", "unsupported-platform")
