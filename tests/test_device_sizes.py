"""Padded sizes, and what is captured at each: arithmetic and counting."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gleeman.speech.device.buckets import (
    CALM_USES,
    ROW_STEPS,
    SMALLEST_LENGTH,
    Policy,
    Size,
    Verdict,
    padded_length,
    padded_rows,
)
from gleeman.speech.device.graphs import Graphs

SMALL = Size("read", 1, 64)


@given(st.integers(1, 100_000))
def test_a_padded_length_holds_its_row_and_wastes_at_most_a_fifth_of_itself(length: int) -> None:
    size = padded_length(length)
    assert size >= length
    assert size == SMALLEST_LENGTH or (size - length) / size < 0.2
    assert padded_length(size) == size


def test_lengths_are_few() -> None:
    assert len({padded_length(length) for length in range(1, 1025)}) == 21
    assert [padded_length(length) for length in (1, 33, 64, 65, 510)] == [32, 40, 64, 80, 512]


def test_a_length_that_has_a_most_ends_there() -> None:
    assert padded_length(500, 510) == 510
    for length in (0, 511):
        with pytest.raises(ValueError, match="within 1 to 510"):
            padded_length(length, 510)


@given(st.integers(1, ROW_STEPS[-1]))
def test_padded_rows_hold_the_rows(rows: int) -> None:
    size = padded_rows(rows)
    assert size >= rows
    assert size in ROW_STEPS
    assert (size - rows) / size < 0.34
    assert padded_rows(rows + ROW_STEPS[-1]) == 2 * ROW_STEPS[-1]
    with pytest.raises(ValueError, match="no batch"):
        padded_rows(0)


def test_a_size_runs_plainly_once_is_captured_at_its_second_use_and_replayed_then() -> None:
    policy = Policy()
    assert policy.verdict(SMALL) is Verdict.PLAIN
    assert policy.verdict(SMALL) is Verdict.CAPTURE
    policy.captured(SMALL)
    assert policy.verdict(SMALL) is Verdict.REPLAY
    assert policy.verdict(SMALL._replace(stage="wave")) is Verdict.PLAIN


def test_a_capture_that_was_not_made_is_asked_for_again() -> None:
    policy = Policy()
    assert [policy.verdict(SMALL) for _ in range(3)][1:] == [Verdict.CAPTURE, Verdict.CAPTURE]


def test_what_is_too_large_is_never_captured() -> None:
    policy = Policy(captured_cells=100)
    large = Size("wave", 2, 51)
    assert {policy.verdict(large) for _ in range(5)} == {Verdict.PLAIN}
    assert [policy.verdict(Size("wave", 2, 50)) for _ in range(2)][-1] is Verdict.CAPTURE


def captured(policy: Policy, size: Size) -> list[Size]:
    while policy.verdict(size) is not Verdict.CAPTURE:
        pass
    gone = policy.make_room()
    policy.captured(size)
    return gone


def test_the_graph_that_was_used_longest_ago_makes_room() -> None:
    policy = Policy(most_graphs=2)
    one, two, three = (Size("read", 1, length) for length in (32, 40, 48))
    assert captured(policy, one) == []
    assert captured(policy, two) == []
    policy.verdict(one)
    assert captured(policy, three) == [two]
    assert policy.live == (one, three)
    assert policy.verdict(two) is Verdict.CAPTURE, "it is common still"


def test_after_want_of_memory_there_are_no_graphs_and_for_a_while_none_are_made() -> None:
    policy = Policy()
    captured(policy, SMALL)
    policy.short_of_memory()
    assert policy.live == ()
    assert {policy.verdict(SMALL) for _ in range(CALM_USES)} == {Verdict.PLAIN}
    assert policy.verdict(SMALL) is Verdict.CAPTURE


def test_a_stage_that_cannot_be_captured_is_left_alone() -> None:
    policy = Policy()
    policy.ban("read")
    assert {policy.verdict(SMALL) for _ in range(5)} == {Verdict.PLAIN}
    assert [policy.verdict(Size("wave", 1, 32)) for _ in range(2)][-1] is Verdict.CAPTURE


@given(st.lists(st.tuples(st.sampled_from(["read", "wave"]), st.integers(1, 4), st.integers(1, 300))))
def test_there_are_never_more_graphs_than_allowed_and_a_replay_has_its_graph(
    uses: list[tuple[str, int, int]],
) -> None:
    policy, live = Policy(most_graphs=3), set[Size]()
    for stage, rows, length in uses:
        size = Size(stage, padded_rows(rows), padded_length(length))
        verdict = policy.verdict(size)
        assert (verdict is Verdict.REPLAY) == (size in live)
        if verdict is Verdict.CAPTURE:
            live -= set(policy.make_room())
            live.add(size)
            policy.captured(size)
        assert len(live) <= 3
        assert set(policy.live) == live


# ---- the graphs themselves ---------------------------------------------------------------------------


class Doubler:
    """A graph of `x + x` over one buffer that all graphs share, as they do the pool."""

    shared = torch.zeros(8)

    def __init__(self, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(each.clone() for each in inputs)
        self.outputs = (self.shared[: self.inputs[0].numel()],)

    def replay(self) -> None:
        self.outputs[0].copy_(self.inputs[0] * 2)


def double(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2,)


def test_results_stay_although_the_next_graph_writes_where_they_lay() -> None:
    graphs = Graphs(Policy(), lambda stage, inputs: Doubler(inputs))
    small, large = Size("read", 1, 4), Size("read", 1, 8)
    for _ in range(2):
        graphs.run(small, double, (torch.ones(4),))
        graphs.run(large, double, (torch.ones(8),))
    (first,) = graphs.run(small, double, (torch.full((4,), 3.0),))
    graphs.run(large, double, (torch.ones(8),))
    assert first.tolist() == [6.0] * 4
    assert len(graphs) == 2


@pytest.mark.parametrize("given", [torch.ones(3), torch.ones(4, dtype=torch.float64)])
def test_a_replay_takes_only_what_was_captured(given: Tensor) -> None:
    graphs = Graphs(Policy(), lambda stage, inputs: Doubler(inputs))
    for _ in range(2):
        graphs.run(SMALL, double, (torch.ones(4),))
    with pytest.raises(ValueError, match="that was captured"):
        graphs.run(SMALL, double, (given,))


def test_a_capture_that_fails_is_told_once_and_speech_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(stage: object, inputs: object) -> Doubler:
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs = Graphs(Policy(), refuse)
    for _ in range(5):
        assert graphs.run(SMALL, double, (torch.ones(4),))[0].tolist() == [2.0] * 4
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert graphs.policy.banned == {"read"}


def test_a_capture_without_memory_is_the_batchs_error_and_no_ban() -> None:
    def full(stage: object, inputs: object) -> Doubler:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904

    graphs = Graphs(Policy(), full)
    graphs.run(SMALL, double, (torch.ones(4),))
    with pytest.raises(RuntimeError, match="previous error"):
        graphs.run(SMALL, double, (torch.ones(4),))
    assert graphs.policy.banned == set()


def test_dropped_graphs_are_gone() -> None:
    graphs = Graphs(Policy(), lambda stage, inputs: Doubler(inputs))
    for _ in range(2):
        graphs.run(SMALL, double, (torch.ones(4),))
    assert len(graphs) == 1
    graphs.drop()
    assert len(graphs) == 0
    assert graphs.run(SMALL, double, (torch.ones(4),))[0].tolist() == [2.0] * 4
