"""How fast a pipeline has been of late. Arithmetic; knows no clock."""

from __future__ import annotations


class Pace:
    """Sums over a pipeline's batches, older ones fading: ten batches ago counts a third."""

    FADE = 0.9

    def __init__(self) -> None:
        self._estimated = self._made = self._ns = self._batches = 0.0

    def learn(self, estimated: int, made: int, ns: int) -> None:
        """A batch thought to be `estimated` frames was `made` frames and took `ns`."""
        self._estimated = self._estimated * self.FADE + estimated
        self._made = self._made * self.FADE + made
        self._ns = self._ns * self.FADE + ns
        self._batches = self._batches * self.FADE + 1

    def frames(self, estimated: int) -> float:
        """What an estimate will be in truth; the estimate itself before anything is known."""
        return estimated * self._made / self._estimated if self._estimated and self._made else estimated

    def ns(self, estimated: int) -> float:
        """How long an estimate will take; 0 before anything is known."""
        return estimated * self._ns / self._estimated if self._estimated else 0.0

    def batch_ns(self) -> float:
        """How long a batch has taken on average."""
        return self._ns / self._batches if self._batches else 0.0
