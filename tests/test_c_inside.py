"""The C client's inner parts against the golden bytes, and under damage."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from c_helpers import NATIVE, ROOT, compile_c, sanitizer_env
from gleeman.shm import layout
from gleeman.wire import messages as m

VECTORS = json.loads((ROOT / "bindings" / "spec" / "vectors" / "messages.json").read_text())
FROM_DAEMON = [v for v in VECTORS["messages"] if v["direction"] == "from_daemon"]
TYPES = (
    "broken unknown welcome error ok accepted clauses ended state voice_list status_report pong gone".split()
)
ENDS = ["", "done", "cancelled", "expired", "failed", "refused", "lost"]
STATES = ["", "loading", "warming", "ready", "failed"]
GREETING = "ff00000000000000017f03014e554c4c" + "00" * 48
READY = "041c" + b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER".hex()
PONG = b"\x04PONG".hex()
TOKEN = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("c") / "inside", "checked", NATIVE / "c_inside.c")


def ask(program: Path, *commands: str) -> list[list[str]]:
    """The lines of output of each command."""
    done = subprocess.run(
        [str(program)],
        input="".join(f"{command}\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=60,
        env=sanitizer_env(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[list[str]] = [[]]
    for line in done.stdout.split("\n")[:-1]:
        if line == "end":
            answers.append([])
        else:
            answers[-1].append(line)
    return answers[:-1]


def decoded(line: str) -> dict[str, Any]:
    found: dict[str, Any] = {"clauses": []}
    for field in line.split("\t"):
        name, value = field.split("=", 1)
        if name == "clause":
            found["clauses"].append(value)
        else:
            found[name] = value
    return found


def test_the_layout_is_that_of_the_daemon(program: Path) -> None:
    rows = dict(line.split("\t") for line in ask(program, "layout")[0])
    assert rows.pop("event") == "0 8 10 12 16 20 24 28"
    assert layout.EVENT.size == 32
    for name, value in rows.items():
        assert int(value) == getattr(layout, name), name
    constants = {name for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)}
    assert constants - rows.keys() == {"HEADER", "HEADER_BYTES", "MASK", "EVENT_MASK"}
    written = json.loads((ROOT / "bindings" / "spec" / "vectors" / "layout.json").read_text())
    for prefix, fields in (("H_", written["header"]), ("L_", written["lane"])):
        for field in fields:
            assert int(rows[prefix + field["name"].upper()]) == field["offset"]
    for name in ("magic", "total_bytes", "lanes", "capacity", "events", "lane_heads", "event_rings"):
        assert int(rows[name.upper()]) == written[name]


def test_what_c_encodes_the_daemon_reads(program: Path) -> None:
    rows = dict(line.split("\t") for line in ask(program, "encode")[0])
    read = {name: m.decode_from_client(bytes.fromhex(rows[name])) for name in list(rows)[:7]}
    text = "Grüß dich, 旅人! 🍺"
    rest: dict[str, Any] = {
        "voice": "old_smith",
        "emotion": "angry",
        "intensity": 0.5,
        "speed": 1.25,
        "pitch": -2.0,
        "energy": 3.5,
        "language": "en-gb",
        "deadline_ms": 250,
    }
    most = (1 << 63) - 1
    assert read["speak, every field"] == m.Speak(
        id=most, line=most, text=text, priority="immediate", seed=most, **rest
    )
    assert read["speak, phonemes"] == m.Speak(id=2, line=2, phonemes=text, priority="background", **rest)
    token = "00112233445566778899aabbccddeeff" * 2
    assert read["hello"] == m.Hello(
        id=1, protocol=1, token=token, client="Tavern", pid=4242, rate_hz=48_000, while_loading="babble"
    )
    assert read["cancel"] == m.Cancel(id=(1 << 63) | 1, line=1)
    assert read["frame"] == m.Frame()
    assert read["voices"] == m.Voices(id=(1 << 62) | 6)
    assert read["bye"] == m.Bye(id=(1 << 64) - 1)
    assert rows["too small"] == ""
    assert rows["greeting"] == "ff00000000000000007f03004e554c4c" + "00" * 48
    assert rows["ready"] == "0429" + b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0".hex()


@pytest.mark.parametrize("vector", FROM_DAEMON, ids=lambda v: v["name"])
def test_golden_messages_are_read(program: Path, vector: dict[str, Any]) -> None:
    ((line,),) = ask(program, f"decode {vector['hex']}")
    got, fields = decoded(line), vector["fields"]
    assert TYPES[int(got["type"])] == fields["type"]
    for name in ("line", "seed", "protocol", "session", "mapping_bytes", "rate_hz", "lanes"):
        if name in fields and fields["type"] != "status_report":
            assert int(got[name]) == fields[name], name
    if fields["type"] in ("welcome", "error", "ok", "pong", "status_report"):
        assert int(got["re"]) == fields["re"]
    if fields["type"] in ("welcome", "state"):
        assert STATES[int(got["state"])] == fields["state"]
        assert float(got["progress"]) == fields["progress"]
    if fields["type"] in ("error", "ended", "state", "gone"):
        assert (got["code"], got["text"]) == (fields.get("code", ""), fields.get("message", ""))
    if fields["type"] == "welcome":
        assert got["mapping"] == fields["mapping"]
    if fields["type"] == "accepted":
        assert (got["text"], int(got["list"])) == (fields["voice"], len(fields.get("warnings", [])))
    if fields["type"] == "ended":
        assert ENDS[int(got["end"])] == fields["end"]
        assert bool(int(got["in_lane"])) == fields.get("in_lane", False)
    if fields["type"] == "clauses":
        rows = [f"{c['begin']} {c['end']} {c['ms']:.17g} {c['spoken']}" for c in fields["clauses"]]
        assert got["clauses"] == rows
    if fields["type"] == "voice_list":
        assert (got["text"], int(got["list"])) == (fields["default"], len(fields["voices"]))


@pytest.mark.parametrize("vector", FROM_DAEMON, ids=lambda v: v["name"])
def test_a_message_cut_short_anywhere_is_broken(program: Path, vector: dict[str, Any]) -> None:
    whole = vector["hex"]
    cuts = [f"decode {whole[:at]}" for at in range(2, len(whole), 2)]
    assert {decoded(line)["type"] for (line,) in ask(program, *cuts)} == {"0"}


def test_unknown_fields_are_skipped_and_unknown_types_passed_over(program: Path) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep, {"a": -1, "b": 1.5, "c": None, "d": b"\0" * 300}]
    ended = {"new": deep, "line": 7, "end": "failed", "code": "x", "message": "y", "type": "ended"}
    pack = msgspec.msgpack.encode
    deepest = b"\x91" * 100_000 + b"\xc0"
    answers = ask(
        program,
        f"decode {pack(ended).hex()}",
        f"decode {pack({'type': 'sonnet', 'x': 1}).hex()}",
        f"decode {deepest.hex()}",
        "decode dfffffffff",
        "decode 81a474797065dbffffffff61",
        f"decode {pack({'type': 'ended', 'line': -1, 'end': 'done', 'code': '', 'message': ''}).hex()}",
        f"decode {pack({'type': 'ended', 'line': 1, 'end': 'never', 'code': '', 'message': ''}).hex()}",
        f"decode {(pack({'type': 'pong', 're': 1}) + b'!').hex()}",
    )
    types = [TYPES[int(decoded(line)["type"])] for (line,) in answers]
    assert types == ["ended", "unknown", "broken", "broken", "broken", "broken", "broken", "broken"]
    assert decoded(answers[0][0])["line"] == "7"


def test_zmtp_frames_come_out_whatever_they_are_cut_into(program: Path) -> None:
    ping = "0408" + b"\x04PING\0\x0a".hex() + "58"
    long = "020000000000000100" + "61" * 256
    said = ask(
        program,
        f"zmtp {GREETING}{READY}0003616263{long}{ping}0000",
        f"zmtp {GREETING}{READY}0101610101620001630001640003616263",
        f"zmtp {GREETING}{READY}0406{PONG}00",
    )
    assert said[0] == [f"other ready message:3 message:256 pong:0406{PONG}58 message:0 waits"]
    assert said[1] == ["other ready other other other message:1 message:3 waits"]
    assert said[2] == ["other ready other waits"]


@pytest.mark.parametrize(
    ("what", "bytes_"),
    [
        ("not ZMTP", "47455420"),
        ("ZMTP 2", "ff00000000000000017f02"),
        ("another mechanism", "ff00000000000000017f0301" + b"CURVE".hex() + "00" * 47),
        ("a message before READY", GREETING + "000161"),
        ("a DEALER", GREETING + "041c" + b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER".hex()),
        ("READY twice", GREETING + READY + READY),
        ("a property longer than its command", GREETING + "0408" + b"\x05READY\x0b".hex() + "00"),
        ("a frame over the ceiling", GREETING + READY + "020000000000100001"),
        ("a frame of 2^64 - 1 bytes", GREETING + READY + "02ffffffffffffffff"),
        ("a command with more to come", GREETING + READY + "050161"),
        ("unknown flags", GREETING + READY + "080161"),
        ("an ERROR", GREETING + "0407" + b"\x05ERROR\0".hex()),
        ("a PING that is too long", GREETING + READY + "0418" + b"\x04PING".hex() + "00" * 19),
    ],
)
def test_broken_zmtp_ends_the_connection(program: Path, what: str, bytes_: str) -> None:
    ((line,),) = ask(program, f"zmtp {bytes_}")
    assert line.endswith("broken"), what


def discovery(**changes: Any) -> str:
    fields = {
        "protocol": 1,
        "minor": 0,
        "version": "0.1.0",
        "pid": 42,
        "start_ns": (1 << 64) - 1,
        "endpoints": ["ipc:///run/gleeman-1.ipc", "tcp://127.0.0.1:4000"],
        "token": TOKEN,
        "model": "kokoro",
    }
    return json.dumps(fields | changes)


def test_discovery_files_are_read(program: Path) -> None:
    good = f"1 42 18446744073709551615 {TOKEN} ipc:///run/gleeman-1.ipc tcp://127.0.0.1:4000"
    texts = {
        discovery(): good,
        " \n" + discovery(later={"a": [1, {"b": 'x"]}'}], "c": None}, more=[[], -1.5e3, True]) + "\n": good,
        discovery(endpoints=["ipc:///ä/\U0001f37a"]): good.split(" ipc")[0] + " ipc:///ä/\U0001f37a",
        discovery(endpoints=["x" * 300, "tcp://127.0.0.1:1"]): good.split(" ipc")[0] + " tcp://127.0.0.1:1",
        discovery(endpoints=[]): "refused",
        discovery(pid=0): "refused",
        discovery(pid=1 << 32): "refused",
        discovery(start_ns=1 << 64): "refused",
        discovery(start_ns=-1): "refused",
        discovery(token=TOKEN + "0"): "refused",
        discovery(token="short"): "refused",
        discovery(x=json.loads("[" * 30 + "]" * 30)): "refused",
        discovery()[:-1]: "refused",
        "{}": "refused",
        "": "refused",
        "[" * 5000: "refused",
    }
    answers = ask(program, *(f"discovery {text.encode().hex()}" for text in texts))
    assert [line for (line,) in answers] == list(texts.values())


def test_an_older_and_a_newer_options_struct_are_taken(program: Path) -> None:
    ((line,),) = ask(program, "old_options")
    assert line == "1 1 2 0 1 0 1 1"


def test_damaged_bytes_crash_nothing(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "fuzz", "checked", NATIVE / "c_fuzz.c")
    seeds = [f"message {v['hex']}" for v in VECTORS["messages"] + VECTORS["malformed"] if v["hex"]]
    seeds += [f"discovery {discovery().encode().hex()}"] * 4
    done = subprocess.run(
        [str(program), "20261201", "40000"],
        input="\n".join(seed for seed in seeds if len(seed) < 8000) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        env=sanitizer_env(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[0]) > 300  # the damage is small enough that much is still read
