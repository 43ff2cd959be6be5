"""The figures of a bench run and what they are made of: arithmetic on numbers that others measured.

Knows no clock, no daemon and no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..stats import percentile

KEYS = (
    "machine",
    "date",
    "version",
    "device",
    "quality",
    "threads",
    "rtf_1",
    "rtf_16",
    "tick16_cost_ratio",
    "first_audio_ms_p50",
    "first_audio_ms_p95",
    "first_audio_16_p95_ratio",
    "dialogue_under_load_ratio",
    "cancel_ms_p99",
    "estimate_ms_p50",
    "lane_us_p50",
    "lane_us_p99",
    "voice_hit_us_p50",
    "enrol_ms",
    "rss_growth_mb",
    "device_mb_peak",
    "ready_s",
    "isa",
    "dtype",
    "padding_ratio",
    "ticks",
)
"""Of the JSON, in this order; tools compare by them. The last two are:

padding_ratio  frames rendered over frames that are heard, of all the daemon spoke for the bench
ticks          a row for each kind of tick: what, lines, ms a line, and the same against alone or null
"""
NOT_HERE = {
    "estimate_ms_p50": "not in this version: the daemon answers no estimate yet",
    "voice_hit_us_p50": "not in this version: there is no voice cache yet",
    "enrol_ms": "not in this version: voices cannot be added yet",
}
"""Why some figures are never there."""
NOT_MEASURED = "it was not measured"
WARM_LINES = 200
"""Spoken before growth of memory is counted, or a tenth of the lines where they are fewer than 2,000."""
DIGITS = 4
"""Significant ones: what is beyond them is noise."""


@dataclass(slots=True)
class Figures:
    """What has been measured so far. A figure is told once, as a value or as the reason for its absence."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def tell(self, key: str, value: Any, reason: str = NOT_MEASURED) -> None:
        """Note a figure; None is kept with its reason. Raises KeyError for a key that is not in KEYS."""
        if key not in KEYS:
            raise KeyError(key)
        self.values[key] = rounded(value)
        self.reasons.pop(key, None)
        if value is None:
            self.reasons[key] = reason

    def report(self) -> dict[str, Any]:
        """The JSON: every key of KEYS in order, then "reasons", which has an entry for each null."""
        missing = {key: NOT_HERE.get(key, NOT_MEASURED) for key in KEYS if key not in self.values}
        reasons = {**missing, **self.reasons}
        report: dict[str, Any] = {key: self.values.get(key) for key in KEYS}
        report["reasons"] = {key: reasons[key] for key in KEYS if report[key] is None}
        return report


@dataclass(frozen=True, slots=True)
class Tick:
    """Some lines of one tick, from the first `speak` until the last sample was there; medians of the runs."""

    what: str
    """For people: "short", "mixed" or "long"."""
    lines: int
    seconds: float
    speech_s: float
    """Of all lines together."""
    alone_s: float | None = None
    """What the same lines take one by one, all together; None where it was not measured."""

    @property
    def rtf(self) -> float:
        """Seconds of work a second of speech."""
        return self.seconds / self.speech_s

    @property
    def line_ms(self) -> float:
        """What a line cost."""
        return 1e3 * self.seconds / self.lines

    @property
    def cost_ratio(self) -> float | None:
        """Time a line in this tick over time of a line alone; below 1 the tick is the cheaper way."""
        return ratio(self.seconds, self.alone_s)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """ours / theirs; None when either is missing or theirs is 0."""
    return ours / theirs if ours is not None and theirs else None


def middle(values: Sequence[float]) -> float | None:
    """The median; None of none."""
    return median(values) if values else None


def spread(values: Sequence[float], *percents: float) -> tuple[float | None, ...]:
    """The percentiles (nearest rank) of the values; None of none."""
    return tuple(percentile(values, percent) for percent in percents)


def grows_from(lines: int) -> int:
    """After how many lines of a run of so many growth is counted from: when all is warm."""
    return max(1, min(WARM_LINES, lines // 10))


def growth(series: Sequence[tuple[int, float]]) -> float | None:
    """How much a figure grew from when all was warm to its end: `series` holds (lines so far, figure), in
    order. None without two points that are apart."""
    if len(series) < 2 or series[-1][0] <= series[0][0]:
        return None
    begin = grows_from(series[-1][0])
    early = next(figure for lines, figure in series if lines >= begin)
    return series[-1][1] - early


def rounded(value: Any) -> Any:
    """A float to DIGITS significant digits; maps and sequences of them too; anything else as it is."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
