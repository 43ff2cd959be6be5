/* The connection's thread: finds the daemon, speaks ZMTP, opens mappings, watches the daemon live.
 * It touches no lane and ends no line; what it learns goes to the game thread as notes. */
#ifndef GLEEMAN_IO_H
#define GLEEMAN_IO_H

#include "client.h"

enum { PHASE_SEEK, PHASE_GREET, PHASE_HELLO, PHASE_UP };

#define MS UINT64_C(1000000)
#define HANDSHAKE_NS (5000 * MS)
#define TICK_NS (250 * MS)
#define PROBE_NS (1000 * MS)        /* between asking a daemon that stands still whether it knows us */
#define STILL_NS (2000 * MS)        /* feeder silent this long: dead if its pid is gone, else stalled */
#define ENGINE_STILL_NS (10000 * MS)
#define CANCEL_ID (UINT64_C(1) << 63)
#define REQUEST_ID (UINT64_C(1) << 62)

static const msg_text no_text = {"", 0};

/* Blocks until the game thread has polled if its queue is full: without polls nothing could be told. */
static void io_tell(gleeman_client *c, note head, msg_text text, msg_text code) {
    while (!note_put(c, head, text, code) && !atomic_load(&c->stop))
        plat_wait(PLAT_NO_SOCKET, 0, 0, &c->wakeup, 20);
}

static void io_tell_plain(gleeman_client *c, uint32_t type, gleeman_status why, const char *text) {
    note head = {0};
    head.type = type;
    io_tell(c, head, text_of(text), why == GLEEMAN_OK ? no_text : text_of(code_of_status(why)));
}

/* A try to connect failed: connect hears it at once when waiting cannot help, the game once a cause. */
static void io_failed(gleeman_client *c, gleeman_status why, int final, const char *text, size_t n) {
    if (atomic_load(&c->first_answer) == 0 && c->wait_until_ns != 0) {
        text_copy(c->first_error, sizeof c->first_error, text, n);
        if (final || plat_now_ns() >= c->wait_until_ns) atomic_store(&c->first_answer, why);
    } else if (final) {
        note head = {0};
        head.type = NOTE_FAILED;
        io_tell(c, head, (msg_text){text, (uint32_t)n}, text_of(code_of_status(why)));
    }
}

static void io_seek(gleeman_client *c, uint64_t in_ns) {
    if (c->socket != PLAT_NO_SOCKET) plat_disconnect(c->socket);
    c->socket = PLAT_NO_SOCKET;
    c->io_phase = PHASE_SEEK;
    c->seek_ns = plat_now_ns() + in_ns;
}

static int io_alive(uint64_t pid, uint64_t start_ns) {
    uint64_t found = plat_process_start_ns((uint32_t)pid);
    return found != 0 && plat_same_start(found, start_ns);
}

/* The session is over. `dead`: nothing more will come into its lanes. */
static void io_lost(gleeman_client *c, int dead, gleeman_status why, const char *text) {
    mapping *map = c->io_map;
    int was_up = c->io_phase == PHASE_UP;
    io_seek(c, 10 * MS);
    if (!was_up || map == NULL) return;
    c->io_map = NULL;
    map->lost_ns = plat_now_ns();
    if (dead || !io_alive(map->pid, map->start_ns)) atomic_store(&map->dead, 1);
    c->seek_until_ns = map->lost_ns + c->reconnect_ms * MS;
    c->io_gave_up = 0;
    io_tell_plain(c, NOTE_LOST, why, text);
}

/* Old mappings: is anybody still writing there? */
static void io_watch_old(gleeman_client *c, uint64_t now) {
    for (int i = 0; i < MAPPINGS; i++) {
        mapping *map = &c->maps[i];
        if (!atomic_load(&map->used) || map->lost_ns == 0 || atomic_load(&map->dead)) continue;
        if (now - map->lost_ns > STILL_NS || !io_alive(map->pid, map->start_ns)) atomic_store(&map->dead, 1);
    }
}

/* ---- sending ---- */

static uint8_t *io_out_room(gleeman_client *c, size_t n) {
    if (c->out_begin == c->out_end) c->out_begin = c->out_end = 0;
    if (SEND_BYTES - c->out_end < n && c->out_begin > 0) {
        memmove(c->out_buffer, c->out_buffer + c->out_begin, c->out_end - c->out_begin);
        c->out_end -= c->out_begin;
        c->out_begin = 0;
    }
    return SEND_BYTES - c->out_end < n ? NULL : c->out_buffer + c->out_end;
}

