"""Lines through the feeder: what the reader of a lane gets, in which order, and what holds up whom."""

from __future__ import annotations

import numpy as np
import pytest

from gleeman.records import End, Event, EventType, LineKey, Priority, Viseme
from gleeman.shm.layout import CAPACITY, EVENTS, LANES
from gleeman.shm.mapping import ClientMapping
from shm_helpers import Rig, play, ramp, until


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    made.feeder.start()
    yield made
    made.close()


def test_a_line_comes_out_as_it_went_in(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 1000))
    rig.hand(1, ramp(1000, 500), last=True)
    reader = rig.reader(mapping, 1)
    np.testing.assert_array_equal(play(reader), ramp(0, 1500))
    assert reader.ended is End.DONE
    reader.finish()
    assert rig.wait("freed") == (LineKey(7, 1), End.DONE)
    assert rig.all("first_audio") == [(LineKey(7, 1),)]
    assert mapping.lanes() == []


def test_an_empty_lane_gives_nothing_and_does_not_end(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 0))
    reader = rig.reader(mapping, 1)
    assert len(reader.read(100)) == 0
    assert reader.ended is None


def test_a_line_of_no_samples_ends_at_once(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 0), last=True)
    reader = rig.reader(mapping, 1)
    assert len(play(reader)) == 0
    assert reader.ended is End.DONE


def test_a_line_that_fits_exactly_fills_the_ring(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, CAPACITY))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == CAPACITY, "a full ring")
    until(lambda: rig.feeder.room()[key].pending_samples == 0, "nothing pending")
    assert rig.feeder.room()[key].buffered_samples == CAPACITY


def test_one_sample_too_many_waits_in_memory(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, CAPACITY + 1))
    reader = rig.reader(mapping, 1)
    until(lambda: rig.feeder.room()[key].pending_samples == 1, "one sample pending")
    assert reader.available() == CAPACITY
    assert rig.all("room") == []
    reader.read(1)
    until(lambda: reader.available() == CAPACITY, "the last sample")
    rig.wait("room")


def test_a_line_longer_than_the_ring_is_refilled_over_the_wrap(rig):
    mapping = rig.open()
    total = 3 * CAPACITY + 12_345
    for start in range(0, total, 50_000):
        count = min(50_000, total - start)
        rig.hand(1, ramp(start, count), last=start + count == total)
    reader = rig.reader(mapping, 1)
    np.testing.assert_array_equal(play(reader, 7_777), ramp(0, total))
    assert reader.ended is End.DONE


def test_handed_samples_are_pending_before_the_feeder_saw_them(tmp_path):
    rig = Rig(tmp_path)  # not started: nothing is taken in
    rig.feeder._sessions[7] = type("Open", (), {"rate_hz": 48_000})()
    key = rig.hand(1, ramp(0, 300))
    rig.hand(1, ramp(0, 200))
    room = rig.feeder.room()[key]
    assert (room.pending_samples, room.buffered_samples, room.rate_hz) == (500, 0, 48_000)


def test_thirty_one_lines_play_while_the_thirty_second_is_paused(rig):
    mapping = rig.open()
    total = CAPACITY + 20_000
    for line in range(1, LANES + 1):
        rig.hand(line, ramp(line, total), last=True)
    paused = rig.reader(mapping, 1)
    paused.read(100)
    paused.set_paused(True)
    for line in range(2, LANES + 1):
        reader = rig.reader(mapping, line)
        np.testing.assert_array_equal(play(reader, 65_536), ramp(line, total))
        reader.finish()
    until(lambda: len(rig.all("freed")) == LANES - 1, "31 lines to be over")
    paused.set_paused(False)
    np.testing.assert_array_equal(play(paused, 65_536), ramp(101, total - 100))


def test_the_thirty_third_line_waits_for_a_lane(rig):
    mapping = rig.open()
    for line in range(1, LANES + 2):
        rig.hand(line, ramp(line, 100), last=True)
    rig.wait("first_audio", LANES)
    until(lambda: len(mapping.lanes()) == LANES, "all lanes taken")
    assert LANES + 1 not in [lane.line_id for lane in mapping.lanes()]
    done = rig.reader(mapping, 5)
    play(done)
    done.finish()
    late = rig.reader(mapping, LANES + 1)
    assert late.lane == done.lane
    assert late.generation > done.generation
    np.testing.assert_array_equal(play(late), ramp(LANES + 1, 100))


