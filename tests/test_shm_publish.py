"""`publish` as another process sees it, and the helper that other machines need."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from gleeman.errors import Failure
from gleeman.shm import publish as module
from gleeman.shm.publish import choose, helper_functions, publish
from native_tools import NATIVE, build

BYTES = 1 << 16
POSITION_AT, DATA_AT, DATA_ITEMS = 4096, 8192, 256
STEPS = 1_000_000

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="the native reader maps files the POSIX way")


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    return build(NATIVE / "publish_reader.c", tmp_path_factory.mktemp("native") / "publish_reader")


@pytest.fixture(scope="module")
def helper(tmp_path_factory) -> Path:
    source = Path(module.__file__).with_name("publish.c")
    folder = tmp_path_factory.mktemp("helper")
    return build(source, folder / "_publish.so", "-shared", "-fPIC")


def watch(reader: Path, path: Path, store, steps: int) -> tuple[int, str]:
    """Count up to `steps` in a file that the native reader watches; its exit status and last line."""
    path.write_bytes(bytes(BYTES))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), BYTES) as memory:
        arguments = [reader, path, BYTES, POSITION_AT, DATA_AT, DATA_ITEMS, steps]
        child = subprocess.Popen([str(word) for word in arguments], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "watching\n"
            with memoryview(memory) as raw, raw.cast("Q") as view:
                position, data = POSITION_AT // 8, DATA_AT // 8
                for step in range(1, steps + 1):
                    view[data + step % DATA_ITEMS] = step
                    store(view, position, step << 32 | step)
                    if step % 65_536 == 0 and child.poll() is not None:
                        break
            words = child.communicate(timeout=90)[0]
        finally:
            child.kill()
            child.wait(10)
    return child.returncode, words.strip()


@posix_only
def test_another_process_never_sees_a_torn_zero_or_backward_position(reader, tmp_path):
    status, words = watch(reader, tmp_path / "watched", publish, STEPS)
    assert status == 0, words
    loads, changes = map(int, words.split())
    assert loads > changes > 0


@posix_only
@pytest.mark.parametrize(("value", "word"), [(1, "torn"), ((3 << 32) | 3, "early")])
def test_the_native_reader_names_what_is_wrong(reader, tmp_path, value, word):
    path = tmp_path / "watched"
    content = bytearray(BYTES)
    content[POSITION_AT : POSITION_AT + 8] = value.to_bytes(8, "little")
    path.write_bytes(content)
    arguments = [reader, path, BYTES, POSITION_AT, DATA_AT, DATA_ITEMS, 9]
    done = subprocess.run(
        [str(a) for a in arguments], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(word)


@posix_only
def test_the_helper_stores_what_another_process_sees(reader, helper, tmp_path):
    store, fence = helper_functions(helper)
    status, words = watch(reader, tmp_path / "watched", store, 20_000)
    fence()
    assert status == 0, words


@posix_only
def test_the_helper_stores_both_sizes_and_no_further(helper):
    store, _ = helper_functions(helper)
    raw = memoryview(bytearray(16))
    store(raw.cast("I"), 1, 0xFFFFFFFF)
    store(raw.cast("Q"), 1, (1 << 64) - 1)
    assert bytes(raw) == b"\0\0\0\0" + b"\xff" * 12
    with pytest.raises(IndexError):
        store(raw.cast("Q"), 2, 1)


@posix_only
def test_a_weakly_ordered_machine_takes_the_helper(helper):
    store, _ = choose("aarch64", helper.parent)
    view = memoryview(bytearray(8)).cast("Q")
    store(view, 0, 7)
    assert view[0] == 7


def test_a_weakly_ordered_machine_without_the_helper_is_refused(tmp_path):
    with pytest.raises(Failure) as caught:
        choose("aarch64", tmp_path)
    assert caught.value.code == "unsupported-platform"
    assert "publish.c" in caught.value.message


def test_a_helper_that_is_none_is_refused(tmp_path):
    (tmp_path / "_publish.so").write_bytes(b"no library")
    with pytest.raises(Failure) as caught:
        choose("aarch64", tmp_path)
    assert caught.value.code == "unsupported-platform"


def test_x86_64_needs_no_helper(tmp_path):
    for machine in ("x86_64", "AMD64"):
        choose(machine, tmp_path)
