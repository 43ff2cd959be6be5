"""Whatever a client sends, it gets a code and a sentence, and the daemon goes on."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gleeman.errors import CODES
from gleeman.wire import messages as m
from wire_helpers import TOKEN, Live, Peer, live_server, tagged

GOOD: dict[type[m.Message], dict[str, Any]] = {
    m.Hello: {"id": 1, "protocol": 1, "token": TOKEN},
    m.Bye: {"id": 1},
    m.Speak: {"id": 1, "line": 1, "text": "Well met."},
    m.Cancel: {"id": 1, "line": 1},
    m.Frame: {},
    m.Voices: {"id": 1},
    m.Status: {"id": 1},
    m.Ping: {"id": 1},
}
WRONG: tuple[Any, ...] = (
    None,
    [],
    [[1]],
    {},
    {"a": 1},
    True,
    "\x00text",
    b"bytes",
    -1,
    1.5,
    1 << 64,
    float("nan"),
)
FITS_ANYWAY = {
    ("speak", "seed"): (None,),
    ("speak", "emotion"): ("\x00text",),  # free words: an unknown one is spoken neutral, with a warning
    ("speak", "speed"): (1.5,),
    ("speak", "pitch"): (-1, 1.5),
    ("speak", "energy"): (-1, 1.5),
}
"""Where a value of another type, or an odd one, is a right one."""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_server() as live:
        yield live


@pytest.fixture
def peer(live: Live) -> Iterator[Peer]:
    peer, _ = live.greeted()
    yield peer
    peer.socket.close()


def fields() -> Iterator[tuple[type[m.Message], str]]:
    for kind in GOOD:
        for field in msgspec.structs.fields(kind):
            yield kind, field.name


@pytest.mark.parametrize(("kind", "field"), list(fields()), ids=lambda part: getattr(part, "__name__", part))
def test_a_wrong_type_in_each_field_of_each_message(live: Live, kind: type[m.Message], field: str) -> None:
    if kind is m.Hello:
        peer = live.peer()
    else:
        peer, _ = live.greeted()
    for line, value in enumerate(WRONG, start=1):
        if value == 1 << 64:
            value = float(1 << 64)  # MessagePack has no integer that large
        values = {**GOOD[kind], **({"line": line} if "line" in GOOD[kind] else {}), field: value}
        if kind is m.Hello and field == "client" and value == "\x00text":
            continue  # a name is any text
        peer.send_raw(msgspec.msgpack.encode({"type": tagged(kind), **values}))
        answer = peer.read()
        if isinstance(answer, m.Accepted) and value in FITS_ANYWAY[tagged(kind), field]:
            continue
        assert isinstance(answer, m.Error | m.Ended), (values, answer)
        assert answer.code in CODES, values
        assert answer.message
        assert answer.code != "internal", (values, answer)
    if kind is m.Hello:
        peer.hello()
    peer.ping()
    peer.socket.close()


HUGE = m.MAX_MESSAGE_BYTES + 1


@pytest.mark.parametrize(
    ("name", "frames", "code"),
    [
        ("an empty frame", [b""], "bad-message"),
        ("two frames", [m.encode(m.Ping(id=1)), m.encode(m.Ping(id=2))], "bad-message"),
        ("an empty frame before the message", [b"", m.encode(m.Ping(id=1))], "bad-message"),
        ("a hundred frames", [b"x"] * 100, "bad-message"),
        ("100,000 nested arrays", [b"\x91" * 100_000], "bad-message"),
        ("100,000 nested maps", [b"\x81\xa4type" * 100_000], "bad-message"),
        ("nested arrays in an unknown field", [b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"], "bad-message"),
        ("a map of 4 thousand million keys", [b"\xdf\xff\xff\xff\xff\xa4type"], "bad-message"),
        ("text of 4 thousand million bytes", [b"\x81\xa4type\xdb\xff\xff\xff\xff"], "bad-message"),
        ("more than 1 MiB", [b"\x81\xa4type\xdb" + HUGE.to_bytes(4, "big") + b"x" * HUGE], "too-large"),
        ("an extension type", [b"\x81\xa4type\xd4\x01\x00"], "bad-message"),
        ("keys that are no text", [b"\x82\x01\x02\xa4type\xa4ping"], "bad-message"),
        ("an unknown type", [msgspec.msgpack.encode({"type": "sing"})], "unknown-type"),
        ("a very long type", [msgspec.msgpack.encode({"type": "s" * 100_000})], "unknown-type"),
    ],
)
def test_bytes_that_are_no_message(peer: Peer, name: str, frames: list[bytes], code: str) -> None:
    peer.send_raw(*frames)
    error = peer.read(m.Error)
    assert error.code == code, name
    assert 10 < len(error.message) < 2000, name
    peer.ping()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_truncated_message(peer: Peer, cut: int) -> None:
    whole = m.encode(m.Speak(id=1, line=1, text="Well met, stranger. What will it be?"))
    peer.send_raw(whole[:-cut])
    assert peer.code() == "bad-message"
    peer.ping()


@pytest.mark.parametrize("protocol", [0, 2, 99])
def test_a_wrong_protocol_version_says_both_and_who_should_update(live: Live, protocol: int) -> None:
    peer = live.peer()
    peer.send(m.Hello(id=1, protocol=protocol, token="of another kind"))
    error = peer.read(m.Error)
    assert error.code == "bad-protocol"
    assert f"asked for {protocol}" in error.message
    assert "speaks protocol 1" in error.message
    assert ("update the client" if protocol == 0 else "update the daemon") in error.message
    peer.hello()


@pytest.mark.parametrize("token", ["", "0" * 64, TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "ü" * 64])
def test_a_wrong_token(live: Live, token: str) -> None:
    peer = live.peer()
    peer.send(m.Hello(id=1, protocol=1, token=token))
    assert peer.code() == "bad-token"
    peer.send(m.Ping(id=1))
    assert peer.code() == "hello-first"


@pytest.mark.parametrize(
    "message",
    [
        m.Speak(id=1, line=1, text="Hi."),
        m.Cancel(id=1, line=1),
        m.Frame(),
        m.Voices(id=1),
        m.Status(id=1),
        m.Ping(id=1),
        m.Bye(id=1),
    ],
)
def test_nothing_before_hello(live: Live, message: m.Message) -> None:
    peer = live.peer()
    peer.send(message)
    assert peer.code() == "hello-first"
    peer.hello()


def test_hello_twice(peer: Peer) -> None:
    peer.send(m.Hello(id=2, protocol=1, token=TOKEN))
    assert peer.code() == "hello-twice"
    peer.ping()


def test_a_line_with_a_bad_field_is_refused_by_its_number(peer: Peer) -> None:
    peer.send_map(type="speak", id=7, line=3, text=["no", "text"])
    refused = peer.read(m.Ended)
    assert (refused.line, refused.re, refused.end, refused.code) == (3, 7, "refused", "bad-message")
    peer.send_map(type="speak", id="x", line=4, text="Hi.")
    refused = peer.read(m.Ended)
    assert (refused.line, refused.re) == (4, 0)
    peer.send_map(type="speak", id=8, line="five", text="Hi.")
    error = peer.read(m.Error)
    assert error.re == 8
    peer.send(m.Speak(id=9, line=4, text="Its number is used up."))
    assert peer.read(m.Error).code == "bad-value"
    peer.send(m.Speak(id=10, line=5, text="Hi."))
    assert peer.read(m.Accepted).line == 5


def test_random_bytes_and_random_damage(live: Live, peer: Peer) -> None:
    """Seeded: 2,000 messages of noise and of good messages with a few bytes changed."""
    dice = random.Random(20261201)
    whole = [
        m.encode(m.Speak(id=1, line=1, text="Well met.", voice=["af_heart"])),
        m.encode(m.Cancel(line=1)),
    ]
    for _ in range(2000):
        data = bytearray(dice.choice(whole) if dice.random() < 0.6 else dice.randbytes(dice.randint(1, 64)))
        for _ in range(dice.randint(0, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        peer.send_raw(bytes(data))
    peer.send(m.Ping(id=1))
    seen = 0
    while not isinstance(answer := peer.read(), m.Pong):
        assert not isinstance(answer, m.Error | m.Ended) or answer.code in CODES
        assert not isinstance(answer, m.Error) or answer.code != "internal"
        seen += 1
    assert seen > 1000
    fresh, _ = live.greeted()
    fresh.ping()


def test_noise_instead_of_zmtp(live: Live) -> None:
    host, port = live.endpoints[-1].removeprefix("tcp://").split(":")
    dice = random.Random(7)
    for size in (0, 1, 10, 64, 500):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(dice.randbytes(size))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\0" + bytes(31)
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(greeting + b"\x04\xff" + b"\x05READY" + os.urandom(300))
    live.greeted()[0].ping()


def test_a_frame_beyond_libzmqs_limit_costs_the_connection_only(live: Live) -> None:
    peer, _ = live.greeted()
    peer.send_raw(bytes(17 << 20))
    live.greeted()[0].ping()
