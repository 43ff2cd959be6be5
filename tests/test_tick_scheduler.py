"""The scheduler's decisions, each in a small situation put together by hand."""

from __future__ import annotations

import hashlib

import pytest

from gleeman.errors import InputError
from gleeman.records import LineKey, Priority
from gleeman.tick.batch import Batch, Limits, row_seed
from gleeman.tick.scheduler import Scheduler
from tick_helpers import MS, clauses, lane, request

WAIT = 16 * MS
LIMITS = Limits(
    rows=4, frames=1000, first_frames=1000, run_ns=100 * MS, max_wait_ns=WAIT, session_lines=8, total_lines=12
)
MAIN = ("main",)


def frames(row) -> int:
    return len(row.clause.spoken)


def added(scheduler, line, *spoken, now_ns=0, session=1, **changes):
    made = request(line, session, **changes)
    scheduler.add(made, clauses(*(spoken or ("hello there",))), frames, now_ns)
    return made.key


def lines_of(batch: Batch | None) -> list[int]:
    return [] if batch is None else [row.key.line for row in batch.rows]


@pytest.fixture
def scheduler():
    return Scheduler(LIMITS)


def test_a_tick_closes_when_its_session_has_framed(scheduler):
    added(scheduler, 1)
    added(scheduler, 2)
    assert scheduler.tick(0, {}, MAIN) is None
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [1, 2]


def test_a_tick_waits_for_every_session_that_submitted(scheduler):
    added(scheduler, 1, session=1)
    added(scheduler, 1, session=2)
    scheduler.frame(1)
    assert scheduler.tick(1, {}, MAIN) is None
    scheduler.frame(2)
    assert len(scheduler.tick(1, {}, MAIN).rows) == 2


def test_a_tick_closes_after_the_longest_wait_and_says_when(scheduler):
    added(scheduler, 1, now_ns=5)
    added(scheduler, 2, now_ns=9)
    assert scheduler.next_due_ns() == 5 + WAIT
    assert scheduler.tick(4 + WAIT, {}, MAIN) is None
    assert lines_of(scheduler.tick(5 + WAIT, {}, MAIN)) == [1, 2]
    assert scheduler.next_due_ns() is None


def test_a_line_left_over_by_a_closed_tick_waits_for_no_further_frame(scheduler):
    for line in range(1, 6):
        added(scheduler, line)
    scheduler.frame(1)
    batch = scheduler.tick(0, {}, MAIN)
    assert lines_of(batch) == [1, 2, 3, 4]
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [5]


def test_an_immediate_line_waits_for_nothing_and_goes_alone(scheduler):
    added(scheduler, 1)
    scheduler.frame(1)
    added(scheduler, 2, priority=Priority.IMMEDIATE)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [2]
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [1]


def test_an_immediate_line_does_not_close_the_others_tick(scheduler):
    added(scheduler, 1)
    added(scheduler, 2, priority=Priority.IMMEDIATE)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [2]
    assert scheduler.tick(0, {}, MAIN) is None


def test_a_line_has_one_clause_in_flight(scheduler):
    added(scheduler, 1, "one", "two")
    scheduler.frame(1)
    first = scheduler.tick(0, {}, MAIN)
    assert scheduler.tick(0, {}, MAIN) is None
    assert scheduler.complete(first, MS, 3) == ()
    second = scheduler.tick(0, {}, MAIN)
    assert [row.index for row in second.rows] == [1]
    assert scheduler.complete(second, MS, 3) == (LineKey(1, 1),)
    assert not scheduler.knows(LineKey(1, 1))


def test_a_speaking_line_continues_while_a_tick_is_open(scheduler):
    key = added(scheduler, 1, "one", "two")
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), MS, 3)
    added(scheduler, 2)
    assert lines_of(scheduler.tick(0, {key: lane(50)}, MAIN)) == [1]


def test_lines_about_to_fall_silent_go_first_the_driest_before_all(scheduler):
    keys = [added(scheduler, line, "one", "two") for line in (1, 2, 3)]
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), 30 * MS, 9)
    added(scheduler, 4, priority=Priority.IMMEDIATE)
    room = {keys[0]: lane(40), keys[1]: lane(10), keys[2]: lane(5_000)}
    # 3 has seconds left: it waits, that the immediate line be not held up.
    assert lines_of(scheduler.tick(0, room, MAIN)) == [2, 1, 4]
    assert lines_of(scheduler.tick(0, room, MAIN)) == [3]


