/* The game thread's side: lines, their events and their ends. Allocates nothing. */
#ifndef GLEEMAN_GAME_H
#define GLEEMAN_GAME_H

#include "client.h"

#define IDLE_READER_NS UINT64_C(250000000)  /* a cancelled line whose reader has gone away ends after this */
#define WAIT_FOR_CODE_NS UINT64_C(500000000) /* the lane says "failed"; the message that says why may lag */

typedef struct sink {
    gleeman_event *out;
    uint32_t n, capacity;
} sink;

static inline gleeman_event *sink_add(sink *s, uint32_t type, uint64_t line) {
    gleeman_event *event = &s->out[s->n++];
    memset(event, 0, sizeof *event);
    event->type = type;
    event->line = line;
    event->text = event->code = "";
    return event;
}

/* A copy that lives until the next poll; cut to nothing when the room is used up. */
static inline const char *scratch_copy(gleeman_client *c, const char *text) {
    size_t n = strlen(text) + 1;
    if (n == 1 || sizeof c->scratch - c->scratch_used < n) return "";
    char *to = c->scratch + c->scratch_used;
    memcpy(to, text, n);
    c->scratch_used += (uint32_t)n;
    return to;
}

/* ---- requests, kept until their line begins ---- */

static inline int blocks_store(gleeman_client *c, line_slot *slot, const uint8_t *bytes, size_t n) {
    uint16_t first = c->free_block, block = first, last = NO_BLOCK;
    for (size_t left = n; left > 0; block = c->blocks[block].next) {
        if (block == NO_BLOCK) return 0;
        size_t part = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        memcpy(c->blocks[block].bytes, bytes + (n - left), part);
        left -= part;
        last = block;
    }
    c->free_block = block;
    c->blocks[last].next = NO_BLOCK;
    slot->first_block = first;
    slot->request_bytes = (uint32_t)n;
    return 1;
}

static inline void blocks_free(gleeman_client *c, line_slot *slot) {
    for (uint16_t block = slot->first_block; block != NO_BLOCK;) {
        uint16_t next = c->blocks[block].next;
        c->blocks[block].next = c->free_block;
        c->free_block = block;
        block = next;
    }
    slot->first_block = NO_BLOCK;
    slot->request_bytes = 0;
}

/* ---- ends ---- */

static inline void slot_say_why(line_slot *slot, const char *code, const char *text) {
    text_copy(slot->code, sizeof slot->code, code, strlen(code));
    text_copy(slot->text, sizeof slot->text, text, strlen(text));
}

/* A line without a lane is over; told by poll as soon as there is room. */
static inline void game_end(gleeman_client *c, line_slot *slot, uint32_t end, const char *code, const char *text) {
    if (slot->end != 0) return;
    slot->end = end;
    slot_say_why(slot, code, text);
    if (slot->map == NULL) c->ending[c->ending_count++] = (uint16_t)(slot - c->slots);
}

/* Tell the end and give everything back. The gate says GATE_OVER. 0: no room for the events. */
static inline int game_tell_end(gleeman_client *c, line_slot *slot, uint64_t line, sink *s) {
    uint64_t heard = atomic_load_explicit(&slot->read_pos, memory_order_acquire);
    if (slot->mouth_open) { /* the mouth closes on every way out */
        if (s->n == s->capacity) return 0;
        gleeman_event *event = sink_add(s, GLEEMAN_EVENT_VISEME, line);
        event->sample = heard;
        event->number = 1.0;
        slot->mouth_open = 0;
    }
    if (s->n == s->capacity) return 0;
    gleeman_event *event = sink_add(s, GLEEMAN_EVENT_ENDED, line);
    event->end = slot->end;
    event->sample = heard;
    event->code = scratch_copy(c, slot->code);
    event->text = scratch_copy(c, slot->text);
    event->text_bytes = (uint32_t)strlen(event->text);
    event->status = status_of_code(slot->code);
    blocks_free(c, slot);
    if (slot->map != NULL) {
        uint32_t lane = atomic_load_explicit(&slot->lane, memory_order_relaxed) - 1;
        slot->map->lines--;
        slot->map->live_lanes &= ~(UINT32_C(1) << lane);
        shm_store64(shm_lane(slot->map->base, lane) + SHM_L_DONE_GENERATION, slot->generation, memory_order_release);
    }
    atomic_store_explicit(&slot->gate, 0, memory_order_release);
    return 1;
}

