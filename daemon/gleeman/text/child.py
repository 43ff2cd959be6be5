"""The text process: reads lines one after another, so that slow or broken text work cannot touch the
daemon. `gleeman _text` speaks `messages.py` over its pipes and ends when its input closes.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from ..errors import GleemanError, InputError
from . import messages
from .frontend import Reading, accent_of, language_of, read, read_phonemes

log = logging.getLogger("gleeman.text")

HOOKS = "GLEEMAN_TEST_HOOKS"
HANG_HOOK = "gleeman test hook: hang"
CRASH_HOOK = "gleeman test hook: crash"


class _Pipe:
    """Writes whole frames from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: messages.FromChild) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            messages.write(self._stream, message)


def main() -> None:
    """Serve until standard input closes. Never returns."""
    with contextlib.suppress(ValueError):  # not in the main thread: only in a test
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which closes our input
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    # The pipe is ours alone: whatever a library prints goes to the log.
    pipe = _Pipe(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    requests = os.fdopen(0, "rb", closefd=False)  # not sys.stdin: a program without a console has none
    jobs: queue.SimpleQueue[messages.ToChild] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, jobs), name="listen", daemon=True).start()
    pipe.send(messages.Up())
    while True:
        job = jobs.get()
        if isinstance(job, messages.Warm):
            threading.Thread(target=_warm, args=(pipe.send,), name="warm", daemon=True).start()
        else:
            pipe.send(_answer(job, pipe.send))


def _listen(stream: BinaryIO, jobs: queue.SimpleQueue[messages.ToChild]) -> None:
    """Queue what comes; end the process, whatever it is doing, when nothing more can come."""
    status = 0
    try:
        while (message := messages.read_to_child(stream)) is not None:
            jobs.put(message)
    except (ValueError, OSError) as error:
        log.error("the daemon's request cannot be read: %s", error)
        status = 1
    finally:
        logging.shutdown()
        os._exit(status)


_loaded: set[str] = set()
_load_locks = {language: threading.Lock() for language in ("en-us", "en-gb", "zh")}
"""One each: a line that waits for English must not wait for Chinese too."""


def _load(language: str, send: Callable[[messages.FromChild], None]) -> None:
    """Load a language, and say so before and after, once."""
    if language in _loaded:
        return
    with _load_locks[language]:
        if language in _loaded:
            return
        send(messages.Loading(language))
        start = time.perf_counter()
        message = ""
        try:
            if language == "zh":
                from . import chinese

                chinese.load()
            else:
                from . import english

                english.load(british=language == "en-gb")
            _loaded.add(language)
            gc.freeze()  # lexicons never go: a full collection need not walk them (tens of milliseconds)
        except Exception as error:
            log.exception("loading %s failed", language)
            message = f"{type(error).__name__}: {error}"
        send(messages.Loaded(language, (time.perf_counter() - start) * 1000, message))


def _warm(send: Callable[[messages.FromChild], None]) -> None:
    """Not British: its lexicon is 100 MB, loaded when the first British voice speaks."""
    for language in ("en-us", "zh"):
        _load(language, send)


def _answer(ask: messages.Ask, send: Callable[[messages.FromChild], None]) -> messages.FromChild:
    try:
        if os.environ.get(HOOKS) == "1":
            _hook(ask.text)
        reading = _read(ask, send)
        return messages.Answer(ask.id, reading.clauses, reading.warnings)
    except GleemanError as error:
        return messages.Refusal(ask.id, error.code, error.message, ours=not isinstance(error, InputError))
    except Exception as error:
        log.exception("reading a line failed")
        return messages.Refusal(
            ask.id, "text-failed", f"reading the line failed: {type(error).__name__}: {error}", ours=True
        )


def _read(ask: messages.Ask, send: Callable[[messages.FromChild], None]) -> Reading:
    british = accent_of(ask.voice)
    if ask.phonemes_given:
        return read_phonemes(ask.phonemes_given, ask.language, british, ask.phonemes)
    if ask.phonemes:
        for language in _needed(ask, british):
            _load(language, send)
    return read(ask.text, ask.language, british, ask.phonemes, bare=language_of(ask.voice))


def _needed(ask: messages.Ask, british: bool) -> list[str]:
    """What a line needs loaded: told before, so that the daemon does not take loading for hanging."""
    from .clean import is_han

    needed = []
    latin = any(c.isalpha() and not is_han(c) for c in ask.text)
    if any(map(is_han, ask.text)) or ask.language == "zh" or (language_of(ask.voice) == "zh" and not latin):
        needed.append("zh")
    if latin or "zh" not in needed:
        british = ask.language == "en-gb" or (british and ask.language != "en-us")
        needed.append("en-gb" if british else "en-us")
    return needed


def _hook(text: str) -> None:
    if text == HANG_HOOK:
        time.sleep(3600)
    if text == CRASH_HOOK:
        os._exit(70)
