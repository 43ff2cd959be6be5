/* The discovery file: a flat JSON object, read by a scanner that trusts nothing and allocates nothing.
 * Unknown keys may hold any JSON. Knows no sockets. */
#ifndef GLEEMAN_DISCOVERY_H
#define GLEEMAN_DISCOVERY_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DISCOVERY_MAX_BYTES = 16384, DISCOVERY_ENDPOINTS = 4, DISCOVERY_ENDPOINT_BYTES = 256, JSON_DEPTH = 16 };

typedef struct discovery {
    uint64_t protocol, pid, start_ns;
    char token[65];
    char endpoints[DISCOVERY_ENDPOINTS][DISCOVERY_ENDPOINT_BYTES];
    uint32_t endpoint_count;
} discovery;

typedef struct json {
    const char *at, *end;
} json;

static inline void json_space(json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
}

static inline int json_take(json *j, char c) {
    json_space(j);
    if (j->at >= j->end || *j->at != c) return 0;
    j->at++;
    return 1;
}

static inline int json_hex4(json *j, uint32_t *value) {
    *value = 0;
    if (j->end - j->at < 4) return 0;
    for (int i = 0; i < 4; i++) {
        char c = *j->at++;
        uint32_t digit;
        if (c >= '0' && c <= '9') digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f') digit = (uint32_t)((c | 32) - 'a' + 10);
        else return 0;
        *value = *value << 4 | digit;
    }
    return 1;
}

/* A string, as UTF-8 with a terminator; one that does not fit is cut to "" and *fits is 0. */
static inline int json_string(json *j, char *out, size_t room, int *fits) {
    size_t n = 0;
    *fits = 1;
    if (!json_take(j, '"')) return 0;
    for (;;) {
        uint32_t c, low;
        if (j->at >= j->end) return 0;
        c = (unsigned char)*j->at++;
        if (c == '"') break;
        if (c < 32) return 0;
        char utf8[4];
        size_t bytes = 1;
        utf8[0] = (char)c;
        if (c == '\\') {
            if (j->at >= j->end) return 0;
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            char escape = *j->at++;
            const char *simple = strchr(from, escape);
            if (escape != 0 && simple != NULL) {
                utf8[0] = to[simple - from];
            } else {
                if (escape != 'u' || !json_hex4(j, &c)) return 0;
                if (c >= 0xd800 && c < 0xdc00) {
                    if (j->end - j->at < 6 || j->at[0] != '\\' || j->at[1] != 'u') return 0;
                    j->at += 2;
                    if (!json_hex4(j, &low) || low < 0xdc00 || low > 0xdfff) return 0;
                    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                }
                if (c == 0 || (c >= 0xdc00 && c <= 0xdfff)) return 0;
                if (c < 0x80) utf8[0] = (char)c;
                else {
                    bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
                    static const uint8_t mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
                    for (size_t i = bytes - 1; i > 0; i--, c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
                    utf8[0] = (char)(mark[bytes] | c);
                }
            }
        }
        if (!*fits || n + bytes >= room) {
            *fits = 0;
            continue;
        }
        memcpy(out + n, utf8, bytes);
        n += bytes;
    }
    if (room > 0) out[*fits ? n : 0] = 0;
    return 1;
}

/* A number that is a u64, digits only. */
static inline int json_u64(json *j, uint64_t *value) {
    json_space(j);
    const char *first = j->at;
    *value = 0;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        uint64_t digit = (uint64_t)(*j->at - '0');
        if (*value > (UINT64_MAX - digit) / 10) return 0;
        *value = *value * 10 + digit;
        j->at++;
    }
    return j->at > first && (j->at >= j->end || strchr(",}] \t\r\n", *j->at) != NULL);
}

static inline int json_skip(json *j) {
    int depth = 0, fits;
    do { /* brackets are counted, not matched by kind: what is skipped is not used */
        json_space(j);
        if (j->at >= j->end) return 0;
        char c = *j->at;
        if (c == '"') {
            if (!json_string(j, NULL, 0, &fits)) return 0;
        } else {
            j->at++;
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') depth--;
            if (depth < 0 || depth > JSON_DEPTH) return 0;
            if (depth == 0 && c != '}' && c != ']')
                while (j->at < j->end && strchr(",}] \t\r\n", *j->at) == NULL) j->at++;
        }
    } while (depth > 0);
    return 1;
}

static inline int json_endpoints(json *j, discovery *found) {
    int fits;
    if (!json_take(j, '[')) return 0;
    if (json_take(j, ']')) return 1;
    do {
        char one[DISCOVERY_ENDPOINT_BYTES];
        if (!json_string(j, one, sizeof one, &fits)) return 0;
        if (fits && found->endpoint_count < DISCOVERY_ENDPOINTS)
            memcpy(found->endpoints[found->endpoint_count++], one, sizeof one);
    } while (json_take(j, ','));
    return json_take(j, ']');
}

/* 1: all that a client needs was there and well formed. */
static inline int discovery_parse(const char *text, size_t n, discovery *found) {
    enum { PROTOCOL = 1, PID = 2, START = 4, TOKEN = 8, ENDPOINTS = 16, ALL = 31 };
    json j = {text, text + n};
    int fits, seen = 0, ok;
    memset(found, 0, sizeof *found);
    if (!json_take(&j, '{')) return 0;
    do {
        char key[32];
        if (!json_string(&j, key, sizeof key, &fits) || !json_take(&j, ':')) return 0;
        if (strcmp(key, "protocol") == 0) ok = json_u64(&j, &found->protocol), seen |= PROTOCOL;
        else if (strcmp(key, "pid") == 0) ok = json_u64(&j, &found->pid), seen |= PID;
        else if (strcmp(key, "start_ns") == 0) ok = json_u64(&j, &found->start_ns), seen |= START;
        else if (strcmp(key, "token") == 0)
            ok = json_string(&j, found->token, sizeof found->token, &fits) && fits, seen |= TOKEN;
        else if (strcmp(key, "endpoints") == 0) ok = json_endpoints(&j, found), seen |= ENDPOINTS;
        else ok = json_skip(&j);
        if (!ok) return 0;
    } while (json_take(&j, ','));
    if (!json_take(&j, '}') || seen != ALL || found->endpoint_count == 0) return 0;
    return found->pid > 0 && found->pid <= UINT32_MAX && strlen(found->token) == 64;
}

#endif