static int io_put(gleeman_client *c, const uint8_t *body, size_t n) {
    uint8_t *to = io_out_room(c, n + ZMTP_MAX_HEAD);
    if (to == NULL || n == 0) return 0;
    size_t head = zmtp_put_head(to, n);
    memcpy(to + head, body, n);
    c->out_end += head + n;
    return 1;
}

static int io_flush(gleeman_client *c) {
    while (c->out_begin < c->out_end) {
        long n = plat_send(c->socket, c->out_buffer + c->out_begin, c->out_end - c->out_begin);
        if (n < 0) return 0;
        if (n == 0) return 1;
        c->out_begin += (size_t)n;
    }
    return 1;
}

/* The request was encoded by the game thread into blocks that stay until the line begins or ends. */
static int io_put_speak(gleeman_client *c, uint64_t line) {
    line_slot *slot = slot_of(c, line);
    if (slot_line(slot) != line || slot->request_bytes == 0) return 1;
    size_t left = slot->request_bytes;
    uint8_t *to = io_out_room(c, left + ZMTP_MAX_HEAD);
    if (to == NULL) return 0;
    size_t head = zmtp_put_head(to, left);
    c->out_end += head + left;
    to += head;
    for (uint16_t block = slot->first_block; left > 0 && block < BLOCKS; block = c->blocks[block].next) {
        size_t n = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        memcpy(to, c->blocks[block].bytes, n);
        to += n;
        left -= n;
    }
    return 1;
}

static int io_command(gleeman_client *c, command what) {
    uint8_t body[128];
    if (what.type == COMMAND_UNMAP) {
        mapping *map = &c->maps[what.line & (MAPPINGS - 1)];
        plat_unmap(map->base, SHM_TOTAL_BYTES);
        map->base = NULL;
        atomic_store(&map->used, 0);
        return 1;
    }
    if (c->io_phase != PHASE_UP || what.connection != c->io_connection) return 1;
    switch (what.type) {
    case COMMAND_SPEAK: return io_put_speak(c, what.line);
    case COMMAND_CANCEL:
        return io_put(c, body, msg_put_cancel(body, sizeof body, CANCEL_ID | what.line, what.line));
    case COMMAND_FRAME: return io_put(c, body, msg_put_frame(body, sizeof body));
    case COMMAND_VOICES:
        return io_put(c, body, msg_put_plain(body, sizeof body, "voices", REQUEST_ID | ++c->request_id));
    default: /* COMMAND_DROP: nonsense in the mapping. This daemon is not asked again. */
        c->banned_pid = c->io_map->pid;
        c->banned_start_ns = c->io_map->start_ns;
        io_lost(c, 1, GLEEMAN_E_BAD_DAEMON, "the daemon wrote impossible numbers into its mapping");
        return 1;
    }
}

static void io_commands(gleeman_client *c) {
    uint32_t read = atomic_load_explicit(&c->command_read, memory_order_relaxed);
    while (read != atomic_load_explicit(&c->command_write, memory_order_acquire)) {
        command what = c->commands[read & (COMMANDS - 1)];
        if (c->io_stalled && c->io_phase == PHASE_UP && what.type < COMMAND_UNMAP) return;
        if (!io_command(c, what)) return; /* the socket is slow: again when it took something */
        atomic_store_explicit(&c->command_read, ++read, memory_order_release);
    }
}

/* ---- finding a daemon ---- */