def test_waiting_lines_get_lanes_by_priority_then_arrival(rig):
    mapping = rig.open()
    for line in range(1, LANES + 1):
        rig.hand(line, ramp(0, 10), last=True)
    rig.wait("first_audio", LANES)
    rig.hand(101, ramp(0, 10), priority=Priority.BARK)
    rig.hand(102, ramp(0, 10), priority=Priority.DIALOGUE)
    rig.hand(103, ramp(0, 10), priority=Priority.IMMEDIATE)
    rig.hand(104, ramp(0, 10), priority=Priority.DIALOGUE)
    until(lambda: LineKey(7, 104) in rig.feeder.room(), "all waiting")
    for count, line in enumerate((1, 2, 3, 4)):
        rig.reader(mapping, line).finish()
        rig.wait("first_audio", LANES + count + 1)
    assert [key.line for (key,) in rig.all("first_audio")[LANES:]] == [103, 102, 104, 101]


def test_events_come_when_their_sample_has_been_read(rig):
    mapping = rig.open()
    events = (
        Event(0, EventType.CLAUSE, 0, 0.0, 0, 12, 900),
        Event(100, EventType.VISEME, Viseme.AA, 0.5),
        Event(1000, EventType.VISEME, Viseme.SIL, 1.0),
    )
    rig.hand(1, ramp(0, 1000), last=True, events=events)
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 1000, "samples")
    assert reader.events() == []
    reader.read(100)
    assert reader.events() == [events[0]]
    reader.read(1)
    assert reader.events() == [events[1]]
    reader.read(1000)
    assert reader.events() == [events[2]]
    assert reader.events() == []


def test_a_full_event_ring_delays_no_samples_and_loses_no_events(rig):
    mapping = rig.open()
    many = tuple(Event(10 * n, EventType.MARK, n % 65536) for n in range(3 * EVENTS + 5))
    total = CAPACITY + 5_000
    rig.hand(1, ramp(0, total), last=True, events=many)
    reader = rig.reader(mapping, 1)
    np.testing.assert_array_equal(play(reader), ramp(0, total))
    got: list[Event] = []

    def drained() -> bool:
        got.extend(reader.events())
        return len(got) == len(many)

    until(drained, "all events")
    assert tuple(got) == many


def test_a_reader_that_leaves_at_the_end_has_every_event(rig):
    """The end once overtook the events that had found the ring full: the last words and the closed mouth."""
    mapping = rig.open()
    many = tuple(Event(10 * n, EventType.MARK, n) for n in range(EVENTS + 65))
    rig.hand(1, ramp(0, 10 * len(many)), last=True, events=many)
    reader = rig.reader(mapping, 1)
    got: list[Event] = []

    def left() -> bool:
        reader.read(CAPACITY)
        ended = reader.ended
        got.extend(reader.events())
        return ended is not None

    until(left, "the end")
    assert tuple(got) == many


def test_a_reader_that_takes_no_events_still_comes_to_the_end(rig):
    mapping = rig.open()
    many = tuple(Event(n, EventType.MARK, n) for n in range(EVENTS + 1))
    rig.hand(1, ramp(0, 1000), last=True, events=many)
    reader = rig.reader(mapping, 1)
    until(lambda: reader.read(1000).size == 0 and reader.ended, "the end")


def test_a_cancelled_line_ends_where_it_was_written_and_the_engine_is_told(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, CAPACITY + 1000))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == CAPACITY, "a full ring")
    reader.read(500)
    reader.mark_cancel(240)
    assert rig.wait("cancel") == (key,)
    until(lambda: key not in rig.feeder.room(), "the rest to be dropped")
    rig.hand(1, ramp(0, 1000), last=True)  # the row in flight
    faded = reader.read(10_000)
    assert len(faded) == 240
    assert reader.ended is End.CANCELLED
    assert reader.events() == [Event(740, EventType.VISEME, Viseme.SIL, 1.0)]
    reader.finish()
    assert rig.wait("freed") == (key, End.CANCELLED)
    assert len(rig.all("cancel")) == 1


