"""Writes vectors/layout.json: the mapping as numbers and golden bytes, for tests of every language.

python bindings/spec/make_layout.py            write it
python bindings/spec/make_layout.py --check    exit 1 when the file is not current
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "daemon"))

from gleeman.records import End, EventType, Viseme
from gleeman.shm import layout

OUTPUT = Path(__file__).with_name("vectors") / "layout.json"

# name, offset, type, who writes it
HEADER = [
    ("magic", layout.H_MAGIC, "u64", "daemon, once"),
    ("total_bytes", layout.H_TOTAL_BYTES, "u64", "daemon, once"),
    ("session_id", layout.H_SESSION_ID, "u64", "daemon, once"),
    ("lanes", layout.H_LANES, "u32", "daemon, once"),
    ("rate_hz", layout.H_RATE_HZ, "u32", "daemon, once"),
    ("capacity", layout.H_CAPACITY, "u32", "daemon, once"),
    ("events", layout.H_EVENTS, "u32", "daemon, once"),
    ("daemon_pid", layout.H_DAEMON_PID, "u32", "daemon, once"),
    ("client_pid", layout.H_CLIENT_PID, "u32", "daemon, once"),
    ("start_ns", layout.H_START_NS, "u64", "daemon, once"),
    ("layout_version", layout.H_LAYOUT_VERSION, "u32", "daemon, once"),
    ("feeder_beat", layout.H_FEEDER_BEAT, "u64", "daemon"),
    ("engine_progress", layout.H_ENGINE_PROGRESS, "u64", "daemon"),
    ("engine_busy", layout.H_ENGINE_BUSY, "u32", "daemon"),
    ("client_beat", layout.H_CLIENT_BEAT, "u64", "client"),
]
LANE = [
    ("line_id", layout.L_LINE_ID, "u64", "daemon, once a line"),
    ("preroll", layout.L_PREROLL, "u64", "daemon, once a line"),
    ("generation", layout.L_GENERATION, "u64", "daemon, once a line"),
    ("write_pos", layout.L_WRITE_POS, "u64", "daemon"),
    ("end_pos", layout.L_END_POS, "u64", "daemon"),
    ("event_write", layout.L_EVENT_WRITE, "u64", "daemon"),
    ("end_code", layout.L_END_CODE, "u32", "daemon"),
    ("read_pos", layout.L_READ_POS, "u64", "audio thread"),
    ("underrun_samples", layout.L_UNDERRUN_SAMPLES, "u64", "audio thread"),
    ("done_generation", layout.L_DONE_GENERATION, "u64", "audio thread"),
    ("event_read", layout.L_EVENT_READ, "u64", "game thread"),
    ("cancel_generation", layout.L_CANCEL_GENERATION, "u64", "game thread"),
    ("fade_samples", layout.L_FADE_SAMPLES, "u32", "game thread"),
    ("paused", layout.L_PAUSED, "u32", "game thread"),
]
EVENT = [
    ("sample", 0, "u64"),
    ("type", 8, "u16"),
    ("code", 10, "u16"),
    ("weight", 12, "f32"),
    ("text_begin", 16, "u32"),
    ("text_end", 20, "u32"),
    ("duration_samples", 24, "u32"),
    ("reserved", 28, "u32"),
]
_CODES = {"u64": "Q", "u32": "I", "u16": "H", "f32": "f"}


def _filled(size: int, fields: list[tuple[str, str, int]], values: dict[str, int]) -> str:
    """`size` bytes with the values at their fields' places, in hexadecimal."""
    raw = bytearray(size)
    for name, kind, offset in fields:
        struct.pack_into("<" + _CODES[kind], raw, offset, values.get(name, 0))
    return raw.hex()


def make() -> dict[str, Any]:
    """The whole file as an object."""
    header_fields = [(name, kind, offset) for name, offset, kind, _ in HEADER]
    lane_fields = [(name, kind, offset) for name, offset, kind, _ in LANE]
    header = {
        "magic": layout.MAGIC,
        "total_bytes": layout.TOTAL_BYTES,
        "session_id": 0x0123456789ABCDEF,
        "lanes": layout.LANES,
        "rate_hz": 24_000,
        "capacity": layout.CAPACITY,
        "events": layout.EVENTS,
        "daemon_pid": 4242,
        "client_pid": 777,
        "start_ns": 862_070_000_000,
        "layout_version": layout.LAYOUT_VERSION,
        "feeder_beat": 5,
        "engine_progress": 6,
        "engine_busy": 1,
        "client_beat": 7,
    }
    lane = {
        "line_id": 77,
        "preroll": 4800,
        "generation": 3,
        "write_pos": 200_000,
        "end_pos": 200_000,
        "event_write": 2,
        "end_code": End.CANCELLED,
        "read_pos": 190_000,
        "underrun_samples": 12,
        "done_generation": 0,
        "event_read": 1,
        "cancel_generation": 3,
        "fade_samples": 480,
        "paused": 1,
    }
    event = {
        "sample": 4800,
        "type": int(EventType.VISEME),
        "code": int(Viseme.AA),
        "weight": 0.75,
        "text_begin": 3,
        "text_end": 9,
        "duration_samples": 1200,
        "reserved": 0,
    }
    return {
        "layout_version": layout.LAYOUT_VERSION,
        "magic": layout.MAGIC,
        "total_bytes": layout.TOTAL_BYTES,
        "lanes": layout.LANES,
        "capacity": layout.CAPACITY,
        "events": layout.EVENTS,
        "unknown_end": layout.UNKNOWN_END,
        "header_bytes": layout.HEADER_BYTES,
        "lane_heads": layout.LANE_HEADS,
        "lane_head_bytes": layout.LANE_HEAD_BYTES,
        "event_rings": layout.EVENT_RINGS,
        "event_bytes": layout.EVENT_BYTES,
        "event_ring_bytes": layout.EVENT_RING_BYTES,
        "sample_rings": layout.SAMPLE_RINGS,
        "sample_ring_bytes": layout.SAMPLE_RING_BYTES,
        "header": [{"name": n, "offset": o, "type": t, "writer": w} for n, o, t, w in HEADER],
        "lane": [{"name": n, "offset": o, "type": t, "writer": w} for n, o, t, w in LANE],
        "event": [{"name": n, "offset": o, "type": t} for n, o, t in EVENT],
        "end_codes": {end.name.lower(): int(end) for end in End},
        "event_types": {kind.name.lower(): int(kind) for kind in EventType},
        "visemes": {viseme.name.lower(): int(viseme) for viseme in Viseme},
        "golden": {
            "header": {"values": header, "first_512_bytes": _filled(512, header_fields, header)},
            "lane": {"values": lane, "bytes": _filled(layout.LANE_HEAD_BYTES, lane_fields, lane)},
            "event": {"values": event, "bytes": layout.EVENT.pack(*event.values()).hex()},
        },
    }


def text() -> str:
    """What the file must hold."""
    return json.dumps(make(), indent=1) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text() else 1
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
