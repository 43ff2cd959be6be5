"""Connecting, being refused, losing the daemon and finding the next: against a daemon made by the test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from client_helpers import WAIT_S, FakeDaemon, fake_daemon, ramp, until
from gleeman.client import Client, session, tables
from gleeman.errors import Failure, GleemanError, InputError
from gleeman.records import End
from gleeman.shm import layout
from gleeman.wire import messages as m

pytestmark = pytest.mark.usefixtures("home")


@contextlib.contextmanager
def client_and_its_first_daemon() -> Iterator[tuple[Client, FakeDaemon]]:
    """The test may take the daemon away."""
    with fake_daemon() as daemon, Client.connect() as client:
        yield client, daemon


def test_without_a_daemon_connect_says_how_to_get_one() -> None:
    with pytest.raises(Failure, match="gleeman serve") as raised:
        Client.connect()
    assert raised.value.code == "no-daemon"


@pytest.mark.parametrize("bad", [{"rate_hz": 8_000}, {"while_loading": "hum"}, {"name": "x" * 200}])
def test_bad_arguments_are_refused_before_anything_is_done(bad: dict[str, object]) -> None:
    with pytest.raises(InputError) as raised:
        Client.connect(**bad)  # type: ignore[arg-type]
    assert raised.value.code == "bad-value"


def test_a_bad_instance_name_is_the_callers_mistake() -> None:
    with pytest.raises(InputError) as raised:
        Client.connect(instance="../x")
    assert raised.value.code == "bad-value"


def test_a_wrong_token_is_told() -> None:
    with fake_daemon(token="0" * 64), pytest.raises(Failure) as raised:
        Client.connect()
    assert raised.value.code == "bad-token"


def test_another_protocol_is_told_with_both_numbers() -> None:
    with fake_daemon(protocol=2), pytest.raises(InputError, match=r"protocol 2.*asked for 1") as raised:
        Client.connect()
    assert raised.value.code == "bad-protocol"


def test_a_failed_connect_leaves_no_thread() -> None:
    with fake_daemon(token="0" * 64), pytest.raises(GleemanError):
        Client.connect()
    assert [thread.name for thread in threading.enumerate() if thread.name == "gleeman-client"] == []


def test_a_connected_client_knows_its_session() -> None:
    with fake_daemon() as daemon, Client.connect(rate_hz=48_000, name="a test") as client:
        assert (client.session, client.rate_hz, client.daemon_pid) == (7, 48_000, daemon.discovery.pid)
        assert client.state.state == "ready"
        client.wait_ready(0)
        assert client.ping() > 0
        assert [voice.name for voice in client.voices()] == ["af_heart"]
        hello = daemon.received[0]
        assert isinstance(hello, m.Hello)
        assert (hello.client, hello.rate_hz) == ("a test", 48_000)
        until(lambda: daemon.mapping.u64[layout.H_CLIENT_BEAT // 8] > 0)


def test_the_models_state_is_kept_up_to_date() -> None:
    with fake_daemon() as daemon, Client.connect() as client:
        daemon.send(m.State(state="loading", progress=0.5, eta_s=2.0))
        until(lambda: client.state.state == "loading")
        with pytest.raises(Failure, match="loading") as raised:
            client.wait_ready(0.01)
        assert raised.value.code == "timeout"
        daemon.send(m.State(state="failed", progress=0.5, eta_s=0, message="gone bad", code="model-damaged"))
        with pytest.raises(Failure, match="gone bad") as raised:
            client.wait_ready(WAIT_S)
        assert raised.value.code == "model-damaged"


def test_a_question_without_an_answer_times_out() -> None:
    with fake_daemon() as daemon, Client.connect() as client:
        with pytest.raises(Failure) as raised:
            client.status(timeout_s=0.05)
        assert raised.value.code == "timeout"
        assert isinstance(daemon.received[-1], m.Status)


def test_a_dead_daemons_lane_plays_out_and_the_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "WAIT_FOR_DAEMON_NS", 200_000_000)
    with fake_daemon() as daemon, Client.connect() as client:
        begun, whole, unheard, unsent = (client.speak(text) for text in ("One.", "Two.", "Three.", "Four."))
        until(lambda: len(daemon.speaks()) == 4)
        daemon.give(begun.id, ramp(1_000), lane=0)
        daemon.give(whole.id, ramp(500), lane=1, end=End.DONE)
        daemon.give(unheard.id, ramp(700), lane=2)
        until(lambda: unheard.first_audio_ms is not None)
        heard = begun.read(100)
        daemon.die()
        until(lambda: client.state.state == "gone")
        assert np.array_equal(np.concatenate([heard, begun.audio(WAIT_S)]), ramp(1_000))
        assert (begun.end, begun.code, begun.heard) == (End.LOST, "lost", 1_000)
        assert np.array_equal(whole.audio(WAIT_S), ramp(500))
        assert whole.end is End.DONE
        # Nobody has heard anything of these: they wait for another daemon, in vain.
        assert unheard.wait(WAIT_S) is End.LOST
        assert unsent.wait(WAIT_S) is End.LOST
        assert unheard.heard == 0
        with pytest.raises(Failure) as raised:
            client.ping()
        assert raised.value.code == "no-daemon"


def test_what_had_not_begun_is_said_by_the_next_daemon() -> None:
    with client_and_its_first_daemon() as (client, old):
        lines = [client.speak("One."), client.speak("Two.")]
        until(lambda: len(old.speaks()) == 2)
        client.frame()
        old.die()
        later = client.speak("Three.")
        with fake_daemon() as new:
            until(lambda: len(new.speaks()) == 3)
            assert [each.line for each in new.speaks()] == [line.id for line in [*lines, later]]
            until(lambda: any(isinstance(each, m.Frame) for each in new.received))
            assert client.daemon_pid == new.discovery.pid
            new.give(lines[0].id, ramp(100), end=End.DONE)
            assert np.array_equal(lines[0].audio(WAIT_S), ramp(100))
            client.close()


def test_a_daemon_that_says_gone_is_left() -> None:
    with client_and_its_first_daemon() as (client, old):
        line = client.speak("One.")
        until(lambda: old.speaks())
        old.send(m.Gone(code="shutting-down", message="the daemon is going down"))
        until(lambda: client.state.state == "gone")
        time.sleep(0.1)
        assert sum(isinstance(each, m.Hello) for each in old.received) == 1  # though it is still there
        with fake_daemon() as new:
            until(lambda: new.speaks())
            assert new.speaks()[0].line == line.id
            client.close()


def test_a_deadline_goes_on_while_no_daemon_is_there() -> None:
    with client_and_its_first_daemon() as (client, old):
        old.die()
        until(lambda: client.state.state == "gone")
        late = client.speak("Too late.", deadline_ms=1)
        soon = client.speak("In time.", deadline_ms=60_000)
        time.sleep(0.01)
        with fake_daemon() as new:
            until(lambda: new.speaks())
            assert (late.end, late.code) == (End.EXPIRED, "expired")
            assert [each.line for each in new.speaks()] == [soon.id]
            assert 0 < new.speaks()[0].deadline_ms < 60_000
            client.close()


def test_a_daemon_that_stands_still_gets_nothing_new_until_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "STILL_NS", 200_000_000)
    with fake_daemon() as daemon, Client.connect() as client:
        line = client.speak("One.")
        until(lambda: daemon.speaks())
        daemon.give(line.id, ramp(100), end=End.DONE)
        daemon.beats = False
        until(lambda: client.state.state == "stalled")
        held = client.speak("Two.")
        assert np.array_equal(line.audio(WAIT_S), ramp(100))
        client.ping()
        assert len(daemon.speaks()) == 1
        daemon.beats = True
        until(lambda: len(daemon.speaks()) == 2)
        assert client.state.state == "ready"
        assert held.end is None


def test_a_daemon_that_has_forgotten_us_is_greeted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ended unheard once left its client stalled for ever."""
    monkeypatch.setattr(session, "STILL_NS", 200_000_000)
    with fake_daemon() as daemon, Client.connect() as client:
        line = client.speak("One.")
        until(lambda: daemon.speaks())
        daemon.beats, daemon.forgets = False, True
        until(lambda: len(daemon.speaks()) == 2)  # said again in the new session
        daemon.beats = True
        daemon.give(line.id, ramp(100), end=End.DONE)
        assert np.array_equal(line.audio(WAIT_S), ramp(100))
        assert line.end is End.DONE


