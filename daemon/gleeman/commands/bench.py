"""`gleeman bench`: the figures, on a daemon of its own. What is measured stands in `gleeman.bench`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..bench import lanes, machine, served, stages
from ..bench.figures import Figures, Tick, grows_from, growth, ratio, spread
from ..bench.plan import Plan, plan_of
from ..client import Client
from ..config import default_threads
from ..speech.registry import STANDINS
from .launch import client_for_call, own_instance
from .show import print_json

Say = Callable[[str], None]
PROFILE_RUNS = 3


def bench(
    *, model: str, device: str, threads: int | None, quick: bool, lines: int | None, as_json: bool
) -> None:
    """Measure, show a table unless `as_json`, and print the JSON as the last line."""
    plan = plan_of(quick, lines)
    figures = Figures()
    load = machine.load_average()
    with _progress(as_json) as say:
        figures.tell("machine", machine.describe())
        figures.tell("date", machine.now())
        figures.tell("version", __version__)
        figures.tell("isa", machine.isa())
        figures.tell("threads", threads or default_threads())
        ticks = _model(figures, plan, model, device, threads, say)
        _lanes(figures, plan, say)
    report = figures.report()
    if not as_json:
        _show(report, ticks, plan, load)
    print_json(report)


def profile(path: Path, *, model: str, device: str, threads: int | None, quick: bool, as_json: bool) -> None:
    """Show where the time goes by stage, write the trace, and print both as JSON in the last line."""
    threads = threads or default_threads()
    with _progress(as_json) as say:
        say(f"{model}: batches in this process, stage by stage")
        times = stages.measure(model, device, threads, 1 if quick else PROFILE_RUNS, path)
    if not as_json:
        _show_stages(times, threads, path)
    batches = [
        {
            "batch": each.what,
            "rows": each.rows,
            "speech_s": round(each.speech_s, 3),
            "rtf": round(each.rtf, 4),
            "row_ms": round(each.row_ms, 2),
            "stages_ms": {stage: round(ms, 2) for stage, ms in each.ms.items()},
        }
        for each in times
    ]
    ratios = {what: round(value, 4) for what, value in stages.cost_ratios(times).items()}
    print_json({"model": model, "threads": threads, "trace": str(path), "batches": batches, "ratios": ratios})


# ---- measuring -----------------------------------------------------------------------------------------


def _model(
    figures: Figures, plan: Plan, model: str, device: str, threads: int | None, say: Say
) -> list[Tick]:
    """Everything that the model has a share in."""
    say(f"{model}: starting a daemon")
    started = time.monotonic()
    with client_for_call(model=model, device=device, threads=threads, own=True) as client:
        figures.tell("ready_s", time.monotonic() - started)
        status = client.status()
        figures.tell("device", status.device)
        figures.tell("quality", status.quality)
        no_type = "the stand-ins compute no tensors" if model in STANDINS else "the daemon does not tell it"
        figures.tell("dtype", status.dtype or None, no_type)
        more = ", mixed lines, a long line" if plan.mixed_and_long else ""
        say(f"{model}: ticks of {', '.join(map(str, plan.tick_sizes))} lines{more}")
        ticks, of_16 = served.ticks(client, plan)
        by_size = {tick.lines: tick for tick in ticks if tick.what == "short"}
        figures.tell("rtf_1", by_size[1].rtf)
        figures.tell("rtf_16", by_size[16].rtf)
        figures.tell("tick16_cost_ratio", by_size[16].cost_ratio)
        held = _device_mb(status.device, client)
        say(f"{model}: first audio, {plan.first_runs} times")
        p50, p95 = spread(served.first_audio_ms(client, plan.first_runs), 50, 95)
        figures.tell("first_audio_ms_p50", p50)
        figures.tell("first_audio_ms_p95", p95)
        figures.tell("first_audio_16_p95_ratio", ratio(spread(of_16, 95)[0], p95))
        say(f"{model}: dialogue while {plan.load_lines} background lines are spoken")
        with Client.connect(instance=own_instance(), name="gleeman bench, background") as other:
            figures.tell("dialogue_under_load_ratio", served.under_load_ratio(client, other, plan))
        say(f"{model}: memory over {plan.lines} lines")
        series = served.memory(client, plan.lines)
        figures.tell("rss_growth_mb", growth(series), "too few lines to see growth: give --lines 20 or more")
        figures.tell("padding_ratio", client.status().padding_ratio)
        figures.tell("ticks", [(tick.what, tick.lines, tick.line_ms, tick.cost_ratio) for tick in ticks])
        held = max(filter(None, (held, _device_mb(status.device, client))), default=None)
        why_not = "runs on the CPU" if status.device == "cpu" else "the daemon does not tell it"
        figures.tell("device_mb_peak", held, why_not)
    return ticks


def _lanes(figures: Figures, plan: Plan, say: Say) -> None:
    """What no model has a share in."""
    say(f"silent: lane latency, {plan.lane_runs} times")
    with client_for_call(model="silent", device="cpu", own=True) as client:
        p50, p99 = spread(lanes.lane_us(client, plan.lane_runs), 50, 99)
    figures.tell("lane_us_p50", p50)
    figures.tell("lane_us_p99", p99)
    say(f"babble: cancelling, {plan.cancel_runs} times")
    with client_for_call(model="babble", device="cpu", own=True) as client:
        figures.tell("cancel_ms_p99", spread(lanes.cancel_ms(client, plan.cancel_runs), 99)[0])


def _device_mb(device: str, client: Client) -> float | None:
    """What the daemon has held at most; by nvidia-smi, which counts all of it, if that is more."""
    if not device.startswith("cuda"):
        return None
    told = (client.status().device_mb_peak, machine.device_mb(client.daemon_pid))
    return max(filter(None, told), default=None)


# ---- showing -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Say]:
    """Tell on stderr what is being measured: one moving row on a terminal, else a row for each."""
    if quiet:
        yield lambda _doing: None
    elif not sys.stderr.isatty():
        yield lambda doing: click.echo(f"gleeman: {doing}", err=True)
    else:
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda doing: status.update(doing)


def _show(report: dict[str, Any], ticks: Sequence[Tick], plan: Plan, load: float | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False)
    table.add_column("lines of one tick")
    for heading in ("speech s", "took s", "real-time factor", "ms a line", "against alone"):
        table.add_column(heading, justify="right")
    for tick in ticks:
        cost = "" if tick.cost_ratio is None else f"{tick.cost_ratio:.2f}"
        cells = (
            f"{tick.speech_s:.2f}",
            f"{tick.seconds:.2f}",
            f"{tick.rtf:.3f}",
            f"{tick.line_ms:.0f}",
            cost,
        )
        table.add_row(f"{tick.lines} {tick.what}", *cells)
    console.print(table)
    console.print()
    facts = Table(box=None, pad_edge=False, show_header=False)
    for key, value in report.items():
        if key not in ("reasons", "ticks"):
            reason = report["reasons"].get(key)
            facts.add_row(key, f"- {reason}" if reason else f"{value}")
    console.print(facts)
    busy = "" if load is None else f"; load average at the start {load:.2f}"
    console.print(f"\nrss_growth_mb over {plan.lines} lines against after {grows_from(plan.lines)}{busy}")


def _show_stages(times: Sequence[stages.BatchTimes], threads: int, path: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("stage, ms (share)")
    for each in times:
        table.add_column(each.what, justify="right")
    for stage in stages.STAGES:
        cells = [f"{each.ms[stage]:.1f} ({each.ms[stage] / each.total_ms:>3.0%})" for each in times]
        table.add_row(stage, *cells)
    table.add_row("total", *[f"{each.total_ms:.1f}       " for each in times])
    table.add_row("a row", *[f"{each.row_ms:.1f}       " for each in times])
    table.add_row("real-time factor", *[f"{each.rtf:.3f}      " for each in times])
    console = Console()
    console.print(table)
    ratios = ", ".join(f"{what} {value:.2f}" for what, value in stages.cost_ratios(times).items())
    console.print(f"a row against a row alone: {ratios}; {threads} threads")
    console.print(f"trace: {path} (ui.perfetto.dev or chrome://tracing opens it)")
