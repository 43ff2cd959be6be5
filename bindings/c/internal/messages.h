/* The protocol's messages: ours to bytes, the daemon's from bytes. See bindings/spec/PROTOCOL.md.
 * Text of a decoded message points into the bytes it was read from. Knows no socket and no thread. */
#ifndef GLEEMAN_MESSAGES_H
#define GLEEMAN_MESSAGES_H

#include "../gleeman.h"
#include "msgpack.h"

enum { PROTOCOL_MAJOR = 1, MAX_TEXT_BYTES = 16000, MAX_NAME_BYTES = 512 };

static const char *const priority_names[] = {"immediate", "dialogue", "bark", "background"};
static const char *const while_loading_names[] = {"wait", "babble", "silent"};
static const char *const state_names[] = {"", "loading", "warming", "ready", "failed"};
static const char *const end_names[] = {"", "done", "cancelled", "expired", "failed", "refused", "lost"};

typedef struct code_row {
    gleeman_status status;
    const char *code;
} code_row;

/* One row a status; rows after the blank one are further codes of the protocol that share a status. */
static const code_row code_rows[] = {
    {GLEEMAN_OK, "ok"},
    {GLEEMAN_ENDED, "ended"},
    {GLEEMAN_E_ARGUMENT, "bad-value"},
    {GLEEMAN_E_MEMORY, "no-memory"},
    {GLEEMAN_E_NO_DAEMON, "no-daemon"},
    {GLEEMAN_E_TIMEOUT, "timeout"},
    {GLEEMAN_E_BAD_TOKEN, "bad-token"},
    {GLEEMAN_E_BAD_PROTOCOL, "bad-protocol"},
    {GLEEMAN_E_BAD_DAEMON, "bad-daemon"},
    {GLEEMAN_E_BUSY, "busy"},
    {GLEEMAN_E_TEXT_TOO_LONG, "text-too-long"},
    {GLEEMAN_E_BAD_TEXT, "bad-text"},
    {GLEEMAN_E_EMPTY_TEXT, "empty-text"},
    {GLEEMAN_E_UNKNOWN_LINE, "unknown-line"},
    {GLEEMAN_E_UNKNOWN_VOICE, "unknown-voice"},
    {GLEEMAN_E_NO_SPACE, "no-space"},
    {GLEEMAN_E_BAD_FILE, "bad-file"},
    {GLEEMAN_E_SHUTTING_DOWN, "shutting-down"},
    {GLEEMAN_E_LOST, "lost"},
    {GLEEMAN_E_CANCELLED, "cancelled"},
    {GLEEMAN_E_EXPIRED, "expired"},
    {GLEEMAN_E_PLATFORM, "unsupported-platform"},
    {GLEEMAN_E_UNSUPPORTED, "unsupported"},
    {GLEEMAN_E_OTHER, "internal"},
    {GLEEMAN_E_EMPTY_TEXT, "nothing-to-say"},
    {GLEEMAN_E_BAD_TEXT, "bad-phonemes"},
};

enum { CODE_ROWS = sizeof code_rows / sizeof code_rows[0] };

static inline const char *code_of_status(gleeman_status status) {
    for (size_t i = 0; i < CODE_ROWS; i++)
        if (code_rows[i].status == status) return code_rows[i].code;
    return "internal";
}

static inline gleeman_status status_of_code(const char *code) {
    if (code[0] == 0) return GLEEMAN_OK;
    for (size_t i = 2; i < CODE_ROWS; i++)
        if (strcmp(code_rows[i].code, code) == 0) return code_rows[i].status;
    return GLEEMAN_E_OTHER;
}

/* ---- ours: each returns the bytes written, 0 when they do not fit ---- */

static inline size_t msg_done(const mp_writer *w, const uint8_t *to) {
    return w->full ? 0 : (size_t)(w->at - to);
}

static inline size_t msg_put_hello(uint8_t *to, size_t room, uint64_t id, const char *token, const char *client,
                                   uint32_t pid, uint32_t rate_hz, uint32_t while_loading) {
    mp_writer w = {to, to + room, 0};
    mp_put_map(&w, 8);
    mp_put_text(&w, "type"), mp_put_text(&w, "hello");
    mp_put_text(&w, "id"), mp_put_uint(&w, id);
    mp_put_text(&w, "protocol"), mp_put_uint(&w, PROTOCOL_MAJOR);
    mp_put_text(&w, "token"), mp_put_text(&w, token);
    mp_put_text(&w, "client"), mp_put_text(&w, client);
    mp_put_text(&w, "pid"), mp_put_uint(&w, pid);
    mp_put_text(&w, "rate_hz"), mp_put_uint(&w, rate_hz);
    mp_put_text(&w, "while_loading"), mp_put_text(&w, while_loading_names[while_loading]);
    return msg_done(&w, to);
}

