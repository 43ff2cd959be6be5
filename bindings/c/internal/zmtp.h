/* ZMTP 3.0, NULL mechanism, as a DEALER: bytes in, frames out. Knows no socket and no MessagePack.
 *
 *     greeting 64 B   FF 00*8 7F 03 00 "NULL" 00*16 as-server=0 00*31
 *     command         04 len name-length name body       (06: length as u64, big-endian)
 *     message         00 len body                        (02: the same; 01 and 03: more frames follow)
 *
 * The receive buffer has its full size from the start: no length of the peer makes it grow. */
#ifndef GLEEMAN_ZMTP_H
#define GLEEMAN_ZMTP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    ZMTP_GREETING_BYTES = 64,
    ZMTP_MAX_MESSAGE = 1 << 20,
    ZMTP_MAX_COMMAND = 4096,
    ZMTP_BUFFER_BYTES = ZMTP_MAX_MESSAGE + 4096
};

enum zmtp_got { ZMTP_BROKEN = -1, ZMTP_MORE_BYTES = 0, ZMTP_READY, ZMTP_MESSAGE, ZMTP_PING, ZMTP_OTHER };

typedef struct zmtp {
    uint8_t *buffer;       /* ZMTP_BUFFER_BYTES, given by the owner */
    size_t begin, end;     /* received and not consumed */
    size_t frame;          /* bytes of the frame that was given last */
    int greeted, ready;
    int in_parts;          /* inside a message of several frames, which is skipped as a whole */
} zmtp;

/* What zmtp_next found: the body of a message, or the context of a PING; good until zmtp_consume. */
typedef struct zmtp_frame {
    const uint8_t *body;
    size_t n;
} zmtp_frame;

static inline void zmtp_reset(zmtp *z, uint8_t *buffer) {
    memset(z, 0, sizeof *z);
    z->buffer = buffer;
}

/* Where to put received bytes, and how many: room for a whole frame is made by moving the rest down. */
static inline uint8_t *zmtp_space(zmtp *z, size_t *room) {
    if (z->begin == z->end) z->begin = z->end = 0;
    if (z->begin > 0 && ZMTP_BUFFER_BYTES - z->end < 65536) {
        memmove(z->buffer, z->buffer + z->begin, z->end - z->begin);
        z->end -= z->begin;
        z->begin = 0;
    }
    *room = ZMTP_BUFFER_BYTES - z->end;
    return z->buffer + z->end;
}

static inline void zmtp_received(zmtp *z, size_t n) { z->end += n; }

static inline void zmtp_consume(zmtp *z) {
    z->begin += z->frame;
    z->frame = 0;
}

