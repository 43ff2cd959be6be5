"""What holds of the scheduler whatever comes in whichever order: random lives against a small model."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gleeman.errors import InputError
from gleeman.records import LineKey, LineRoom, Priority
from gleeman.tick.batch import Limits
from gleeman.tick.scheduler import Scheduler
from tick_helpers import MS, RATE_HZ, clauses, request

LIMITS = Limits(
    rows=3,
    frames=60,
    first_frames=50,
    run_ns=40 * MS,
    max_wait_ns=16 * MS,
    session_lines=6,
    total_lines=10,
    ageing_ns=200 * MS,
)
NS_A_FRAME = MS
PIPELINES = ("main", "babble")


class Lives(RuleBasedStateMachine):
    """Lines of three sessions come, speak, are cancelled, expire; batches run one at a time."""

    def __init__(self):
        super().__init__()
        self.scheduler = Scheduler(LIMITS)
        self.now_ns = 1_000 * MS
        self.live = {}  # key -> [request, clauses, next clause, in flight]
        self.ends = []  # keys, as they end
        self.room = {}
        self.batch = None
        self.learned = set()
        self.number = 0

    @rule(
        session=st.integers(1, 3),
        lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
        priority=st.sampled_from(Priority),
        deadline_ms=st.sampled_from((0, 0, 5, 100)),
        pipeline=st.sampled_from(PIPELINES),
    )
    def add(self, session, lengths, priority, deadline_ms, pipeline):
        self.number += 1
        deadline_ns = self.now_ns + deadline_ms * MS if deadline_ms else 0
        made = request(
            self.number,
            session,
            priority=priority,
            deadline_ns=deadline_ns,
            pipeline=pipeline,
            seed=self.number,
        )
        mine = sum(key.session == session for key in self.live)
        full = mine >= LIMITS.session_lines or len(self.live) >= LIMITS.total_lines
        with pytest.raises(InputError, match="wait") if full else contextlib.nullcontext():
            self.scheduler.add(
                made, clauses(*("x" * n for n in lengths)), lambda row: len(row.clause.spoken), self.now_ns
            )
        if not full:
            self.live[made.key] = [made, lengths, 0, False]

    @rule(session=st.integers(1, 3))
    def frame(self, session):
        self.scheduler.frame(session)

    @rule(ms=st.sampled_from((1, 10, 50)))
    def pass_time(self, ms):
        self.now_ns += ms * MS
        for key in self.scheduler.expired(self.now_ns):
            made, _, begun, _ = self.live[key]
            assert made.deadline_ns
            assert made.deadline_ns <= self.now_ns
            assert begun == 0
            self.over(key)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), buffered_ms=st.integers(0, 3000), pending=st.sampled_from((0, 0, 0, 500)))
    def reader_moves(self, data, buffered_ms, pending):
        key = data.draw(st.sampled_from(sorted(self.live)))
        self.room[key] = LineRoom(buffered_ms * RATE_HZ // 1000, pending, RATE_HZ)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data):
        key = data.draw(st.sampled_from(sorted(self.live)))
        assert self.scheduler.cancel(key)
        self.over(key)

    @rule(session=st.integers(1, 3))
    def drop(self, session):
        self.scheduler.drop_session(session)
        for key in [key for key in self.live if key.session == session]:
            self.over(key)

    @precondition(lambda self: self.batch is None)
    @rule(can_run=st.sampled_from((PIPELINES, ("babble",))))
    def tick(self, can_run):
        batch = self.scheduler.tick(self.now_ns, self.room, can_run)
        if batch is None:
            return
        assert batch.pipeline in can_run
        keys = [row.key for row in batch.rows]
        assert 0 < len(set(keys)) == len(keys) <= LIMITS.rows
        frames = sum(len(row.clause.spoken) for row in batch.rows)
        assert frames == batch.estimated_frames
        if len(keys) > 1:
            assert frames <= (LIMITS.frames if batch.pipeline in self.learned else LIMITS.first_frames)
            assert batch.pipeline not in self.learned or frames * NS_A_FRAME <= LIMITS.run_ns
        for row in batch.rows:
            life = self.live[row.key]  # neither ended nor expired
            made, lengths, begun, in_flight = life
            assert made.pipeline == batch.pipeline
            assert not in_flight
            assert row.index == begun
            assert len(row.clause.spoken) == lengths[begun]
            assert begun > 0 or not made.deadline_ns or self.now_ns < made.deadline_ns
            assert row.key not in self.room or self.room[row.key].pending_samples == 0
            life[2:] = begun + 1, True
        self.batch = batch

    @precondition(lambda self: self.batch is not None)
    @rule(failed=st.sampled_from((False, False, True)))
    def complete(self, failed):
        batch, self.batch = self.batch, None
        frames = batch.estimated_frames
        took_ns = 0 if failed else frames * NS_A_FRAME
        finished = self.scheduler.complete(batch, took_ns, frames)
        if not failed:
            self.learned.add(batch.pipeline)
        expected = []
        for row in batch.rows:
            if row.key in self.live:
                life = self.live[row.key]
                life[3] = False
                if life[2] == len(life[1]):
                    expected.append(row.key)
        assert list(finished) == expected
        for key in finished:
            self.over(key)

    def over(self, key):
        del self.live[key]
        self.room.pop(key, None)
        self.ends.append(key)

    @invariant()
    def knows_what_lives_and_nothing_else(self):
        assert len(self.scheduler) == len(self.live)
        assert all(self.scheduler.knows(key) for key in self.live)
        assert not any(self.scheduler.knows(key) for key in self.ends)

    def teardown(self):
        """Left alone, with readers that read, everything that lives comes to its end, once."""
        for _ in range(200):
            if not self.live:
                break
            if self.batch is None:
                due_ns = self.scheduler.next_due_ns()
                self.room.clear()
                self.tick(PIPELINES)
                if self.batch is None:
                    assert due_ns is not None, "lines live, nothing runs and nothing is due"
                    self.now_ns = max(self.now_ns, due_ns)
                    self.pass_time(0)
            else:
                self.now_ns += self.batch.estimated_frames * NS_A_FRAME
                self.complete(False)
        assert not self.live
        assert len(self.ends) == len(set(self.ends))


Lives.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLives = Lives.TestCase


def test_a_background_line_is_spoken_though_dialogue_and_immediate_lines_never_cease():
    scheduler = Scheduler(Limits(rows=1, ageing_ns=100 * MS))
    now_ns = number = 0

    def add(priority):
        nonlocal number
        number += 1
        scheduler.add(request(number, priority=priority), clauses("word"), lambda row: 1, now_ns)
        return LineKey(1, number)

    background = add(Priority.BACKGROUND)
    for _ in range(100):
        for priority in (Priority.IMMEDIATE, Priority.DIALOGUE):
            if len(scheduler) < 100:
                add(priority)
        scheduler.frame(1)
        batch = scheduler.tick(now_ns, {}, ("main",))
        if batch.rows[0].key == background:
            break
        now_ns += 10 * MS
        scheduler.complete(batch, 10 * MS, 1)
    assert batch.rows[0].key == background
    assert now_ns < 1_000 * MS
