"""`python -m benchmarks.quality --judge PATH`: speak the lines by both engines, let a judge score every file,
show a table, end with one row of JSON.

The judge is a program that prints a JSON object a file, with `wer` and `mos`, for `score FILES --text TEXT
--lang LANGUAGE`. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import soundfile

from gleeman.bench import machine
from gleeman.errors import GleemanError

from .lines import LINES, Said
from .render import OURS, PLAIN, RATE_HZ, ours, plain

SCALES = ("ovrl", "p808")
Verdict = Mapping[str, Any]


def main() -> int:
    """The whole run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality")
    parser.add_argument("--judge", type=Path, required=True, help="judge.py")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU (2)")
    parser.add_argument("--precision", default="auto", help="of ours: auto, float32 or bfloat16 (auto)")
    parser.add_argument("--lines", type=int, default=len(LINES), help=f"the first so many (all {len(LINES)})")
    parser.add_argument("--out", type=Path, help="folder to keep the WAVs in")
    given = parser.parse_args()
    lines = LINES[: given.lines]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = given.out or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            dtype = _render(lines, folder, given.threads, given.precision)
            verdicts = [_judged(given.judge, said, _files(folder, place)) for place, said in enumerate(lines)]
    except GleemanError as error:
        print(f"bench-quality: {error.code}: {error.message}", file=sys.stderr)
        return 1
    told = {
        **compare(lines, verdicts),
        "machine": machine.describe(),
        "date": machine.now(),
        "dtype": dtype,
    }
    _show(lines, verdicts)
    print(json.dumps(told, ensure_ascii=False))
    return 0


def compare(lines: Sequence[Said], verdicts: Sequence[Mapping[str, Verdict]]) -> dict[str, Any]:
    """Means over the lines, of each engine and of ours less the plain one's; words wrong are weighed by the
    length of the text. `worst`: the line that lost most overall."""
    sizes = [len(said.text) for said in lines]
    told: dict[str, Any] = {"lines": len(lines)}
    for engine in (PLAIN, OURS):
        wrong = sum(each[engine]["wer"] * size for each, size in zip(verdicts, sizes, strict=True))
        told[f"{engine}_wer"] = round(wrong / sum(sizes), 4)
        for scale in SCALES:
            told[f"{engine}_{scale}"] = round(mean(each[engine]["mos"][scale] for each in verdicts), 3)
    for scale in SCALES:
        told[f"{scale}_less"] = round(told[f"{OURS}_{scale}"] - told[f"{PLAIN}_{scale}"], 3)
    losses = [each[OURS]["mos"]["ovrl"] - each[PLAIN]["mos"]["ovrl"] for each in verdicts]
    place = min(range(len(lines)), key=lambda at: losses[at])
    return told | {"worst": {**lines[place]._asdict(), "ovrl_less": round(losses[place], 3)}}


def _files(folder: Path, place: int) -> dict[str, Path]:
    return {engine: folder / f"{place:02}-{engine}.wav" for engine in (PLAIN, OURS)}


def _render(lines: Sequence[Said], folder: Path, threads: int, precision: str) -> str:
    speak_ours, dtype = ours(threads, precision)
    speak_plain = plain(threads)
    for place, said in enumerate(lines):
        files = _files(folder, place)
        soundfile.write(files[PLAIN], speak_plain(said), RATE_HZ)
        soundfile.write(files[OURS], speak_ours(said), RATE_HZ)
        _say(f"spoken {place + 1} of {len(lines)}")
    return dtype()


def _judged(judge: Path, said: Said, files: Mapping[str, Path]) -> dict[str, Verdict]:
    command = [sys.executable, str(judge), "score", *map(str, files.values())]
    command += ["--text", said.text, "--lang", said.language]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GleemanError(f"the judge left with {done.returncode}: {done.stderr.strip()[-200:]}", "internal")
    verdicts = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
    _say(f"judged {said.text}")
    return dict(zip(files, verdicts, strict=True))


def _show(lines: Sequence[Said], verdicts: Sequence[Mapping[str, Verdict]]) -> None:
    print(f"{'':12}{'words wrong':>22}{'DNSMOS overall':>20}{'p808':>14}")
    print(f"{'':12}" + f"{'plain':>14}{'ours':>8}{'plain':>12}{'ours':>8}{'plain':>8}{'ours':>6}")
    for said, each in zip(lines, verdicts, strict=True):
        one, other = each[PLAIN], each[OURS]
        row = f"{said.voice:<12}{one['wer']:>14.1%}{other['wer']:>8.1%}"
        row += f"{one['mos']['ovrl']:>12.2f}{other['mos']['ovrl']:>8.2f}"
        row += f"{one['mos']['p808']:>8.2f}{other['mos']['p808']:>6.2f}  {said.text[:40]}"
        print(row)


def _say(sentence: str) -> None:
    print(f"bench-quality: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
