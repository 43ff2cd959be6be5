/* What a client is made of, and the two queues between the game thread and the connection's thread.
 *
 *     game thread --commands--> connection's thread --socket--> daemon
 *     game thread <--notes----- connection's thread <--socket-- daemon
 *     game thread, audio threads <--lanes-- daemon
 *
 * A line lives in slot `line & (SLOTS - 1)`; numbers whose slot is taken are passed over, so that a
 * reader finds a line without a search. `gate` of the slot says whose the reading side is. */
#ifndef GLEEMAN_CLIENT_H
#define GLEEMAN_CLIENT_H

#include <math.h>
#include <stdatomic.h>

#include "../gleeman.h"
#include "discovery.h"
#include "layout.h"
#include "messages.h"
#include "platform.h"
#include "zmtp.h"

enum {
    SLOTS = 512,                 /* lines that have not ended; the daemon queues 256 a session */
    BLOCKS = 2048,               /* of requests kept until their line begins: 1 MiB */
    BLOCK_BYTES = 508,
    NO_BLOCK = 0xffff,
    SPEAK_BYTES = 24576,         /* an encoded speak: 16,000 bytes of text and four names */
    COMMANDS = 2048,
    NOTE_RING_BYTES = 1 << 19,
    NOTE_TEXT_BYTES = 16384,
    SEND_BYTES = 1 << 17,
    MAPPINGS = 8,                /* the current one, and those of dead daemons that are still read out */
    MESSAGE_BYTES = 256,
    CODE_BYTES = 32,
    PAUSE_FADE_HZ = 200          /* a pause fades over 1/200 s */
};

/* ---- a line ---- */

enum { TOLD_ACCEPTED = 1, TOLD_SUBTITLES = 2, TOLD_BEGUN = 4 };

enum { GATE_OPEN = 0, GATE_READING = 1, GATE_OVER = 2 }; /* gate = line * 4 + one of these; 0: free slot */

typedef struct mapping mapping;

typedef struct line_slot {
    _Atomic uint64_t gate;
    /* set by the game thread before `lane` (release), read by the reader after it (acquire) */
    mapping *map;
    uint64_t generation, preroll;
    _Atomic uint32_t lane; /* 0: none yet; else its number + 1 */
    /* from the game thread to the reader */
    _Atomic uint32_t cancel; /* 0: no; else fade in samples + 1 */
    _Atomic uint32_t paused;
    /* the reader's, while it holds the gate */
    uint64_t write_seen;
    uint32_t started, quiet, faded;
    /* from the reader to the game thread */
    _Atomic uint64_t read_pos;
    _Atomic uint64_t underrun;
    _Atomic uint32_t reads; /* calls; wraps */
    uint32_t read_end;      /* GLEEMAN_END_..., before the gate says GATE_OVER */
    uint32_t read_bad;      /* the lane held nonsense */
    /* the game thread's */
    uint64_t event_read;
    uint64_t cancelled_ns, over_ns;
    uint32_t reads_at_cancel;
    uint32_t end;           /* how it ended, once that is certain; 0 */
    uint32_t told;          /* TOLD_... */
    uint32_t mouth_open;    /* the last viseme told was not neutral */
    uint32_t sent;
    uint16_t first_block;
    uint32_t request_bytes;
    char code[CODE_BYTES];
    char text[MESSAGE_BYTES];
} line_slot;

/* ---- mappings: opened and closed by the connection's thread, used by all ---- */

struct mapping {
    uint8_t *base;
    _Atomic uint32_t used;  /* 1: base is valid. Set by the connection's thread, cleared by it on command */
    _Atomic uint32_t dead;  /* the daemon writes no more: what is in the lanes is all there is */
    _Atomic uint32_t bad;   /* nonsense was found in it */
    uint64_t pid, start_ns; /* of its daemon */
    uint32_t rate_hz;
    uint64_t lost_ns;       /* connection's thread: when its connection broke; 0: it has not */
    /* the game thread's, once it knows of the mapping */
    uint32_t lines;           /* slots that use it */
    uint32_t retired;         /* no longer current: to be unmapped when no line uses it */
    uint32_t live_lanes;      /* bit per lane that a slot holds */
    uint64_t seen[SHM_LANES]; /* the generation taken last */
};

/* ---- queues ---- */

enum { COMMAND_SPEAK, COMMAND_CANCEL, COMMAND_FRAME, COMMAND_VOICES, COMMAND_UNMAP, COMMAND_DROP };

typedef struct command {
    uint32_t type;
    uint32_t connection; /* the one it is meant for: on another it is thrown away */
    uint64_t line;       /* or the mapping's index */
} command;

enum {
    NOTE_PAD, /* to the end of the ring */
    NOTE_UP, NOTE_LOST, NOTE_STALLED, NOTE_MOVING, NOTE_GAVE_UP, NOTE_FAILED,
    NOTE_STATE, NOTE_ACCEPTED, NOTE_WARNING, NOTE_CLAUSE, NOTE_ENDED, NOTE_VOICE, NOTE_ERROR, NOTE_UNKNOWN_LINE
};

typedef struct note {
    uint32_t bytes, type;
    uint64_t line, sample, seed;
    uint32_t begin, end, value, connection;
    double number;
    uint32_t text_bytes, code_bytes;
    /* then text, 0, code, 0; padded to 8 */
} note;

struct gleeman_client {
    /* set at connect */
    char discovery_path[PLAT_PATH_BYTES];
    char client_name[130];
    uint32_t rate_asked, while_loading, reconnect_ms;
    uint64_t wait_until_ns; /* connect waits until then; 0: it does not */
    plat_thread thread;
    plat_wakeup wakeup;
    _Atomic uint32_t stop, wake_pending;
    _Atomic int32_t first_answer; /* for connect: 1 is up, below 0 a status */
    char first_error[MESSAGE_BYTES];

