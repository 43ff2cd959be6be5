"""What README shows is run as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from c_helpers import BINDING, compile_c
from conftest import StartDaemon

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
RUN_TIMEOUT_S = 170


def test_nothing_is_left_to_fill_in() -> None:
    assert not re.search(r"^@\w+@$", README, re.MULTILINE)


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """Run a program; its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.weights
@pytest.mark.usefixtures("weights")
def test_every_command_shown_works(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Those of `sh` blocks; a daemon runs, so that each need not load the model."""
    start_daemon(model="kokoro")
    commands = [row for block in blocks("sh") for row in block.splitlines() if row.startswith("gleeman ")]
    assert len(commands) >= 7
    for row in commands:
        run([sys.executable, "-m", *shlex.split(row, comments=True)], tmp_path)
    assert {path.name for path in tmp_path.glob("*.wav")} == set(
        re.findall(r"--out (\S+\.wav)", "\n".join(commands))
    )


@pytest.mark.weights
@pytest.mark.usefixtures("weights")
def test_the_demo_writes_a_dozen_files_and_a_table(home: Path, tmp_path: Path) -> None:
    output = run([sys.executable, "-m", "gleeman", "demo", "--out", str(tmp_path / "out")], tmp_path)
    assert len(list((tmp_path / "out").glob("*.wav"))) == 12
    assert "first audio ms" in output
    assert "12 lines" in output


def test_the_python_example_speaks(start_daemon: StartDaemon, tmp_path: Path) -> None:
    start_daemon()
    (example,) = blocks("python")
    assert len(example.strip().splitlines()) <= 12
    assert "DONE" in run([sys.executable, "-c", example], tmp_path)


def test_the_c_example_speaks(start_daemon: StartDaemon, tmp_path: Path) -> None:
    start_daemon()
    (example,) = blocks("c")
    source = tmp_path / "example.c"
    source.write_text(example)
    program = compile_c(tmp_path / "example", "plain", source, BINDING / "gleeman.c")
    assert "samples" in run([str(program)], tmp_path)


def test_the_tree_shown_is_the_tree_on_disk() -> None:
    """Each path of the tree exists, and each part of the package is in it."""
    (tree,) = blocks("text")
    folder: list[str] = []
    shown = set()
    for row in tree.splitlines():
        depth = (len(row) - len(row.lstrip())) // 4
        names = row.split() if row.startswith("README") else row.split()[:1]
        for name in names:
            folder[depth:] = [name]
            shown.add("/".join(part.strip("/") for part in folder))
    absent = [path for path in shown if not (ROOT / path).exists()]
    assert not absent
    package = ROOT / "daemon" / "gleeman"
    parts = [
        path for path in package.iterdir() if not path.name.startswith("__") and path.suffix in ("", ".py")
    ]
    unshown = [path.name for path in parts if f"daemon/gleeman/{path.name}" not in shown]
    assert not unshown
