/* The calls of gleeman.h. One translation unit: `cc -std=c11 -O2 -c gleeman.c` is the whole build.
 *
 *     internal/platform.h   what differs by operating system
 *     internal/layout.h     the shared-memory mapping         internal/discovery.h  the discovery file
 *     internal/msgpack.h    MessagePack                       internal/zmtp.h       ZeroMQ's frames
 *     internal/messages.h   the protocol's messages           internal/client.h     records, queues
 *     internal/io.h         the connection's thread           internal/game.h       the game thread
 *     internal/lane.h       the audio thread
 */
#ifndef _WIN32
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#else
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#endif
#ifndef GLEEMAN_BUILD
#define GLEEMAN_BUILD
#endif

#include "gleeman.h"
#include "internal/client.h"
#include "internal/game.h"
#include "internal/io.h"
#include "internal/lane.h"

static _Thread_local char connect_error[MESSAGE_BYTES];

static gleeman_status fail(gleeman_client *c, gleeman_status status, const char *sentence) {
    text_copy(c == NULL ? connect_error : c->error, MESSAGE_BYTES, sentence, strlen(sentence));
    return status;
}

/* ---- options: a caller's struct may be smaller (older) or larger (newer) than ours ---- */

void gleeman_connect_options_init_sized(gleeman_connect_options *options, uint32_t struct_size) {
    gleeman_connect_options d = {0};
    if (options == NULL || struct_size < sizeof d.struct_size) return;
    d.struct_size = struct_size;
    d.rate_hz = 24000;
    d.wait_ms = 2000;
    d.reconnect_ms = 30000;
    memset(options, 0, struct_size);
    memcpy(options, &d, struct_size < sizeof d ? struct_size : sizeof d);
}

void gleeman_line_options_init_sized(gleeman_line_options *options, uint32_t struct_size) {
    gleeman_line_options d = {0};
    if (options == NULL || struct_size < sizeof d.struct_size) return;
    d.struct_size = struct_size;
    d.intensity = d.speed = 1.0;
    d.priority = GLEEMAN_PRIORITY_DIALOGUE;
    memset(options, 0, struct_size);
    memcpy(options, &d, struct_size < sizeof d ? struct_size : sizeof d);
}

/* Structs are multiples of 8: a size between two of them names the members before it. */
static int take_options(void *ours, size_t ours_bytes, const void *theirs, uint32_t least) {
    uint32_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < least || size > 65536) return 0;
    memcpy(ours, theirs, size < ours_bytes ? size & ~(size_t)7 : ours_bytes);
    return 1;
}

/* ---- connecting ---- */