def test_a_paused_line_is_not_about_to_fall_silent(scheduler):
    key = added(scheduler, 1, "one", "two", priority=Priority.BARK)
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), MS, 3)
    added(scheduler, 2)
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {key: lane(0, paused=True)}, MAIN)) == [2, 1]


def test_a_line_whose_lane_is_full_is_not_scheduled(scheduler):
    key = added(scheduler, 1, "one", "two")
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), MS, 3)
    assert scheduler.tick(0, {key: lane(5_000, pending=1)}, MAIN) is None
    assert lines_of(scheduler.tick(0, {key: lane(4_000)}, MAIN)) == [1]


def test_order_is_by_priority_then_deadline_then_arrival(scheduler):
    added(scheduler, 1, priority=Priority.BACKGROUND)
    added(scheduler, 2)
    added(scheduler, 3, deadline_ns=500 * MS)
    added(scheduler, 4, priority=Priority.BARK)
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [3, 2, 4, 1]


def test_a_line_that_waited_long_overtakes_a_fresh_one_of_higher_priority(scheduler):
    added(scheduler, 1, priority=Priority.BACKGROUND)
    scheduler.frame(1)
    later = 4 * LIMITS.ageing_ns
    added(scheduler, 2, priority=Priority.DIALOGUE, now_ns=later)
    scheduler.frame(1)
    assert lines_of(scheduler.tick(later, {}, MAIN)) == [1]


def test_a_batch_keeps_the_budget_of_rows(scheduler):
    for line in range(1, 7):
        added(scheduler, line)
    scheduler.frame(1)
    assert len(scheduler.tick(0, {}, MAIN).rows) == LIMITS.rows


def test_a_batch_keeps_the_budget_of_frames_but_for_a_single_row(scheduler):
    added(scheduler, 1, "x" * 1500)
    added(scheduler, 2, "x" * 600)
    added(scheduler, 3, "x" * 600)
    scheduler.frame(1)
    assert [lines_of(scheduler.tick(0, {}, MAIN)) for _ in range(3)] == [[2], [3], [1]]


def test_the_first_batch_of_a_pipeline_is_a_small_one():
    scheduler = Scheduler(Limits(frames=1000, first_frames=100, run_ns=1000 * MS))
    for line in (1, 2, 3):
        added(scheduler, line, "x" * 60)
    added(scheduler, 4, "x" * 60, pipeline="babble")
    scheduler.frame(1)
    first = scheduler.tick(0, {}, MAIN)
    assert lines_of(first) == [1]
    scheduler.complete(first, MS, 60)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [2, 3]


def test_a_batch_keeps_the_budget_of_time_that_was_learned(scheduler):
    added(scheduler, 1, "x" * 10)
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), 40 * MS, 10)  # 4 ms a frame
    for line in (2, 3, 4):
        added(scheduler, line, "x" * 10)
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [2, 3]


def test_frames_are_corrected_by_what_was_made(scheduler):
    added(scheduler, 1, "x" * 100)
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), MS, 400)  # four times what was thought
    for line in (2, 3, 4):
        added(scheduler, line, "x" * 100)
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {}, MAIN)) == [2, 3]


def test_a_long_row_is_not_overtaken_by_shorter_ones_of_later_ticks(scheduler):
    for line, length in ((1, 10), (2, 995), (3, 10)):
        added(scheduler, line, "x" * length)
        scheduler.frame(1)
        scheduler.tick(0, {}, ())
    assert [lines_of(scheduler.tick(0, {}, MAIN)) for _ in range(3)] == [[1], [2], [3]]


def test_of_lines_of_one_tick_the_shortest_goes_first(scheduler):
    for line, length in ((1, 500), (2, 300), (3, 400), (4, 300)):
        added(scheduler, line, "x" * length)
    scheduler.frame(1)
    assert [lines_of(scheduler.tick(0, {}, MAIN)) for _ in range(2)] == [[2, 4, 3], [1]]


def test_a_line_not_heard_yet_goes_before_the_next_clause_of_one_with_enough_buffered(scheduler):
    key = added(scheduler, 1, "one", "two")
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), MS, 3)
    added(scheduler, 2, "a longer one")
    scheduler.frame(1)
    assert lines_of(scheduler.tick(0, {key: lane(5_000)}, MAIN)) == [2, 1]


