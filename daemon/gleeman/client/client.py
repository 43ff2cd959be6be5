"""What a game written in Python calls.

    with Client.connect(autostart=True) as client:
        line = client.speak("Well met, traveller.", voice="bm_george")
        client.frame()
        for chunk in line: ...

Threads: everything may be called from any thread. One thread a client (link.py) owns the socket, scans
the lanes, shows the daemon that we live and watches whether it does. One lock a client covers its lines,
its lanes and its tables; nobody holds it over anything that waits. Knows no sockets.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from ..errors import CODES, Failure, GleemanError, InputError
from ..records import End, ModelState
from ..wire.messages import (
    MAX_NAME,
    PROTOCOL_MAJOR,
    RATES_HZ,
    WHILE_LOADING,
    Hello,
    Message,
    Ping,
    Speak,
    Status,
    StatusReport,
    VoiceEntry,
    VoiceList,
    Voices,
    decode_from_client,
    encode,
)
from .find import Finder
from .line import Line
from .link import Link
from .tables import Tables

REQUEST_TIMEOUT_S = 5.0


class Client:
    """A connection to the daemon that outlives it: after a daemon's death it finds the next."""

    @classmethod
    def connect(
        cls,
        autostart: bool | Sequence[str] = False,
        *,
        instance: str = "",
        rate_hz: int = 24_000,
        while_loading: str = "wait",
        name: str = "",
        timeout_s: float = 10.0,
    ) -> Client:
        """A client whose daemon has answered; its model may still be loading (`wait_ready`).

        autostart       True, or more arguments for `gleeman serve`: start a daemon where none runs,
                        now and after a daemon's death; it leaves 60 s after its last client
        instance        of a daemon started with `--instance`
        rate_hz         24000, 44100 or 48000
        while_loading   what speaks until the model is ready: "wait" (nothing), "babble" or "silent"
        name            of the program, for people

        Raises InputError bad-value, bad-protocol; Failure no-daemon, bad-token, timeout, no-space.
        """
        if rate_hz not in RATES_HZ:
            raise InputError(f"rate_hz is {rate_hz!r}; one of {', '.join(map(str, RATES_HZ))} is accepted")
        if while_loading not in WHILE_LOADING:
            raise InputError(
                f"while_loading is {while_loading!r}; one of {', '.join(WHILE_LOADING)} is accepted"
            )
        if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(f"name {name!r:.60} must be at most {MAX_NAME} printable characters")
        if not isinstance(instance, str):
            raise InputError(f"instance {instance!r:.60} must be text")
        arguments = None if autostart is False else () if autostart is True else tuple(autostart)
        hello = Hello(
            id=0,
            protocol=PROTOCOL_MAJOR,
            token="",
            client=name or "gleeman for Python",
            pid=os.getpid(),
            rate_hz=rate_hz,
            while_loading=while_loading,
        )
        client = cls(Finder(instance, arguments), hello)
        try:
            client._link.start(timeout_s)
        except GleemanError:
            client.close()
            raise
        return client

    def __init__(self, finder: Finder, hello: Hello) -> None:
        """Use `connect`."""
        self._tables = Tables(hello.rate_hz)
        self._link = Link(self._tables, finder, hello)
        self._unframed = False

    @property
    def rate_hz(self) -> int:
        """Of all samples; what was asked for, or what the daemon gave instead."""
        return self._tables.rate_hz

    # ---- speaking --------------------------------------------------------------------------------

    def speak(
        self,
        text: str = "",
        *,
        phonemes: str = "",
        voice: str | Sequence[str] = "",
        emotion: str = "neutral",
        intensity: float = 1.0,
        speed: float = 1.0,
        pitch: float = 0.0,
        energy: float = 0.0,
        language: str = "auto",
        priority: str = "dialogue",
        deadline_ms: int = 0,
        seed: int | None = None,
    ) -> Line:
        """Say a line; returns at once. What cannot be said comes back as a line that is `refused`, with
        the code and the sentence; nothing is raised. Ranges: see `wire.messages.Speak`."""
        with self._tables.lock:
            number = self._tables.next_number()
            fields: dict[str, Any] = {
                "text": text,
                "phonemes": phonemes,
                "voice": list(voice) if isinstance(voice, tuple) else voice,
                "emotion": emotion,
                "intensity": intensity,
                "speed": speed,
                "pitch": pitch,
                "energy": energy,
                "language": language,
                "priority": priority,
                "deadline_ms": deadline_ms,
                "seed": seed,
            }
            speak, refusal = _checked(number, fields)
            line = Line(self._tables, number, speak)
            if self._tables.closed:
                refusal = InputError("this client is closed; connect again", "no-daemon")
            if refusal is not None:
                line.finish(End.REFUSED, refusal.code, refusal.message)
                return line
            self._tables.lines[line.id] = line
            self._tables.waiting.append(line)
            self._unframed = True
        self._link.wake()
        return line

    def frame(self) -> None:
        """The end of a game frame: what was submitted in it may be synthesised now, together. Without
        it the daemon waits a little for more."""
        with self._tables.lock:
            if not self._unframed:
                return
            self._unframed = False
            self._tables.waiting.append(None)
        self._link.wake()

    def poll(self) -> None:
        """Find the lanes that lines were given and the ends that need no reader. A game may call it
        once a frame; the client's own thread does so every 5 ms while lines live."""
        self._tables.poll()

    # ---- asking ----------------------------------------------------------------------------------

    def voices(self, timeout_s: float = REQUEST_TIMEOUT_S) -> list[VoiceEntry]:
        """All voices of the daemon. Raises Failure no-daemon, timeout; so do the next two."""
        answer = self._request(lambda number: Voices(id=number), timeout_s)
        return answer.voices if isinstance(answer, VoiceList) else []

    def status(self, timeout_s: float = REQUEST_TIMEOUT_S) -> StatusReport:
        """What the daemon is doing."""
        answer = self._request(lambda number: Status(id=number), timeout_s)
        if not isinstance(answer, StatusReport):
            raise Failure(f"the daemon answered status with {type(answer).__name__}", "bad-message")
        return answer

    def ping(self, timeout_s: float = REQUEST_TIMEOUT_S) -> float:
        """Milliseconds to the daemon's server thread and back."""
        begun_ns = time.monotonic_ns()
        self._request(lambda number: Ping(id=number), timeout_s)
        return (time.monotonic_ns() - begun_ns) / 1e6

    @property
    def state(self) -> ModelState:
        """The model's state: loading, warming, ready or failed. Besides these "stalled" (the daemon is
        there but stands still: nothing new is sent) and "gone" (a daemon is looked for)."""
        with self._tables.lock:
            if self._tables.session is None:
                return ModelState(
                    "gone", message="no daemon; what was not begun waits for the next", code="no-daemon"
                )
            if self._tables.stalled:
                return ModelState("stalled", message="the daemon stands still; it is waited for")
            return self._tables.model

    def wait_ready(self, timeout_s: float = 300.0) -> None:
        """Wait until the model is ready. Raises Failure with the model's code when it cannot be loaded,
        Failure timeout."""
        with self._tables.lock:
            self._tables.changed.wait_for(lambda: self.state.state in ("ready", "failed"), timeout_s)
            state = self.state
        if state.state == "failed":
            code = state.code if state.code in CODES else "model-failed"
            raise Failure(state.message or "the model could not be loaded", code)
        if state.state != "ready":
            raise Failure(f"the model is {state.state} after {timeout_s:g} s", "timeout")

    @property
    def session(self) -> int:
        """The number of the session, the last one's while no daemon is there."""
        return self._tables.last.number if self._tables.last is not None else 0

    @property
    def daemon_pid(self) -> int:
        """The daemon's process, the last one's while none is there."""
        return self._tables.last.daemon.pid if self._tables.last is not None else 0

    def close(self) -> None:
        """Say good-bye: lines that live end `cancelled`, the mapping goes. May be called twice."""
        with self._tables.lock:
            self._tables.close()
        self._link.stop()
        with self._tables.lock:
            self._tables.unmap()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, make: Callable[[int], Message], timeout_s: float) -> Message:
        with self._tables.lock:
            if self._tables.closed or self._tables.session is None:
                raise Failure("no daemon is connected", "no-daemon")
            number = self._tables.next_number()
            self._tables.answers[number] = None
            self._tables.orders.append(encode(make(number)))
            self._link.wake()
            self._tables.changed.wait_for(lambda: self._tables.answers[number] is not None, timeout_s)
            answer = self._tables.answers.pop(number)
        if answer is None:
            raise Failure(f"the daemon did not answer in {timeout_s:g} s", "timeout")
        if isinstance(answer, GleemanError):
            raise answer
        return answer


def _plain(value: Any) -> Any:
    """A number of another library as Python's own."""
    if type(value) in (str, bool, int, float, list, tuple) or value is None:
        return value
    if hasattr(value, "__index__"):
        return operator.index(value)
    return float(value) if hasattr(value, "__float__") else value


def _checked(line_id: int, fields: dict[str, Any]) -> tuple[Speak | None, GleemanError | None]:
    """The message, or why it cannot be one; the same reading as the daemon's."""
    try:
        speak = Speak(id=line_id, line=line_id, **{name: _plain(value) for name, value in fields.items()})
        decode_from_client(encode(speak))
    except GleemanError as error:
        return None, error
    except UnicodeEncodeError:
        return None, InputError("the text holds half a character (a lone surrogate)", "bad-text")
    except (TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        return None, InputError(f"a field of the line cannot be used: {error}")
    return speak, None
