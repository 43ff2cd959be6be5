"""Whether a model's weights are there and whole.

Beside the weights lies a manifest, written last: weights without one were never finished. The
checksum in it must be that of known.py when the weights came from packages, whose conversion
is exact; for the hub's it is what the conversion on this machine gave.

Hashing all of Kokoro's 325 MB takes 0.2 s where the processor has SHA instructions [measured], once a
start and in the loading thread: so `check` always does it unless asked to be quick.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .. import paths
from ..errors import Failure
from . import known
from .known import Model

_MANIFEST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was made, as JSON beside the weights."""

    file: str
    bytes: int
    sha256: str
    source: str
    """"packages" or "hub"."""
    source_sha256: str
    licence: str
    made_by: str
    """Our version."""


def folder_of(model: Model) -> Path:
    """Where a model's files lie. Need not exist."""
    return paths.models_dir() / model.name


def weights_path(model: Model) -> Path:
    """Where a model's weights lie once they are fetched."""
    return folder_of(model) / model.file


def manifest_path(model: Model) -> Path:
    """Where their manifest lies."""
    return weights_path(model).with_suffix(".json")


def sha256_of(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(model: Model) -> Manifest:
    """Raises Failure: "model-missing" when there is none, "model-damaged" when it cannot be read."""
    path = manifest_path(model)
    try:
        with path.open("rb") as file:
            text = file.read(_MANIFEST_BYTES)
        return msgspec.json.decode(text, type=Manifest)
    except FileNotFoundError:
        raise Failure(f"{path} is missing: {_mend(model)}", "model-missing") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Failure(f"{path} cannot be read ({error}): {_mend(model)}", "model-damaged") from None


def check(name: str, quick: bool = False) -> Path:
    """The path of a model's weights, which are there and whole.

    quick: trust the bytes and look only at the manifest, the size and the file's table of tensors;
    otherwise every byte is hashed. Raises InputError "unknown-model", Failure "model-missing" or
    "model-damaged", whose sentence names the file and how to mend it. Any thread.
    """
    model = known.find(name)
    path = weights_path(model)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise Failure(f"{path} is missing: {_mend(model)}", "model-missing") from None
    except OSError as error:
        raise Failure(f"{path} cannot be read ({error.strerror})", "model-damaged") from None
    manifest = read_manifest(model)
    if manifest.source == "packages" and manifest.sha256 != model.sha256:
        raise Failure(
            f"{path} was made by gleeman {manifest.made_by}, which made it otherwise: {_mend(model)}",
            "model-damaged",
        )
    if size != manifest.bytes:
        raise Failure(
            f"{path} has {size:,} bytes and must have {manifest.bytes:,}: {_mend(model)}", "model-damaged"
        )
    try:
        if quick:
            _read_table(path)
        elif sha256_of(path) != manifest.sha256:
            raise Failure(f"{path} does not have its checksum: {_mend(model)}", "model-damaged")
    except OSError as error:
        raise Failure(f"{path} cannot be read ({error.strerror or error})", "model-damaged") from None
    return path


def _read_table(path: Path) -> None:
    """Open the file far enough to see that its table of tensors fits it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np"):
            pass
    except SafetensorError as error:
        raise Failure(f"{path} is not a safetensors file ({error})", "model-damaged") from None


def _mend(model: Model) -> str:
    return f"run `gleeman models fetch {model.name}`"