static void io_try(gleeman_client *c) {
    char text[DISCOVERY_MAX_BYTES];
    const char *problem = NULL;
    gleeman_status why = GLEEMAN_E_NO_DAEMON;
    long n = plat_read_private_file(c->discovery_path, text, sizeof text);
    if (n == -1) problem = "no daemon runs: there is no discovery file; start `gleeman serve`";
    else if (n < 0) {
        problem = "the discovery file must be a file of this user that no one else can read";
        why = GLEEMAN_E_BAD_FILE;
    } else if (!discovery_parse(text, (size_t)n, &c->daemon)) {
        problem = "the discovery file does not hold what it should";
        why = GLEEMAN_E_BAD_FILE;
    } else if (c->daemon.protocol != PROTOCOL_MAJOR) {
        problem = "the daemon speaks another protocol; this library speaks protocol 1";
        why = GLEEMAN_E_BAD_PROTOCOL;
    } else if (!io_alive(c->daemon.pid, c->daemon.start_ns))
        problem = "no daemon runs: the one of the discovery file is gone";
    else if (c->daemon.pid == c->banned_pid && c->daemon.start_ns == c->banned_start_ns) {
        problem = "the daemon wrote impossible numbers into its mapping";
        why = GLEEMAN_E_BAD_DAEMON;
    } else {
        for (uint32_t i = 0; i < c->daemon.endpoint_count && c->socket == PLAT_NO_SOCKET; i++)
            c->socket = plat_connect(c->daemon.endpoints[i]);
        if (c->socket == PLAT_NO_SOCKET) problem = "the daemon's endpoints take no connection";
    }
    uint64_t now = plat_now_ns();
    if (problem != NULL) {
        io_failed(c, why, why == GLEEMAN_E_BAD_PROTOCOL && !c->io_was_up, problem, strlen(problem));
        if (now >= c->seek_until_ns && !c->io_gave_up) {
            c->io_gave_up = 1;
            io_tell_plain(c, NOTE_GAVE_UP, why, problem);
        }
        c->seek_ns = now + (c->io_gave_up || why == GLEEMAN_E_BAD_PROTOCOL ? 1000 * MS : 20 * MS);
        return;
    }
    zmtp_reset(&c->in, c->in_buffer);
    c->out_begin = 0;
    c->out_end = zmtp_put_greeting(c->out_buffer);
    c->out_end += zmtp_put_ready(c->out_buffer + c->out_end);
    c->io_phase = PHASE_GREET;
    c->phase_until_ns = now + HANDSHAKE_NS;
}

/* ---- what the daemon says ---- */

static gleeman_status io_open_mapping(gleeman_client *c, const message *m) {
    char path[PLAT_PATH_BYTES];
    mapping *map = NULL;
    for (int i = 0; i < MAPPINGS && map == NULL; i++)
        if (!atomic_load(&c->maps[i].used)) map = &c->maps[i];
    if (map == NULL || m->mapping.n >= sizeof path || memchr(m->mapping.at, 0, m->mapping.n) != NULL ||
        m->mapping_bytes != SHM_TOTAL_BYTES)
        return map == NULL ? GLEEMAN_E_BUSY : GLEEMAN_E_BAD_DAEMON;
    text_copy(path, sizeof path, m->mapping.at, m->mapping.n);
    uint8_t *base = plat_map(path, SHM_TOTAL_BYTES);
    if (base == NULL) return GLEEMAN_E_BAD_FILE;
    uint32_t version = shm_load32(base + SHM_H_LAYOUT_VERSION, memory_order_acquire);
    uint32_t rate = shm_load32(base + SHM_H_RATE_HZ, memory_order_relaxed);
    if (version != SHM_LAYOUT_VERSION || shm_load64(base + SHM_H_MAGIC, memory_order_relaxed) != SHM_MAGIC ||
        shm_load64(base + SHM_H_TOTAL_BYTES, memory_order_relaxed) != SHM_TOTAL_BYTES ||
        shm_load64(base + SHM_H_SESSION_ID, memory_order_relaxed) != m->session ||
        shm_load32(base + SHM_H_LANES, memory_order_relaxed) != SHM_LANES || m->lanes != SHM_LANES ||
        shm_load32(base + SHM_H_CAPACITY, memory_order_relaxed) != SHM_CAPACITY ||
        shm_load32(base + SHM_H_EVENTS, memory_order_relaxed) != SHM_EVENTS || rate != m->rate_hz ||
        (rate != 24000 && rate != 44100 && rate != 48000)) {
        plat_unmap(base, SHM_TOTAL_BYTES);
        return version != SHM_LAYOUT_VERSION ? GLEEMAN_E_UNSUPPORTED : GLEEMAN_E_BAD_DAEMON;
    }
    /* Touch every page here, so that no audio thread waits for one. */
    for (size_t at = 0; at < SHM_TOTAL_BYTES; at += 4096) (void)*(volatile uint8_t *)(base + at);
    map->base = base;
    map->pid = c->daemon.pid;
    map->start_ns = c->daemon.start_ns;
    map->rate_hz = rate;
    map->lost_ns = 0;
    atomic_store(&map->dead, 0);
    atomic_store(&map->bad, 0);
    atomic_store(&map->used, 1);
    c->io_map = map;
    return GLEEMAN_OK;
}

