"""One engine in one process. Rows of JSON over the pipes: first what it is, then an answer for each order.

    {"do": "run"}                -> {"seconds": 1.2, "speech_s": 6.1}
    {"do": "macs"}               -> {"macs": 2.0e11}          the reference only
    {"do": "save", "to": PATH}   -> {}

Ends when its input closes. What it cannot load is its first and last word: {"error": sentence}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from gleeman.errors import GleemanError

from .engines import RATE_HZ, Engine, make

WARM_RUNS = 2


def main(name: str, threads: int, onnx: Path, precision: str) -> None:
    """Serve until standard input closes."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not our answer

    def tell(answer: dict[str, Any]) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    try:
        engine = make(name, threads, onnx, precision)
        for _ in range(WARM_RUNS):
            engine.speak()
    except GleemanError as error:
        tell({"error": error.message})
        return
    tell({"dtype": engine.dtype, "version": engine.version})
    for row in sys.stdin:
        tell(_obey(engine, json.loads(row)))


def _obey(engine: Engine, order: dict[str, Any]) -> dict[str, Any]:
    if order["do"] == "macs":
        return {"macs": engine.macs()} if hasattr(engine, "macs") else {"macs": None}
    began = time.perf_counter()
    samples = engine.speak()
    seconds = time.perf_counter() - began
    if order["do"] == "save":
        import soundfile

        soundfile.write(order["to"], samples, RATE_HZ, subtype="FLOAT")
    return {"seconds": seconds, "speech_s": len(samples) / RATE_HZ}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
