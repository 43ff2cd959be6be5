"""Sessions in the feeder: opening, closing, dead and hostile clients, stopping and sweeping."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from gleeman import host
from gleeman.errors import Failure
from gleeman.records import End, LineKey
from gleeman.shm import layout
from gleeman.shm.feeder import Feeder
from gleeman.shm.lane import LaneReader
from gleeman.shm.mapping import ClientMapping, u64_at
from shm_helpers import Rig, play, ramp, until


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    made.feeder.start()
    yield made
    made.close()


def files(folder):
    return sorted(path.name for path in folder.glob("*.lanes"))


def test_a_session_has_one_file_that_only_its_user_may_read(rig, tmp_path):
    mapping = rig.open(session=0xABC, rate_hz=48_000)
    (name,) = files(tmp_path)
    assert name == f"gleeman-{host.user_tag()}-{os.getpid()}-{host.own_start_ns()}-0000000000000abc.lanes"
    if sys.platform != "win32":
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (mapping.session, mapping.rate_hz) == (0xABC, 48_000)
    assert (mapping.daemon_pid, mapping.daemon_start_ns) == (os.getpid(), host.own_start_ns())


def test_closing_a_session_removes_its_file_and_drops_its_lines(rig, tmp_path):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 1000, "samples")
    rig.feeder.close_session(7)
    until(lambda: files(tmp_path) == [], "the file to go")
    assert key not in rig.feeder.room()
    assert len(reader.read(1000)) == 1000  # what is in the lane plays on
    rig.hand(2, ramp(0, 10))
    until(lambda: not rig.feeder._handed, "the late chunk to be dropped")
    assert rig.feeder.room() == {}


def test_closing_tells_of_lines_that_were_read_to_their_end_unseen(rig):
    """The reader gave its lane back within the feeder's 5 ms before `bye`."""
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 100), last=True)
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 100, "samples")
    reader.read(100)
    reader.finish()
    rig.feeder.close_session(7)
    assert rig.wait("freed") == (key, End.DONE)


def test_a_session_number_is_given_once(rig):
    rig.open()
    rig.feeder.open_session(7, 24_000, 0)
    session, error = rig.wait("failed")
    assert (session, error.code) == (7, "bad-value")


def test_no_room_is_an_answer(rig, tmp_path, monkeypatch):
    def full(path, size):
        raise Failure(f"no room for {size} bytes", "no-space")

    monkeypatch.setattr(host, "create_mapping_file", full)
    rig.feeder.open_session(7, 24_000, 0)
    session, error = rig.wait("failed")
    assert (session, error.code) == (7, "no-space")
    monkeypatch.undo()
    rig.open(session=8)
    assert len(files(tmp_path)) == 1


