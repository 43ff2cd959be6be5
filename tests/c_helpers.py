"""Builds the C client and its test programs, and drives the game in miniature (native/c_client.c)."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gleeman.records import Samples
from native_tools import find_cc

ROOT = Path(__file__).parent.parent
BINDING = ROOT / "bindings" / "c"
NATIVE = Path(__file__).parent / "native"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-DGLEEMAN_STATIC", f"-I{BINDING}"]
KINDS = {
    "plain": ["-O2"],
    "checked": ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "threads": ["-O1", "-g", "-fsanitize=thread"],
}
WAIT_S = 30.0


def compile_c(output: Path, kind: str, *sources: Path) -> Path:
    """Build a program; fails the test with the compiler's words."""
    command = [*find_cc(), *STRICT, *KINDS[kind], *map(str, sources), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return output


def sanitizer_env() -> dict[str, str]:
    return {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}


class CEvent(NamedTuple):
    """A gleeman_event as the program prints it."""

    type: str
    line: int
    sample: int
    end: int
    value: int
    begin: int
    text_end: int
    duration: int
    number: float
    status: int
    seed: int
    code: str
    text: str


class Answer(NamedTuple):
    status: str
    value: int
    why: str


class CGame:
    """A running c_client. Asks one thing at a time; events gather in `events`."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.events: list[CEvent] = []
        self.line_state = (0, 0, 0, 0)
        self._folder = folder
        self._answers: list[Answer] = []
        self._broken: list[str] = []
        self._errors = (folder / f"stderr-{time.monotonic_ns()}").open("w+")
        self._process = subprocess.Popen(
            [str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=sanitizer_env(),
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for row in self._process.stdout:
            kind, *fields = row.rstrip("\n").split("\t")
            if kind == "answer":
                self._answers.append(Answer(fields[0], int(fields[1]), fields[2]))
            elif kind == "line":
                self.line_state = (int(fields[0]), int(fields[1]), int(fields[2]), int(fields[3]))
            elif kind == "event":
                numbers = [int(field) for field in fields[1:8]]
                self.events.append(
                    CEvent(
                        fields[0], *numbers, float(fields[8]), int(fields[9]), int(fields[10]), *fields[11:13]
                    )
                )
            else:
                self._broken.append(row)

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, what: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            assert self._process.poll() is None, f"the program left:\n{self.errors()}"
            assert time.monotonic() < deadline, f"it did not happen; events: {self.events[-20:]}"
            time.sleep(0.002)

    def ask(self, command: str) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self.until(lambda: self._answers)
        return self._answers.pop(0)

    def connect(
        self, path: Path | None = None, rate: int = 24_000, wait_ms: int = 5000, reconnect_ms: int = 30_000
    ) -> Answer:
        return self.ask(f"connect {path or '-'} {rate} {wait_ms} {reconnect_ms}")

    def speak(
        self, text: str, *, seed: int | None = None, voice: str = "-", priority: int = 1, deadline_ms: int = 0
    ) -> int:
        answer = self.ask(f"speak {'-' if seed is None else seed} {voice} {priority} {deadline_ms} {text}")
        assert answer.status == "ok", answer
        return answer.value

    def state(self, line: int) -> tuple[int, int, int, int]:
        """State, heard, buffered, underrun."""
        assert self.ask(f"state {line}").status == "ok"
        return self.line_state

    def of(self, line: int, *types: str) -> list[CEvent]:
        return [e for e in list(self.events) if e.line == line and (not types or e.type in types)]

    def end_of(self, line: int) -> CEvent:
        """Wait for a line's end; it comes once."""
        self.until(lambda: self.of(line, "ended"))
        (end,) = self.of(line, "ended")
        assert self.of(line)[-1] == end
        return end

    def samples(self, line: int) -> Samples:
        """What the audio thread read of a line."""
        path = self._folder / f"{line}.raw"
        answer = self.ask(f"save {line} {path}")
        assert answer.status == "ok", answer
        return np.fromfile(path, np.float32)

    def errors(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def quit(self) -> None:
        """It must leave cleanly, with nothing said by a sanitizer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if self._process.poll() is None:
                self._process.stdin.write("quit\n")
                self._process.stdin.flush()
            status = self._process.wait(WAIT_S)
        finally:
            self._process.kill()
            self._process.wait(WAIT_S)
            self._reader.join(WAIT_S)
            self._process.stdin.close()
            self._process.stdout.close()
            said = self.errors()
            self._errors.close()
        assert said == ""
        assert status == 0
        assert not self._broken, self._broken
        for line in {event.line for event in self.events if event.type == "ended"}:
            assert len(self.of(line, "ended")) == 1, f"line {line} ended twice"