static inline void game_tell_ending(gleeman_client *c, sink *s) {
    for (uint32_t i = 0; i < c->ending_count;) {
        line_slot *slot = &c->slots[c->ending[i]];
        uint64_t line = slot_line(slot);
        slot_take(slot, line); /* fails when it is ours already, or a read is going on: next time */
        if ((atomic_load_explicit(&slot->gate, memory_order_acquire) & 3) == GATE_OVER) {
            if (!game_tell_end(c, slot, line, s)) return;
            c->ending[i] = c->ending[--c->ending_count];
        } else i++;
    }
}

/* ---- lanes ---- */

static inline void game_mark_cancel(line_slot *slot) {
    uint32_t cancel = atomic_load_explicit(&slot->cancel, memory_order_relaxed);
    uint8_t *head = shm_lane(slot->map->base, atomic_load_explicit(&slot->lane, memory_order_relaxed) - 1);
    shm_store32(head + SHM_L_FADE_SAMPLES, cancel - 1, memory_order_relaxed);
    shm_store64(head + SHM_L_CANCEL_GENERATION, slot->generation, memory_order_release);
}

static inline void game_attach(gleeman_client *c, line_slot *slot, mapping *map, uint32_t lane, uint64_t generation) {
    uint8_t *head = shm_lane(map->base, lane);
    slot->map = map;
    slot->generation = generation;
    slot->preroll = shm_load64(head + SHM_L_PREROLL, memory_order_relaxed);
    if (slot->preroll > SHM_CAPACITY) slot->preroll = SHM_CAPACITY;
    map->lines++;
    map->live_lanes |= UINT32_C(1) << lane;
    c->live[c->live_count++] = (uint16_t)(slot - c->slots);
    blocks_free(c, slot);
    atomic_store_explicit(&slot->lane, lane + 1, memory_order_release);
    shm_store32(head + SHM_L_PAUSED, atomic_load_explicit(&slot->paused, memory_order_relaxed), memory_order_release);
    if (atomic_load_explicit(&slot->cancel, memory_order_relaxed)) game_mark_cancel(slot);
}

/* Find lanes with a new line in them. `all`: also lines whose `accepted` has not been told yet. */
static inline void game_scan(gleeman_client *c, mapping *map, int all) {
    for (uint32_t lane = 0; lane < SHM_LANES; lane++) {
        uint8_t *head = shm_lane(map->base, lane);
        uint64_t generation = shm_load64(head + SHM_L_GENERATION, memory_order_acquire);
        if (generation == map->seen[lane] || generation == 0) continue;
        if (map->live_lanes >> lane & 1 || generation < map->seen[lane]) {
            atomic_store_explicit(&map->bad, 1, memory_order_relaxed); /* taken away from a live line */
            return;
        }
        uint64_t line = shm_load64(head + SHM_L_LINE_ID, memory_order_relaxed);
        line_slot *slot = slot_of(c, line);
        int ours = line != 0 && slot_line(slot) == line && slot->map == NULL && slot->end == 0;
        if (ours && !all && !(slot->told & TOLD_ACCEPTED)) continue; /* its note is on the way: first that */
        map->seen[lane] = generation;
        if (ours) game_attach(c, slot, map, lane, generation);
        else shm_store64(head + SHM_L_DONE_GENERATION, generation, memory_order_release);
    }
}

static inline void game_tell_event(line_slot *slot, uint64_t line, shm_event e, sink *s) {
    static const uint8_t types[] = {0, GLEEMAN_EVENT_WORD, GLEEMAN_EVENT_VISEME, GLEEMAN_EVENT_MARK,
                                    GLEEMAN_EVENT_CLAUSE};
    if (e.type == 0 || e.type >= sizeof types) return; /* of a later minor */
    gleeman_event *event = sink_add(s, types[e.type], line);
    event->sample = e.sample;
    event->text_begin = e.text_begin;
    event->text_end = e.text_end;
    event->duration_samples = e.duration_samples;
    event->value = e.code;
    event->number = (double)e.weight;
    if (event->type == GLEEMAN_EVENT_VISEME) {
        if (event->value > 14) event->value = 0;
        slot->mouth_open = event->value != 0;
    }
}