def test_the_second_folder_is_taken_when_the_first_is_full(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    rig = Rig(second)
    rig.feeder._folders = [first, second]
    real = host.create_mapping_file

    def full(path, size):
        if path.parent == first:
            raise Failure("no room", "no-space")
        real(path, size)

    monkeypatch.setattr(host, "create_mapping_file", full)
    rig.feeder.start()
    try:
        rig.open()
        assert len(files(second)) == 1
    finally:
        rig.close()


def test_a_pid_that_is_none_is_refused(rig):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(60)
    rig.feeder.open_session(7, 24_000, child.pid)
    session, error = rig.wait("failed")
    assert (session, error.code) == (7, "bad-value")


def test_a_dead_client_leaves_nothing(rig, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        rig.open(pid=child.pid)
        rig.hand(1, ramp(0, 1000))
        rig.wait("first_audio")
        child.kill()  # and not waited for: a zombie counts as gone
        session, code, _ = rig.wait("gone")
        assert (session, code) == (7, "")
        assert files(tmp_path) == []
    finally:
        child.kill()
        child.communicate(timeout=60)


HOSTILE = [
    ("read_pos beyond what is written", layout.L_READ_POS, 1001),
    ("read_pos of all ones", layout.L_READ_POS, (1 << 64) - 1),
    ("read_pos backwards", layout.L_READ_POS, 99),
    ("event_read beyond what is written", layout.L_EVENT_READ, 1),
    ("underrun_samples backwards", layout.L_UNDERRUN_SAMPLES, 4),
    ("underrun_samples of all ones", layout.L_UNDERRUN_SAMPLES, (1 << 64) - 1),
    ("done_generation never given", layout.L_DONE_GENERATION, 1000),
    ("cancel_generation never given", layout.L_CANCEL_GENERATION, 1 << 63),
]


@pytest.mark.parametrize(("offset", "value"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_impossible_numbers_end_their_session_and_no_other(rig, offset, value):
    mapping, other = rig.open(7), rig.open(8)
    rig.hand(1, ramp(0, 1000))
    rig.hand(1, ramp(0, 1000), session=8)
    reader, bystander = rig.reader(mapping, 1), rig.reader(other, 1)
    until(lambda: reader.available() == 1000, "samples")
    mapping.u64[u64_at(reader.lane, layout.L_UNDERRUN_SAMPLES)] = 5
    reader.read(100)
    until(lambda: rig.feeder.room()[LineKey(7, 1)].buffered_samples == 900, "the read to be seen")
    mapping.u64[u64_at(reader.lane, offset)] = value
    session, code, sentence = rig.wait("gone")
    assert (session, code) == (7, "bad-client")
    assert "must lie in" in sentence
    rig.hand(1, ramp(1000, 10), session=8, last=True)
    assert len(play(bystander)) == 1010
    bystander.finish()
    assert rig.wait("freed") == (LineKey(8, 1), End.DONE)


def test_harmless_fields_may_hold_anything(rig):
    mapping = rig.open()
    key = rig.hand(1, ramp(0, 1000), last=True)
    reader = rig.reader(mapping, 1)
    head = 4096 + reader.lane * 512
    mapping.raw[head + layout.L_FADE_SAMPLES : head + 408] = b"\xff" * 8
    mapping.u64[layout.H_CLIENT_BEAT // 8] = (1 << 64) - 1
    mapping.beat()
    for lane in range(layout.LANES):  # heads of free lanes are not looked at
        if lane != reader.lane:
            mapping.u64[u64_at(lane, layout.L_READ_POS)] = 1 << 60
    play(reader)
    reader.finish()
    assert rig.wait("freed") == (key, End.DONE)
    assert rig.all("gone") == []


def test_the_daemon_does_not_believe_its_own_fields(rig):
    mapping = rig.open()
    rig.hand(1, ramp(0, 10))
    reader = rig.reader(mapping, 1)
    until(lambda: reader.available() == 10, "samples")
    mapping.u64[u64_at(reader.lane, layout.L_WRITE_POS)] = 1 << 40
    rig.hand(1, ramp(10, 10), last=True)
    at = u64_at(reader.lane, layout.L_WRITE_POS)
    until(lambda: mapping.u64[at] == 20, "the true position")


def test_stop_removes_all_mappings_and_ends_the_thread(tmp_path):
    rig = Rig(tmp_path)
    rig.feeder.start()
    for session in (1, 2, 3):
        rig.open(session)
    assert len(files(tmp_path)) == 3
    rig.feeder.stop()
    assert files(tmp_path) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "gleeman-feeder"]
    rig.feeder.stop()
    rig.close()


def test_a_start_sweeps_the_files_of_dead_daemons_only(tmp_path):
    user, pid, start = host.user_tag(), os.getpid(), host.own_start_ns()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(60)
    dead = [
        tmp_path / f"gleeman-{user}-{child.pid}-12345-{1:016x}.lanes",
        tmp_path / f"gleeman-{user}-{pid}-{start + 10_000_000}-{1:016x}.lanes",  # our pid, another life
    ]
    kept = [
        tmp_path / f"gleeman-{user}-{pid}-{start}-{2:016x}.lanes",
        tmp_path / f"gleeman-{user}x-{child.pid}-12345-{1:016x}.lanes",
        tmp_path / f"gleeman-{user}-{child.pid}-12345-{1:016x}.txt",
        tmp_path / "notes.lanes",
    ]
    for path in dead + kept:
        path.write_bytes(b"x")
    rig = Rig(tmp_path)
    rig.feeder.start()
    rig.close()
    assert [path.exists() for path in dead] == [False, False]
    assert all(path.exists() for path in kept)


def test_without_a_session_the_feeder_sets_no_timer(tmp_path, monkeypatch):
    waits = []
    feeder: Feeder = Rig(tmp_path).feeder

    class Bell:
        def acquire(self, **limits: float) -> bool:
            waits.append(limits)
            return True

    feeder._bell = Bell()
    feeder._wait()
    assert waits == [{}]


def test_an_error_in_a_callback_silences_nobody(tmp_path, caplog):
    rig = Rig(tmp_path)

    def broken(*_):
        raise ValueError("a mistake")

    rig.feeder._on_first_audio = broken
    rig.feeder.start()
    try:
        mapping = rig.open()
        rig.hand(1, ramp(0, 10), last=True)
        reader = rig.reader(mapping, 1)
        assert len(play(reader)) == 10
        reader.finish()
        assert rig.wait("freed") == (LineKey(7, 1), End.DONE)
        assert "goes on" in caplog.text
    finally:
        rig.close()


DAEMON = """
import sys, pathlib, numpy as np
from gleeman.records import Chunk, LineKey
from gleeman.shm.feeder import Feeder
nothing = lambda *_: None
say = lambda *words: print(*words, flush=True)
feeder = Feeder(lambda s, path, size: say(path), nothing, nothing, nothing, nothing, nothing, nothing,
                lambda key: say("heard"), folders=[pathlib.Path(sys.argv[1])])
feeder.start()
feeder.open_session(7, 24_000, 0)
feeder.hand(Chunk(LineKey(7, 1), np.arange(1000, dtype=np.float32), (), False))
input()
"""


def test_a_killed_daemon_is_inaudible_and_leaves_nothing_after_the_next_start(tmp_path):
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        path = daemon.stdout.readline().strip()
        assert daemon.stdout.readline() == "heard\n"
        mapping = ClientMapping.open(path, layout.TOTAL_BYTES)
        (live,) = mapping.lanes()
        reader = LaneReader(mapping, live.lane, live.generation)
        daemon.kill()
        daemon.wait(60)
        assert not host.pid_alive(mapping.daemon_pid, mapping.daemon_start_ns)
        assert reader.read(2000).tolist() == list(range(1000))
        assert reader.ended is None
        assert len(files(tmp_path)) == 1
        rig = Rig(tmp_path)
        rig.feeder.start()
        rig.close()
        assert files(tmp_path) == []
        reader.finish()
        mapping.close()
    finally:
        daemon.kill()
        daemon.communicate(timeout=60)


def test_a_mistake_of_ours_in_one_session_leaves_the_others_playing(rig):
    """Once it kept every session behind it from being fed."""
    rig.open(session=7)
    good = rig.open(session=8)

    def broken():
        raise KeyError("a mistake")

    rig.hand(1, ramp(0, 10), session=7)
    rig.feeder._sessions[7].look = broken
    key = rig.hand(1, ramp(0, layout.CAPACITY + 1000), session=8)
    assert rig.wait("gone")[:2] == (7, "internal")
    reader = rig.reader(good, 1)
    until(lambda: reader.available() == layout.CAPACITY, "a full ring")
    reader.read(5000)
    until(lambda: key not in rig.feeder.room() or not rig.feeder.room()[key].pending_samples, "the rest")
