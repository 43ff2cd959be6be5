"""Memory that is too small for a batch: the batch gets smaller, a row that fits nowhere ends as busy, and
what was learnt fades."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleeman.records import LineKey, Row, RowAudio
from gleeman.speech.base import DeviceFull
from gleeman.tick.bound import HELD_BATCHES, Bound, cells_of
from gleeman.tick.running import synthesise
from tick_helpers import FakePipeline, row


class SmallDevice(FakePipeline):
    """Has memory for so many cells; may have more after the first failure, as a device that gave graphs
    back."""

    def __init__(self, cells: int, freed_cells: int = 0) -> None:
        super().__init__("small")
        self.cells = cells
        self.freed_cells = freed_cells

    def run(self, rows: Sequence[Row]) -> list[RowAudio]:
        if cells_of([self.estimate_frames(each) for each in rows]) > self.cells:
            self.batches.append(tuple(rows))
            self.cells = max(self.cells, self.freed_cells)
            raise DeviceFull("the device's memory does not hold this batch")
        return super().run(rows)


def lines(*lengths: int) -> list[Row]:
    return [row("x" * length, key=LineKey(1, place)) for place, length in enumerate(lengths)]


def sizes(pipeline: FakePipeline) -> list[int]:
    return [len(batch) for batch in pipeline.batches]


def test_a_batch_runs_in_halves_and_every_row_is_heard() -> None:
    pipeline, rows = SmallDevice(20), lines(10, 10, 10, 10, 10)
    audios, errors = synthesise(pipeline, rows)
    assert errors == {}
    assert set(audios) == {each.key for each in rows}
    assert sizes(pipeline) == [5, 2, 3, 1, 2]


def test_a_row_that_fits_nowhere_ends_as_busy_and_the_others_are_kept() -> None:
    pipeline, rows = SmallDevice(20), lines(10, 50, 10, 10)
    audios, errors = synthesise(pipeline, rows)
    assert set(audios) == {rows[0].key, rows[2].key, rows[3].key}
    assert {key: code for key, (code, _) in errors.items()} == {rows[1].key: "busy"}
    assert "send the line again" in errors[rows[1].key][1]


def test_a_row_alone_is_tried_again_once_memory_was_given_back() -> None:
    pipeline, rows = SmallDevice(20, freed_cells=60), lines(50)
    audios, errors = synthesise(pipeline, rows)
    assert (list(audios), errors) == ([rows[0].key], {})
    assert sizes(pipeline) == [1, 1]


def test_a_mistake_in_a_half_ends_its_own_line_only() -> None:
    pipeline, rows = SmallDevice(40), lines(10, 11, 10, 10, 10)
    pipeline.poison, pipeline.poison_error = "x" * 11, RuntimeError("no")
    audios, errors = synthesise(pipeline, rows)
    assert {key: code for key, (code, _) in errors.items()} == {rows[1].key: "model-failed"}
    assert len(audios) == 4


def test_the_next_batches_are_as_small_as_what_was_learnt_and_grow_again() -> None:
    pipeline, bound, rows = SmallDevice(20), Bound(), lines(10, 10, 10, 10)
    synthesise(pipeline, rows, bound)
    assert bound.cells == 20
    pipeline.batches.clear()
    pipeline.cells = 1_000
    synthesise(pipeline, rows, bound)
    assert sizes(pipeline) == [2, 2], "no try that must fail"
    for _ in range(HELD_BATCHES):
        synthesise(pipeline, rows, bound)
    pipeline.batches.clear()
    synthesise(pipeline, rows, bound)
    assert sizes(pipeline) == [4]
    for _ in range(HELD_BATCHES):
        synthesise(pipeline, rows, bound)
    assert bound.cells is None


def test_a_device_that_stays_small_is_learnt_once_more_and_not_every_time() -> None:
    pipeline, bound, rows = SmallDevice(20), Bound(), lines(10, 10, 10, 10)
    for _ in range(3 * HELD_BATCHES):
        audios, errors = synthesise(pipeline, rows, bound)
        assert len(audios) == 4
        assert not errors
    failed = [batch for batch in pipeline.batches if len(batch) == 4]
    assert 1 < len(failed) <= 8


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=32)


@settings(deadline=None)
@given(lengths, st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=32), max_size=4))
def test_pieces_hold_every_row_once_in_order_and_keep_to_the_bound(
    frames: list[int], failures: list[list[int]]
) -> None:
    bound = Bound()
    for failed in failures:
        bound.failed(failed)
    pieces = bound.pieces(frames)
    assert [length for piece in pieces for length in frames[piece]] == frames
    for piece in pieces:
        assert frames[piece]
        assert bound.cells is None or len(frames[piece]) == 1 or cells_of(frames[piece]) <= bound.cells


@settings(deadline=None)
@given(lengths, st.integers(1, 400))
def test_every_row_comes_to_one_answer_and_all_that_fit_are_heard(frames: list[int], cells: int) -> None:
    rows = lines(*frames)
    audios, errors = synthesise(SmallDevice(cells), rows, Bound())
    assert audios.keys() | errors.keys() == {each.key for each in rows}
    assert not audios.keys() & errors.keys()
    for each, length in zip(rows, frames, strict=True):
        assert (each.key in audios) == (length <= cells)


def test_a_pipeline_that_cannot_estimate_still_runs() -> None:
    pipeline = FakePipeline()
    pipeline.estimate_frames = lambda _row: 1 // 0  # type: ignore[method-assign]
    audios, errors = synthesise(pipeline, lines(3, 4))
    assert len(audios) == 2
    assert not errors


@pytest.mark.parametrize("count", [1, 7])
def test_without_want_of_memory_a_batch_runs_once_and_whole(count: int) -> None:
    pipeline, bound = FakePipeline(), Bound()
    synthesise(pipeline, lines(*[5] * count), bound)
    assert sizes(pipeline) == [count]
    assert bound.cells is None