/* 0: no room for all there is to tell. */
static inline int game_tell_heard(line_slot *slot, uint64_t line, uint32_t lane, int over, sink *s) {
    uint8_t *base = slot->map->base, *head = shm_lane(base, lane);
    uint64_t heard = atomic_load_explicit(&slot->read_pos, memory_order_acquire);
    uint64_t write = shm_load64(head + SHM_L_EVENT_WRITE, memory_order_acquire), read = slot->event_read;
    int to_the_end = over && slot->read_end == GLEEMAN_END_DONE;
    if (write == read) return 1;
    if (write < read || write - read > SHM_EVENTS) {
        atomic_store_explicit(&slot->map->bad, 1, memory_order_relaxed);
        return 1;
    }
    int all = 1;
    for (; read < write; read++) {
        shm_event e = shm_event_at(base, lane, read);
        if (e.sample >= heard && !to_the_end) break;
        if (!isfinite(e.weight) || e.text_begin > e.text_end) {
            atomic_store_explicit(&slot->map->bad, 1, memory_order_relaxed);
            break;
        }
        if (s->n == s->capacity) {
            all = 0;
            break;
        }
        game_tell_event(slot, line, e, s);
    }
    if (read != slot->event_read) {
        slot->event_read = read;
        shm_store64(head + SHM_L_EVENT_READ, read, memory_order_release);
    }
    return all;
}

/* Is a line with a lane over, though its reader did not say so? */
static inline void game_judge(line_slot *slot, uint64_t line, uint32_t lane, uint64_t now) {
    uint32_t end = slot->end, bad = 0;
    uint64_t generation = shm_load64(shm_lane(slot->map->base, lane) + SHM_L_GENERATION, memory_order_relaxed);
    if (generation != slot->generation) atomic_store_explicit(&slot->map->bad, 1, memory_order_relaxed);
    if (atomic_load_explicit(&slot->map->bad, memory_order_relaxed)) end = GLEEMAN_END_LOST, bad = 1;
    if (end == 0 && slot->cancelled_ns != 0) {
        uint32_t reads = atomic_load_explicit(&slot->reads, memory_order_relaxed);
        int idle = reads == slot->reads_at_cancel && now - slot->cancelled_ns > IDLE_READER_NS;
        if (reads == 0 || idle) end = GLEEMAN_END_CANCELLED;
    }
    if (end != 0 && slot_take(slot, line)) {
        slot->read_end = end;
        slot->read_bad = bad;
    }
}

static inline void game_name_end(line_slot *slot) {
    static const char *const codes[] = {"internal", "", "cancelled", "expired", "internal", "internal", "lost"};
    slot->end = slot->read_end;
    if (slot->end == GLEEMAN_END_LOST && atomic_load_explicit(&slot->map->bad, memory_order_relaxed)) slot->read_bad = 1;
    if (slot->read_bad) slot_say_why(slot, "bad-daemon", "the daemon wrote impossible numbers into its mapping");
    else if (slot->end == GLEEMAN_END_LOST) slot_say_why(slot, "lost", "the daemon died in the middle of the line");
    else if (slot->end == GLEEMAN_END_DONE) slot_say_why(slot, "", "");
    else if (slot->end == GLEEMAN_END_CANCELLED) slot_say_why(slot, "cancelled", "the game cancelled the line");
    else if (slot->code[0] == 0) slot_say_why(slot, codes[slot->end], "the daemon did not say why");
}

