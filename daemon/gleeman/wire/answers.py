"""The longer answers of the server, put together out of what the rooms know. Knows no socket."""

from __future__ import annotations

import os

from .. import __version__
from ..records import ModelState
from ..shm.layout import LANES
from ..stats import FirstAudio, RoomFigures, padding_ratio, rss_mb
from . import messages as m
from .house import House, Voices
from .sessions import MAX_QUEUED_LINES, Session, Sessions


def welcome(session: Session, path: str, size: int, model: str, state: ModelState, house: House) -> m.Welcome:
    """The answer to `hello`, once the mapping at `path` is there."""
    return m.Welcome(
        re=session.hello,
        protocol=m.PROTOCOL_MAJOR,
        minor=m.PROTOCOL_MINOR,
        version=__version__,
        session=session.id,
        mapping=path,
        mapping_bytes=size,
        rate_hz=session.rate_hz,
        lanes=LANES,
        model=model,
        state=state.state,
        progress=state.progress,
        eta_s=state.eta_s,
        voices=len(house.voices.names()),
        emotions=list(house.emotions),
        max_text_chars=m.MAX_TEXT_CHARS,
        max_queued_lines=MAX_QUEUED_LINES,
    )


def state(now: ModelState) -> m.State:
    """What is sent to every session when the model's state changes."""
    return m.State(
        state=now.state, progress=now.progress, eta_s=now.eta_s, message=now.message, code=now.code
    )


def voice_list(re: int, voices: Voices) -> m.VoiceList:
    """Every voice, in the store's order."""
    infos = [voices.info(name) for name in voices.names()]
    entries = [
        m.VoiceEntry(name=info.name, language=info.language, gender=info.gender, source=info.source)
        for info in infos
    ]
    return m.VoiceList(re=re, default=voices.default(), voices=entries)


def report(
    re: int,
    model: str,
    now: ModelState,
    sessions: Sessions,
    first_audio: FirstAudio,
    figures: RoomFigures,
    uptime_s: float,
) -> m.StatusReport:
    """The answer to `status`."""
    return m.StatusReport(
        re=re,
        version=__version__,
        pid=os.getpid(),
        uptime_s=uptime_s,
        model=model,
        device=figures.device,
        quality=figures.quality,
        state=now.state,
        progress=now.progress,
        eta_s=now.eta_s,
        sessions=len(sessions.by_id),
        live_lines=sessions.live_lines(),
        queued_lines=figures.queued_lines,
        lines=dict(sessions.ended),
        batches=figures.batches,
        batch_rows_mean=figures.rows / figures.batches if figures.batches else 0.0,
        first_audio_ms_p50=first_audio.percentile(50),
        first_audio_ms_p95=first_audio.percentile(95),
        underrun_samples=figures.underrun_samples,
        rss_mb=rss_mb(),
        text_restarts=figures.text_restarts,
        message=now.message,
        dtype=figures.dtype,
        padding_ratio=padding_ratio(figures.frames, figures.padding_frames),
        device_reason=figures.device_reason,
        dtype_reason=figures.dtype_reason,
        device_mb_used=figures.device_mb_used,
        device_mb_peak=figures.device_mb_peak,
        device_mb_cap=figures.device_mb_cap,
    )