def test_numbers_of_other_libraries_are_numbers() -> None:
    with fake_daemon() as daemon, Client.connect() as client:
        client.speak("One.", speed=np.float64(1.5), pitch=np.float32(2), seed=np.int64(7))  # type: ignore[arg-type]
        until(lambda: daemon.speaks())
        (speak,) = daemon.speaks()
        assert (speak.speed, speak.pitch, speak.seed) == (1.5, 2.0, 7)


@pytest.mark.parametrize("wrong", [{"name": "\udcff"}, {"name": 5}, {"name": "a\0"}, {"instance": 5}])
def test_a_name_that_cannot_be_sent_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        Client.connect(**wrong)
    assert raised.value.code == "bad-value"


def end_process(pid: int) -> None:
    """End an autostarted daemon that is nobody's child to wait for."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.terminate()
        process.wait(WAIT_S)


def test_two_clients_that_start_a_daemon_at_once_share_one(home: Path) -> None:
    clients: list[Client] = []
    arguments = ("--model", "babble", "--log-level", "warning")

    def connect() -> None:
        clients.append(Client.connect(arguments, timeout_s=30))

    threads = [threading.Thread(target=connect) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    try:
        assert len(clients) == 2
        assert clients[0].daemon_pid == clients[1].daemon_pid
        assert all(client.speak("Hello.").audio(WAIT_S).size for client in clients)
    finally:
        pids = {client.daemon_pid for client in clients}
        for client in clients:
            client.close()
        for pid in pids:
            end_process(pid)
        for child in psutil.Process().children():  # the second one, if it comes up only now
            end_process(child.pid)


def test_a_daemon_that_cannot_be_started_is_told() -> None:
    with pytest.raises(Failure, match="status") as raised:
        Client.connect(("--no-such-flag",), timeout_s=30)
    assert raised.value.code == "no-daemon"
