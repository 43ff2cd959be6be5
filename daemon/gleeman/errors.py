"""Every error this program raises on purpose, and every code it puts on the wire.

    GleemanError                 a sentence for people, `code` for programs
      InputError                 the caller can mend it         (exit status 2)
      Failure                    we, or this machine, failed    (exit status 1)

Codes never change their meaning. `CODES` is the one list; PROTOCOL.md repeats it and a test
compares the two.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    # a message that cannot be read
    "bad-message": "not a MessagePack map that fits its type: broken, wrongly typed or incomplete",
    "too-large": "the message is longer than the limit",
    "unknown-type": "no message of that type",
    # a conversation out of order
    "bad-protocol": "the protocol major differs",
    "bad-token": "the token is not that of the discovery file",
    "hello-first": "nothing but hello is answered before hello",
    "hello-twice": "this connection has said hello",
    # a value that cannot be used
    "bad-value": "a field lies outside its range",
    "empty-text": "the text is empty or holds only white space",
    "nothing-to-say": "nothing speakable is left of the text",
    "text-too-long": "the text is longer than the limit",
    "bad-text": "the text holds characters that are not allowed, such as control characters",
    "bad-phonemes": "the phonemes hold symbols outside the model's alphabet",
    "unknown-voice": "no voice of that name",
    "unknown-language": "no such language, or its package is not installed",
    "unknown-line": "no such line in this session, or it has ended",
    "unsupported": "the daemon is too old for that, or was started without it",
    # a line's ends
    "cancelled": "the game cancelled it",
    "expired": "its deadline passed before it could start",
    "busy": "a queue or the device's memory is full; send it again later",
    "lost": "the daemon died in the middle of it",
    # what this machine or we did
    "no-daemon": "no daemon runs",
    "already-running": "a daemon of this user and protocol runs already",
    "no-space": "no room for the mapping",
    "bad-client": "the client wrote impossible numbers into its mapping",
    "bad-daemon": "the daemon wrote impossible numbers into a mapping",
    "text-failed": "the text process crashed or hung on this line",
    "model-failed": "the model raised an error on this line",
    "model-missing": "the weights are not there",
    "model-damaged": "the weights do not have their checksum",
    "unknown-model": "no model of that name",
    "fetch-failed": "a download or a conversion did not finish",
    "no-device": "the device asked for is not there",
    "vram-too-small": "the cap on device memory is below what the model needs",
    "shutting-down": "the daemon is going down",
    "bad-config": "the configuration holds an unknown key or a bad value",
    "bad-file": "a file cannot be read or written, or does not hold what it should",
    "unsupported-platform": "this machine lacks something we rely on",
    "timeout": "no answer in time",
    "internal": "a mistake of ours; please report it",
}


class GleemanError(Exception):
    """An error with a stable `code` out of `CODES` and a sentence that says what would be accepted."""

    exit_status = 1
    default_code = "internal"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        if self.code not in CODES:
            raise ValueError(f"error code {self.code!r} is not in gleeman.errors.CODES")


class InputError(GleemanError):
    """What was asked cannot be done as it was asked."""

    exit_status = 2
    default_code = "bad-value"


class Failure(GleemanError):
    """What was asked is fine, but we could not do it."""

    exit_status = 1
    default_code = "internal"
