/* gleeman.h: voices for game characters, from a local daemon. C11, no other library.
 *
 *     gleeman_connect_options how; gleeman_connect_options_init(&how);
 *     gleeman_client *voice; gleeman_connect(&how, &voice);
 *     gleeman_line_options say; gleeman_line_options_init(&say);
 *     say.text = "Well met, traveller.";
 *     uint64_t line; gleeman_speak(voice, &say, &line);
 *     gleeman_frame(voice);                                    // end of the game frame
 *     gleeman_event events[64]; uint32_t n;
 *     gleeman_poll(voice, events, 64, &n);                     // every frame, game thread
 *     float block[512]; uint32_t got;
 *     gleeman_read(voice, line, block, 512, &got);             // every block, audio thread
 *     gleeman_close(voice);
 *
 * OWNERSHIP. The client belongs to the caller from a `gleeman_connect` that returned GLEEMAN_OK until
 * `gleeman_close`. Whatever is passed in is copied before the call returns. Text that an event points to
 * belongs to the client and is good until the next `gleeman_poll`. Nothing else is handed out.
 *
 * THREADS. One thread, the game thread, makes every call but `gleeman_read`; it may be another thread
 * later, if the two are ordered. `gleeman_read` may be called from any thread, at any time between
 * connect and close; one thread at a time a line (a second one gets zeros and GLEEMAN_E_BUSY). The
 * client has one thread of its own for the connection. Nothing calls back.
 *
 * COST. `gleeman_read` takes no lock, makes no system call and allocates nothing; it is wait-free.
 * `gleeman_poll` allocates nothing. `gleeman_speak`, `gleeman_frame`, `gleeman_cancel` and
 * `gleeman_request_voices` put a command into a queue and may wake the connection's thread (one write).
 * Only `gleeman_connect` and `gleeman_close` wait.
 *
 * LINES. A line is a number above 0 and never used again. Every line ends exactly once, told by a
 * GLEEMAN_EVENT_ENDED out of `gleeman_poll`; after that the number is unknown. A line that nobody reads
 * does not end by itself: read it, or cancel it.
 *
 * VERSIONS. Structs that the caller fills start with `struct_size`; a newer library takes an older,
 * smaller struct. Members are appended, never moved. `gleeman_event` keeps its size for ABI 1.
 *
 * Text is UTF-8 and spans are byte offsets into the text as sent. Positions are mono samples since the
 * line began, at `gleeman_rate_hz`. No function raises, aborts or logs.
 */
#ifndef GLEEMAN_H
#define GLEEMAN_H

#include <stddef.h>
#include <stdint.h>

#define GLEEMAN_ABI_VERSION 1
#define GLEEMAN_C_VERSION "0.1.0"

#if defined(GLEEMAN_STATIC)
#define GLEEMAN_API
#elif defined(_WIN32) && defined(GLEEMAN_BUILD)
#define GLEEMAN_API __declspec(dllexport)
#elif defined(_WIN32)
#define GLEEMAN_API __declspec(dllimport)
#elif defined(__GNUC__)
#define GLEEMAN_API __attribute__((visibility("default")))
#else
#define GLEEMAN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- numbers ------------------------------------------------------------------------------------- */

