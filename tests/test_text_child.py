"""The text process by itself: what it imports, when it ends, what it believes."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gleeman import children
from gleeman.text import messages
from gleeman.text.child import HANG_HOOK, HOOKS

WAIT_S = 60.0


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A text process that has said it is up."""
    process = subprocess.Popen(
        children.own_command("_text"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=children.own_folder(),
        env={**os.environ, "GLEEMAN_HOME": str(tmp_path), HOOKS: "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        assert messages.read_from_child(process.stdout) == messages.Up()  # type: ignore[arg-type]
        yield process
        process.kill()


def ask(process: subprocess.Popen[bytes], text: str, **fields: object) -> None:
    message = messages.Ask(1, text, "", "auto", "af_heart", False)
    messages.write(process.stdin, message)  # type: ignore[arg-type]


def test_it_ends_when_its_input_closes(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(WAIT_S) == 0


def test_it_ends_when_its_input_closes_even_while_it_hangs(child: subprocess.Popen[bytes]) -> None:
    ask(child, HANG_HOOK)
    time.sleep(0.1)  # let it start hanging
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<I", messages.MAX_FRAME_BYTES + 1),
        struct.pack("<I", 4) + b"\xff\xff\xff\xff",
        struct.pack("<I", 100_000) + b"\x91" * 100_000,
        struct.pack("<I", 1) + b"\x80",
    ],
)
def test_it_ends_at_a_request_that_cannot_be_one(child: subprocess.Popen[bytes], frame: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(frame)
    child.stdin.flush()
    assert child.wait(WAIT_S) == 1


def test_a_frame_longer_than_the_limit_is_not_read() -> None:
    stream = io.BytesIO(struct.pack("<I", messages.MAX_FRAME_BYTES + 1))
    with pytest.raises(ValueError, match="limit"):
        messages.read_from_child(stream)
    assert messages.read_from_child(io.BytesIO()) is None
    with pytest.raises(ValueError, match="broke off"):
        messages.read_from_child(io.BytesIO(b"\x04\0"))
    with pytest.raises(ValueError, match="broke off"):
        messages.read_from_child(io.BytesIO(b"\x04\0\0\0ab"))


def test_plain_lines_import_nothing_heavy() -> None:
    code = (
        "import sys, gleeman.text.child, gleeman.text.room; from gleeman.text.frontend import read;"
        "assert read('Halt! 你好, 3 men.', 'auto', False, False).clauses;"
        "heavy = ('numpy', 'torch', 'hibari', 'misaki', 'jieba', 'wetext', 'click', 'zmq', 'psutil');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=children.own_folder(),
        capture_output=True,
        timeout=WAIT_S,
        check=True,
    )
    assert done.stdout.strip() == b"[]"


def test_the_segmenter_s_cache_lies_in_our_own_folder(tmp_path: Path) -> None:
    code = "from gleeman.text import chinese; chinese.load(); import jieba; print(jieba.dt.tmp_dir)"
    environment = {**os.environ, "GLEEMAN_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    subprocess.run(
        [sys.executable, "-c", code], cwd=children.own_folder(), env=environment, timeout=WAIT_S, check=True
    )
    assert (tmp_path / "home" / "cache" / "jieba" / "jieba.cache").is_file()
    assert list((tmp_path / "tmp").iterdir()) == []
    if sys.platform != "win32":
        assert (tmp_path / "home" / "cache" / "jieba").stat().st_mode & 0o077 == 0