static void io_tell_state(gleeman_client *c, const message *m) {
    note head = {0};
    head.type = NOTE_STATE;
    head.value = m->state;
    head.number = m->progress;
    io_tell(c, head, m->text, m->code);
}

static void io_welcomed(gleeman_client *c, const message *m) {
    static const char problem[] = "the daemon's mapping cannot be opened or does not hold what it should";
    gleeman_status opened = io_open_mapping(c, m);
    if (opened != GLEEMAN_OK) {
        io_failed(c, opened, opened != GLEEMAN_E_BUSY, problem, strlen(problem));
        io_seek(c, 1000 * MS);
        return;
    }
    uint64_t now = plat_now_ns();
    c->io_phase = PHASE_UP;
    c->io_connection++;
    c->io_stalled = c->io_gave_up = 0;
    c->io_was_up = 1;
    c->feeder_beat = c->engine_progress = 0;
    c->feeder_moved_ns = c->engine_moved_ns = now;
    c->tick_ns = now;
    note head = {0};
    head.type = NOTE_UP;
    head.value = (uint32_t)(c->io_map - c->maps);
    io_tell(c, head, no_text, no_text);
    io_tell_state(c, m);
    atomic_store(&c->first_answer, 1);
}

static void io_clauses(gleeman_client *c, message *m) {
    msg_clause clause;
    for (uint32_t i = 0; i < m->list_n && msg_next_clause(&m->list, &clause); i++) {
        note head = {0};
        head.type = NOTE_CLAUSE;
        head.line = m->line;
        head.begin = (uint32_t)clause.begin;
        head.end = (uint32_t)clause.end;
        head.number = clause.ms;
        head.value = i;
        head.sample = m->list_n;
        io_tell(c, head, clause.spoken, no_text);
    }
}

static void io_accepted(gleeman_client *c, message *m) {
    note head = {0};
    head.type = NOTE_ACCEPTED;
    head.line = m->line;
    head.seed = m->seed;
    io_tell(c, head, m->text, no_text);
    head.type = NOTE_WARNING;
    for (uint32_t i = 0; i < m->list_n; i++) {
        mp_item item;
        mp_reader at = m->list;
        if (!mp_skip(&m->list) || !mp_next(&at, &item) || item.kind != MP_STR) return;
        io_tell(c, head, (msg_text){(const char *)item.data, item.n}, no_text);
    }
}

static void io_voices(gleeman_client *c, message *m) {
    for (uint32_t i = 0; i < m->list_n; i++) {
        mp_reader map = m->list;
        msg_text name, language;
        if (!mp_skip(&m->list) || !msg_str(map, "name", &name) || !msg_str(map, "language", &language)) return;
        note head = {0};
        head.type = NOTE_VOICE;
        head.value = i;
        head.sample = m->list_n;
        head.number = name.n == m->text.n && memcmp(name.at, m->text.at, name.n) == 0 ? 1.0 : 0.0;
        io_tell(c, head, name, language);
    }
}

static void io_error(gleeman_client *c, const message *m) {
    note head = {0};
    if (msg_is(m->code, "hello-first")) {
        io_lost(c, 1, GLEEMAN_E_LOST, "the daemon has ended this session");
        return;
    }
    head.type = NOTE_ERROR;
    if (m->re & CANCEL_ID) {
        head.type = NOTE_UNKNOWN_LINE;
        head.line = m->re & ~CANCEL_ID;
    } else if (m->re != 0 && !(m->re & REQUEST_ID)) { /* a speak that could not be read far enough */
        head.type = NOTE_ENDED;
        head.line = m->re;
        head.value = GLEEMAN_END_REFUSED;
    }
    io_tell(c, head, m->text, m->code);
}

