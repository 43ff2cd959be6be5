"""What is told while a model loads, and what is remembered of it."""

from __future__ import annotations

import json

import pytest

from gleeman.errors import Failure
from gleeman.tick import loading
from tick_helpers import FakePipeline, ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def load(pipeline, clock, times):
    states = []
    error = loading.load(pipeline, states.append, clock, times)
    return states, error


def test_states_come_in_order_and_progress_only_grows(tmp_path, clock):
    states, error = load(FakePipeline("m", clock), clock, tmp_path / "t.json")
    assert error is None
    assert [state.state for state in states] == ["loading", "loading", "warming", "ready"]
    progress = [state.progress for state in states]
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == (0.0, 1.0)


def test_the_first_estimate_is_the_stated_one_and_the_next_what_was_measured(tmp_path, clock):
    times = tmp_path / "folder" / "t.json"
    states, _ = load(FakePipeline("m", clock), clock, times)
    assert states[0].eta_s == loading.FIRST_LOAD_S
    assert json.loads(times.read_text()) == {"m": 2.0}
    states, _ = load(FakePipeline("m", clock), clock, times)
    assert [state.eta_s for state in states] == [2.0, 2.0, 0.0, 0.0]
    assert list(times.parent.iterdir()) == [times]


def test_times_of_other_models_are_kept(tmp_path, clock):
    times = tmp_path / "t.json"
    times.write_text('{"other": 5}')
    load(FakePipeline("m", clock), clock, times)
    assert loading.read_seconds(times) == {"other": 5.0, "m": 2.0}


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"m": "x"}',
        b'{"m": -1}',
        b'{"m": NaN}',
        b'{"m": 1e99}',
        b"[" * 100000,
    ],
)
def test_a_file_of_nonsense_is_no_failure(tmp_path, clock, junk):
    times = tmp_path / "t.json"
    times.write_bytes(junk)
    states, error = load(FakePipeline("m", clock), clock, times)
    assert error is None
    assert states[0].eta_s == loading.FIRST_LOAD_S


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path, clock):
    (tmp_path / "file").write_text("")
    states, error = load(FakePipeline("m", clock), clock, tmp_path / "file" / "t.json")
    assert error is None
    assert states[-1].state == "ready"


def test_a_failure_is_told_with_its_code_and_sentence(tmp_path, clock):
    pipeline = FakePipeline("m", clock)
    pipeline.load_error = Failure("run `gleeman models fetch m`", "model-missing")
    states, error = load(pipeline, clock, tmp_path / "t.json")
    assert error is pipeline.load_error
    assert states[-1].state == "failed"
    assert (states[-1].code, states[-1].message) == ("model-missing", "run `gleeman models fetch m`")
    assert not (tmp_path / "t.json").exists()


def test_any_other_error_becomes_model_failed(tmp_path, clock):
    pipeline = FakePipeline("m", clock)
    pipeline.load_error = RuntimeError("out of memory")
    states, error = load(pipeline, clock, tmp_path / "t.json")
    assert error.code == states[-1].code == "model-failed"
    assert "out of memory" in states[-1].message