/* What a call returns. 0 and above: fine. `gleeman_status_name` gives the stable code of the protocol. */
typedef int32_t gleeman_status;
enum {
    GLEEMAN_OK = 0,
    GLEEMAN_ENDED = 1,               /* gleeman_read: this line has nothing more to give */
    GLEEMAN_E_ARGUMENT = -1,         /* a null pointer, a number out of range: the call did nothing */
    GLEEMAN_E_MEMORY = -2,           /* no memory, at connect */
    GLEEMAN_E_NO_DAEMON = -3,        /* no daemon runs (or none came in time) */
    GLEEMAN_E_TIMEOUT = -4,          /* a daemon is there and does not answer */
    GLEEMAN_E_BAD_TOKEN = -5,        /* the daemon did not take the discovery file's token */
    GLEEMAN_E_BAD_PROTOCOL = -6,     /* the daemon speaks another protocol major */
    GLEEMAN_E_BAD_DAEMON = -7,       /* the daemon sent or wrote nonsense */
    GLEEMAN_E_BUSY = -8,             /* a queue is full: again later */
    GLEEMAN_E_TEXT_TOO_LONG = -9,    /* over 16000 bytes, or the daemon's limit */
    GLEEMAN_E_BAD_TEXT = -10,        /* not UTF-8, or control characters */
    GLEEMAN_E_EMPTY_TEXT = -11,      /* nothing to read */
    GLEEMAN_E_UNKNOWN_LINE = -12,    /* no such line, or its end has been told */
    GLEEMAN_E_UNKNOWN_VOICE = -13,   /* no voice of that name */
    GLEEMAN_E_NO_SPACE = -14,        /* no room for the mapping */
    GLEEMAN_E_BAD_FILE = -15,        /* the discovery file or the mapping cannot be read */
    GLEEMAN_E_SHUTTING_DOWN = -16,   /* the daemon is going down */
    GLEEMAN_E_LOST = -17,            /* the daemon died */
    GLEEMAN_E_CANCELLED = -18,       /* the game cancelled it */
    GLEEMAN_E_EXPIRED = -19,         /* its deadline passed */
    GLEEMAN_E_PLATFORM = -20,        /* this machine lacks something we rely on */
    GLEEMAN_E_UNSUPPORTED = -21,     /* the daemon is of another age: update the older of the two */
    GLEEMAN_E_OTHER = -22            /* a code this library has no number for: see the event's `code` */
};

/* How a line ended. */
enum {
    GLEEMAN_END_DONE = 1,       /* read to its end */
    GLEEMAN_END_CANCELLED = 2,
    GLEEMAN_END_EXPIRED = 3,
    GLEEMAN_END_FAILED = 4,
    GLEEMAN_END_REFUSED = 5,    /* the daemon did not take it: the code says why */
    GLEEMAN_END_LOST = 6        /* the daemon died; what it had made was played, or none came back in time */
};

enum {
    GLEEMAN_EVENT_ACCEPTED = 1,     /* text: the voice taken; seed */
    GLEEMAN_EVENT_WARNING = 2,      /* text: a sentence about an accepted line */
    GLEEMAN_EVENT_SUBTITLE = 3,     /* text: a clause as it will be read; text_begin/end; value: index; number: estimated ms */
    GLEEMAN_EVENT_BEGUN = 4,        /* the line has sound to read; value: pre-roll in samples */
    GLEEMAN_EVENT_WORD = 5,         /* heard now: text_begin/end, duration_samples */
    GLEEMAN_EVENT_VISEME = 6,       /* heard now: value: mouth shape 0 to 14 (Oculus order, 0 neutral), number: weight */
    GLEEMAN_EVENT_MARK = 7,         /* heard now: value: the mark's number */
    GLEEMAN_EVENT_CLAUSE = 8,       /* heard now: text_begin/end, duration_samples */
    GLEEMAN_EVENT_ENDED = 9,        /* once a line: end, status, code, sample: samples heard, text: a sentence */
    GLEEMAN_EVENT_STATE = 10,       /* value: gleeman_state, number: progress 0 to 1, text, code */
    GLEEMAN_EVENT_CONNECTION = 11,  /* value: gleeman_connection, status, code, text */
    GLEEMAN_EVENT_VOICE = 12,       /* answer to gleeman_request_voices; text: name, code: language, value: index, sample: how many */
    GLEEMAN_EVENT_ERROR = 13        /* the daemon could not answer something: code, text */
};

/* What the daemon's model is doing. */
enum {
    GLEEMAN_STATE_UNKNOWN = 0,
    GLEEMAN_STATE_LOADING = 1,
    GLEEMAN_STATE_WARMING = 2,
    GLEEMAN_STATE_READY = 3,
    GLEEMAN_STATE_FAILED = 4
};

enum {
    GLEEMAN_CONNECTION_SEEKING = 0, /* not connected: lines wait, and are sent when a daemon is found */
    GLEEMAN_CONNECTION_UP = 1,
    GLEEMAN_CONNECTION_STALLED = 2, /* the daemon lives and does nothing: what it made plays on */
    GLEEMAN_CONNECTION_GIVEN_UP = 3 /* no daemon in reconnect_ms: lines that waited have ended; seeking on, slowly */
};