static void io_hello_answer(gleeman_client *c, const message *m) {
    char code[CODE_BYTES];
    if (m->type == MSG_WELCOME && m->protocol == PROTOCOL_MAJOR) {
        io_welcomed(c, m);
        return;
    }
    static const char odd[] = "the daemon did not answer hello as it should";
    gleeman_status why = m->type == MSG_WELCOME ? GLEEMAN_E_BAD_PROTOCOL : GLEEMAN_E_BAD_DAEMON;
    if (m->type == MSG_ERROR || m->type == MSG_GONE) {
        text_copy(code, sizeof code, m->code.at, m->code.n);
        why = status_of_code(code);
        /* A daemon on its way out, or full: another try may do. */
        io_failed(c, why, why != GLEEMAN_E_SHUTTING_DOWN, m->text.at, m->text.n);
    } else io_failed(c, why, 1, odd, strlen(odd));
    io_seek(c, why == GLEEMAN_E_SHUTTING_DOWN ? 50 * MS : 1000 * MS);
}

static void io_message(gleeman_client *c, const uint8_t *bytes, size_t n) {
    message m;
    msg_decode(bytes, n, &m);
    if (m.type == MSG_UNKNOWN) return;
    if (c->io_phase == PHASE_HELLO) {
        if (m.type != MSG_STATE) io_hello_answer(c, &m);
        return;
    }
    note head = {0};
    switch (m.type) {
    case MSG_ACCEPTED: io_accepted(c, &m); break;
    case MSG_CLAUSES: io_clauses(c, &m); break;
    case MSG_STATE: io_tell_state(c, &m); break;
    case MSG_VOICE_LIST: io_voices(c, &m); break;
    case MSG_ERROR: io_error(c, &m); break;
    case MSG_ENDED:
        head.type = NOTE_ENDED;
        head.line = m.line;
        head.value = m.end;
        head.begin = (uint32_t)m.in_lane;
        io_tell(c, head, m.text, m.code);
        break;
    case MSG_GONE: {
        char text[MESSAGE_BYTES], code[CODE_BYTES];
        text_copy(text, sizeof text, m.text.at, m.text.n);
        text_copy(code, sizeof code, m.code.at, m.code.n);
        io_lost(c, 1, status_of_code(code), text);
        break;
    }
    case MSG_BROKEN:
    case MSG_WELCOME: io_lost(c, 0, GLEEMAN_E_BAD_DAEMON, "the daemon sent a message that cannot be read"); break;
    default: break; /* ok, pong, status_report: nothing waits for them */
    }
}

static void io_say_hello(gleeman_client *c) {
    uint8_t body[512];
    size_t n = msg_put_hello(body, sizeof body, REQUEST_ID | ++c->request_id, c->daemon.token, c->client_name,
                             plat_pid(), c->rate_asked, c->while_loading);
    io_put(c, body, n);
    c->io_phase = PHASE_HELLO;
}

static void io_receive(gleeman_client *c) {
    for (int turn = 0; turn < 16; turn++) {
        size_t room;
        uint8_t *to = zmtp_space(&c->in, &room);
        if (room == 0) {
            io_lost(c, 0, GLEEMAN_E_BAD_DAEMON, "the daemon sent a frame that is too long");
            return;
        }
        long n = plat_receive(c->socket, to, room);
        if (n == 0) return;
        if (n < 0) {
            io_lost(c, 0, GLEEMAN_E_LOST, "the connection broke");
            return;
        }
        zmtp_received(&c->in, (size_t)n);
        for (;;) {
            zmtp_frame frame = {NULL, 0};
            enum zmtp_got got = zmtp_next(&c->in, &frame);
            if (got == ZMTP_MORE_BYTES) break;
            if (got == ZMTP_BROKEN) {
                io_lost(c, 0, GLEEMAN_E_BAD_DAEMON, "the daemon's bytes are not ZMTP 3 of a ROUTER");
                return;
            }
            if (got == ZMTP_READY) io_say_hello(c);
            if (got == ZMTP_MESSAGE) io_message(c, frame.body, frame.n);
            if (got == ZMTP_PING && (to = io_out_room(c, 32)) != NULL)
                c->out_end += zmtp_put_pong(to, frame.body, frame.n);
            if (c->io_phase == PHASE_SEEK) return; /* the connection is over */
            zmtp_consume(&c->in);
        }
    }
}

/* ---- is the daemon alive ---- */

