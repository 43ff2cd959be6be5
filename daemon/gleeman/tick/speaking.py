"""Lines that are half spoken: each one's samples on their way out, joined at the session's rate. Knows no
queue and no batch; one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..records import Chunk, LineKey, LineRequest, RowAudio
from ..speech.post import LinePost


class Speaking:
    """Hands clauses on in the order they come."""

    def __init__(self, hand: Callable[[Chunk], None]) -> None:
        self._hand = hand
        self._posts: dict[LineKey, LinePost] = {}

    def hand_on(self, request: LineRequest, rate_hz: int, audio: RowAudio, last: bool) -> None:
        """A clause at the pipeline's rate; the line is complete with the last."""
        key = request.key
        post = self._posts.get(key)
        if post is None:
            post = self._posts[key] = LinePost(rate_hz, request.rate_hz)
        if last:
            del self._posts[key]
        samples, events = post.process(audio.samples, audio.events, last)
        # A clause comes whole, so playing may begin with its first sample: no preroll. What follows is made
        # while it plays; if that is late, the reader waits between two clauses, where a pause harms least.
        self._hand(Chunk(key, samples, events, last, request.priority, 0))

    def nothing(self, request: LineRequest, rate_hz: int) -> None:
        """A line that has nothing to say is complete."""
        self.hand_on(request, rate_hz, RowAudio(np.zeros(0, np.float32), ()), True)

    def forget(self, key: LineKey) -> None:
        """No more of this line comes."""
        self._posts.pop(key, None)

    def drop_session(self, session: int) -> None:
        """No more of its lines comes."""
        for key in [key for key in self._posts if key.session == session]:
            del self._posts[key]
