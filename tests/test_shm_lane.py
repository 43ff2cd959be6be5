"""The client's end of a lane against positions put there by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gleeman.errors import Failure
from gleeman.records import End, Event, EventType, Viseme
from gleeman.shm import layout
from gleeman.shm.lane import LaneReader
from gleeman.shm.layout import CAPACITY, EVENTS, UNKNOWN_END
from gleeman.shm.mapping import ClientMapping, DaemonMapping, u32_at, u64_at
from shm_helpers import ramp

LANE = 3


class Bench:
    """Both sides of one mapping in this process, with a line of generation 5 in lane 3."""

    def __init__(self, folder):
        self.daemon = DaemonMapping.create(1, 24_000, 0, [folder])
        self.client = ClientMapping.open(self.daemon.path, layout.TOTAL_BYTES)
        self.set(layout.L_LINE_ID, 77)
        self.set(layout.L_END_POS, UNKNOWN_END)
        self.set(layout.L_GENERATION, 5)

    def set(self, offset, value):
        self.daemon.u64[u64_at(LANE, offset)] = value

    def get(self, offset):
        return self.daemon.u64[u64_at(LANE, offset)]

    def write(self, start, count):
        """Samples that tell their position, then the position."""
        positions = np.arange(start, start + count) & (CAPACITY - 1)
        self.daemon.samples[LANE][positions] = ramp(start, count)
        self.set(layout.L_WRITE_POS, start + count)

    def end(self, code, at):
        self.daemon.u32[u32_at(LANE, layout.L_END_CODE)] = code
        self.set(layout.L_END_POS, at)

    def event(self, index, event):
        at = layout.EVENT_RINGS + LANE * layout.EVENT_RING_BYTES + (index % EVENTS) * layout.EVENT_BYTES
        self.daemon.raw[at : at + 32] = layout.EVENT.pack(*event, 0)
        self.set(layout.L_EVENT_WRITE, index + 1)

    def attach(self):
        return LaneReader(self.client, LANE, 5)

    def close(self):
        self.client.close()
        self.daemon.remove()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_poll_shows_the_live_lane(bench):
    assert bench.client.lanes() == [(LANE, 5, 77)]


def test_a_finished_lane_is_not_live(bench):
    bench.attach().finish()
    assert bench.client.lanes() == []
    assert bench.get(layout.L_DONE_GENERATION) == 5


def test_attaching_clears_a_pause_left_by_the_last_reader(bench):
    bench.daemon.u32[u32_at(LANE, layout.L_PAUSED)] = 1
    bench.attach()
    assert bench.daemon.u32[u32_at(LANE, layout.L_PAUSED)] == 0


@pytest.mark.parametrize(("lane", "generation"), [(LANE, 4), (LANE, 0), (4, 5), (32, 5), (-1, 5)])
def test_no_reader_for_a_lane_that_holds_no_such_line(bench, lane, generation):
    with pytest.raises(Failure) as caught:
        LaneReader(bench.client, lane, generation)
    assert caught.value.code == "bad-daemon"


def test_samples_that_are_written_but_not_published_are_invisible(bench):
    reader = bench.attach()
    bench.daemon.samples[LANE][:100] = 1
    assert reader.available() == 0
    assert len(reader.read(100)) == 0
    bench.set(layout.L_WRITE_POS, 60)
    assert len(reader.read(100)) == 60


def test_reading_publishes_the_position_and_copies(bench):
    reader = bench.attach()
    bench.write(0, 100)
    got = reader.read(40)
    assert bench.get(layout.L_READ_POS) == 40
    bench.daemon.samples[LANE][:] = 9
    np.testing.assert_array_equal(got, ramp(0, 40))


def test_a_read_over_the_wrap_is_in_order(bench):
    reader = bench.attach()
    bench.write(0, CAPACITY)
    reader.read(CAPACITY - 10)
    bench.write(CAPACITY, 50)
    np.testing.assert_array_equal(reader.read(60), ramp(CAPACITY - 10, 60))


def test_playing_starts_at_the_preroll(bench):
    bench.set(layout.L_PREROLL, 50)
    reader = bench.attach()
    bench.write(0, 49)
    assert not reader.read_exact(10).any()
    assert (reader.read_pos, reader.underrun_samples) == (0, 0)
    bench.write(49, 1)
    np.testing.assert_array_equal(reader.read_exact(10), ramp(0, 10))


def test_a_short_line_starts_at_its_end(bench):
    bench.set(layout.L_PREROLL, 50)
    reader = bench.attach()
    bench.write(0, 20)
    bench.end(End.DONE, 20)
    np.testing.assert_array_equal(reader.read_exact(20), ramp(0, 20))
    assert reader.ended is End.DONE


def test_a_preroll_beyond_the_ring_still_starts(bench):
    bench.set(layout.L_PREROLL, 1 << 50)
    reader = bench.attach()
    bench.write(0, CAPACITY)
    assert reader.started


def test_an_underrun_plays_zeros_counts_them_and_stops_the_clock(bench):
    reader = bench.attach()
    bench.write(0, 10)
    np.testing.assert_array_equal(reader.read_exact(16), [*range(10), 0, 0, 0, 0, 0, 0])
    assert (reader.read_pos, bench.get(layout.L_UNDERRUN_SAMPLES)) == (10, 6)
    bench.write(10, 10)
    bench.end(End.DONE, 20)
    np.testing.assert_array_equal(reader.read_exact(16)[:10], ramp(10, 10))
    assert reader.underrun_samples == 6  # zeros after the end are no underrun
    assert reader.ended is End.DONE


def test_a_paused_line_is_silent_and_keeps_its_place(bench):
    reader = bench.attach()
    bench.write(0, 100)
    reader.set_paused(True)
    assert bench.daemon.u32[u32_at(LANE, layout.L_PAUSED)] == 1
    assert not reader.read_exact(32).any()
    reader.set_paused(False)
    np.testing.assert_array_equal(reader.read_exact(32), ramp(0, 32))
    assert reader.underrun_samples == 0


def test_a_cancel_fades_to_zero_then_stays_silent(bench):
    reader = bench.attach()
    bench.daemon.samples[LANE][:1000] = 1
    bench.set(layout.L_WRITE_POS, 1000)
    reader.read_exact(64)
    reader.mark_cancel(100)
    assert bench.get(layout.L_CANCEL_GENERATION) == 5
    assert bench.daemon.u32[u32_at(LANE, layout.L_FADE_SAMPLES)] == 100
    heard = np.concatenate([reader.read_exact(64), reader.read_exact(64)])
    assert (np.diff(heard[:100]) < 0).all()
    np.testing.assert_allclose(heard[0], 0.99, atol=1e-6)
    assert not heard[99:].any()
    assert reader.ended is End.CANCELLED
    assert reader.read_pos == 164
    assert reader.underrun_samples == 0


def test_a_cancel_without_a_fade_is_silent_at_once(bench):
    reader = bench.attach()
    bench.write(0, 1000)
    reader.mark_cancel(0)
    assert not reader.read_exact(64).any()
    assert reader.ended is End.CANCELLED


def test_a_cancel_of_a_dry_lane_ends_though_the_daemon_says_nothing(bench):
    reader = bench.attach()
    bench.write(0, 10)
    reader.read(10)
    reader.mark_cancel(480)
    assert reader.ended is End.CANCELLED


def test_a_cancel_of_a_paused_line_is_heard(bench):
    reader = bench.attach()
    bench.write(0, 1000)
    reader.set_paused(True)
    reader.mark_cancel(32)
    assert reader.read_exact(64).any()
    assert reader.ended is End.CANCELLED


def test_a_cancel_after_the_end_changes_nothing(bench):
    reader = bench.attach()
    bench.write(0, 10)
    bench.end(End.DONE, 10)
    reader.read(10)
    reader.mark_cancel(10)
    assert reader.ended is End.DONE
    assert bench.get(layout.L_CANCEL_GENERATION) == 0


def test_nothing_is_written_after_finish(bench):
    reader = bench.attach()
    bench.write(0, 100)
    reader.finish()
    before = bytes(bench.daemon.raw[4096 + LANE * 512 : 4096 + (LANE + 1) * 512])
    reader.finish()
    reader.set_paused(True)
    reader.mark_cancel(10)
    assert len(reader.read(10)) == 0
    assert not reader.read_exact(10).any()
    assert reader.events() == []
    assert reader.available() == 0
    assert bytes(bench.daemon.raw[4096 + LANE * 512 : 4096 + (LANE + 1) * 512]) == before


def test_a_cancelled_line_closes_the_mouth_once(bench):
    reader = bench.attach()
    bench.write(0, 1000)
    bench.event(0, Event(500, EventType.VISEME, Viseme.OU, 1.0))
    reader.read(100)
    reader.mark_cancel(0)
    assert reader.events() == [Event(100, EventType.VISEME, Viseme.SIL, 1.0)]
    assert reader.events() == []


def impossible(bench, offset, value):
    reader = bench.attach()
    bench.write(0, 100)
    reader.read(50)
    bench.set(offset, value)
    with pytest.raises(Failure) as caught:
        reader.read(1)
    assert caught.value.code == "bad-daemon"


@pytest.mark.parametrize("value", [49, 99, 50 + CAPACITY + 1, (1 << 64) - 1])
def test_an_impossible_write_position_is_refused(bench, value):
    impossible(bench, layout.L_WRITE_POS, value)


@pytest.mark.parametrize("value", [0, 40, 99, 101, 1 << 40])
def test_an_end_that_is_not_what_was_written_is_refused(bench, value):
    bench.daemon.u32[u32_at(LANE, layout.L_END_CODE)] = End.DONE
    impossible(bench, layout.L_END_POS, value)


@pytest.mark.parametrize("code", [0, 7, 0xFFFFFFFF])
def test_an_unknown_end_code_is_refused(bench, code):
    bench.daemon.u32[u32_at(LANE, layout.L_END_CODE)] = code
    impossible(bench, layout.L_END_POS, 100)


@pytest.mark.parametrize("value", [0, EVENTS + 2, (1 << 64) - 1])
def test_an_impossible_event_position_is_refused(bench, value):
    reader = bench.attach()
    bench.write(0, 100)
    reader.read(50)
    bench.event(0, Event(0, EventType.MARK, 1))
    assert len(reader.events()) == 1
    bench.set(layout.L_EVENT_WRITE, value)
    with pytest.raises(Failure) as caught:
        reader.events()
    assert caught.value.code == "bad-daemon"


@pytest.mark.parametrize(
    "event",
    [
        Event(0, EventType.VISEME, 1, float("nan")),
        Event(0, EventType.VISEME, 1, float("inf")),
        Event(0, EventType.WORD, 0, 0.0, 5, 4),
    ],
)
def test_an_event_of_nonsense_is_refused(bench, event):
    reader = bench.attach()
    bench.write(0, 100)
    reader.read(50)
    bench.event(0, event)
    with pytest.raises(Failure) as caught:
        reader.events()
    assert caught.value.code == "bad-daemon"