enum {
    GLEEMAN_LINE_QUEUED = 1,   /* not sent or not answered yet */
    GLEEMAN_LINE_ACCEPTED = 2,
    GLEEMAN_LINE_BEGUN = 3,    /* has sound */
    GLEEMAN_LINE_ENDING = 4    /* over; the event has not been fetched yet */
};

enum { GLEEMAN_WHILE_LOADING_WAIT = 0, GLEEMAN_WHILE_LOADING_BABBLE = 1, GLEEMAN_WHILE_LOADING_SILENT = 2 };
enum {
    GLEEMAN_PRIORITY_IMMEDIATE = 0,
    GLEEMAN_PRIORITY_DIALOGUE = 1,
    GLEEMAN_PRIORITY_BARK = 2,
    GLEEMAN_PRIORITY_BACKGROUND = 3
};

/* ---- structs ------------------------------------------------------------------------------------- */
/* Once shipped: append members, never move, resize or re-mean one. Keep each struct a multiple of 8. */

typedef struct gleeman_client gleeman_client;

typedef struct gleeman_connect_options {
    uint32_t struct_size;
    uint32_t rate_hz;              /* 24000 (default), 44100 or 48000; gleeman_rate_hz says what was given */
    const char *discovery_path;    /* NULL: by the daemon's own rule ($GLEEMAN_HOME, ...) */
    const char *instance;          /* NULL or "": the daemon without a name */
    const char *client_name;       /* for people, up to 128 bytes; NULL: none */
    uint32_t while_loading;        /* GLEEMAN_WHILE_LOADING_... */
    uint32_t wait_ms;              /* default 2000: how long connect waits for a daemon. 0: it does not
                                      wait at all, and the connection comes as an event */
    uint32_t reconnect_ms;         /* default 30000: how long waiting lines outlive a dead daemon */
    uint32_t reserved;
} gleeman_connect_options;

typedef struct gleeman_line_options {
    uint32_t struct_size;
    uint32_t text_bytes;           /* of text, at most 16000; 0 (default): text ends with a zero byte */
    const char *text;              /* UTF-8 */
    const char *voice;             /* NULL or "": the daemon's default */
    const char *emotion;           /* NULL: "neutral" */
    const char *language;          /* NULL: "auto"; "en", "en-us", "en-gb", "zh" */
    double intensity;              /* 0 to 1, default 1 */
    double speed;                  /* 0.25 to 4, default 1; 2 is twice as fast */
    double pitch;                  /* semitones, -12 to 12 */
    double energy;                 /* decibels, -20 to 20 */
    uint32_t priority;             /* GLEEMAN_PRIORITY_..., default dialogue */
    uint32_t deadline_ms;          /* until synthesis takes it up; 0: none; at most 86400000 */
    uint64_t seed;                 /* below 2^63, used when has_seed is 1 */
    uint32_t has_seed;             /* 0: a seed made of voice and text */
    uint32_t phonemes;             /* 1: `text` holds phonemes in the model's alphabet */
} gleeman_line_options;

typedef struct gleeman_event {
    uint32_t type;                 /* GLEEMAN_EVENT_... */
    uint32_t end;                  /* GLEEMAN_END_... */
    uint64_t line;                 /* 0: about no line */
    uint64_t sample;
    uint64_t seed;
    uint32_t text_begin, text_end;
    uint32_t duration_samples;
    uint32_t value;
    double number;
    gleeman_status status;
    uint32_t text_bytes;
    const char *text;              /* never NULL, ends with 0; good until the next poll */
    const char *code;              /* never NULL; stable, of the protocol; good until the next poll */
    uint64_t reserved[2];
} gleeman_event;

typedef struct gleeman_line_info {
    uint32_t struct_size;          /* set before the call */
    uint32_t state;                /* GLEEMAN_LINE_... */
    uint64_t heard_samples;
    uint64_t buffered_samples;     /* in the lane, not read yet */
    uint64_t underrun_samples;     /* zeros given because nothing was there in time, after the start */
} gleeman_line_info;