/* 0: no room left. */
static inline int game_tell_line(gleeman_client *c, line_slot *slot, uint64_t now, sink *s, int *gone) {
    uint64_t line = slot_line(slot);
    uint32_t lane = atomic_load_explicit(&slot->lane, memory_order_relaxed) - 1;
    *gone = 0;
    if (!(slot->told & TOLD_BEGUN)) {
        if (s->n == s->capacity) return 0;
        sink_add(s, GLEEMAN_EVENT_BEGUN, line)->value = (uint32_t)slot->preroll;
        slot->told |= TOLD_BEGUN;
    }
    if ((atomic_load_explicit(&slot->gate, memory_order_acquire) & 3) != GATE_OVER) game_judge(slot, line, lane, now);
    int over = (atomic_load_explicit(&slot->gate, memory_order_acquire) & 3) == GATE_OVER;
    if (!atomic_load_explicit(&slot->map->bad, memory_order_relaxed) &&
        !game_tell_heard(slot, line, lane, over, s))
        return 0;
    if (!over) return 1;
    if (slot->over_ns == 0) slot->over_ns = now;
    int explained = slot->code[0] != 0 || slot->read_bad || slot->read_end == GLEEMAN_END_DONE ||
                    slot->read_end == GLEEMAN_END_CANCELLED || slot->read_end == GLEEMAN_END_LOST;
    if (!explained && slot->map == c->map && now - slot->over_ns < WAIT_FOR_CODE_NS) return 1;
    if (slot->end == 0 || slot->end != slot->read_end) game_name_end(slot);
    *gone = game_tell_end(c, slot, line, s);
    return *gone;
}

static inline void game_tell_lanes(gleeman_client *c, sink *s) {
    uint64_t now = c->live_count ? plat_now_ns() : 0;
    for (uint32_t i = 0; i < c->live_count;) {
        int gone;
        if (!game_tell_line(c, &c->slots[c->live[i]], now, s, &gone)) return;
        if (gone) c->live[i] = c->live[--c->live_count];
        else i++;
    }
}

/* ---- what the connection's thread told ---- */

static inline void game_submit_waiting(gleeman_client *c) {
    uint64_t lines[SLOTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint64_t line = slot_line(&c->slots[i]);
        if (line == 0 || c->slots[i].map != NULL || c->slots[i].end != 0) continue;
        uint32_t at = n++;
        for (; at > 0 && lines[at - 1] > line; at--) lines[at] = lines[at - 1];
        lines[at] = line; /* the daemon wants them in growing order */
    }
    for (uint32_t i = 0; i < n; i++) slot_of(c, lines[i])->sent = (uint32_t)command_put(c, COMMAND_SPEAK, lines[i]);
    if (n > 0) c->frame_due = !command_put(c, COMMAND_FRAME, 0);
}

static inline void game_lost(gleeman_client *c) {
    mapping *map = c->map;
    if (map == NULL) return;
    game_scan(c, map, 1); /* what began before it died */
    map->retired = 1;
    c->map = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) {
        line_slot *slot = &c->slots[i];
        if (slot_line(slot) == 0 || slot->map != NULL) continue;
        slot->sent = 0;
        if (slot->end == 0) slot->code[0] = slot->text[0] = 0;
        if (slot->cancelled_ns) game_end(c, slot, GLEEMAN_END_CANCELLED, "cancelled", "the game cancelled the line");
    }
}

static inline void game_gave_up(gleeman_client *c, const char *code, const char *text) {
    for (uint32_t i = 0; i < SLOTS; i++)
        if (slot_line(&c->slots[i]) != 0 && c->slots[i].map == NULL)
            game_end(c, &c->slots[i], GLEEMAN_END_LOST, code, text);
}

static inline void game_connection(const note *n, uint32_t value, const char *text, const char *code, sink *s) {
    gleeman_event *event = sink_add(s, GLEEMAN_EVENT_CONNECTION, 0);
    event->value = value;
    event->text = text;
    event->text_bytes = n->text_bytes;
    event->code = code;
    event->status = status_of_code(code);
}