/* `line` serves as the request's id too: what answers it names the line either way. */
static inline size_t msg_put_speak(uint8_t *to, size_t room, uint64_t line, const gleeman_line_options *o) {
    mp_writer w = {to, to + room, 0};
    mp_put_map(&w, o->has_seed ? 14 : 13);
    mp_put_text(&w, "type"), mp_put_text(&w, "speak");
    mp_put_text(&w, "id"), mp_put_uint(&w, line);
    mp_put_text(&w, "line"), mp_put_uint(&w, line);
    mp_put_text(&w, o->phonemes ? "phonemes" : "text"), mp_put_str(&w, o->text, o->text_bytes);
    mp_put_text(&w, "voice"), mp_put_text(&w, o->voice);
    mp_put_text(&w, "emotion"), mp_put_text(&w, o->emotion);
    mp_put_text(&w, "intensity"), mp_put_f64(&w, o->intensity);
    mp_put_text(&w, "speed"), mp_put_f64(&w, o->speed);
    mp_put_text(&w, "pitch"), mp_put_f64(&w, o->pitch);
    mp_put_text(&w, "energy"), mp_put_f64(&w, o->energy);
    mp_put_text(&w, "language"), mp_put_text(&w, o->language);
    mp_put_text(&w, "priority"), mp_put_text(&w, priority_names[o->priority]);
    mp_put_text(&w, "deadline_ms"), mp_put_uint(&w, o->deadline_ms);
    if (o->has_seed) mp_put_text(&w, "seed"), mp_put_uint(&w, o->seed);
    return msg_done(&w, to);
}

static inline size_t msg_put_cancel(uint8_t *to, size_t room, uint64_t id, uint64_t line) {
    mp_writer w = {to, to + room, 0};
    mp_put_map(&w, 3);
    mp_put_text(&w, "type"), mp_put_text(&w, "cancel");
    mp_put_text(&w, "id"), mp_put_uint(&w, id);
    mp_put_text(&w, "line"), mp_put_uint(&w, line);
    return msg_done(&w, to);
}

static inline size_t msg_put_frame(uint8_t *to, size_t room) {
    mp_writer w = {to, to + room, 0};
    mp_put_map(&w, 1);
    mp_put_text(&w, "type"), mp_put_text(&w, "frame");
    return msg_done(&w, to);
}

/* bye, voices, status, ping */
static inline size_t msg_put_plain(uint8_t *to, size_t room, const char *type, uint64_t id) {
    mp_writer w = {to, to + room, 0};
    mp_put_map(&w, 2);
    mp_put_text(&w, "type"), mp_put_text(&w, type);
    mp_put_text(&w, "id"), mp_put_uint(&w, id);
    return msg_done(&w, to);
}

/* ---- the daemon's ---- */

enum msg_type {
    MSG_BROKEN,  /* not a map that fits its type */
    MSG_UNKNOWN, /* of a later minor: to be passed over */
    MSG_WELCOME, MSG_ERROR, MSG_OK, MSG_ACCEPTED, MSG_CLAUSES, MSG_ENDED, MSG_STATE, MSG_VOICE_LIST,
    MSG_STATUS_REPORT, MSG_PONG, MSG_GONE
};

typedef struct msg_text {
    const char *at;
    uint32_t n;
} msg_text;

typedef struct message {
    enum msg_type type;
    uint64_t re, line, seed;
    uint64_t protocol, session, mapping_bytes, rate_hz, lanes; /* welcome */
    uint32_t end, state;                                      /* GLEEMAN_END_..., GLEEMAN_STATE_... */
    int in_lane;
    double progress;
    msg_text code, text, mapping; /* text: message, voice taken, or default voice */
    mp_reader list;               /* warnings, clauses or voices: `list_n` items from here */
    uint32_t list_n;
} message;

static inline int msg_str(mp_reader map, const char *key, msg_text *text) {
    return mp_find_str(map, key, &text->at, &text->n);
}

static inline int msg_is(msg_text text, const char *name) {
    return text.n == strlen(name) && memcmp(text.at, name, text.n) == 0;
}

static inline uint32_t msg_name_index(msg_text text, const char *const *names, uint32_t count) {
    for (uint32_t i = 1; i < count; i++)
        if (msg_is(text, names[i])) return i;
    return 0;
}

