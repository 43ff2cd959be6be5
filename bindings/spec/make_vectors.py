"""Golden bytes of the protocol: writes vectors/messages.json from the records of gleeman.wire.messages.

    python bindings/spec/make_vectors.py

`messages` must decode to `fields` in every language, and encode again to the same fields (the bytes may
differ in the order of keys and the width of numbers). `malformed` must be refused with `code`. Byte
strings are hexadecimal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from gleeman.wire import messages as m

VECTORS = Path(__file__).parent / "vectors" / "messages.json"
TOKEN = "00112233445566778899aabbccddeeff" * 2

FROM_CLIENT: dict[str, m.Message] = {
    "hello, every field": m.Hello(
        id=1,
        protocol=1,
        token=TOKEN,
        client="Tavern 1.2 / gleeman-c 0.1.0",
        pid=4242,
        rate_hz=48_000,
        while_loading="babble",
    ),
    "hello, defaults": m.Hello(id=1, protocol=1, token=TOKEN),
    "bye": m.Bye(id=2),
    "speak, defaults": m.Speak(id=3, line=1, text="Well met, traveller."),
    "speak, every field": m.Speak(
        id=(1 << 64) - 1,
        line=(1 << 63) - 1,
        text="Grüß dich, 旅人! 🍺",
        voice=["old_smith", "bm_george"],
        emotion="angry",
        intensity=0.5,
        speed=1.25,
        pitch=-2.0,
        energy=3.5,
        language="en-gb",
        priority="immediate",
        deadline_ms=250,
        seed=(1 << 63) - 1,
    ),
    "speak, phonemes": m.Speak(id=4, line=2, phonemes="həlˈO", voice="af_heart"),
    "cancel": m.Cancel(id=5, line=1),
    "frame": m.Frame(),
    "voices": m.Voices(id=6),
    "status": m.Status(id=7),
    "ping": m.Ping(id=8),
}

FROM_DAEMON: dict[str, m.Message] = {
    "welcome": m.Welcome(
        re=1,
        protocol=1,
        minor=0,
        version="0.1.0",
        session=0xFEDC_BA98_7654_3210,
        mapping="/dev/shm/gleeman-1000-4711-123456789-fedcba9876543210.lanes",
        mapping_bytes=17_059_840,
        rate_hz=48_000,
        lanes=32,
        model="kokoro",
        state="loading",
        progress=0.25,
        eta_s=7.5,
        voices=54,
        emotions=["neutral", "happy"],
        max_text_chars=4000,
        max_queued_lines=256,
    ),
    "error": m.Error(re=5, code="unknown-line", message="line 1 is not live in this session"),
    "ok": m.Ok(re=2),
    "accepted": m.Accepted(re=3, line=1, voice="af_heart", seed=1234567890123456789),
    "accepted, with a warning": m.Accepted(
        re=4, line=2, voice="bm_george", seed=0, warnings=["voice 'old_smith' is not known"]
    ),
    "clauses": m.Clauses(
        line=1, clauses=[m.ClauseInfo(spoken="Well met, traveller.", begin=0, end=20, ms=1475.0)]
    ),
    "ended, refused": m.Ended(line=9, end="refused", code="empty-text", message="the text is empty", re=12),
    "ended, expired": m.Ended(line=1, end="expired", code="expired", message="too late"),
    "ended, in its lane": m.Ended(
        line=1, end="failed", code="model-failed", message="the model raised an error", in_lane=True
    ),
    "state": m.State(state="ready", progress=1.0, eta_s=0.0),
    "state, failed": m.State(
        state="failed", progress=0.5, eta_s=0.0, message="no weights", code="model-missing"
    ),
    "voice_list": m.VoiceList(
        re=6,
        default="af_heart",
        voices=[m.VoiceEntry(name="af_heart", language="en-us", gender="female", source="stock")],
    ),
    "status_report": m.StatusReport(
        re=7,
        version="0.1.0",
        pid=4711,
        uptime_s=12.5,
        model="kokoro",
        device="cpu",
        quality="auto",
        state="ready",
        progress=1.0,
        eta_s=0.0,
        sessions=1,
        live_lines=2,
        queued_lines=1,
        lines={"done": 4, "cancelled": 1, "expired": 0, "failed": 0, "refused": 0, "lost": 0},
        batches=3,
        batch_rows_mean=1.5,
        first_audio_ms_p50=42.5,
        first_audio_ms_p95=None,
        underrun_samples=0,
        rss_mb=812.25,
        text_restarts=0,
        dtype="float32",
        padding_ratio=1.25,
        device_reason="asked for",
        dtype_reason="this processor has neither AMX nor AVX512-BF16",
        device_mb_used=None,
        device_mb_peak=812.5,
        device_mb_cap=1000.0,
    ),
    "pong": m.Pong(re=8),
    "gone": m.Gone(code="shutting-down", message="the daemon is going down"),
}


def pack(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def malformed() -> dict[str, tuple[bytes, str]]:
    """What a client may send by mistake or on purpose, and the code it is answered with."""
    speak = m.encode(FROM_CLIENT["speak, defaults"])
    good = {"type": "speak", "id": 3, "line": 1, "text": "Well met."}
    return {
        "a truncated message": (speak[:-5], "bad-message"),
        "bytes after the map": (speak + b"\xc0", "bad-message"),
        "not a map": (b"\x93\x01\x02\x03", "bad-message"),
        "no bytes a map could start with": (b"\xc1", "bad-message"),
        "1,000 arrays in one another": (b"\x91" * 1000 + b"\xc0", "bad-message"),
        "a length beyond the message": (b"\xdf\xff\xff\xff\xff", "bad-message"),
        "text that is not UTF-8": (
            b"\x84\xa4type\xa5speak\xa2id\x01\xa4line\x01\xa4text\xa2\xff\xfe",
            "bad-message",
        ),
        "no type": (pack(id=1), "bad-message"),
        "a type that does not exist": (pack(type="sing", id=1), "unknown-type"),
        "a type of the daemon": (pack(type="pong", re=1), "unknown-type"),
        "no line": (pack(type="speak", id=3, text="Well met."), "bad-message"),
        "line 0": (pack(**good | {"line": 0}), "bad-value"),
        "a line below 0": (pack(**good | {"line": -1}), "bad-value"),
        "a line that is text": (pack(**good | {"line": "1"}), "bad-message"),
        "a text that is a number": (pack(**good | {"text": 5}), "bad-message"),
        "a voice that is a map": (pack(**good | {"voice": {}}), "bad-message"),
        "no voices": (pack(**good | {"voice": []}), "bad-value"),
        "nine voices": (pack(**good | {"voice": ["v"] * 9}), "bad-value"),
        "a name that is too long": (pack(**good | {"emotion": "e" * 129}), "bad-value"),
        "speed above 4": (pack(**good | {"speed": 4.5}), "bad-value"),
        "speed that is not a number": (pack(**good | {"speed": float("nan")}), "bad-value"),
        "an unknown language": (pack(**good | {"language": "tlh"}), "bad-value"),
        "an unknown priority": (pack(**good | {"priority": "urgent"}), "bad-value"),
        "a seed of 64 bits": (pack(**good | {"seed": 1 << 63}), "bad-value"),
    }


def vectors() -> dict[str, Any]:
    """The whole file."""
    messages = [
        {
            "name": name,
            "direction": direction,
            "hex": m.encode(message).hex(),
            "fields": msgspec.msgpack.decode(m.encode(message)),
        }
        for direction, group in (("from_client", FROM_CLIENT), ("from_daemon", FROM_DAEMON))
        for name, message in group.items()
    ]
    bad = [{"name": name, "hex": data.hex(), "code": code} for name, (data, code) in malformed().items()]
    return {"protocol": m.PROTOCOL_MAJOR, "minor": m.PROTOCOL_MINOR, "messages": messages, "malformed": bad}


def as_text() -> str:
    """The file's text."""
    return json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text(as_text(), encoding="utf-8")
    sys.stdout.write(f"{VECTORS}\n")
