/* The shared-memory mapping, as bindings/spec/SHM.md draws it. Knows no operating system.
 *
 * Nothing read from here is trusted: who uses a position checks it, who uses an index masks it. */
#ifndef GLEEMAN_LAYOUT_H
#define GLEEMAN_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    SHM_LAYOUT_VERSION = 1,
    SHM_LANES = 32,
    SHM_CAPACITY = 131072, /* samples a lane; a power of two */
    SHM_EVENTS = 256,      /* records a lane; a power of two */

    SHM_H_MAGIC = 0,
    SHM_H_TOTAL_BYTES = 8,
    SHM_H_SESSION_ID = 16,
    SHM_H_LANES = 24,
    SHM_H_RATE_HZ = 28,
    SHM_H_CAPACITY = 32,
    SHM_H_EVENTS = 36,
    SHM_H_DAEMON_PID = 40,
    SHM_H_CLIENT_PID = 44,
    SHM_H_START_NS = 48,
    SHM_H_LAYOUT_VERSION = 56,
    SHM_H_FEEDER_BEAT = 256,
    SHM_H_ENGINE_PROGRESS = 264,
    SHM_H_ENGINE_BUSY = 272,
    SHM_H_CLIENT_BEAT = 384,

    SHM_LANE_HEADS = 4096,
    SHM_LANE_HEAD_BYTES = 512,
    SHM_L_LINE_ID = 0,
    SHM_L_PREROLL = 8,
    SHM_L_GENERATION = 16,
    SHM_L_WRITE_POS = 128,
    SHM_L_END_POS = 136,
    SHM_L_EVENT_WRITE = 144,
    SHM_L_END_CODE = 152,
    SHM_L_READ_POS = 256,
    SHM_L_UNDERRUN_SAMPLES = 264,
    SHM_L_DONE_GENERATION = 272,
    SHM_L_EVENT_READ = 384,
    SHM_L_CANCEL_GENERATION = 392,
    SHM_L_FADE_SAMPLES = 400,
    SHM_L_PAUSED = 404,

    SHM_EVENT_RINGS = SHM_LANE_HEADS + SHM_LANES * SHM_LANE_HEAD_BYTES,
    SHM_EVENT_BYTES = 32,
    SHM_EVENT_RING_BYTES = SHM_EVENTS * SHM_EVENT_BYTES,
    SHM_SAMPLE_RINGS = SHM_EVENT_RINGS + SHM_LANES * SHM_EVENT_RING_BYTES,
    SHM_SAMPLE_RING_BYTES = SHM_CAPACITY * 4,
    SHM_TOTAL_BYTES = SHM_SAMPLE_RINGS + SHM_LANES * SHM_SAMPLE_RING_BYTES
};

#define SHM_MAGIC UINT64_C(0x004e414d45454c47) /* "GLEEMAN\0", little-endian */
#define SHM_UNKNOWN_END UINT64_MAX

/* An event record, byte for byte. */
typedef struct shm_event {
    uint64_t sample;
    uint16_t type, code;
    float weight;
    uint32_t text_begin, text_end, duration_samples, reserved;
} shm_event;

_Static_assert(sizeof(shm_event) == SHM_EVENT_BYTES, "the event record has 32 bytes");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "atomics are plain words");

static inline uint64_t shm_load64(uint8_t *at, memory_order order) {
    return atomic_load_explicit((_Atomic uint64_t *)(void *)at, order);
}
static inline uint32_t shm_load32(uint8_t *at, memory_order order) {
    return atomic_load_explicit((_Atomic uint32_t *)(void *)at, order);
}
static inline void shm_store64(uint8_t *at, uint64_t value, memory_order order) {
    atomic_store_explicit((_Atomic uint64_t *)(void *)at, value, order);
}
static inline void shm_store32(uint8_t *at, uint32_t value, memory_order order) {
    atomic_store_explicit((_Atomic uint32_t *)(void *)at, value, order);
}

static inline uint8_t *shm_lane(uint8_t *base, uint32_t lane) {
    return base + SHM_LANE_HEADS + (size_t)(lane & (SHM_LANES - 1)) * SHM_LANE_HEAD_BYTES;
}

/* Copy the event at a position of the ring; the position is masked. */
static inline shm_event shm_event_at(uint8_t *base, uint32_t lane, uint64_t position) {
    shm_event event;
    memcpy(&event,
           base + SHM_EVENT_RINGS + (size_t)(lane & (SHM_LANES - 1)) * SHM_EVENT_RING_BYTES +
               (size_t)(position & (SHM_EVENTS - 1)) * SHM_EVENT_BYTES,
           sizeof event);
    return event;
}

/* Copy n <= SHM_CAPACITY samples from a position of the ring; the position is masked. */
static inline void shm_copy_samples(uint8_t *base, uint32_t lane, uint64_t position, float *out, uint32_t n) {
    const uint8_t *ring = base + SHM_SAMPLE_RINGS + (size_t)(lane & (SHM_LANES - 1)) * SHM_SAMPLE_RING_BYTES;
    uint32_t first = (uint32_t)(position & (SHM_CAPACITY - 1));
    uint32_t until_wrap = SHM_CAPACITY - first;
    uint32_t head = n < until_wrap ? n : until_wrap;
    memcpy(out, ring + (size_t)first * 4, (size_t)head * 4);
    if (n > head) memcpy(out + head, ring, (size_t)(n - head) * 4);
}

#endif
