/* The audio thread's side of a line. Wait-free: no lock, no loop but over the samples asked for, no
 * system call, no allocation. Everything out of the mapping is checked before it is used. */
#ifndef GLEEMAN_LANE_H
#define GLEEMAN_LANE_H

#include "client.h"

/* Only the holder of the gate calls this: nobody reads after it. */
static inline void lane_over(line_slot *slot, uint32_t end, uint32_t bad) {
    slot->read_end = end;
    slot->read_bad = bad;
    if (bad) atomic_store_explicit(&slot->map->bad, 1, memory_order_relaxed);
}

/* A paused line goes down to silence in `steps` samples, and up again; `quiet` counts how far down it is.
 * Returns how many samples were used before silence. */
static inline uint32_t lane_pause(line_slot *slot, uint32_t paused, uint32_t steps, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n && (paused || slot->quiet > 0); i++) {
        slot->quiet = paused ? slot->quiet + 1 : slot->quiet - 1;
        out[i] *= 1.0f - (float)slot->quiet / (float)steps;
        if (slot->quiet == steps) return i + 1;
    }
    return n;
}

/* A cancelled line goes down to silence in `fade` samples, from wherever a pause has put it. */
static inline uint32_t lane_fade(line_slot *slot, uint32_t fade, uint32_t steps, float *out, uint32_t n) {
    float from = 1.0f - (float)slot->quiet / (float)steps;
    for (uint32_t i = 0; i < n; i++) {
        if (slot->faded == fade) return i;
        slot->faded++;
        out[i] *= from * (1.0f - (float)slot->faded / (float)fade);
    }
    return n;
}

/* Fill out[0..n) from the line's lane; returns the samples given, zeros follow. Sets slot->read_end when
 * this was the last of it. */
static inline uint32_t lane_read(line_slot *slot, uint32_t lane, float *out, uint32_t n) {
    mapping *map = slot->map;
    uint8_t *head = shm_lane(map->base, lane);
    uint32_t cancel = atomic_load_explicit(&slot->cancel, memory_order_acquire);
    uint32_t paused = atomic_load_explicit(&slot->paused, memory_order_relaxed);
    /* In this order: who sees `dead` or the end sees all samples that were written before. */
    uint32_t dead = atomic_load_explicit(&map->dead, memory_order_acquire);
    uint64_t end = shm_load64(head + SHM_L_END_POS, memory_order_acquire);
    uint64_t write = shm_load64(head + SHM_L_WRITE_POS, memory_order_acquire);
    uint64_t pos = atomic_load_explicit(&slot->read_pos, memory_order_relaxed);
    if (write < slot->write_seen || write - pos > SHM_CAPACITY || (end != SHM_UNKNOWN_END && write != end)) {
        lane_over(slot, GLEEMAN_END_LOST, 1);
        return 0;
    }
    slot->write_seen = write;
    uint32_t available = (uint32_t)(write - pos), take = n < available ? n : available;
    int complete = end != SHM_UNKNOWN_END;
    if (!slot->started && !cancel) {
        if (paused || (available < (slot->preroll ? slot->preroll : 1) && !complete && !dead)) return 0;
        slot->started = 1;
    }
    uint32_t steps = map->rate_hz / PAUSE_FADE_HZ;
    if (paused && slot->quiet == steps && !cancel) return 0;

    shm_copy_samples(map->base, lane, pos, out, take);
    if (cancel) {
        int silent = !slot->started || slot->quiet == steps;
        if (silent) slot->faded = cancel - 1;
        take = lane_fade(slot, cancel - 1, steps, out, take);
    } else if (paused || slot->quiet > 0) take = lane_pause(slot, paused, steps, out, take);

    pos += take;
    atomic_store_explicit(&slot->read_pos, pos, memory_order_release);
    shm_store64(head + SHM_L_READ_POS, pos, memory_order_release);
    if (cancel) {
        if (slot->faded == cancel - 1 || pos == write) lane_over(slot, GLEEMAN_END_CANCELLED, 0);
    } else if (complete && pos == end) {
        uint32_t code = shm_load32(head + SHM_L_END_CODE, memory_order_acquire);
        int known = code >= GLEEMAN_END_DONE && code <= GLEEMAN_END_LOST;
        lane_over(slot, known ? code : GLEEMAN_END_LOST, !known);
    } else if (dead && pos == write) {
        lane_over(slot, GLEEMAN_END_LOST, 0);
    } else if (take < n && !paused) {
        uint64_t under = atomic_load_explicit(&slot->underrun, memory_order_relaxed) + (n - take);
        atomic_store_explicit(&slot->underrun, under, memory_order_relaxed);
        shm_store64(head + SHM_L_UNDERRUN_SAMPLES, under, memory_order_relaxed);
    }
    return take;
}

#endif
