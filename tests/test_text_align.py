"""Alignment of a text with what normalising made of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gleeman.text.align import Block, align

SEQUENCES = st.lists(st.sampled_from("abcd"), max_size=30)


def test_a_changed_word_is_matched_with_what_it_became() -> None:
    assert align(["No", "0/0", "No"], ["Number", "0", "slash", "0", "No"]) == [
        Block(False, 0, 2, 0, 4),
        Block(True, 2, 3, 4, 5),
    ]
    assert align(["Dr", "Dr"], ["Dr", "Dr"]) == [Block(True, 0, 2, 0, 2)]
    assert align(["a"], []) == [Block(False, 0, 1, 0, 0)]
    assert align([], []) == []


@given(SEQUENCES, SEQUENCES, st.sampled_from([1, 20]))
def test_blocks_cover_both_sequences_in_order(before: list[str], after: list[str], times: int) -> None:
    before, after = before * times, after * times  # the longer ones take the quick way
    at = new_at = 0
    last_equal = None
    for block in align(before, after):
        assert (block.first, block.new_first) == (at, new_at)
        assert block.equal != last_equal
        if block.equal:
            assert before[block.first : block.last] == after[block.new_first : block.new_last]
            assert block.first < block.last
        at, new_at, last_equal = block.last, block.new_last, block.equal
    assert (at, new_at) == (len(before), len(after))
