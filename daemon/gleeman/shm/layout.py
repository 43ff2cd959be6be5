"""The shared-memory mapping of a session, drawn, then the same as constants in drawing order.

    0       header, 4096 B
              +0    magic u64 | total_bytes u64 | session_id u64 | lanes u32 | rate_hz u32
              +32   capacity u32 | events u32 | daemon_pid u32 | client_pid u32 | start_ns u64
              +56   layout_version u32            written last, release; 0: not ready
              +256  feeder_beat u64 | engine_progress u64 | engine_busy u32         the daemon's line
              +384  client_beat u64                                                 the client's line
    4096    lane heads, 32 x 512 B, four lines of 128 B each:
              +0    line_id u64 | preroll u64 | generation u64 (last, release; 0 = free)   daemon, once a line
              +128  write_pos u64 | end_pos u64 (~0: unknown) | event_write u64 | end_code u32   daemon, hot
              +256  read_pos u64 | underrun_samples u64 | done_generation u64       audio thread
              +384  event_read u64 | cancel_generation u64 | fade_samples u32 | paused u32   game thread
    20480   event rings, 32 x 256 x 32 B:
              sample u64 | type u16 | code u16 | weight f32 | text_begin u32 | text_end u32
              | duration_samples u32 | reserved u32
    282624  sample rings, 32 x 131072 x f32
    17059840

Little-endian. Everything is aligned to its size. Offsets inside a lane or an event are from its start.
SHM.md says who writes each field and in which order.
"""

from __future__ import annotations

import struct

MAGIC = int.from_bytes(b"GLEEMAN\0", "little")
LAYOUT_VERSION = 1

LANES = 32
CAPACITY = 131_072
"""Samples in a lane's ring; a power of two."""
EVENTS = 256
"""Event records in a lane's ring; a power of two."""
MASK, EVENT_MASK = CAPACITY - 1, EVENTS - 1
"""From a position to its place in a ring: both sizes are powers of two."""
UNKNOWN_END = (1 << 64) - 1
RATES_HZ = (24_000, 44_100, 48_000)
"""What a mapping's lanes may run at."""

# header
HEADER = 0
HEADER_BYTES = 4096
H_MAGIC = 0
H_TOTAL_BYTES = 8
H_SESSION_ID = 16
H_LANES = 24
H_RATE_HZ = 28
H_CAPACITY = 32
H_EVENTS = 36
H_DAEMON_PID = 40
H_CLIENT_PID = 44
H_START_NS = 48
H_LAYOUT_VERSION = 56
H_FEEDER_BEAT = 256
H_ENGINE_PROGRESS = 264
H_ENGINE_BUSY = 272
H_CLIENT_BEAT = 384

# lane heads
LANE_HEADS = HEADER + HEADER_BYTES
LANE_HEAD_BYTES = 512
L_LINE_ID = 0
L_PREROLL = 8
L_GENERATION = 16
L_WRITE_POS = 128
L_END_POS = 136
L_EVENT_WRITE = 144
L_END_CODE = 152
L_READ_POS = 256
L_UNDERRUN_SAMPLES = 264
L_DONE_GENERATION = 272
L_EVENT_READ = 384
L_CANCEL_GENERATION = 392
L_FADE_SAMPLES = 400
L_PAUSED = 404

# event rings
EVENT_RINGS = LANE_HEADS + LANES * LANE_HEAD_BYTES
EVENT = struct.Struct("<QHHfIIII")
"""sample, type, code, weight, text_begin, text_end, duration_samples, reserved."""
EVENT_BYTES = 32
EVENT_RING_BYTES = EVENTS * EVENT_BYTES

# sample rings
SAMPLE_RINGS = EVENT_RINGS + LANES * EVENT_RING_BYTES
SAMPLE_RING_BYTES = CAPACITY * 4

TOTAL_BYTES = SAMPLE_RINGS + LANES * SAMPLE_RING_BYTES