static inline int msg_list(mp_reader map, const char *key, message *m) {
    mp_item item;
    if (!mp_find(map, key, &m->list) || !mp_next(&m->list, &item) || item.kind != MP_ARRAY) return 0;
    m->list_n = item.n;
    return 1;
}

static inline int msg_state(mp_reader map, message *m) {
    msg_text name;
    if (!msg_str(map, "state", &name) || !mp_find_number(map, "progress", &m->progress)) return 0;
    m->state = msg_name_index(name, state_names, 5);
    return m->progress >= 0.0 && m->progress <= 1.0; /* not a number: neither */
}

static inline int msg_fields(mp_reader map, message *m) {
    const uint64_t any = UINT64_MAX, u32 = UINT32_MAX;
    msg_text name;
    mp_reader at;
    mp_item item;
    switch (m->type) {
    case MSG_WELCOME:
        return mp_find_uint(map, "re", any, &m->re) && mp_find_uint(map, "protocol", u32, &m->protocol) &&
               mp_find_uint(map, "session", any, &m->session) && msg_str(map, "mapping", &m->mapping) &&
               mp_find_uint(map, "mapping_bytes", any, &m->mapping_bytes) &&
               mp_find_uint(map, "rate_hz", u32, &m->rate_hz) && mp_find_uint(map, "lanes", u32, &m->lanes) &&
               msg_state(map, m);
    case MSG_ERROR:
        return mp_find_uint(map, "re", any, &m->re) && msg_str(map, "code", &m->code) &&
               msg_str(map, "message", &m->text);
    case MSG_OK:
    case MSG_STATUS_REPORT:
    case MSG_PONG: return mp_find_uint(map, "re", any, &m->re);
    case MSG_ACCEPTED:
        if (!msg_list(map, "warnings", m)) m->list_n = 0;
        return mp_find_uint(map, "line", any, &m->line) && msg_str(map, "voice", &m->text) &&
               mp_find_uint(map, "seed", any, &m->seed);
    case MSG_CLAUSES: return mp_find_uint(map, "line", any, &m->line) && msg_list(map, "clauses", m);
    case MSG_ENDED:
        if (mp_find(map, "in_lane", &at) && mp_next(&at, &item))
            m->in_lane = item.kind == MP_BOOL && item.uint != 0;
        if (!mp_find_uint(map, "line", any, &m->line) || !msg_str(map, "end", &name) ||
            !msg_str(map, "code", &m->code) || !msg_str(map, "message", &m->text))
            return 0;
        m->end = msg_name_index(name, end_names, 7);
        return m->end != 0;
    case MSG_STATE:
        if (!msg_str(map, "message", &m->text)) m->text.n = 0;
        if (!msg_str(map, "code", &m->code)) m->code.n = 0;
        return msg_state(map, m);
    case MSG_VOICE_LIST: return msg_str(map, "default", &m->text) && msg_list(map, "voices", m);
    case MSG_GONE: return msg_str(map, "code", &m->code) && msg_str(map, "message", &m->text);
    default: return 1;
    }
}

/* One message out of n bytes. Never fails: m->type says MSG_BROKEN for what cannot be used. */
static inline void msg_decode(const uint8_t *bytes, size_t n, message *m) {
    static const char *const names[] = {"", "", "welcome", "error", "ok", "accepted", "clauses", "ended",
                                        "state", "voice_list", "status_report", "pong", "gone"};
    mp_reader map = {bytes, bytes + n}, whole = map;
    msg_text type;
    memset(m, 0, sizeof *m);
    m->code.at = m->text.at = m->mapping.at = "";
    if (!mp_skip(&whole) || whole.at != whole.end || !msg_str(map, "type", &type)) return;
    m->type = MSG_UNKNOWN;
    for (int i = MSG_WELCOME; i <= MSG_GONE; i++)
        if (msg_is(type, names[i])) m->type = (enum msg_type)i;
    if (!msg_fields(map, m)) m->type = MSG_BROKEN;
}

/* The next of a list's clauses; m->list moves on. */
typedef struct msg_clause {
    msg_text spoken;
    uint64_t begin, end;
    double ms;
} msg_clause;

static inline int msg_next_clause(mp_reader *list, msg_clause *clause) {
    mp_reader map = *list;
    return mp_skip(list) && msg_str(map, "spoken", &clause->spoken) &&
           mp_find_uint(map, "begin", UINT32_MAX, &clause->begin) &&
           mp_find_uint(map, "end", UINT32_MAX, &clause->end) && mp_find_number(map, "ms", &clause->ms);
}

#endif
