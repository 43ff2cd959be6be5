"""The bench: its JSON, the arithmetic of its figures, the stages' probe; and what of the peers' comparison
needs no peer. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gleeman.bench import machine, stages
from gleeman.bench.figures import KEYS, NOT_HERE, Figures, Tick, growth, middle, ratio, rounded, spread
from gleeman.bench.plan import FULL, QUICK, plan_of
from gleeman.bench.script import MIXED, patter

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # benchmarks/ is no part of the package

from benchmarks.peers import plan as peers  # noqa: E402

RUN_TIMEOUT_S = 170


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `gleeman bench`."""
    command = [sys.executable, "-m", "gleeman", "bench", "--model", "babble", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
    )


def last_row(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a run ended with."""
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


# ---- gleeman bench ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One quick run on babble, in a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLEEMAN_HOME", str(tmp_path_factory.mktemp("home")))
        return bench("--quick", "--threads", "2")


def test_the_last_line_is_one_object_with_every_key(quick: subprocess.CompletedProcess[str]) -> None:
    told = last_row(quick)
    assert tuple(told) == (*KEYS, "reasons")


def test_every_null_has_a_reason_and_nothing_else_has(quick: subprocess.CompletedProcess[str]) -> None:
    told = last_row(quick)
    assert set(told["reasons"]) == {key for key in KEYS if told[key] is None}
    assert all(reason for reason in told["reasons"].values())
    assert set(told["reasons"]) == {*NOT_HERE, "device_mb_peak", "dtype"}


def test_the_figures_are_numbers_of_the_run(quick: subprocess.CompletedProcess[str]) -> None:
    told = last_row(quick)
    assert (told["device"], told["threads"]) == ("cpu", 2)
    above_0 = ("rtf_1", "rtf_16", "tick16_cost_ratio", "first_audio_ms_p50", "ready_s", "cancel_ms_p99")
    assert all(told[key] > 0 for key in above_0)
    assert told["first_audio_ms_p50"] <= told["first_audio_ms_p95"]
    assert told["lane_us_p50"] <= told["lane_us_p99"]
    assert told["padding_ratio"] == 1  # babble makes its rows one by one
    assert [tick[:2] for tick in told["ticks"]] == [["short", 1], ["short", 4], ["short", 16]]


def test_people_see_tables_before_it(quick: subprocess.CompletedProcess[str]) -> None:
    shown = quick.stdout.splitlines()
    assert any("16 short" in row for row in shown)
    assert any("first_audio_ms_p50" in row for row in shown[:-1])
    assert "first audio" in quick.stderr


@pytest.mark.usefixtures("home")
def test_the_profile_writes_a_trace_that_viewers_open(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = bench("--quick", "--json", "--profile", trace)
    assert len(done.stdout.splitlines()) == 1
    told = last_row(done)
    assert told["trace"] == str(trace)
    assert [batch["rows"] for batch in told["batches"]] == [1, 4, 16, 16, 16]
    assert all(tuple(batch["stages_ms"]) == stages.STAGES for batch in told["batches"])
    # Chrome's trace format: complete events have a name, a phase X, a start and a duration
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X" and event["name"] == "batch of 4"]
    assert spans
    assert all(span["dur"] >= 0 and "ts" in span for span in spans)


@pytest.mark.usefixtures("home")
def test_a_bench_without_weights_says_what_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLEEMAN_HOME", str(tmp_path / "empty"))
    done = bench("--quick", "--model", "kokoro", "--json")
    assert done.returncode == 1
    assert "gleeman: model-missing: " in done.stderr.splitlines()[-1]
    assert "models fetch" in done.stderr


# ---- figures ---------------------------------------------------------------------------------------------


def test_percentiles_are_the_nearest_rank() -> None:
    assert spread([*range(1, 101)], 50, 95, 99) == (50, 95, 99)
    assert spread([3.0, 1.0, 2.0], 50, 99) == (2.0, 3.0)
    assert spread([], 50) == (None,)


def test_ratios_and_medians_of_nothing_are_none() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(None, 2.0) is ratio(3.0, None) is ratio(3.0, 0.0) is None
    assert middle([5.0, 1.0, 2.0]) == 2.0
    assert middle([]) is None


def test_a_ticks_cost_is_compared_with_the_same_lines_alone() -> None:
    tick = Tick("short", 16, seconds=4.0, speech_s=20.0, alone_s=8.0)
    assert (tick.rtf, tick.line_ms, tick.cost_ratio) == (0.2, 250.0, 0.5)
    assert Tick("long", 1, 4.0, 20.0).cost_ratio is None


def test_growth_is_counted_from_two_hundred_lines_or_a_tenth_of_them() -> None:
    series = [(8, 500.0), (200, 510.0), (1000, 530.0), (2000, 535.0)]
    assert growth(series) == 25.0
    assert growth([*series, (10_000, 540.0)]) == 30.0
    assert growth([(8, 500.0), (16, 501.0), (100, 504.0)]) == 3.0
    assert growth([(8, 500.0)]) is growth([]) is None


def test_figures_keep_four_digits_at_any_size() -> None:
    assert rounded(0.123456) == 0.1235
    assert rounded({"a": [123456.0, 7, "x"]}) == {"a": [123500.0, 7, "x"]}


def test_a_figure_that_was_not_told_is_null_with_a_reason() -> None:
    figures = Figures()
    figures.tell("rtf_1", 0.25)
    figures.tell("device_mb_peak", None, "runs on the CPU")
    told = figures.report()
    assert told["rtf_1"] == 0.25
    assert told["reasons"]["device_mb_peak"] == "runs on the CPU"
    assert told["reasons"]["enrol_ms"] == NOT_HERE["enrol_ms"]
    assert set(told["reasons"]) == set(KEYS) - {"rtf_1"}
    with pytest.raises(KeyError):
        figures.tell("rtf_2", 1.0)


def test_a_quick_plan_does_less_of_everything() -> None:
    assert QUICK.first_runs < FULL.first_runs == 30
    assert set(QUICK.tick_sizes) < set(FULL.tick_sizes) == {1, 4, 8, 16, 32}
    assert plan_of(True, None) == QUICK
    assert plan_of(False, 2000).lines == 2000


def test_the_lines_of_the_memory_run_never_repeat() -> None:
    texts = patter()
    some = [next(texts) for _ in range(500)]
    assert len(set(some)) == 500
    assert len(MIXED) == 16


# ---- the machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        ("sse2 avx2 avx512f avx512_bf16 avx512_vnni", "avx512 bf16 vnni"),
        ("sse2 avx2 avx_vnni", "avx2 vnni"),
        ("avx2 avx512f avx512_bf16 avx512_vnni amx_tile", "avx512 bf16 vnni amx"),
        ("asimd bf16", "neon bf16"),
        ("", "x86_64"),
    ],
)
def test_the_instruction_set_is_named_by_what_the_engine_can_use(flags: str, isa: str) -> None:
    assert machine.isa_of(flags.split(), "x86_64") == isa


def test_device_memory_is_read_from_the_rows_of_the_process() -> None:
    table = "17, 400\n99, 1000\n17, 100\n"
    assert machine.used_by(17, table) == pytest.approx(500 * 1.048576)
    assert machine.used_by(5, table) is None
    assert machine.used_by(17, "17, [N/A]\n") is None


# ---- the probe -------------------------------------------------------------------------------------------


class FakeModel:
    """Two stages, one inside the other."""

    def read(self) -> str:
        """The outer one."""
        return self.curves() + " read"

    def curves(self) -> str:
        """The inner one."""
        time.sleep(0.02)
        return "curves"


def test_a_stages_time_is_its_own_only_and_the_probe_leaves_nothing_behind() -> None:
    model = FakeModel()
    probe = stages.Probe(model)
    with probe.placed():
        assert model.read() == "curves read"
    spent = probe.take()
    assert spent["curves"] >= 20
    assert spent["read"] < spent["curves"]
    assert not vars(model)
    model.read()
    assert probe.take() == {}


# ---- the peers -------------------------------------------------------------------------------------------

CASES = peers.cases([1, 2])


def test_the_order_is_shuffled_by_its_seed_and_holds_each_case_once_a_round() -> None:
    plan = peers.order(CASES, 7, seed=1)
    assert plan == peers.order(CASES, 7, seed=1)
    assert plan != peers.order(CASES, 7, seed=2)
    rounds = [plan[start : start + len(CASES)] for start in range(0, len(plan), len(CASES))]
    assert len(rounds) == 7
    assert all(set(each) == set(CASES) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_one_slow_run_does_not_move_a_median() -> None:
    case = CASES[0]
    runs = [peers.Run(case, seconds, 5.0) for seconds in (1.0, 1.1, 90.0)]
    assert peers.medians(runs)[case] == peers.Run(case, 1.1, 5.0)


def test_the_peers_last_line_has_both_ratios_and_each_engine() -> None:
    took = {"gleeman": 1.0, "kokoro": 2.0, "kokoro-onnx": 1.6}
    runs = [peers.Run(case, took[case.engine] * 2 / case.threads, 5.0) for case in CASES for _ in range(3)]
    about = {"gleeman": {"dtype": "float32"}, "kokoro": {"wer": 0.0}}
    told = json.loads(json.dumps(peers.report(runs, {"isa": "avx2"}, 150e9, about)))
    assert told["ratio_kokoro"] == 0.5
    assert told["ratio_kokoro_onnx"] == 0.625
    assert told["ratio_kokoro_fast"] is told["ratio_kokoro_onnx_fast"] is None
    assert set(told["reasons"]) == {"ratio_kokoro_fast", "ratio_kokoro_onnx_fast"}
    assert (told["isa"], told["dtype"], told["threads"], told["runs"]) == ("avx2", "float32", 2, 3)
    assert told["engines"]["gleeman"] == {
        "rtf_1": 0.4,
        "rtf_2": 0.2,
        "best_1": 0.4,
        "best_2": 0.2,
        "gmac_s": 150.0,
        "seconds": 1.0,
        "speech_s": 5.0,
        "dtype": "float32",
    }
    assert told["engines"]["kokoro"]["wer"] == 0.0
