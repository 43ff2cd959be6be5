"""What a client accepts as a mapping, field by field."""

from __future__ import annotations

import pytest

from gleeman.errors import Failure
from gleeman.shm import layout
from gleeman.shm.mapping import ClientMapping, DaemonMapping


@pytest.fixture
def daemon(tmp_path):
    made = DaemonMapping.create(0xFEED, 44_100, 42, [tmp_path])
    yield made
    made.remove()


def refuse(path, size=layout.TOTAL_BYTES):
    with pytest.raises(Failure) as caught:
        ClientMapping.open(path, size)
    return caught.value


def test_an_honest_mapping_opens(daemon):
    client = ClientMapping.open(daemon.path, layout.TOTAL_BYTES)
    assert (client.session, client.rate_hz, client.lanes()) == (0xFEED, 44_100, [])
    client.close()
    client.close()


FIELDS = [
    (layout.H_MAGIC, 8, 0, "bad-daemon"),
    (layout.H_TOTAL_BYTES, 8, layout.TOTAL_BYTES + 1, "bad-daemon"),
    (layout.H_LANES, 4, 33, "bad-daemon"),
    (layout.H_RATE_HZ, 4, 22_050, "bad-daemon"),
    (layout.H_CAPACITY, 4, 0xFFFFFFFF, "bad-daemon"),
    (layout.H_EVENTS, 4, 0, "bad-daemon"),
    (layout.H_LAYOUT_VERSION, 4, 0, "unsupported"),
    (layout.H_LAYOUT_VERSION, 4, 2, "unsupported"),
]


@pytest.mark.parametrize(("offset", "size", "value", "code"), FIELDS)
def test_each_field_of_the_header_is_checked(daemon, offset, size, value, code):
    (daemon.u64 if size == 8 else daemon.u32)[offset // size] = value
    assert refuse(daemon.path).code == code


@pytest.mark.parametrize("size", [0, 4096, layout.TOTAL_BYTES - 1, layout.TOTAL_BYTES + 1, 1 << 62])
def test_an_announced_size_of_another_layout_is_refused(daemon, size):
    assert refuse(daemon.path, size).code == "bad-daemon"


def test_a_file_of_another_size_is_refused(tmp_path):
    short = tmp_path / "short.lanes"
    short.write_bytes(bytes(4096))
    assert refuse(short).code == "bad-file"


def test_a_missing_file_is_refused(tmp_path):
    assert refuse(tmp_path / "none.lanes").code == "bad-file"


def test_a_link_is_refused(daemon, tmp_path):
    link = tmp_path / "link.lanes"
    link.symlink_to(daemon.path)
    assert refuse(link).code == "bad-file"


def test_a_closed_mapping_frees_its_memory_when_no_reader_is_left(daemon):
    client = ClientMapping.open(daemon.path, layout.TOTAL_BYTES)
    memory = client._memory
    client.close()
    assert memory.closed


def test_a_reader_outlives_the_closing_of_its_mapping(daemon):
    client = ClientMapping.open(daemon.path, layout.TOTAL_BYTES)
    samples = client.samples
    client.close()
    assert samples[0, 0] == 0