    /* lines */
    line_slot slots[SLOTS];
    _Atomic uint64_t next_line;
    mapping maps[MAPPINGS];

    /* commands: the game thread writes at command_write, the connection's thread reads */
    command commands[COMMANDS];
    _Atomic uint32_t command_write, command_read;
    /* notes: the connection's thread writes, the game thread reads */
    _Alignas(8) uint8_t notes[NOTE_RING_BYTES];
    _Atomic uint64_t note_write, note_read;

    /* the game thread's */
    uint64_t note_at;      /* told, and still to be given back at the next poll */
    mapping *map;          /* current; NULL while there is no connection */
    uint32_t connection_id, dropped_id;
    uint32_t connection, state, rate_hz;
    uint32_t frame_due;
    uint16_t live[SLOTS];  /* slots with a lane */
    uint32_t live_count;
    uint16_t ending[SLOTS]; /* slots without one that have ended */
    uint32_t ending_count;
    uint16_t free_block;
    uint32_t scratch_used;
    char scratch[16384];   /* text of this poll's events */
    char error[MESSAGE_BYTES];
    uint8_t encode[SPEAK_BYTES];
    struct {
        uint16_t next;
        uint8_t bytes[BLOCK_BYTES + 2];
    } blocks[BLOCKS];

    /* the connection's thread's */
    zmtp in;
    uint8_t in_buffer[ZMTP_BUFFER_BYTES];
    uint8_t out_buffer[SEND_BYTES];
    size_t out_begin, out_end;
    plat_socket socket;
    discovery daemon;
    uint64_t banned_pid, banned_start_ns; /* a daemon that wrote nonsense */
    uint32_t io_phase, io_connection, io_stalled, io_gave_up, io_was_up;
    mapping *io_map;
    uint64_t phase_until_ns, seek_ns, seek_until_ns, tick_ns, probe_ns;
    uint64_t feeder_beat, feeder_moved_ns, engine_progress, engine_moved_ns, client_beat, request_id;
};

/* ---- slots ---- */

static inline line_slot *slot_of(gleeman_client *c, uint64_t line) { return &c->slots[line & (SLOTS - 1)]; }

static inline uint64_t slot_line(const line_slot *slot) {
    return atomic_load_explicit(&slot->gate, memory_order_acquire) >> 2;
}

/* Take the reading side from a reader that is not in the middle of a read. */
static inline int slot_take(line_slot *slot, uint64_t line) {
    uint64_t expected = line << 2 | GATE_OPEN;
    return atomic_compare_exchange_strong_explicit(&slot->gate, &expected, line << 2 | GATE_OVER,
                                                   memory_order_acq_rel, memory_order_acquire);
}

/* ---- commands (game thread) ---- */

static inline int command_put(gleeman_client *c, uint32_t type, uint64_t line) {
    uint32_t write = atomic_load_explicit(&c->command_write, memory_order_relaxed);
    if (write - atomic_load_explicit(&c->command_read, memory_order_acquire) >= COMMANDS) return 0;
    c->commands[write & (COMMANDS - 1)] = (command){type, c->connection_id, line};
    atomic_store_explicit(&c->command_write, write + 1, memory_order_release);
    /* One write wakes it for everything that is put until it looks. */
    if (atomic_exchange(&c->wake_pending, 1) == 0) plat_wake(&c->wakeup);
    return 1;
}

/* ---- notes ---- */

static inline size_t note_room(gleeman_client *c) {
    return NOTE_RING_BYTES - (size_t)(atomic_load_explicit(&c->note_write, memory_order_relaxed) -
                                      atomic_load_explicit(&c->note_read, memory_order_acquire));
}

/* Connection's thread. 0: no room, nothing written. */
static inline int note_put(gleeman_client *c, note head, msg_text text, msg_text code) {
    head.text_bytes = text.n < NOTE_TEXT_BYTES ? text.n : NOTE_TEXT_BYTES;
    head.code_bytes = code.n < CODE_BYTES - 1 ? code.n : CODE_BYTES - 1;
    head.bytes = (uint32_t)((sizeof head + head.text_bytes + head.code_bytes + 2 + 7) & ~(size_t)7);
    head.connection = c->io_connection;
    uint64_t write = atomic_load_explicit(&c->note_write, memory_order_relaxed);
    size_t room = note_room(c), at = (size_t)(write & (NOTE_RING_BYTES - 1)), tail = NOTE_RING_BYTES - at;
    if (tail < head.bytes) { /* what does not fit before the ring's end starts at its beginning */
        if (room < tail + head.bytes) return 0;
        note pad = {(uint32_t)tail, NOTE_PAD, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0};
        memcpy(c->notes + at, &pad, 8);
        write += tail;
        at = 0;
    } else if (room < head.bytes) return 0;
    uint8_t *to = c->notes + at;
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    if (head.text_bytes) memcpy(to, text.at, head.text_bytes);
    to[head.text_bytes] = 0;
    to += head.text_bytes + 1;
    if (head.code_bytes) memcpy(to, code.at, head.code_bytes);
    to[head.code_bytes] = 0;
    atomic_store_explicit(&c->note_write, write + head.bytes, memory_order_release);
    return 1;
}

static inline msg_text text_of(const char *text) { return (msg_text){text, (uint32_t)strlen(text)}; }

/* Copy text that may be cut, not in the middle of a character. */
static inline void text_copy(char *to, size_t room, const char *from, size_t n) {
    if (n >= room) {
        n = room - 1;
        while (n > 0 && ((uint8_t)from[n] & 0xc0) == 0x80) n--;
    }
    if (n) memcpy(to, from, n);
    to[n] = 0;
}

#endif
