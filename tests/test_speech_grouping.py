"""Grouping rows by length: what holds of it whatever the lengths, and a few batches by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleeman.speech.grouping import Cost, Size, grouped, padded

COSTS = st.builds(Cost, st.integers(0, 60), st.one_of(st.just(float("inf")), st.integers(1, 900)))
LENGTHS = st.integers(1, 300)


def total(sizes: Sequence[Size], groups: Sequence[Sequence[int]], cost: Cost) -> float:
    return sum(cost.of([sizes[index] for index in group]) for group in groups)


def partitions(left: list[int]) -> Iterator[list[list[int]]]:
    """All there are."""
    if not left:
        yield []
        return
    first, *others = left
    for rest in partitions(others):
        yield [[first], *rest]
        for place, group in enumerate(rest):
            yield [*rest[:place], [first, *group], *rest[place + 1 :]]


@given(st.lists(st.tuples(LENGTHS, LENGTHS), max_size=32), COSTS)
def test_every_row_is_in_one_group_and_the_order_is_kept(sizes: list[Size], cost: Cost) -> None:
    groups = grouped(sizes, cost)
    assert sorted(index for group in groups for index in group) == list(range(len(sizes)))
    assert all(group and group == sorted(group) for group in groups)
    assert groups == sorted(groups)


@given(st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=32), COSTS)
def test_it_never_costs_more_than_one_group_or_each_row_alone(sizes: list[Size], cost: Cost) -> None:
    least = total(sizes, grouped(sizes, cost), cost)
    assert least <= cost.of(sizes)
    assert least <= total(sizes, [[index] for index in range(len(sizes))], cost)


@given(st.lists(st.tuples(LENGTHS, LENGTHS), min_size=2, max_size=32), COSTS)
def test_no_group_of_several_rows_is_more_than_may_be(sizes: list[Size], cost: Cost) -> None:
    for group in grouped(sizes, cost):
        assert len(group) == 1 or padded([sizes[index] for index in group]) <= cost.most


@given(st.lists(st.tuples(LENGTHS), min_size=1, max_size=6), COSTS)
def test_with_one_stage_no_partition_at_all_costs_less(sizes: list[Size], cost: Cost) -> None:
    found = total(sizes, grouped(sizes, cost), cost)
    assert found == min(total(sizes, each, cost) for each in partitions(list(range(len(sizes)))))


@given(st.lists(st.tuples(LENGTHS), min_size=1, max_size=16), st.randoms(), COSTS)
def test_what_it_costs_does_not_depend_on_the_order_of_the_rows(sizes, chance, cost) -> None:
    shuffled = sizes.copy()
    chance.shuffle(shuffled)
    assert total(sizes, grouped(sizes, cost), cost) == total(shuffled, grouped(shuffled, cost), cost)


@pytest.mark.parametrize(
    ("lengths", "overhead", "most", "groups"),
    [
        ([], 9, 1000, []),
        ([40], 9, 10, [[0]]),
        ([40, 40, 40], 9, 1000, [[0, 1, 2]]),
        ([40, 40, 40], 9, 80, [[0, 1], [2]]),
        ([40, 200, 42, 204], 9, 1000, [[0, 2], [1, 3]]),
        ([40, 60], 9, 1000, [[0], [1]]),
        ([40, 60], 200, 1000, [[0, 1]]),
    ],
)
def test_rows_of_like_length_share_a_group(lengths, overhead, most, groups) -> None:
    assert grouped([(length,) for length in lengths], Cost(overhead, most)) == groups


def test_a_clause_of_a_long_sentence_does_not_join_a_short_sentence_as_long_as_it() -> None:
    assert grouped([(40, 40), (40, 400), (41, 42)], Cost(9)) == [[0, 2], [1]]
