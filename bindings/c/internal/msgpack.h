/* MessagePack, as much as the protocol needs: a bounded writer and a reader that trusts nothing.
 * No recursion, no allocation; knows no messages. */
#ifndef GLEEMAN_MSGPACK_H
#define GLEEMAN_MSGPACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- writing: `full` is set, and nothing more is written, when the end is reached ---- */

typedef struct mp_writer {
    uint8_t *at, *end;
    int full;
} mp_writer;

static inline void mp_raw(mp_writer *w, const void *data, size_t n) {
    if (w->full || (size_t)(w->end - w->at) < n) {
        w->full = 1;
        return;
    }
    if (n != 0) memcpy(w->at, data, n);
    w->at += n;
}

static inline void mp_head(mp_writer *w, uint8_t tag, uint64_t value, int bytes) {
    uint8_t head[9];
    head[0] = tag;
    for (int i = 0; i < bytes; i++) head[1 + i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    mp_raw(w, head, (size_t)bytes + 1);
}

static inline void mp_put_map(mp_writer *w, uint32_t pairs) {
    if (pairs < 16) mp_head(w, (uint8_t)(0x80 | pairs), 0, 0);
    else mp_head(w, 0xde, pairs, 2);
}

static inline void mp_put_uint(mp_writer *w, uint64_t v) {
    if (v < 128) mp_head(w, (uint8_t)v, 0, 0);
    else if (v <= UINT8_MAX) mp_head(w, 0xcc, v, 1);
    else if (v <= UINT16_MAX) mp_head(w, 0xcd, v, 2);
    else if (v <= UINT32_MAX) mp_head(w, 0xce, v, 4);
    else mp_head(w, 0xcf, v, 8);
}

static inline void mp_put_f64(mp_writer *w, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    mp_head(w, 0xcb, bits, 8);
}

static inline void mp_put_str(mp_writer *w, const char *text, size_t n) {
    if (n < 32) mp_head(w, (uint8_t)(0xa0 | n), 0, 0);
    else if (n <= UINT8_MAX) mp_head(w, 0xd9, n, 1);
    else if (n <= UINT16_MAX) mp_head(w, 0xda, n, 2);
    else mp_head(w, 0xdb, n, 4);
    mp_raw(w, text, n);
}

static inline void mp_put_text(mp_writer *w, const char *text) { mp_put_str(w, text, strlen(text)); }

/* ---- reading ---- */

typedef struct mp_reader {
    const uint8_t *at, *end;
} mp_reader;

enum mp_kind { MP_NIL, MP_BOOL, MP_UINT, MP_NEGATIVE, MP_FLOAT, MP_STR, MP_BIN, MP_EXT, MP_ARRAY, MP_MAP };

typedef struct mp_item {
    enum mp_kind kind;
    uint64_t uint;       /* UINT; BOOL 0 or 1; NEGATIVE: its two's complement */
    double number;       /* UINT, NEGATIVE, FLOAT */
    const uint8_t *data; /* STR, BIN, EXT: in the reader's buffer */
    uint32_t n;          /* bytes of STR, BIN, EXT; items of ARRAY; pairs of MAP: never more than fit */
} mp_item;

static inline int mp_big_endian(mp_reader *r, int bytes, uint64_t *value) {
    if (r->end - r->at < bytes) return 0;
    *value = 0;
    for (int i = 0; i < bytes; i++) *value = *value << 8 | r->at[i];
    r->at += bytes;
    return 1;
}

static inline int mp_body(mp_reader *r, mp_item *item, enum mp_kind kind, uint64_t n) {
    if (n > (uint64_t)(r->end - r->at)) return 0;
    item->kind = kind;
    item->data = r->at;
    item->n = (uint32_t)n;
    r->at += n;
    return 1;
}

static inline int mp_container(mp_reader *r, mp_item *item, enum mp_kind kind, uint64_t n) {
    /* Every item takes a byte at least: a count that cannot be true is refused before anyone loops. */
    uint64_t left = (uint64_t)(r->end - r->at);
    if (n > (kind == MP_MAP ? left / 2 : left)) return 0;
    item->kind = kind;
    item->n = (uint32_t)n;
    return 1;
}

static inline int mp_integer(mp_reader *r, mp_item *item, int bytes, int is_signed) {
    uint64_t v;
    if (!mp_big_endian(r, bytes, &v)) return 0;
    if (is_signed && v >> (8 * bytes - 1)) {
        if (bytes < 8) v |= ~UINT64_C(0) << (8 * bytes);
        item->kind = MP_NEGATIVE;
        item->uint = v;
        item->number = -(double)(~v) - 1.0;
    } else {
        item->kind = MP_UINT;
        item->uint = v;
        item->number = (double)v;
    }
    return 1;
}

/* The next item: scalars whole, of a container only its head. 0: broken or cut off. */
static inline int mp_next(mp_reader *r, mp_item *item) {
    memset(item, 0, sizeof *item);
    if (r->at >= r->end) return 0;
    uint8_t tag = *r->at++;
    uint64_t v = 0;
    if (tag < 0x80 || tag >= 0xe0) {
        r->at--;
        return mp_integer(r, item, 1, 1);
    }
    if (tag < 0x90) return mp_container(r, item, MP_MAP, tag & 0x0f);
    if (tag < 0xa0) return mp_container(r, item, MP_ARRAY, tag & 0x0f);
    if (tag < 0xc0) return mp_body(r, item, MP_STR, tag & 0x1f);
    switch (tag) {
    case 0xc0: item->kind = MP_NIL; return 1;
    case 0xc2:
    case 0xc3: item->kind = MP_BOOL; item->uint = tag & 1; return 1;
    case 0xc4: case 0xc5: case 0xc6:
        return mp_big_endian(r, 1 << (tag - 0xc4), &v) && mp_body(r, item, MP_BIN, v);
    case 0xc7: case 0xc8: case 0xc9:
        return mp_big_endian(r, 1 << (tag - 0xc7), &v) && mp_body(r, item, MP_EXT, v + 1);
    case 0xca: {
        float f;
        if (!mp_big_endian(r, 4, &v)) return 0;
        uint32_t bits = (uint32_t)v;
        memcpy(&f, &bits, sizeof f);
        item->kind = MP_FLOAT;
        item->number = (double)f;
        return 1;
    }
    case 0xcb:
        if (!mp_big_endian(r, 8, &v)) return 0;
        memcpy(&item->number, &v, sizeof item->number);
        item->kind = MP_FLOAT;
        return 1;
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return mp_integer(r, item, 1 << (tag - 0xcc), 0);
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return mp_integer(r, item, 1 << (tag - 0xd0), 1);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
        return mp_body(r, item, MP_EXT, (UINT64_C(1) << (tag - 0xd4)) + 1);
    case 0xd9: case 0xda: case 0xdb:
        return mp_big_endian(r, 1 << (tag - 0xd9), &v) && mp_body(r, item, MP_STR, v);
    case 0xdc: case 0xdd: return mp_big_endian(r, 2 << (tag - 0xdc), &v) && mp_container(r, item, MP_ARRAY, v);
    case 0xde: case 0xdf: return mp_big_endian(r, 2 << (tag - 0xde), &v) && mp_container(r, item, MP_MAP, v);
    default: return 0; /* 0xc1 */
    }
}

/* Step over one value with all it holds. Depth costs nothing: only a count is kept. */
static inline int mp_skip(mp_reader *r) {
    uint64_t left = 1;
    mp_item item;
    while (left > 0) {
        if (left > (uint64_t)(r->end - r->at) || !mp_next(r, &item)) return 0;
        left--;
        if (item.kind == MP_ARRAY) left += item.n;
        if (item.kind == MP_MAP) left += 2 * (uint64_t)item.n;
    }
    return 1;
}

/* In the map that starts at `map`: set *value to the value of `key`. 0: no such key, or no whole map. */
static inline int mp_find(mp_reader map, const char *key, mp_reader *value) {
    mp_item head, name;
    size_t n = strlen(key);
    if (!mp_next(&map, &head) || head.kind != MP_MAP) return 0;
    for (uint32_t i = 0; i < head.n; i++) {
        mp_reader at = map;
        if (mp_next(&at, &name) && name.kind == MP_STR && name.n == n && memcmp(name.data, key, n) == 0) {
            *value = at;
            return 1;
        }
        if (!mp_skip(&map) || !mp_skip(&map)) return 0;
    }
    return 0;
}

static inline int mp_find_uint(mp_reader map, const char *key, uint64_t most, uint64_t *value) {
    mp_item item;
    mp_reader at;
    if (!mp_find(map, key, &at) || !mp_next(&at, &item) || item.kind != MP_UINT || item.uint > most) return 0;
    *value = item.uint;
    return 1;
}

static inline int mp_find_number(mp_reader map, const char *key, double *value) {
    mp_item item;
    mp_reader at;
    if (!mp_find(map, key, &at) || !mp_next(&at, &item)) return 0;
    if (item.kind != MP_UINT && item.kind != MP_NEGATIVE && item.kind != MP_FLOAT) return 0;
    *value = item.number;
    return 1;
}

static inline int mp_find_str(mp_reader map, const char *key, const char **text, uint32_t *n) {
    mp_item item;
    mp_reader at;
    if (!mp_find(map, key, &at) || !mp_next(&at, &item) || item.kind != MP_STR) return 0;
    *text = (const char *)item.data;
    *n = item.n;
    return 1;
}

#endif
