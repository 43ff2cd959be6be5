"""What happens to a line's samples after the pipeline: sample rate and limiter, and its events' clock.

One `LinePost` a line, kept from its first chunk to its last, so that nothing is heard at the seams. Knows no
pipeline and no lane. Not thread-safe; one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..records import Event, Samples

THRESHOLD = float(np.float32(0.98))
"""A signal that stays below passes bit for bit."""
RELEASE_S = 0.05
"""After a peak the gain comes back by a factor of e in this time."""


class LinePost:
    """Brings a line from a pipeline's rate to a session's, and keeps it within [-1, 1].

    At equal rates samples pass as they are. Otherwise the last few of a chunk stay in the resampler until the
    next chunk, or the line's end, pushes them out; in all, a line becomes its length x rate_out / rate_in.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self._rate_in = rate_in
        self._rate_out = rate_out
        self._taken_samples = 0  # at rate_in
        self._resampler = None
        if rate_in != rate_out:
            import soxr  # a tenth of a second at the daemon's start, for sessions at another rate only

            self._resampler = soxr.ResampleStream(rate_in, rate_out, 1, dtype="float32", quality="HQ")
        self._limiter = Limiter(rate_out)

    def process(
        self, samples: Samples, events: Sequence[Event], last: bool
    ) -> tuple[Samples, tuple[Event, ...]]:
        """One row's samples and events in; what is ready, and the events on the line's clock, out.

        samples: (S,) at rate_in. `sample` of the events in: from this row's first; out: from the line's
        first, at the rate out. last: the line ends with this chunk; no call may follow.
        """
        moved = tuple(self._on_line_clock(event) for event in events)
        self._taken_samples += samples.size
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(np.ascontiguousarray(samples, np.float32), last=last)
        return self._limiter.process(samples), moved

    def _on_line_clock(self, event: Event) -> Event:
        begin = self._taken_samples + event.sample
        end = begin + event.duration_samples
        sample = begin * self._rate_out // self._rate_in
        return event._replace(sample=sample, duration_samples=end * self._rate_out // self._rate_in - sample)


class Limiter:
    """Turns a signal down around its peaks above `THRESHOLD`, so that it never leaves [-1, 1].

    The gain follows an envelope that rises with the signal and falls by RELEASE_S. A wave-shaper without
    memory would leave more samples alone, but a loud vowel would crackle at each of its periods.
    """

    def __init__(self, rate_hz: int) -> None:
        self._fall = 1 / (RELEASE_S * rate_hz)  # of the envelope's logarithm, a sample
        self._envelope_log = -math.inf

    def process(self, samples: Samples) -> Samples:
        """The same array when nothing has to be done, else a new one."""
        if samples.size == 0:
            return samples
        level = np.abs(samples)
        falling = self._envelope_log - self._fall > math.log(THRESHOLD)
        if not falling and float(level.max()) <= THRESHOLD:
            self._envelope_log = -math.inf
            return samples
        # envelope[n] = max over k <= n of |x[k]| e^(-fall (n - k)); its logarithm is a running maximum
        # less a ramp.
        ramp = self._fall * np.arange(1, samples.size + 1, dtype=np.float64)
        heights = np.log(np.maximum(level, 1e-9).astype(np.float64)) + ramp
        heights[0] = max(heights[0], self._envelope_log)
        envelope = np.exp(np.maximum.accumulate(heights) - ramp)
        self._envelope_log = math.log(envelope[-1])
        limited: Samples = (samples * _gain(envelope)).astype(np.float32)
        return np.clip(limited, -1.0, 1.0, out=limited)


def _gain(envelope: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1 up to the threshold; above, what bends the envelope towards 1 and never past it."""
    headroom = 1 - THRESHOLD
    over = np.maximum(envelope - THRESHOLD, 0)
    bent = THRESHOLD + headroom * -np.expm1(-over / headroom)
    return np.where(envelope > THRESHOLD, bent / np.maximum(envelope, THRESHOLD), 1.0)