static int instance_is_a_name(const char *instance) {
    size_t n = strlen(instance);
    return n <= 32 && strspn(instance, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static gleeman_status find_path(gleeman_client *c, const gleeman_connect_options *o) {
    char folder[PLAT_PATH_BYTES];
    const char *instance = o->instance == NULL ? "" : o->instance;
    int wrote;
    if (!instance_is_a_name(instance))
        return fail(NULL, GLEEMAN_E_ARGUMENT, "instance must be up to 32 letters, digits, '-' or '_'");
    if (o->discovery_path != NULL)
        wrote = snprintf(c->discovery_path, sizeof c->discovery_path, "%s", o->discovery_path);
    else if (!plat_runtime_folder(folder, sizeof folder))
        return fail(NULL, GLEEMAN_E_PLATFORM, "no home folder: set GLEEMAN_HOME or discovery_path");
    else
        wrote = snprintf(c->discovery_path, sizeof c->discovery_path, "%s/gleeman-%d%s%s.json", folder,
                         PROTOCOL_MAJOR, instance[0] ? "-" : "", instance);
    if (wrote <= 0 || (size_t)wrote >= sizeof c->discovery_path)
        return fail(NULL, GLEEMAN_E_ARGUMENT, "the discovery file's path is too long");
    return GLEEMAN_OK;
}

static int is_utf8(const char *text, size_t n);

static gleeman_status prepare(gleeman_client *c, const gleeman_connect_options *o) {
    if (o->rate_hz != 24000 && o->rate_hz != 44100 && o->rate_hz != 48000)
        return fail(NULL, GLEEMAN_E_ARGUMENT, "rate_hz must be 24000, 44100 or 48000");
    if (o->while_loading > GLEEMAN_WHILE_LOADING_SILENT)
        return fail(NULL, GLEEMAN_E_ARGUMENT, "while_loading must be 0 (wait), 1 (babble) or 2 (silent)");
    const char *name = o->client_name == NULL ? "" : o->client_name;
    if (strlen(name) > 128 || !is_utf8(name, strlen(name)))
        return fail(NULL, GLEEMAN_E_ARGUMENT, "client_name must be at most 128 bytes of UTF-8");
    strcpy(c->client_name, name);
    c->rate_asked = c->rate_hz = o->rate_hz;
    c->while_loading = o->while_loading;
    c->reconnect_ms = o->reconnect_ms;
    c->wait_until_ns = o->wait_ms ? plat_now_ns() + o->wait_ms * MS : 0;
    c->socket = PLAT_NO_SOCKET;
    atomic_store(&c->next_line, 1);
    for (uint32_t i = 0; i < BLOCKS; i++) c->blocks[i].next = (uint16_t)(i + 1 < BLOCKS ? i + 1 : NO_BLOCK);
    for (uint32_t i = 0; i < SLOTS; i++) c->slots[i].first_block = NO_BLOCK;
    return find_path(c, o);
}

static void stop(gleeman_client *c) {
    atomic_store(&c->stop, 1);
    plat_wake(&c->wakeup);
    plat_thread_join(&c->thread);
    plat_wake_close(&c->wakeup);
    for (int i = 0; i < MAPPINGS; i++)
        if (atomic_load(&c->maps[i].used)) plat_unmap(c->maps[i].base, SHM_TOTAL_BYTES);
}

static gleeman_status wait_for_daemon(gleeman_client *c) {
    while (atomic_load(&c->first_answer) == 0 && plat_now_ns() < c->wait_until_ns + 50 * MS) plat_sleep_ms(1);
    gleeman_status answer = atomic_load(&c->first_answer);
    return answer > 0 ? GLEEMAN_OK : answer == 0 ? GLEEMAN_E_TIMEOUT : answer;
}

gleeman_status gleeman_connect(const gleeman_connect_options *options, gleeman_client **client) {
    gleeman_connect_options o;
    if (client == NULL) return fail(NULL, GLEEMAN_E_ARGUMENT, "client must not be NULL");
    *client = NULL;
    gleeman_connect_options_init(&o);
    if (options != NULL && !take_options(&o, sizeof o, options, 8))
        return fail(NULL, GLEEMAN_E_ARGUMENT, "options.struct_size must be set: call gleeman_connect_options_init");
    gleeman_client *c = calloc(1, sizeof *c);
    if (c == NULL) return fail(NULL, GLEEMAN_E_MEMORY, "no memory for a client");
    gleeman_status status = prepare(c, &o);
    if (status != GLEEMAN_OK) {
        free(c);
        return status;
    }
    if (!plat_wake_open(&c->wakeup)) {
        free(c);
        return fail(NULL, GLEEMAN_E_PLATFORM, "no file descriptors left");
    }
    if (!plat_thread_start(&c->thread, io_main, c)) {
        plat_wake_close(&c->wakeup);
        free(c);
        return fail(NULL, GLEEMAN_E_PLATFORM, "no thread can be started");
    }
    if (c->wait_until_ns != 0) status = wait_for_daemon(c);
    if (status != GLEEMAN_OK) {
        stop(c); /* before its thread's sentence is read */
        fail(NULL, status, c->first_error[0] ? c->first_error : "the daemon does not answer");
        free(c);
        return status;
    }
    *client = c;
    return GLEEMAN_OK;
}

void gleeman_close(gleeman_client *client) {
    if (client == NULL) return;
    stop(client);
    free(client);
}

/* ---- lines ---- */

static int is_utf8(const char *text, size_t n) {
    const uint8_t *at = (const uint8_t *)text, *end = at + n;
    while (at < end) {
        uint8_t first = *at++;
        uint32_t c, least;
        int more;
        if (first < 0x80) continue;
        if (first >= 0xc2 && first < 0xe0) c = first & 0x1f, more = 1, least = 0x80;
        else if (first >= 0xe0 && first < 0xf0) c = first & 0x0f, more = 2, least = 0x800;
        else if (first >= 0xf0 && first < 0xf5) c = first & 0x07, more = 3, least = 0x10000;
        else return 0;
        if (end - at < more) return 0;
        for (; more > 0; more--, at++) {
            if ((*at & 0xc0) != 0x80) return 0;
            c = c << 6 | (*at & 0x3f);
        }
        if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    }
    return 1;
}

static int is_name(const char *name) {
    size_t n = strlen(name);
    return n <= MAX_NAME_BYTES && is_utf8(name, n);
}

static int within(double value, double least, double most) { return value >= least && value <= most; }

static gleeman_status check_line(gleeman_client *c, gleeman_line_options *o) {
    if (o->voice == NULL) o->voice = "";
    if (o->emotion == NULL) o->emotion = "neutral";
    if (o->language == NULL) o->language = "auto";
    if (o->text != NULL && o->text_bytes == 0) {
        size_t n = strlen(o->text);
        o->text_bytes = n > MAX_TEXT_BYTES ? MAX_TEXT_BYTES + 1 : (uint32_t)n;
    }
    if (o->text == NULL || o->text_bytes == 0) return fail(c, GLEEMAN_E_EMPTY_TEXT, "the text is empty");
    if (o->text_bytes > MAX_TEXT_BYTES)
        return fail(c, GLEEMAN_E_TEXT_TOO_LONG, "the text has more than 16000 bytes");
    if (!is_utf8(o->text, o->text_bytes)) return fail(c, GLEEMAN_E_BAD_TEXT, "the text must be UTF-8");
    if (!is_name(o->voice) || !is_name(o->emotion) || !is_name(o->language))
        return fail(c, GLEEMAN_E_ARGUMENT, "voice, emotion and language must be at most 512 bytes of UTF-8");
    if (!within(o->intensity, 0, 1)) return fail(c, GLEEMAN_E_ARGUMENT, "intensity must be from 0 to 1");
    if (!within(o->speed, 0.25, 4)) return fail(c, GLEEMAN_E_ARGUMENT, "speed must be from 0.25 to 4");
    if (!within(o->pitch, -12, 12)) return fail(c, GLEEMAN_E_ARGUMENT, "pitch must be from -12 to 12 semitones");
    if (!within(o->energy, -20, 20)) return fail(c, GLEEMAN_E_ARGUMENT, "energy must be from -20 to 20 decibels");
    if (o->priority > GLEEMAN_PRIORITY_BACKGROUND)
        return fail(c, GLEEMAN_E_ARGUMENT, "priority must be one of GLEEMAN_PRIORITY_...");
    if (o->deadline_ms > 86400000) return fail(c, GLEEMAN_E_ARGUMENT, "deadline_ms must be at most 86400000");
    if (o->has_seed > 1 || o->phonemes > 1)
        return fail(c, GLEEMAN_E_ARGUMENT, "has_seed and phonemes must be 0 or 1");
    if (o->has_seed && o->seed >> 63) return fail(c, GLEEMAN_E_ARGUMENT, "seed must be below 2^63");
    return GLEEMAN_OK;
}

gleeman_status gleeman_speak(gleeman_client *client, const gleeman_line_options *options, uint64_t *line) {
    gleeman_client *c = client;
    gleeman_line_options o;
    if (c == NULL || line == NULL) return GLEEMAN_E_ARGUMENT;
    *line = 0;
    gleeman_line_options_init(&o);
    if (options == NULL || !take_options(&o, sizeof o, options, 16))
        return fail(c, GLEEMAN_E_ARGUMENT, "options.struct_size must be set: call gleeman_line_options_init");
    gleeman_status status = check_line(c, &o);
    if (status != GLEEMAN_OK) return status;
    if (c->connection == GLEEMAN_CONNECTION_GIVEN_UP)
        return fail(c, GLEEMAN_E_NO_DAEMON, "no daemon runs; the connection comes back as an event");

    uint64_t number = atomic_load_explicit(&c->next_line, memory_order_relaxed), first = number;
    while (slot_line(slot_of(c, number)) != 0)
        if (++number - first >= SLOTS) return fail(c, GLEEMAN_E_BUSY, "512 lines have not ended yet");
    line_slot *slot = slot_of(c, number);
    size_t n = msg_put_speak(c->encode, sizeof c->encode, number, &o);
    /* A late read of the line that was here before may still look at the gate, and at nothing else. */
    memset((uint8_t *)slot + offsetof(line_slot, map), 0, sizeof *slot - offsetof(line_slot, map));
    slot->first_block = NO_BLOCK;
    if (n == 0 || !blocks_store(c, slot, c->encode, n))
        return fail(c, GLEEMAN_E_BUSY, "1 MiB of text waits already");
    atomic_store_explicit(&slot->gate, number << 2 | GATE_OPEN, memory_order_release);
    if (c->map != NULL) {
        slot->sent = (uint32_t)command_put(c, COMMAND_SPEAK, number);
        if (!slot->sent) {
            blocks_free(c, slot);
            atomic_store_explicit(&slot->gate, 0, memory_order_release);
            return fail(c, GLEEMAN_E_BUSY, "the queue to the daemon is full");
        }
        c->frame_due = 1;
    }
    atomic_store_explicit(&c->next_line, number + 1, memory_order_release);
    *line = number;
    return GLEEMAN_OK;
}

gleeman_status gleeman_frame(gleeman_client *client) {
    if (client == NULL) return GLEEMAN_E_ARGUMENT;
    if (!client->frame_due || client->map == NULL) return GLEEMAN_OK;
    if (!command_put(client, COMMAND_FRAME, 0)) return fail(client, GLEEMAN_E_BUSY, "the queue to the daemon is full");
    client->frame_due = 0;
    return GLEEMAN_OK;
}

gleeman_status gleeman_poll(gleeman_client *client, gleeman_event *out, uint32_t capacity, uint32_t *count) {
    if (client == NULL || out == NULL || count == NULL || capacity == 0) return GLEEMAN_E_ARGUMENT;
    sink s = {out, 0, capacity};
    client->scratch_used = 0;
    game_tell_notes(client, &s);
    if (client->map != NULL) game_scan(client, client->map, 0);
    game_tell_lanes(client, &s);
    if (client->ending_count) game_tell_ending(client, &s);
    game_drop_if_bad(client);
    game_retire(client);
    *count = s.n;
    return GLEEMAN_OK;
}

gleeman_status gleeman_read(gleeman_client *client, uint64_t line, float *out, uint32_t n, uint32_t *got) {
    if (got != NULL) *got = 0;
    if (client == NULL || out == NULL) return GLEEMAN_E_ARGUMENT;
    line_slot *slot = slot_of(client, line);
    uint64_t open = line << 2 | GATE_OPEN;
    gleeman_status status = GLEEMAN_OK;
    uint32_t given = 0;
    if (line == 0 || line >= atomic_load_explicit(&client->next_line, memory_order_acquire))
        status = GLEEMAN_E_UNKNOWN_LINE;
    else if (atomic_compare_exchange_strong_explicit(&slot->gate, &open, line << 2 | GATE_READING,
                                                     memory_order_acquire, memory_order_acquire)) {
        uint32_t lane = atomic_load_explicit(&slot->lane, memory_order_acquire);
        uint64_t gate = line << 2 | GATE_OPEN;
        atomic_fetch_add_explicit(&slot->reads, 1, memory_order_relaxed);
        if (lane != 0) given = lane_read(slot, lane - 1, out, n);
        if (slot->read_end != 0) {
            gate = line << 2 | GATE_OVER;
            status = GLEEMAN_ENDED;
        }
        atomic_store_explicit(&slot->gate, gate, memory_order_release);
    } else /* `open` holds what the gate said */
        status = open == (line << 2 | GATE_READING) ? GLEEMAN_E_BUSY : GLEEMAN_ENDED;
    memset(out + given, 0, (size_t)(n - given) * sizeof *out);
    if (got != NULL) *got = given;
    return status;
}

/* The slot of a line whose end has not been told. */
static line_slot *find_line(gleeman_client *c, uint64_t line) {
    line_slot *slot = slot_of(c, line);
    return line != 0 && slot_line(slot) == line ? slot : NULL;
}

gleeman_status gleeman_cancel(gleeman_client *client, uint64_t line, uint32_t fade_ms) {
    if (client == NULL) return GLEEMAN_E_ARGUMENT;
    if (fade_ms > 10000) return fail(client, GLEEMAN_E_ARGUMENT, "fade_ms must be at most 10000");
    line_slot *slot = find_line(client, line);
    if (slot == NULL) return fail(client, GLEEMAN_E_UNKNOWN_LINE, "no such line, or its end has been told");
    if (slot->end != 0 || slot->cancelled_ns != 0) return GLEEMAN_OK;
    slot->cancelled_ns = plat_now_ns();
    slot->reads_at_cancel = atomic_load_explicit(&slot->reads, memory_order_relaxed);
    uint32_t fade = (uint32_t)((uint64_t)fade_ms * client->rate_hz / 1000);
    atomic_store_explicit(&slot->cancel, fade + 1, memory_order_release);
    if (slot->map != NULL) game_mark_cancel(slot);
    else if (client->map == NULL)
        game_end(client, slot, GLEEMAN_END_CANCELLED, "cancelled", "the game cancelled the line");
    if (client->map != NULL && (slot->map == NULL || slot->map == client->map) &&
        !command_put(client, COMMAND_CANCEL, line) && slot->map == NULL) {
        slot->cancelled_ns = 0;
        atomic_store_explicit(&slot->cancel, 0, memory_order_release);
        return fail(client, GLEEMAN_E_BUSY, "the queue to the daemon is full");
    }
    return GLEEMAN_OK;
}

gleeman_status gleeman_pause(gleeman_client *client, uint64_t line, uint32_t paused) {
    if (client == NULL || paused > 1) return GLEEMAN_E_ARGUMENT;
    line_slot *slot = find_line(client, line);
    if (slot == NULL) return fail(client, GLEEMAN_E_UNKNOWN_LINE, "no such line, or its end has been told");
    atomic_store_explicit(&slot->paused, paused, memory_order_relaxed);
    if (slot->map != NULL) {
        uint32_t lane = atomic_load_explicit(&slot->lane, memory_order_relaxed) - 1;
        shm_store32(shm_lane(slot->map->base, lane) + SHM_L_PAUSED, paused, memory_order_release);
    }
    return GLEEMAN_OK;
}

gleeman_status gleeman_line_state(gleeman_client *client, uint64_t line, gleeman_line_info *info) {
    gleeman_line_info found = {0};
    if (client == NULL || info == NULL || info->struct_size < 8) return GLEEMAN_E_ARGUMENT;
    line_slot *slot = find_line(client, line);
    if (slot == NULL) return fail(client, GLEEMAN_E_UNKNOWN_LINE, "no such line, or its end has been told");
    uint64_t gate = atomic_load_explicit(&slot->gate, memory_order_acquire);
    found.struct_size = info->struct_size;
    found.heard_samples = atomic_load_explicit(&slot->read_pos, memory_order_acquire);
    found.underrun_samples = atomic_load_explicit(&slot->underrun, memory_order_relaxed);
    if (slot->end != 0 || (gate & 3) == GATE_OVER) found.state = GLEEMAN_LINE_ENDING;
    else if (slot->map != NULL) {
        uint32_t lane = atomic_load_explicit(&slot->lane, memory_order_relaxed) - 1;
        uint64_t ahead = shm_load64(shm_lane(slot->map->base, lane) + SHM_L_WRITE_POS, memory_order_acquire);
        ahead -= found.heard_samples;
        found.buffered_samples = ahead <= SHM_CAPACITY ? ahead : 0;
        found.state = GLEEMAN_LINE_BEGUN;
    } else found.state = slot->told & TOLD_ACCEPTED ? GLEEMAN_LINE_ACCEPTED : GLEEMAN_LINE_QUEUED;
    memcpy(info, &found, info->struct_size < sizeof found ? info->struct_size : sizeof found);
    return GLEEMAN_OK;
}

uint64_t gleeman_heard(gleeman_client *client, uint64_t line) {
    if (client == NULL) return 0;
    line_slot *slot = find_line(client, line);
    return slot == NULL ? 0 : atomic_load_explicit(&slot->read_pos, memory_order_acquire);
}

uint32_t gleeman_state(gleeman_client *client) { return client == NULL ? GLEEMAN_STATE_UNKNOWN : client->state; }

uint32_t gleeman_connection(gleeman_client *client) {
    return client == NULL ? GLEEMAN_CONNECTION_SEEKING : client->connection;
}

uint32_t gleeman_rate_hz(gleeman_client *client) { return client == NULL ? 0 : client->rate_hz; }

gleeman_status gleeman_request_voices(gleeman_client *client) {
    if (client == NULL) return GLEEMAN_E_ARGUMENT;
    if (client->map == NULL) return fail(client, GLEEMAN_E_NO_DAEMON, "not connected");
    return command_put(client, COMMAND_VOICES, 0) ? GLEEMAN_OK
                                                  : fail(client, GLEEMAN_E_BUSY, "the queue to the daemon is full");
}

const char *gleeman_status_name(gleeman_status status) { return code_of_status(status); }

size_t gleeman_last_error(gleeman_client *client, char *buffer, size_t bytes) {
    const char *from = client == NULL ? connect_error : client->error;
    if (buffer == NULL || bytes == 0) return 0;
    text_copy(buffer, bytes, from, strlen(from));
    return strlen(buffer);
}

uint32_t gleeman_abi_version(void) { return GLEEMAN_ABI_VERSION; }