static inline enum zmtp_got zmtp_greeting(zmtp *z) {
    const uint8_t *at = z->buffer + z->begin;
    size_t have = z->end - z->begin;
    if (have >= 1 && at[0] != 0xff) return ZMTP_BROKEN;
    if (have >= 10 && (at[9] & 1) == 0) return ZMTP_BROKEN;
    if (have >= 11 && at[10] < 3) return ZMTP_BROKEN;
    if (have < ZMTP_GREETING_BYTES) return ZMTP_MORE_BYTES;
    if (memcmp(at + 12, "NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20) != 0) return ZMTP_BROKEN;
    z->begin += ZMTP_GREETING_BYTES;
    z->greeted = 1;
    return ZMTP_OTHER;
}

static inline int zmtp_named(const uint8_t *body, size_t n, const char *name) {
    size_t length = strlen(name);
    return n >= length + 1 && body[0] == length && memcmp(body + 1, name, length) == 0;
}

/* READY's properties must be well formed, and a Socket-Type must be ROUTER. */
static inline int zmtp_ready_is_router(const uint8_t *at, size_t n) {
    int router = 0;
    while (n > 0) {
        size_t name = at[0];
        if (n < 1 + name + 4) return 0;
        const uint8_t *v = at + 1 + name;
        uint64_t value = (uint64_t)v[0] << 24 | (uint64_t)v[1] << 16 | (uint64_t)v[2] << 8 | v[3];
        if (value > n - (1 + name + 4)) return 0;
        if (name == 11 && memcmp(at + 1, "Socket-Type", 11) == 0)
            router = value == 6 && memcmp(v + 4, "ROUTER", 6) == 0;
        at += 1 + name + 4 + (size_t)value;
        n -= 1 + name + 4 + (size_t)value;
    }
    return router;
}

static inline enum zmtp_got zmtp_command(zmtp *z, const uint8_t *body, size_t n, zmtp_frame *out) {
    if (n < 1 || (size_t)body[0] + 1 > n) return ZMTP_BROKEN;
    if (zmtp_named(body, n, "READY")) {
        if (z->ready || !zmtp_ready_is_router(body + 6, n - 6)) return ZMTP_BROKEN;
        z->ready = 1;
        return ZMTP_READY;
    }
    if (!z->ready || zmtp_named(body, n, "ERROR")) return ZMTP_BROKEN;
    if (zmtp_named(body, n, "PING")) {
        if (n < 7 || n > 7 + 16) return ZMTP_BROKEN; /* name, time to live u16, context of at most 16 */
        out->body = body + 7;
        out->n = n - 7;
        return ZMTP_PING;
    }
    return ZMTP_OTHER; /* PONG, and what later minors bring */
}

/* The next frame in the buffer. Call zmtp_consume when done with it, before the next call. */
static inline enum zmtp_got zmtp_next(zmtp *z, zmtp_frame *out) {
    if (!z->greeted) return zmtp_greeting(z);
    const uint8_t *at = z->buffer + z->begin;
    size_t have = z->end - z->begin, head;
    uint64_t n;
    if (have < 2) return ZMTP_MORE_BYTES;
    uint8_t flags = at[0];
    if (flags & ~7u || (flags & 5) == 5) return ZMTP_BROKEN; /* unknown flags; a command has no more */
    if (flags & 2) {
        if (have < 9) return ZMTP_MORE_BYTES;
        n = 0;
        for (int i = 1; i <= 8; i++) n = n << 8 | at[i];
        head = 9;
    } else {
        n = at[1];
        head = 2;
    }
    if (n > (flags & 4 ? ZMTP_MAX_COMMAND : ZMTP_MAX_MESSAGE)) return ZMTP_BROKEN;
    if (have - head < n) return ZMTP_MORE_BYTES;
    z->frame = head + (size_t)n;
    if (flags & 4) return zmtp_command(z, at + head, (size_t)n, out);
    if (!z->ready) return ZMTP_BROKEN;
    int parts = z->in_parts || (flags & 1);
    z->in_parts = flags & 1;
    if (parts) return ZMTP_OTHER;
    out->body = at + head;
    out->n = (size_t)n;
    return ZMTP_MESSAGE;
}

/* ---- writing: each returns the bytes put at `to` ---- */

static inline size_t zmtp_put_greeting(uint8_t *to) {
    memset(to, 0, ZMTP_GREETING_BYTES);
    to[0] = 0xff;
    to[9] = 0x7f;
    to[10] = 3;
    memcpy(to + 12, "NULL", 4);
    return ZMTP_GREETING_BYTES;
}

static inline size_t zmtp_put_ready(uint8_t *to) {
    static const uint8_t ready[] = "\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06" "DEALER\x08Identity\0\0\0";
    memcpy(to, ready, sizeof ready); /* the string's own terminator is the last byte of the empty identity */
    return sizeof ready;
}

static inline size_t zmtp_put_pong(uint8_t *to, const uint8_t *context, size_t n) {
    to[0] = 4;
    to[1] = (uint8_t)(5 + n);
    memcpy(to + 2, "\x04PONG", 5);
    if (n != 0) memcpy(to + 7, context, n);
    return 7 + n;
}

enum { ZMTP_MAX_HEAD = 9 };

static inline size_t zmtp_put_head(uint8_t *to, size_t n) {
    if (n <= 255) {
        to[0] = 0;
        to[1] = (uint8_t)n;
        return 2;
    }
    to[0] = 2;
    for (int i = 0; i < 8; i++) to[1 + i] = (uint8_t)((uint64_t)n >> (8 * (7 - i)));
    return 9;
}

#endif