def test_a_lane_given_back_early_counts_as_cancelled(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000))
    rig.reader(mapping, 1).finish()
    assert rig.wait("freed") == (key, End.CANCELLED)
    assert rig.all("cancel") == [(key,)]


def test_what_comes_late_for_a_line_that_is_over_is_dropped(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000))
    rig.reader(mapping, 1).finish()
    rig.wait("freed")
    rig.hand(1, ramp(0, 1000), last=True)
    rig.feeder.end(key, End.CANCELLED, "cancelled", "late")
    rig.hand(2, ramp(0, 10), last=True)
    rig.wait("first_audio", 2)
    assert [lane.line_id for lane in mapping.lanes()] == [2]
    assert rig.all("ended") == []
    assert rig.feeder._handed == {}


def test_a_failed_line_plays_what_is_written_and_closes_the_mouth(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000), events=(Event(10, EventType.VISEME, Viseme.AA, 1.0),))
    reader = rig.reader(mapping, 1)
    rig.feeder.end(key, End.FAILED, "model-failed", "it broke")
    (ended,) = rig.wait("ended")
    assert (ended.key, ended.end, ended.code, ended.in_lane) == (key, End.FAILED, "model-failed", True)
    np.testing.assert_array_equal(play(reader), ramp(0, 1000))
    assert reader.ended is End.FAILED
    assert [event.code for event in reader.events()] == [Viseme.AA, Viseme.SIL]
    reader.finish()
    assert rig.wait("freed") == (key, End.FAILED)


def test_a_line_without_a_lane_ends_by_word_alone(rig):
    mapping = rig.open()
    rig.feeder.end(LineKey(7, 9), End.EXPIRED, "expired", "too late")
    (ended,) = rig.wait("ended")
    assert (ended.end, ended.in_lane) == (End.EXPIRED, False)
    for line in range(1, LANES + 2):
        rig.hand(line + 10, ramp(0, 10))
    until(lambda: len(mapping.lanes()) == LANES, "all lanes taken")
    waiting = LineKey(7, LANES + 11)
    rig.feeder.end(waiting, End.FAILED, "model-failed", "it broke")
    (ended,) = rig.wait("ended", 2)
    assert (ended.key, ended.in_lane) == (waiting, False)
    rig.reader(mapping, 11).finish()
    rig.wait("freed")
    assert len(mapping.lanes()) == LANES - 1
    assert waiting not in rig.feeder.room()


def test_a_second_end_is_not_told(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 10), last=True)
    reader = rig.reader(mapping, 1)
    play(reader)
    rig.feeder.end(key, End.CANCELLED, "cancelled", "after the end")
    reader.finish()
    assert rig.wait("freed") == (key, End.DONE)
    assert rig.all("ended") == []


def test_a_freed_lane_is_zeroed_for_the_next_line(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 100), last=True, events=(Event(0, EventType.MARK, 1),), preroll=50)
    first = rig.reader(mapping, 1)
    play(first)
    first.events()
    first.finish()
    rig.wait("freed")
    head = 4096 + first.lane * 512
    assert bytes(mapping.raw[head : head + 512]) == bytes(512)
    rig.hand(2, ramp(5, 20), last=True)
    second = rig.reader(mapping, 2)
    assert (second.lane, second.preroll_samples) == (first.lane, 0)
    np.testing.assert_array_equal(play(second), ramp(5, 20))


def test_room_shows_paused_and_buffered(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 1000, "samples")
    reader.read(400)
    reader.set_paused(True)
    until(lambda: rig.feeder.room()[key].paused and rig.feeder.room()[key].buffered_samples == 600, "room")


def test_underruns_are_counted(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 100))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 100, "samples")
    reader.read_exact(256)
    until(lambda: rig.feeder.underrun_samples == 156, "the count")
    reader.finish()
    rig.wait("freed")
    assert rig.feeder.underrun_samples == 156


def test_beats_go_on_and_show_the_engine(rig):
    mapping: ClientMapping = rig.open()
    before = mapping.feeder_beat
    rig.feeder.beat(41, True)
    until(lambda: mapping.engine_progress == 41 and mapping.engine_busy, "the engine's beat")
    until(lambda: mapping.feeder_beat > before + 1, "two beats")