def test_a_batch_has_one_pipeline_and_only_those_that_can_run(scheduler):
    added(scheduler, 1)
    added(scheduler, 2, pipeline="babble")
    added(scheduler, 3, pipeline="silent")
    added(scheduler, 4, pipeline="babble")
    scheduler.frame(1)
    batch = scheduler.tick(0, {}, ("babble", "silent"))
    assert (batch.pipeline, lines_of(batch)) == ("babble", [2, 4])
    assert lines_of(scheduler.tick(0, {}, ("babble", "silent"))) == [3]
    assert scheduler.tick(0, {}, ("babble", "silent")) is None
    assert lines_of(scheduler.tick(0, {}, ("main",))) == [1]


def test_an_expired_line_is_told_once_and_never_batched(scheduler):
    key = added(scheduler, 1, deadline_ns=10 * MS)
    scheduler.frame(1)
    assert scheduler.next_due_ns() == 10 * MS
    assert scheduler.tick(10 * MS, {}, MAIN) is None
    assert scheduler.expired(10 * MS) == [key]
    assert scheduler.expired(10 * MS) == []


def test_a_deadline_is_met_once_the_first_clause_was_taken(scheduler):
    added(scheduler, 1, "one", "two", deadline_ns=10 * MS)
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(9 * MS, {}, MAIN), MS, 3)
    assert scheduler.expired(20 * MS) == []
    assert lines_of(scheduler.tick(20 * MS, {}, MAIN)) == [1]


def test_a_cancelled_line_is_forgotten_even_in_flight(scheduler):
    key = added(scheduler, 1, "one", "two")
    scheduler.frame(1)
    batch = scheduler.tick(0, {}, MAIN)
    assert scheduler.cancel(key)
    assert not scheduler.cancel(key)
    assert scheduler.complete(batch, MS, 3) == ()
    assert scheduler.tick(0, {}, MAIN) is None


def test_a_dropped_session_takes_its_lines_and_its_open_frame_with_it(scheduler):
    added(scheduler, 1, session=1)
    added(scheduler, 1, session=2)
    scheduler.frame(2)
    scheduler.drop_session(1)
    batch = scheduler.tick(0, {}, MAIN)
    assert [row.key.session for row in batch.rows] == [2]


def test_a_session_may_queue_so_many_lines_and_no_more(scheduler):
    for line in range(1, 9):
        added(scheduler, line)
    with pytest.raises(InputError, match="8 lines of this session") as caught:
        added(scheduler, 9)
    assert caught.value.code == "busy"
    added(scheduler, 1, session=2)
    scheduler.cancel(LineKey(1, 3))
    added(scheduler, 9)


def test_all_sessions_together_may_queue_so_many_lines(scheduler):
    for number in range(12):
        added(scheduler, 1, session=number)
    with pytest.raises(InputError, match="12 lines wait already"):
        added(scheduler, 1, session=99)


def test_a_pipeline_that_will_never_run_gives_its_lines_back(scheduler):
    key = added(scheduler, 1)
    added(scheduler, 2, pipeline="babble")
    assert scheduler.drop_pipeline("main") == (key,)
    assert len(scheduler) == 1


def test_a_failed_batch_teaches_nothing(scheduler):
    added(scheduler, 1, "x" * 10)
    scheduler.frame(1)
    scheduler.complete(scheduler.tick(0, {}, MAIN), 0, 0)
    for line in range(2, 6):
        added(scheduler, line, "x" * 10)
    scheduler.frame(1)
    assert len(scheduler.tick(0, {}, MAIN).rows) == 4


def test_a_rows_seed_depends_on_its_line_and_place_alone(scheduler):
    added(scheduler, 1, "one", "two", seed=(1 << 63) - 1)
    scheduler.frame(1)
    row = scheduler.tick(0, {}, MAIN).rows[0]
    digest = hashlib.blake2b(b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0\0\0\0").digest()
    assert row.seed == row_seed((1 << 63) - 1, 0) == int.from_bytes(digest[:8], "little") >> 1
    assert row.seed != row_seed((1 << 63) - 1, 1)
    assert 0 <= row.seed < 1 << 63


@pytest.mark.parametrize("name", ["rows", "frames", "run_ns", "max_wait_ns", "session_lines", "ageing_ns"])
def test_a_limit_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})