static inline void game_note(gleeman_client *c, const note *n, const char *text, const char *code, sink *s) {
    line_slot *slot = n->line != 0 && slot_line(slot_of(c, n->line)) == n->line ? slot_of(c, n->line) : NULL;
    gleeman_event *event = NULL;
    switch (n->type) {
    case NOTE_UP:
        c->map = &c->maps[n->value & (MAPPINGS - 1)];
        c->map->lines = c->map->retired = c->map->live_lanes = 0;
        memset(c->map->seen, 0, sizeof c->map->seen);
        c->connection_id = n->connection;
        c->connection = GLEEMAN_CONNECTION_UP;
        c->rate_hz = c->map->rate_hz;
        game_connection(n, c->connection, text, code, s);
        game_submit_waiting(c);
        return;
    case NOTE_LOST: game_lost(c); c->connection = GLEEMAN_CONNECTION_SEEKING; break;
    case NOTE_GAVE_UP: game_gave_up(c, code, text); c->connection = GLEEMAN_CONNECTION_GIVEN_UP; break;
    case NOTE_STALLED: c->connection = GLEEMAN_CONNECTION_STALLED; break;
    case NOTE_MOVING: c->connection = GLEEMAN_CONNECTION_UP; break;
    case NOTE_FAILED: break;
    case NOTE_STATE:
        c->state = n->value;
        event = sink_add(s, GLEEMAN_EVENT_STATE, 0);
        break;
    case NOTE_VOICE: event = sink_add(s, GLEEMAN_EVENT_VOICE, 0); break;
    case NOTE_ERROR: event = sink_add(s, GLEEMAN_EVENT_ERROR, 0); break;
    case NOTE_ACCEPTED:
        if (slot == NULL || slot->told & TOLD_ACCEPTED || slot->end) return;
        slot->told |= TOLD_ACCEPTED;
        event = sink_add(s, GLEEMAN_EVENT_ACCEPTED, n->line);
        break;
    case NOTE_WARNING:
        if (slot == NULL || slot->end) return;
        event = sink_add(s, GLEEMAN_EVENT_WARNING, n->line);
        break;
    case NOTE_CLAUSE: /* once, though a line be sent again to another daemon */
        if (slot == NULL || slot->told & TOLD_SUBTITLES || slot->end) return;
        if (n->value + 1 == n->sample) slot->told |= TOLD_SUBTITLES;
        event = sink_add(s, GLEEMAN_EVENT_SUBTITLE, n->line);
        break;
    case NOTE_ENDED:
        if (slot == NULL || slot->end) return;
        if (n->begin) slot_say_why(slot, code, text); /* in its lane too: the reader comes to it */
        else game_end(c, slot, n->value, code, text);
        return;
    case NOTE_UNKNOWN_LINE:
        if (slot != NULL && slot->map == NULL && slot->cancelled_ns)
            game_end(c, slot, GLEEMAN_END_CANCELLED, "cancelled", "the game cancelled the line");
        return;
    default: return;
    }
    if (event == NULL) {
        game_connection(n, c->connection, text, code, s);
        return;
    }
    event->seed = n->seed;
    event->text_begin = n->begin;
    event->text_end = n->end;
    event->value = n->value;
    event->sample = n->type == NOTE_VOICE ? n->sample : 0;
    event->number = n->number;
    event->text = text;
    event->text_bytes = n->text_bytes;
    event->code = code;
    if (n->type == NOTE_STATE || n->type == NOTE_ERROR) event->status = status_of_code(code);
}

/* Each note makes one event at most. What was told stays in the ring until the next poll. */
static inline void game_tell_notes(gleeman_client *c, sink *s) {
    uint64_t write = atomic_load_explicit(&c->note_write, memory_order_acquire);
    atomic_store_explicit(&c->note_read, c->note_at, memory_order_release);
    while (c->note_at != write && s->n < s->capacity) {
        const uint8_t *at = c->notes + (size_t)(c->note_at & (NOTE_RING_BYTES - 1));
        note head = {0};
        memcpy(&head, at, 8);
        c->note_at += head.bytes;
        if (head.type == NOTE_PAD) continue;
        memcpy(&head, at, sizeof head);
        const char *text = (const char *)at + sizeof head;
        game_note(c, &head, text, text + head.text_bytes + 1, s);
    }
}

/* A daemon that writes nonsense is left, and not asked again. */
static inline void game_drop_if_bad(gleeman_client *c) {
    if (c->map == NULL || !atomic_load_explicit(&c->map->bad, memory_order_relaxed)) return;
    if (c->dropped_id != c->connection_id && command_put(c, COMMAND_DROP, 0)) c->dropped_id = c->connection_id;
}

/* Mappings of dead daemons that nobody reads any more go back to the connection's thread. */
static inline void game_retire(gleeman_client *c) {
    for (uint32_t i = 0; i < MAPPINGS; i++)
        if (c->maps[i].retired && c->maps[i].lines == 0 && command_put(c, COMMAND_UNMAP, i)) c->maps[i].retired = 0;
}

#endif
