"""What a client of a daemon sees: ticks of many lines, first audio, dialogue under load, memory.

Each function speaks through the clients it was given, to their end, and returns plain numbers. The time of a
tick holds everything from the first `speak` to the last sample in the client: messages, text, scheduling,
synthesis, lanes. Knows no command line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import psutil

from ..client import Client, Line
from ..errors import Failure
from ..records import End
from .figures import Tick, middle, ratio
from .plan import Plan
from .script import DIALOGUE, LONG, MIXED, SHORT, VOICES, patter, voice_of

LOOK_S = 0.000_2
"""Between two looks at the lanes; a sleep, so that the client's own thread can run."""
LINE_TIMEOUT_S = 300.0
MEMORY_TICK_LINES = 8
LOAD_READ_SAMPLES = 4_800
LOAD_LOOK_S = 0.01


def see_first(client: Client, lines: Sequence[Line]) -> None:
    """Wait until each line's first sample has been seen in its lane. Raises Failure timeout, or what a line
    ended with before it began."""
    until = time.monotonic() + LINE_TIMEOUT_S
    while waiting := [line for line in lines if line.first_audio_ms is None]:
        for line in waiting:
            if line.end is not None:
                raise Failure(f"a line of the bench ended {line.end.name}: {line.message}", "internal")
        if time.monotonic() > until:
            raise Failure(f"{len(waiting)} lines did not begin in {LINE_TIMEOUT_S:.0f} s", "timeout")
        client.poll()
        time.sleep(LOOK_S)


def hear(client: Client, line: Line) -> float:
    """Read a line to its end; seconds of speech. Raises Failure when it is not `done`."""
    samples = line.audio(LINE_TIMEOUT_S)
    if line.end is not End.DONE:
        raise Failure(
            f"a line of the bench did not end as it should: {line.message}", line.code or "internal"
        )
    return float(samples.size) / client.rate_hz


def first_audio_ms(client: Client, runs: int, text: str = SHORT, priority: str = "dialogue") -> list[float]:
    """Milliseconds from `speak` until the first sample was seen, run by run."""
    took = []
    for run in range(runs):
        line = client.speak(text, voice=VOICES[0], priority=priority, seed=run)
        client.frame()
        see_first(client, [line])
        took.append(line.first_audio_ms or 0.0)
        hear(client, line)
    return took


def speak_tick(
    client: Client, texts: Sequence[str], voices: Sequence[str]
) -> tuple[float, float, list[float]]:
    """Speak the texts in one tick: seconds it took, seconds of speech, each line's first audio in ms."""
    began = time.monotonic()
    lines = [
        client.speak(text, voice=voice, seed=place)
        for place, (text, voice) in enumerate(zip(texts, voices, strict=True))
    ]
    client.frame()
    see_first(client, lines)
    speech_s = sum(hear(client, line) for line in lines)
    return time.monotonic() - began, speech_s, [line.first_audio_ms or 0.0 for line in lines]


def ticks(client: Client, plan: Plan) -> tuple[list[Tick], list[float]]:
    """Ticks of short lines by their size, then of mixed ones, then the long line; and the first audio of each
    line of the ticks of sixteen short ones."""
    speak_tick(client, [SHORT], VOICES[:1])  # the first call of a daemon is no example
    table: list[Tick] = []
    of_16: list[float] = []
    alone_s = 0.0
    for size in plan.tick_sizes:
        # One voice, so that all are of one length and a tick of n is n times the work of one.
        runs = [speak_tick(client, [SHORT] * size, VOICES[:1] * size) for _ in range(plan.tick_runs)]
        took_s, speech_s = median(run[0] for run in runs), median(run[1] for run in runs)
        alone_s = took_s if size == 1 else alone_s
        table.append(Tick("short", size, took_s, speech_s, alone_s * size or None))
        if size == 16:
            of_16 = [ms for run in runs for ms in run[2]]
    if plan.mixed_and_long:
        table.append(_mixed(client, plan))
        took_s, speech_s, _ = speak_tick(client, [LONG], VOICES[:1])
        table.append(Tick("long", 1, took_s, speech_s))
    return table, of_16


def _mixed(client: Client, plan: Plan) -> Tick:
    voices = [voice_of(place) for place in range(len(MIXED))]
    alone_s = [
        sum(speak_tick(client, [text], [voice])[0] for text, voice in zip(MIXED, voices, strict=True))
        for _ in range(plan.tick_runs)
    ]
    runs = [speak_tick(client, MIXED, voices) for _ in range(plan.tick_runs)]
    took_s, speech_s = median(run[0] for run in runs), median(run[1] for run in runs)
    return Tick("mixed", len(MIXED), took_s, speech_s, median(alone_s))


def under_load_ratio(client: Client, other: Client, plan: Plan) -> float | None:
    """First audio of a dialogue line while `other` has background lines spoken, over the same alone; medians.
    Nobody plays in real time: the background is read as it comes, so there is always more of it to do."""
    alone = first_audio_ms(client, plan.load_runs, DIALOGUE)
    with _background(other, plan.load_lines):
        loaded = first_audio_ms(client, plan.load_runs, DIALOGUE)
    return ratio(middle(loaded), middle(alone))


@contextmanager
def _background(client: Client, lines: int) -> Iterator[None]:
    """Keep so many background lines live until the end of the block."""
    over = threading.Event()
    thread = threading.Thread(
        target=_murmur, args=(client, lines, over), name="bench background", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _murmur(client: Client, lines: int, over: threading.Event) -> None:
    live: list[Line] = []
    while not over.is_set():
        live = [line for line in live if line.end is None]
        while len(live) < lines:
            live.append(client.speak(LONG, voice=voice_of(len(live)), priority="background"))
            client.frame()
        for line in live:
            line.read(LOAD_READ_SAMPLES)
        time.sleep(LOAD_LOOK_S)
    for line in live:
        line.cancel(0)


def memory(client: Client, lines: int) -> list[tuple[int, float]]:
    """Speak so many short lines, a few a tick; (lines so far, resident MB of the daemon and its children)
    after each tick."""
    texts = patter()
    series = []
    done = 0
    while done < lines:
        size = min(MEMORY_TICK_LINES, lines - done)
        speak_tick(client, [next(texts) for _ in range(size)], [voice_of(place) for place in range(size)])
        done += size
        series.append((done, resident_mb(client.daemon_pid)))
    return series


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children, 10^6 bytes."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    total = 0
    for each in family:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:  # a child that has just gone
            continue
    return total / 1e6
