"""The engine's turns with a clock that stands still, and the engine's own threads where they matter."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gleeman.errors import Failure, InputError
from gleeman.records import End, EventType, LineKey, Priority
from gleeman.speech.base import Budget, DeviceFull
from gleeman.tick.batch import Limits
from gleeman.tick.engine import Engine
from tick_helpers import MS, FakePipeline, Listener, ManualClock, clauses, lane, request

LIMITS = Limits(max_wait_ns=16 * MS, session_lines=8, total_lines=16)


class Bench:
    """An engine without threads: tests turn it by hand."""

    def __init__(self, folder, *, ms_a_row=10.0):
        self.clock = ManualClock()
        self.main = FakePipeline("main-model", self.clock, ms_a_row)
        self.babble = FakePipeline("babble", self.clock)
        self.heard = Listener()
        self.engine = Engine(
            self.main,
            {"babble": self.babble},
            self.heard.chunks.append,
            lambda *end: self.heard.ends.append(end),
            lambda: self.heard.rooms,
            self.heard.states.append,
            lambda *beat: self.heard.beats.append(beat),
            LIMITS,
            clock=self.clock,
            load_times=folder / "load.json",
        )
        self.engine.load_standins()

    def add(self, line, *spoken, **changes):
        changes.setdefault("arrived_ns", self.clock())
        made = request(line, **changes)
        self.engine.add(made, clauses(*spoken))
        self.engine.frame(made.key.session)

    def turns(self):
        while self.engine.turn():
            pass


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.engine.load()
    return made


def test_a_line_comes_clause_by_clause_and_ends_with_its_last(bench):
    bench.add(1, "one", "three")
    bench.turns()
    assert [(chunk.samples.size, chunk.last) for chunk in bench.heard.of(1)] == [(300, False), (500, True)]
    assert bench.heard.ends == []
    assert bench.engine.counters().queued_lines == 0


def test_events_are_on_the_lines_clock(bench):
    bench.add(1, "one", "three")
    bench.turns()
    first, second = bench.heard.of(1)
    assert [event.sample for event in first.events] == [0, 300]
    assert [event.sample for event in second.events] == [300, 800]


def test_lines_of_one_frame_are_one_batch(bench):
    bench.engine.add(request(1), clauses("one"))
    bench.engine.add(request(2), clauses("two"))
    assert not bench.engine.turn()
    bench.engine.frame(1)
    assert bench.engine.turn()
    assert [len(rows) for rows in bench.main.batches] == [2]
    assert (bench.engine.counters().batches, bench.engine.counters().rows) == (1, 2)


def test_frames_and_the_padding_beside_them_are_counted(bench):
    bench.main.padding = 4
    bench.add(1, "one", "three")
    bench.turns()
    counters = bench.engine.counters()
    assert (counters.frames, counters.padding_frames) == (8, 8)


def test_a_session_at_another_rate_gets_its_own_rate(bench):
    bench.add(1, "x" * 40, "x" * 60, rate_hz=48_000)
    bench.turns()
    chunks = bench.heard.of(1)
    assert sum(chunk.samples.size for chunk in chunks) == 2 * 10_000
    assert chunks[1].events[0].sample == 2 * 4_000
    assert chunks[1].events[-1].sample == 2 * 10_000


def test_a_line_without_clauses_still_ends_with_a_last_chunk(bench):
    bench.add(1)
    bench.turns()
    (chunk,) = bench.heard.of(1)
    assert chunk.last
    assert chunk.samples.size == 0


def test_a_line_whose_clauses_make_no_samples_still_ends_with_a_last_chunk(bench):
    bench.add(1, "", "", rate_hz=48_000)
    bench.turns()
    assert [chunk.last for chunk in bench.heard.of(1)] == [False, True]
    assert all(chunk.samples.size == 0 for chunk in bench.heard.of(1))


def test_lines_wait_for_the_model_while_stand_ins_speak(tmp_path):
    bench = Bench(tmp_path)
    bench.add(1, "one")
    bench.add(2, "two", pipeline="babble")
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [2]
    bench.engine.load()
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [2, 1]


def test_the_deadline_runs_while_the_model_loads(tmp_path):
    bench = Bench(tmp_path)
    bench.add(1, "one", deadline_ns=bench.clock() + 100 * MS)
    bench.turns()
    bench.clock.advance_ms(100)
    bench.turns()
    bench.engine.load()
    bench.turns()
    assert bench.heard.ended() == [(1, End.EXPIRED, "expired")]
    assert bench.main.batches == []


def test_when_the_model_fails_its_lines_fail_with_its_code_and_stand_ins_go_on(tmp_path):
    bench = Bench(tmp_path)
    bench.main.load_error = Failure("the weights are gone", "model-missing")
    bench.add(1, "one")
    bench.engine.load()
    bench.turns()
    bench.add(2, "two")
    bench.add(3, "three", pipeline="babble")
    bench.turns()
    assert bench.heard.ended() == [(1, End.FAILED, "model-missing"), (2, End.FAILED, "model-missing")]
    assert [chunk.key.line for chunk in bench.heard.chunks] == [3]
    assert bench.heard.states[-1].state == "failed"
    assert bench.heard.states[-1].code == "model-missing"


def test_a_line_that_the_model_cannot_speak_fails_alone(bench):
    bench.main.poison = "poison"
    bench.engine.add(request(1), clauses("one"))
    bench.engine.add(request(2), clauses("poison", "never said"))
    bench.engine.add(request(3), clauses("three"))
    bench.engine.frame(1)
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [1, 3]
    assert bench.heard.ended() == [(2, End.FAILED, "model-failed")]
    assert [len(rows) for rows in bench.main.batches] == [3, 1, 1, 1]


def test_a_line_that_asks_for_what_the_model_has_not_fails_with_the_models_own_code(bench):
    bench.main.poison = "poison"
    bench.main.poison_error = InputError("phonemes outside the alphabet", "bad-phonemes")
    bench.add(1, "poison")
    bench.turns()
    assert bench.heard.ended() == [(1, End.FAILED, "bad-phonemes")]


def test_a_batch_that_failed_does_not_make_the_model_seem_slow(bench):
    bench.main.poison = "poison"
    bench.add(1, "poison")
    bench.add(2, "one")
    bench.turns()
    for line in range(3, 9):
        bench.add(line, "four" * 2)
    bench.turns()
    assert len(bench.main.batches[-1]) == 6


def test_a_line_may_fail_in_its_middle(bench):
    bench.main.poison = "poison"
    bench.add(1, "one", "poison", "three")
    bench.turns()
    assert [chunk.last for chunk in bench.heard.of(1)] == [False]
    assert bench.heard.ended() == [(1, End.FAILED, "model-failed")]


@pytest.mark.parametrize(
    "bad", [np.array([0.0, np.nan], np.float32), np.zeros(5), np.zeros((2, 5), np.float32)]
)
def test_samples_that_cannot_be_played_reach_nobody(bench, bad):
    good = bench.main.audio
    bench.main.audio = lambda row: type(good(row))(bad, ()) if row.key.line == 2 else good(row)
    bench.engine.add(request(1), clauses("one"))
    bench.engine.add(request(2), clauses("two"))
    bench.engine.frame(1)
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [1]
    assert bench.heard.ended() == [(2, End.FAILED, "model-failed")]


def test_a_line_cancelled_while_it_is_in_flight_is_thrown_away(bench):
    bench.add(1, "one", "two")
    bench.add(2, "two")
    bench.main.while_running = lambda: bench.engine.cancel(LineKey(1, 1))
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [2]
    assert len(bench.main.batches) == 1
    assert bench.heard.ends == []


def test_a_dropped_session_is_dropped_in_flight_too(bench):
    bench.add(1, "one", "two")
    bench.main.while_running = lambda: bench.engine.drop_session(1)
    bench.turns()
    assert bench.heard.chunks == []
    assert bench.engine.counters().queued_lines == 0


def test_a_line_past_its_deadline_never_reaches_the_model(bench):
    bench.add(1, "one", deadline_ns=bench.clock() + MS)
    bench.clock.advance_ms(1)
    bench.turns()
    assert bench.main.batches == []
    assert bench.heard.ended() == [(1, End.EXPIRED, "expired")]


def test_a_loaded_model_may_hold_batches_to_its_own_budget(tmp_path):
    bench = Bench(tmp_path)
    bench.main.budget = Budget(run_ns=30 * MS, frames=7)
    bench.engine.load()
    for line in range(4):
        bench.engine.add(request(line), clauses("abc"))  # three frames each
    bench.engine.frame(1)
    bench.turns()
    assert [len(rows) for rows in bench.main.batches] == [2, 2]


def test_a_batch_that_the_device_has_no_memory_for_costs_no_line_but_the_one_that_fits_nowhere(bench):
    run = bench.main.run

    def small(rows):
        if sum(len(row.clause.spoken) for row in rows) > 8:
            raise DeviceFull("no memory")
        return run(rows)

    bench.main.run = small
    for line, spoken in enumerate(("abc", "abcd", "abcdefghijk", "ab")):
        bench.engine.add(request(line), clauses(spoken))
    bench.engine.frame(1)
    bench.turns()
    assert bench.heard.ended() == [(2, End.FAILED, "busy")]
    assert all(bench.heard.of(line)[-1].last for line in (0, 1, 3))
    bench.add(9, "abc")
    bench.turns()
    assert bench.heard.of(9), "the engine goes on"


def test_a_full_queue_refuses_with_busy(bench):
    for line in range(1, 10):
        bench.engine.add(request(line), clauses("one"))
    bench.turns()
    assert bench.heard.ended() == [(9, End.REFUSED, "busy")]


def test_a_full_inbox_refuses_at_once(bench):
    for line in range(1, 18):
        bench.engine.add(request(line, session=line), clauses("one"))
    assert bench.heard.ended() == [(17, End.REFUSED, "busy")]


def test_a_full_lane_holds_its_line_back_until_there_is_room(bench):
    bench.add(1, "one", "two")
    bench.engine.turn()
    bench.heard.rooms = {LineKey(1, 1): lane(5_000, pending=10)}
    assert not bench.engine.turn()
    bench.heard.rooms = {LineKey(1, 1): lane(4_000)}
    bench.turns()
    assert len(bench.heard.of(1)) == 2


def test_beats_tell_progress_and_whether_a_batch_runs(bench):
    bench.add(1, "one", "two")
    bench.turns()
    assert bench.heard.beats == [(0, True), (1, False), (1, True), (2, False)]


def test_a_mistake_in_handing_one_line_on_does_not_silence_the_others(bench):
    def hand(chunk):
        if chunk.key.line == 1:
            raise RuntimeError("lost")
        bench.heard.chunks.append(chunk)

    bench.engine._speaking._hand = hand
    bench.add(1, "one", "more")
    bench.add(2, "two")
    bench.turns()
    assert [chunk.key.line for chunk in bench.heard.chunks] == [2]
    assert bench.heard.ended() == [(1, End.FAILED, "internal")]


def test_the_same_line_sounds_the_same_whoever_shares_its_batch(tmp_path):
    from gleeman.speech.registry import make_pipeline

    def spoken(*others):
        heard = Listener()
        engine = Engine(
            make_pipeline("babble"),
            {},
            heard.chunks.append,
            lambda *_: None,
            lambda: {},
            lambda _: None,
            lambda *_: None,
            LIMITS,
            clock=ManualClock(),
            load_times=tmp_path / "load.json",
        )
        engine.load()
        for line, text in ((1, "Well met, traveller!"), *others):
            engine.add(request(line, seed=line), clauses(text))
        engine.frame(1)
        while engine.turn():
            pass
        return heard.of(1)[0].samples

    np.testing.assert_array_equal(spoken(), spoken((2, "Who goes there?"), (3, "So cold.")))


@pytest.fixture
def running(tmp_path):
    """An engine on its own threads, whose model is loaded; and what it says."""
    heard, spoken, ready = Listener(), threading.Event(), threading.Event()

    def hand(chunk):
        heard.chunks.append(chunk)
        spoken.set()

    main = FakePipeline()
    engine = Engine(
        main,
        {},
        hand,
        lambda *end: heard.ends.append(end),
        lambda: heard.rooms,
        lambda state: ready.set() if state.state == "ready" else None,
        lambda *beat: heard.beats.append(beat),
        LIMITS,
        load_times=tmp_path / "load.json",
    )
    engine.start()
    assert ready.wait(10)
    yield engine, heard, spoken, main
    engine.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "gleeman-engine"]
    assert main.closed


def test_the_engine_thread_wakes_for_a_line_and_for_the_end_of_a_wait(running):
    engine, heard, spoken, _ = running
    engine.add(request(1, priority=Priority.IMMEDIATE), clauses("one"))
    assert spoken.wait(10)
    spoken.clear()
    engine.add(request(2), clauses("two"))  # no frame follows: the tick's own timer must close it
    assert spoken.wait(10)
    assert [chunk.key.line for chunk in heard.chunks] == [1, 2]


def test_the_engine_thread_wakes_when_a_lane_has_room(running):
    engine, heard, spoken, main = running
    key = LineKey(1, 1)
    main.while_running = lambda: heard.rooms.setdefault(key, lane(5_000, pending=1))
    engine.add(request(1, priority=Priority.IMMEDIATE), clauses("one", "two"))
    assert spoken.wait(10)
    spoken.clear()
    assert not spoken.wait(0.05)
    heard.rooms = {key: lane(10)}
    engine.room_changed()
    assert spoken.wait(10)
    assert heard.chunks[-1].last


def test_an_idle_engine_sets_no_timer(running):
    engine, *_ = running
    assert engine._sleep_s() is None


def test_a_clauses_first_event_names_it(bench):
    bench.add(1, "one")
    bench.turns()
    assert bench.heard.of(1)[0].events[0].type == EventType.CLAUSE


def test_a_mistake_in_estimating_a_line_ends_that_line_alone(bench):
    """Once it was logged, and the line never ended."""
    bench.main.estimate_frames = lambda row: 1 // (len(row.clause.spoken) - 3)
    bench.add(1, "one")
    bench.add(2, "three")
    bench.turns()
    assert bench.heard.ends == [
        (LineKey(1, 1), End.FAILED, "internal", "the daemon made a mistake on this line")
    ]
    assert len(bench.heard.of(2)) == 1


def test_a_mistake_after_a_batch_ends_its_lines(bench, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    bench.add(1, "one")
    monkeypatch.setattr(bench.engine._scheduler, "complete", broken)
    bench.turns()
    monkeypatch.undo()
    assert [end[:3] for end in bench.heard.ends] == [(LineKey(1, 1), End.FAILED, "internal")]
    bench.add(2, "two")
    bench.turns()
    assert len(bench.heard.of(2)) == 1