static void io_tick(gleeman_client *c, uint64_t now) {
    uint8_t *base = c->io_map->base;
    c->tick_ns = now + TICK_NS;
    shm_store64(base + SHM_H_CLIENT_BEAT, ++c->client_beat, memory_order_release);
    uint64_t beat = shm_load64(base + SHM_H_FEEDER_BEAT, memory_order_acquire);
    uint64_t progress = shm_load64(base + SHM_H_ENGINE_PROGRESS, memory_order_relaxed);
    uint32_t busy = shm_load32(base + SHM_H_ENGINE_BUSY, memory_order_relaxed);
    if (beat != c->feeder_beat) c->feeder_moved_ns = now;
    if (progress != c->engine_progress || !busy) c->engine_moved_ns = now;
    c->feeder_beat = beat;
    c->engine_progress = progress;
    int still = now - c->feeder_moved_ns >= STILL_NS;
    if (still && !io_alive(c->io_map->pid, c->io_map->start_ns)) {
        io_lost(c, 1, GLEEMAN_E_LOST, "the daemon died");
        return;
    }
    uint32_t stalled = still || now - c->engine_moved_ns >= ENGINE_STILL_NS;
    if (stalled != c->io_stalled) {
        c->io_stalled = stalled;
        io_tell_plain(c, stalled ? NOTE_STALLED : NOTE_MOVING, GLEEMAN_OK,
                      stalled ? "the daemon lives, but does nothing" : "the daemon goes on");
    }
    if (stalled && now >= c->probe_ns) { /* or it goes on without us: then it answers hello-first */
        uint8_t body[64];
        c->probe_ns = now + PROBE_NS;
        io_put(c, body, msg_put_plain(body, sizeof body, "ping", REQUEST_ID | ++c->request_id));
    }
}

static int io_timeout_ms(gleeman_client *c, uint64_t now) {
    uint64_t due = c->io_phase == PHASE_SEEK ? c->seek_ns : c->io_phase == PHASE_UP ? c->tick_ns : c->phase_until_ns;
    for (int i = 0; i < MAPPINGS; i++) /* an old daemon that may die */
        if (atomic_load(&c->maps[i].used) && c->maps[i].lost_ns && !atomic_load(&c->maps[i].dead) &&
            due > now + 10 * MS)
            due = now + 10 * MS;
    return due <= now ? 0 : (int)((due - now + MS - 1) / MS);
}

static void io_goodbye(gleeman_client *c) {
    uint8_t body[64];
    uint64_t until = plat_now_ns() + 200 * MS;
    if (c->io_phase == PHASE_UP) {
        io_put(c, body, msg_put_plain(body, sizeof body, "bye", REQUEST_ID | ++c->request_id));
        while (io_flush(c) && c->out_begin < c->out_end && plat_now_ns() < until)
            plat_wait(c->socket, 0, 1, &c->wakeup, 20);
    }
    if (c->socket != PLAT_NO_SOCKET) plat_disconnect(c->socket);
    c->socket = PLAT_NO_SOCKET;
}

static void io_main(void *argument) {
    gleeman_client *c = argument;
    c->seek_until_ns = plat_now_ns() + c->reconnect_ms * MS;
    while (!atomic_load(&c->stop)) {
        uint64_t now = plat_now_ns();
        io_watch_old(c, now);
        if (c->io_phase == PHASE_SEEK && now >= c->seek_ns) io_try(c);
        else if (c->io_phase == PHASE_UP && now >= c->tick_ns) io_tick(c, now);
        else if (c->io_phase != PHASE_SEEK && c->io_phase != PHASE_UP && now >= c->phase_until_ns) {
            static const char problem[] = "the daemon does not answer";
            io_failed(c, GLEEMAN_E_TIMEOUT, 0, problem, strlen(problem));
            io_seek(c, 100 * MS);
        }
        atomic_exchange(&c->wake_pending, 0);
        io_commands(c);
        if (c->io_phase != PHASE_SEEK && !io_flush(c)) io_lost(c, 0, GLEEMAN_E_LOST, "the connection broke");
        plat_wait(c->socket, c->io_phase != PHASE_SEEK, c->out_begin < c->out_end, &c->wakeup,
                  io_timeout_ms(c, plat_now_ns()));
        if (c->io_phase != PHASE_SEEK) io_receive(c);
    }
    io_goodbye(c);
}

#endif
