"""The conversation of a client with the server, rooms faked."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gleeman.errors import Failure, InputError
from gleeman.records import End, LineEnded, LineKey, ModelState, Priority
from gleeman.wire import messages as m
from gleeman.wire import server as server_module
from gleeman.wire.sessions import MAX_QUEUED_LINES, MAX_SESSIONS
from wire_helpers import TOKEN, Live, live_server, wait_until


@pytest.fixture
def live() -> Any:
    with live_server() as live:
        yield live


def speak(line: int, text: str = "Hello there.", **fields: Any) -> m.Speak:
    return m.Speak(**{"id": line + 100, "line": line, "text": text, **fields})


def test_hello_is_answered_with_session_mapping_and_limits(live: Live) -> None:
    _, welcome = live.greeted(id=9, rate_hz=48_000, pid=123)
    assert (welcome.re, welcome.rate_hz, welcome.lanes) == (9, 48_000, 32)
    assert welcome.mapping == f"/mapping/{welcome.session:x}"
    assert (welcome.state, welcome.model, welcome.voices) == ("ready", "babble", 3)
    assert live.house.asked == [("open", welcome.session, 48_000, 123)]


def test_both_endpoints_answer(tmp_path: Path) -> None:
    with live_server(tmp_path / "s") as live:
        assert [endpoint[:6] for endpoint in live.endpoints] == ["ipc://", "tcp://"]
        assert live.endpoints[1].startswith("tcp://127.0.0.1:")
        sessions = {live.peer(endpoint).hello().session for endpoint in live.endpoints}
        assert len(sessions) == 2


def test_an_odd_rate_becomes_24000(live: Live) -> None:
    assert live.greeted(rate_hz=22_050)[1].rate_hz == 24_000


def test_a_mapping_that_cannot_be_made_is_an_error_and_hello_may_be_said_again(live: Live) -> None:
    live.house.opens = False
    peer = live.peer()
    peer.send(m.Hello(id=5, protocol=1, token=TOKEN))
    wait_until(lambda: bool(live.house.asked), "the mapping was asked for")
    live.server.tell_not_opened(live.house.asked[0][1], Failure("no room", "no-space"))
    assert peer.read() == m.Error(re=5, code="no-space", message="no room")
    live.house.opens = True
    peer.hello()


def test_nothing_is_answered_while_the_mapping_is_made(live: Live) -> None:
    live.house.opens = False
    peer = live.peer()
    peer.send(m.Hello(id=5, protocol=1, token=TOKEN))
    peer.send(m.Ping(id=6))
    assert peer.code() == "hello-first"


def test_a_line_is_accepted_with_its_voice_and_seed(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1, voice=["nobody", "bm_george"], priority="bark", deadline_ms=50, emotion="smug"))
    accepted = peer.read(m.Accepted)
    assert (accepted.re, accepted.line, accepted.voice) == (101, 1, "bm_george")
    assert len(accepted.warnings) == 2
    request = live.house.lines[0]
    assert request.key == LineKey(welcome.session, 1)
    assert (request.voice, request.seed, request.emotion) == ("bm_george", accepted.seed, "neutral")
    assert request.priority is Priority.BARK
    assert request.deadline_ns - request.arrived_ns == 50_000_000
    assert request.pipeline == "main"


def test_the_same_words_get_the_same_seed_unless_one_is_given(live: Live) -> None:
    peer, _ = live.greeted()
    for line, fields in enumerate([{}, {}, {"voice": "bm_george"}, {"seed": 5}, {"seed": 0}], start=1):
        peer.send(speak(line, **fields))
    seeds = [peer.read(m.Accepted).seed for _ in range(5)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[3:] == [5, 0]


@pytest.mark.parametrize(("wish", "pipeline"), [("wait", "main"), ("babble", "babble"), ("silent", "silent")])
def test_lines_before_ready_wait_or_go_to_the_stand_in(live: Live, wish: str, pipeline: str) -> None:
    live.server.tell_state(ModelState("loading", 0.5, 3.0))
    live.settle()
    peer, _ = live.greeted(while_loading=wish)
    peer.send(speak(1))
    peer.read(m.Accepted)
    live.server.tell_state(ModelState("ready", 1.0))
    assert peer.read(m.State).state == "ready"
    peer.send(speak(2))
    peer.read(m.Accepted)
    assert [line.pipeline for line in live.house.lines] == [pipeline, "main"]


def test_accepted_then_clauses_then_ended_and_the_end_is_told_once(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1))
    key = LineKey(welcome.session, 1)
    wait_until(lambda: bool(live.house.lines), "the line came in")
    clause = m.ClauseInfo(spoken="Hello there.", begin=0, end=12, ms=800.0)
    live.server.tell_read(key, [clause], ["left out"])
    for _ in range(3):
        live.server.tell_ended(LineEnded(key, End.EXPIRED, "expired", "too late", False))
    live.server.tell_freed(key, End.DONE)
    live.server.tell_read(key, [clause], ["left out"])
    live.settle()
    assert isinstance(peer.read(), m.Accepted)
    assert peer.read() == m.Clauses(line=1, clauses=[clause], warnings=["left out"])
    assert peer.read() == m.Ended(line=1, end="expired", code="expired", message="too late")
    peer.ping()
    peer.send(m.Status(id=1))
    report = peer.read(m.StatusReport)
    assert report.lines["expired"] == 1
    assert report.lines["done"] == 0
    assert report.live_lines == 0


def test_a_done_line_ends_when_its_lane_is_free(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1))
    peer.read(m.Accepted)
    key = LineKey(welcome.session, 1)
    live.server.tell_first_audio(key, live.house.lines[0].arrived_ns + 20_000_000)
    live.server.tell_ended(LineEnded(key, End.DONE, "", "", True))
    live.settle()
    peer.send(m.Status(id=1))
    before = peer.read(m.StatusReport)
    live.server.tell_freed(key, End.DONE)
    live.settle()
    peer.send(m.Status(id=2))
    after = peer.read(m.StatusReport)
    assert (before.live_lines, before.lines["done"]) == (1, 0)
    assert (after.live_lines, after.lines["done"]) == (0, 1)
    assert after.first_audio_ms_p50 == after.first_audio_ms_p95 == 20.0
    assert (after.batches, after.batch_rows_mean, after.underrun_samples) == (2, 2.5, 7)
    assert after.padding_ratio == 1.25


def test_cancel_is_passed_on_and_an_ended_line_is_unknown(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1))
    peer.read(m.Accepted)
    key = LineKey(welcome.session, 1)
    peer.send(m.Cancel(id=3, line=1))
    assert peer.read() == m.Ok(re=3)
    assert ("cancel", key) in live.house.asked
    live.server.tell_ended(LineEnded(key, End.CANCELLED, "cancelled", "", True))
    assert peer.read() == m.Ended(line=1, end="cancelled", code="cancelled", message="", in_lane=True)
    peer.send(m.Cancel(id=4, line=1))
    assert peer.code() == "unknown-line"


def test_frame_is_passed_on_and_not_answered(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1))
    peer.read(m.Accepted)
    peer.send(m.Frame())
    peer.ping()
    assert ("frame", welcome.session) in live.house.asked


def test_voices_are_listed(live: Live) -> None:
    peer, _ = live.greeted()
    peer.send(m.Voices(id=8))
    answer = peer.read(m.VoiceList)
    assert (answer.re, answer.default) == (8, "af_heart")
    assert [voice.name for voice in answer.voices] == list(live.house.voices.known)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": ""}, "empty-text"),
        ({"text": " \n\t"}, "empty-text"),
        ({"text": "x" * 4001}, "text-too-long"),
        ({"text": "x" * 100_000}, "text-too-long"),
        ({"text": "a\0b"}, "bad-text"),
        ({"text": "a\x1bb"}, "bad-text"),
        ({"text": "a\x85b"}, "bad-text"),
        ({"text": "", "phonemes": "h\x07"}, "bad-phonemes"),
        ({"phonemes": "hə"}, "bad-value"),
        ({"voice": "nobody"}, "unknown-voice"),
        ({"voice": ["nobody", "noone"]}, "unknown-voice"),
    ],
)
def test_a_line_that_cannot_be_spoken_is_refused_once(live: Live, fields: dict[str, Any], code: str) -> None:
    peer, _ = live.greeted()
    peer.send(speak(1, **fields))
    refused = peer.read(m.Ended)
    assert (refused.line, refused.end, refused.code, refused.re) == (1, "refused", code, 101)
    assert refused.message
    peer.send(speak(2, text="Line feed\n, tab\t and return\r are fine. 你好。"))
    assert peer.read(m.Accepted).line == 2
    assert len(live.house.lines) == 1


def test_a_full_text_room_refuses_busy(live: Live) -> None:
    peer, _ = live.greeted()
    live.house.submit_raises = InputError("1024 lines wait", "busy")
    peer.send(speak(1))
    assert peer.read(m.Ended).code == "busy"
    live.house.submit_raises = None
    peer.send(speak(2))
    peer.read(m.Accepted)
    peer.send(m.Status(id=1))
    assert peer.read(m.StatusReport).live_lines == 1


def test_one_session_cannot_queue_without_end(live: Live) -> None:
    peer, _ = live.greeted()
    for line in range(1, MAX_QUEUED_LINES + 2):
        peer.send(speak(line))
    answers = [peer.read() for _ in range(MAX_QUEUED_LINES + 1)]
    assert all(isinstance(answer, m.Accepted) for answer in answers[:-1])
    assert answers[-1].code == "busy"


def test_one_session_too_many_is_told_busy(live: Live) -> None:
    peers = [live.greeted()[0] for _ in range(MAX_SESSIONS)]
    late = live.peer()
    late.send(m.Hello(id=1, protocol=1, token=TOKEN))
    assert late.code() == "busy"
    peers[0].send(m.Bye(id=2))
    assert peers[0].read() == m.Ok(re=2)
    late.hello()


def test_after_bye_a_connection_may_say_hello_again(live: Live) -> None:
    peer, welcome = live.greeted()
    peer.send(speak(1))
    peer.read(m.Accepted)
    peer.send(m.Bye(id=2))
    peer.read(m.Ok)
    assert ("close", welcome.session) in live.house.asked
    live.server.tell_ended(LineEnded(LineKey(welcome.session, 1), End.FAILED, "text-failed", "", False))
    live.settle()
    peer.send(m.Ping(id=3))
    assert peer.code() == "hello-first"
    again = peer.hello()
    assert again.session != welcome.session
    peer.send(m.Status(id=1))
    assert peer.read(m.StatusReport).lines["cancelled"] == 1


def test_a_closed_connection_ends_its_session(live: Live) -> None:
    peer, welcome = live.greeted()
    other, _ = live.greeted()
    peer.socket.close()
    wait_until(lambda: ("close", welcome.session) in live.house.asked, "the session was closed")
    wait_until(lambda: live.house.counts[-1] == 1, "the count of sessions")
    other.ping()


def test_connections_that_break_one_after_another_do_not_pile_up(live: Live) -> None:
    """Each break put off the look at which sessions are gone; after 64 the daemon was busy for nobody."""
    for _ in range(4 * MAX_SESSIONS):
        live.greeted()[0].socket.close()
    wait_until(lambda: live.house.counts[-1] == 0, "all are gone")


def test_a_killed_client_is_no_crash(live: Live, tmp_path: Path) -> None:
    code = (
        "import sys,zmq; s=zmq.Context().socket(zmq.DEALER); s.connect(sys.argv[1]);"
        "s.send(bytes.fromhex(sys.argv[2])); s.recv(); print('up', flush=True); s.recv()"
    )
    hello = m.encode(m.Hello(id=1, protocol=1, token=TOKEN)).hex()
    command = [sys.executable, "-c", code, live.endpoints[-1], hello]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    wait_until(lambda: live.house.counts[-1:] == [0], "its session was closed")
    live.greeted()[0].ping()


def test_a_client_that_does_not_read_loses_its_session(live: Live) -> None:
    live.house.voices.known = tuple(f"voice_{number}" for number in range(500))
    lazy, welcome = live.greeted()
    for _ in range(5_000):
        lazy.send(m.Voices(id=1))
    wait_until(lambda: ("close", welcome.session) in live.house.asked, "the session was closed")
    live.greeted()[0].ping()


def test_a_gone_client_is_told_why(live: Live) -> None:
    peer, welcome = live.greeted()
    live.server.tell_gone(welcome.session, "bad-client", "read_pos 9 of lane 0 must lie in 0 to 4")
    assert peer.read(m.Gone).code == "bad-client"
    wait_until(lambda: ("close", welcome.session) in live.house.asked, "the session was closed")


def test_a_change_of_state_reaches_every_session(live: Live) -> None:
    peers = [live.greeted()[0] for _ in range(3)]
    live.server.tell_state(ModelState("failed", 0.0, 0.0, "not there", "model-missing"))
    for peer in peers:
        told = peer.read(m.State)
        assert (told.state, told.code) == ("failed", "model-missing")


def test_stopping_says_gone_to_all() -> None:
    with live_server() as live:
        peers = [live.greeted()[0] for _ in range(3)]
        live.server.stop()
        assert {peer.read(m.Gone).code for peer in peers} == {"shutting-down"}


def test_a_mistake_of_ours_is_an_error_and_the_thread_goes_on(live: Live) -> None:
    peer, _ = live.greeted()
    live.house.voice_error = ZeroDivisionError("a bug")
    peer.send(m.Status(id=4))
    error = peer.read(m.Error)
    assert (error.re, error.code) == (4, "internal")
    assert "ZeroDivision" not in error.message
    live.server._outbox.post(lambda: 1 // 0)
    peer.ping()
    live.house.submit_raises = ZeroDivisionError("a bug")
    peer.send(speak(1))
    assert peer.read(m.Ended).code == "internal"
    peer.ping()


def test_the_poll_has_no_timeout_while_nothing_is_due(live: Live) -> None:
    live.greeted()[0].ping()
    assert live.server._timeout_ms() is None
    assert server_module.PROBE_S


def test_a_number_that_does_not_grow_leaves_the_line_that_has_it_alone(live: Live) -> None:
    peer, _ = live.greeted()
    peer.send(speak(5))
    peer.read(m.Accepted)
    for line in (5, 4):
        peer.send(speak(line))
        assert peer.code() == "bad-value"
    peer.send(m.Status(id=1))
    assert peer.read(m.StatusReport).live_lines == 1


def test_frames_pile_up_nowhere(live: Live) -> None:
    peer, welcome = live.greeted()
    for line in (1, 2):
        peer.send(speak(line))
        peer.read(m.Accepted)
        for _ in range(100):
            peer.send(m.Frame())
    live.settle()
    peer.send(m.Ping(id=9))
    peer.read(m.Pong)
    assert live.house.asked.count(("frame", welcome.session)) == 2