/* ---- calls --------------------------------------------------------------------------------------- */

GLEEMAN_API void gleeman_connect_options_init_sized(gleeman_connect_options *options, uint32_t struct_size);
GLEEMAN_API void gleeman_line_options_init_sized(gleeman_line_options *options, uint32_t struct_size);

/* Fill in the defaults. Inline, so that the size is the one the caller was compiled with. */
static inline void gleeman_connect_options_init(gleeman_connect_options *options) {
    gleeman_connect_options_init_sized(options, (uint32_t)sizeof *options);
}
static inline void gleeman_line_options_init(gleeman_line_options *options) {
    gleeman_line_options_init_sized(options, (uint32_t)sizeof *options);
}

/* Find the daemon and say hello. On failure *client is NULL and gleeman_last_error(NULL, ...) has the
 * sentence. options may be NULL. */
GLEEMAN_API gleeman_status gleeman_connect(const gleeman_connect_options *options, gleeman_client **client);

/* Say bye and free everything; live lines stop at once. No other call may be running. NULL is fine. */
GLEEMAN_API void gleeman_close(gleeman_client *client);

/* Queue a line. GLEEMAN_OK: it will end with one event. Anything else: there is no line. */
GLEEMAN_API gleeman_status gleeman_speak(gleeman_client *client, const gleeman_line_options *options,
                                         uint64_t *line);

/* The game frame's end: lines submitted since the last one are spoken in one batch. Sends nothing if
 * there were none. */
GLEEMAN_API gleeman_status gleeman_frame(gleeman_client *client);

/* Fetch up to `capacity` events, in order for each line. Those that do not fit come next time. */
GLEEMAN_API gleeman_status gleeman_poll(gleeman_client *client, gleeman_event *out, uint32_t capacity,
                                        uint32_t *count);

/* Fill out[0..n): *got samples of the line, zeros behind them. GLEEMAN_OK: the line goes on (it may not
 * have begun). GLEEMAN_ENDED: this was its last sample, or it has none. got may be NULL. */
GLEEMAN_API gleeman_status gleeman_read(gleeman_client *client, uint64_t line, float *out, uint32_t n,
                                        uint32_t *got);

/* Stop a line: the next read fades over fade_ms (0 to 10000), then it has ended. */
GLEEMAN_API gleeman_status gleeman_cancel(gleeman_client *client, uint64_t line, uint32_t fade_ms);

/* Hold a line (paused 1) or let it go on (0). Reads fade over 5 ms and give zeros; the daemon fills its
 * lane up and turns to others. */
GLEEMAN_API gleeman_status gleeman_pause(gleeman_client *client, uint64_t line, uint32_t paused);

GLEEMAN_API gleeman_status gleeman_line_state(gleeman_client *client, uint64_t line, gleeman_line_info *info);

/* Samples of the line that have been read; 0 for an unknown line. */
GLEEMAN_API uint64_t gleeman_heard(gleeman_client *client, uint64_t line);

/* GLEEMAN_STATE_... and GLEEMAN_CONNECTION_..., as of the last poll. */
GLEEMAN_API uint32_t gleeman_state(gleeman_client *client);
GLEEMAN_API uint32_t gleeman_connection(gleeman_client *client);

/* The rate of every line; as asked for until the first connection is up. */
GLEEMAN_API uint32_t gleeman_rate_hz(gleeman_client *client);

/* Ask for the voices; one GLEEMAN_EVENT_VOICE each follows. GLEEMAN_E_NO_DAEMON: not connected. */
GLEEMAN_API gleeman_status gleeman_request_voices(gleeman_client *client);

/* "ok", "ended", or the protocol's code: "bad-token". Never NULL, static. */
GLEEMAN_API const char *gleeman_status_name(gleeman_status status);

/* The last sentence about a failed call, cut to fit, always terminated; client NULL: of this thread's
 * last failed gleeman_connect. Returns the bytes written, without the terminator. */
GLEEMAN_API size_t gleeman_last_error(gleeman_client *client, char *buffer, size_t bytes);

GLEEMAN_API uint32_t gleeman_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif
