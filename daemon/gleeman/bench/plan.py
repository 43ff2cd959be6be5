"""How much of everything a run of the bench does. Numbers; no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

DEFAULT_LINES = 100
"""Of the memory run when `--lines` is not given: a minute on two cores. For a figure to keep take 2,000."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each thing is done."""

    first_runs: int = 30
    """Lines whose first audio is waited for."""
    tick_sizes: tuple[int, ...] = (1, 4, 8, 16, 32)
    tick_runs: int = 3
    mixed_and_long: bool = True
    """Also sixteen lines of mixed length, together and alone, and a line of half a minute."""
    load_runs: int = 15
    """Dialogue lines alone, and as many under load."""
    load_lines: int = 4
    """Background lines that are live all that time."""
    cancel_runs: int = 100
    lane_runs: int = 300
    lines: int = DEFAULT_LINES


FULL = Plan()
QUICK = Plan(
    first_runs=5,
    tick_sizes=(1, 4, 16),
    tick_runs=1,
    mixed_and_long=False,
    load_runs=2,
    load_lines=2,
    cancel_runs=10,
    lane_runs=50,
    lines=16,
)


def plan_of(quick: bool, lines: int | None) -> Plan:
    """The plan of a call: `lines` above 0 overrides the plan's."""
    plan = QUICK if quick else FULL
    return plan if lines is None else replace(plan, lines=lines)
