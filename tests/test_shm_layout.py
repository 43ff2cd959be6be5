"""The layout adds up, and its drawing, its golden bytes and SHM.md say the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gleeman.shm import layout
from gleeman.shm.mapping import ClientMapping, DaemonMapping
from shm_helpers import ramp

SPEC = Path(__file__).parents[1] / "bindings" / "spec"
SIZES = {"u64": 8, "u32": 4, "u16": 2, "f32": 4}


@pytest.fixture(scope="module")
def vectors():
    return json.loads((SPEC / "vectors" / "layout.json").read_text(encoding="utf-8"))


def test_the_golden_layout_is_current():
    done = subprocess.run([sys.executable, str(SPEC / "make_layout.py"), "--check"], timeout=60, check=False)
    assert done.returncode == 0, "run `python bindings/spec/make_layout.py`"


def test_parts_follow_one_another_without_gaps():
    assert (layout.LANE_HEADS, layout.EVENT_RINGS, layout.SAMPLE_RINGS) == (4096, 20_480, 282_624)
    assert layout.TOTAL_BYTES == 17_059_840
    assert layout.EVENT.size == layout.EVENT_BYTES
    for ring in (layout.CAPACITY, layout.EVENTS):
        assert ring & (ring - 1) == 0


@pytest.mark.parametrize("part", ["header", "lane", "event"])
def test_fields_are_aligned_and_do_not_overlap(vectors, part):
    end = 0
    for field in vectors[part]:
        assert field["offset"] % SIZES[field["type"]] == 0
        assert field["offset"] >= end
        end = field["offset"] + SIZES[field["type"]]
    if part == "lane":  # writers share no line of 128 bytes
        writer = {}
        for field in vectors[part]:
            who = field["writer"].split(",")[0]
            assert writer.setdefault(field["offset"] // 128, who) == who


def test_a_mapping_holds_the_golden_header(vectors, tmp_path):
    golden = vectors["golden"]["header"]
    values = golden["values"]
    daemon = DaemonMapping.create(values["session_id"], values["rate_hz"], values["client_pid"], [tmp_path])
    try:
        daemon.beat(values["feeder_beat"], values["engine_progress"], bool(values["engine_busy"]))
        client = ClientMapping.open(daemon.path, layout.TOTAL_BYTES)
        for _ in range(values["client_beat"]):
            client.beat()
        found = bytearray(client.raw[:512])
        expected = bytes.fromhex(golden["first_512_bytes"])
        for begin, end in ((40, 44), (48, 56)):  # the daemon's pid and start are this process's
            found[begin:end] = expected[begin:end]
        assert bytes(found) == expected
        client.close()
    finally:
        daemon.remove()


def test_lane_fields_lie_in_the_drawing_order(vectors):
    golden = vectors["golden"]["lane"]
    raw = memoryview(bytes.fromhex(golden["bytes"]))
    for field in vectors["lane"]:
        size = SIZES[field["type"]]
        value = int.from_bytes(raw[field["offset"] : field["offset"] + size], "little")
        assert value == golden["values"][field["name"]]


def test_the_page_names_every_field_with_its_offset_and_type(vectors):
    page = (SPEC / "SHM.md").read_text(encoding="utf-8")
    rows = {
        (name, int(offset), kind)
        for offset, name, kind in re.findall(r"^\| \+?(\d+) \| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    }
    for part in ("header", "lane", "event"):
        for field in vectors[part]:
            assert (field["name"], field["offset"], field["type"]) in rows, field
    assert len(rows) == sum(len(vectors[part]) for part in ("header", "lane", "event"))


def test_sample_rings_lie_where_the_page_says(tmp_path):
    daemon = DaemonMapping.create(1, 24_000, 0, [tmp_path])
    try:
        daemon.samples[31][:4] = ramp(1, 4)
        at = layout.SAMPLE_RINGS + 31 * layout.SAMPLE_RING_BYTES
        assert bytes(daemon.raw[at : at + 16]) == ramp(1, 4).tobytes()
    finally:
        daemon.remove()
