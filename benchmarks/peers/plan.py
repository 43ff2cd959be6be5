"""What is run in which order, and what comes of the times. Arithmetic; imports no engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

ENGINES = ("gleeman", "kokoro", "kokoro-onnx")
OURS = "gleeman"
RATIOS = {"ratio_kokoro": "kokoro", "ratio_kokoro_onnx": "kokoro-onnx"}
FAST = ("ratio_kokoro_fast", "ratio_kokoro_onnx_fast")
NO_FAST = "not in this version: there is no fast vocoder yet"


class Case(NamedTuple):
    """One engine with a thread count."""

    engine: str
    threads: int


class Run(NamedTuple):
    """One line spoken."""

    case: Case
    seconds: float
    speech_s: float

    @property
    def rtf(self) -> float:
        """Seconds of work a second of speech."""
        return self.seconds / self.speech_s


def cases(threads: Sequence[int]) -> list[Case]:
    """Every engine at every thread count."""
    return [Case(engine, count) for count in threads for engine in ENGINES]


def order(of: Sequence[Case], runs: int, seed: int) -> list[Case]:
    """`runs` rounds, each holding every case once, each shuffled anew; the same seed gives the same order."""
    chance = random.Random(seed)
    return [case for _ in range(runs) for case in chance.sample(list(of), len(of))]


def medians(runs: Sequence[Run]) -> dict[Case, Run]:
    """Of each case the medians of its seconds and of its speech, which hardly differs from run to run."""
    by_case: dict[Case, list[Run]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run)
    return {
        case: Run(case, median(run.seconds for run in its), median(run.speech_s for run in its))
        for case, its in by_case.items()
    }


def ratios(middle: Mapping[Case, Run], threads: int) -> dict[str, float]:
    """Ours over each peer's, real-time factors at that thread count."""
    ours = middle[Case(OURS, threads)].rtf
    return {key: ours / middle[Case(peer, threads)].rtf for key, peer in RATIOS.items()}


def report(
    runs: Sequence[Run],
    facts: Mapping[str, Any],
    macs: float,
    about: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The last line: the ratios at the highest thread count, the facts of the machine, each engine's figures.

    macs    multiplications that the model needs for the line, by the reference's modules
    about   what else is known of an engine (dtype, version, words heard), by name
    """
    middle = medians(runs)
    counts = sorted({case.threads for case in middle})
    most = counts[-1]
    engines: dict[str, dict[str, Any]] = {}
    for engine in ENGINES:
        top = middle[Case(engine, most)]
        engines[engine] = {
            **{f"rtf_{count}": round(middle[Case(engine, count)].rtf, 4) for count in counts},
            **{f"best_{count}": round(_best(runs, Case(engine, count)), 4) for count in counts},
            "gmac_s": round(macs / top.seconds / 1e9, 1),
            "seconds": round(top.seconds, 4),
            "speech_s": round(top.speech_s, 3),
            **about.get(engine, {}),
        }
    found = {key: round(value, 4) for key, value in ratios(middle, most).items()}
    return {
        **found,
        **dict.fromkeys(FAST),
        **facts,
        "dtype": engines[OURS].get("dtype"),
        "gmac_s": engines[OURS]["gmac_s"],
        "gmac": round(macs / 1e9, 1),
        "threads": most,
        "runs": sum(run.case == Case(OURS, most) for run in runs),
        "engines": engines,
        "reasons": dict.fromkeys(FAST, NO_FAST),
    }


def _best(runs: Sequence[Run], case: Case) -> float:
    return min(run.rtf for run in runs if run.case == case)
