/* A game in miniature, driven by a test: commands come in on stdin, one a line; answers and events go
 * out on stdout, one a line, with tabs between fields. A second thread plays lines as a sound card does.
 *
 *     connect PATH RATE WAIT_MS RECONNECT_MS      PATH "-": by the rules
 *     speak SEED VOICE PRIORITY DEADLINE TEXT     SEED "-" none, VOICE "-" default
 *     frame | voices | cancel LINE MS | pause LINE 0|1 | state LINE
 *     play LINE                                   the audio thread reads it from now on
 *     pace N                                      samples a millisecond and line
 *     save LINE PATH                              what was read of it, raw float32
 *     quit                                        */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gleeman.h"

enum { PLAYERS = 256, SECONDS = 40, SAMPLES = SECONDS * 24000 };

typedef struct player {
    uint64_t line;
    float *samples;
    _Atomic uint32_t count;
    int ended;
} player;

static gleeman_client *voice;
static player players[PLAYERS];
static _Atomic uint32_t player_count, pace = 480, stopping;

static void nap(void) {
    struct timespec ms = {0, 1000000};
    nanosleep(&ms, NULL);
}

static void *play_all(void *unused) {
    static float block[4096];
    (void)unused;
    while (!atomic_load(&stopping)) {
        uint32_t n = atomic_load(&player_count), want = atomic_load(&pace);
        for (uint32_t i = 0; i < n; i++) {
            player *p = &players[i];
            uint32_t got, count = atomic_load(&p->count);
            if (p->ended) continue;
            gleeman_status status = gleeman_read(voice, p->line, block, want, &got);
            for (uint32_t k = got; k < want; k++)
                if (block[k] != 0.0f) printf("broken\tnot silent behind what was read\n");
            if (count + got > SAMPLES) got = SAMPLES - count;
            memcpy(p->samples + count, block, got * sizeof(float));
            atomic_store(&p->count, count + got);
            p->ended = status != GLEEMAN_OK;
            if (status < 0) printf("broken\tread says %s\n", gleeman_status_name(status));
        }
        nap();
    }
    return NULL;
}

static void show(const gleeman_event *e) {
    static const char *const names[] = {"", "accepted", "warning", "subtitle", "begun", "word", "viseme", "mark",
                                        "clause", "ended", "state", "connection", "voice", "error"};
    printf("event\t%s\t%llu\t%llu\t%u\t%u\t%u\t%u\t%u\t%g\t%d\t%llu\t%s\t%s\n", names[e->type],
           (unsigned long long)e->line, (unsigned long long)e->sample, e->end, e->value, e->text_begin, e->text_end,
           e->duration_samples, e->number, e->status, (unsigned long long)e->seed, e->code, e->text);
}

static void answer(gleeman_status status, uint64_t value) {
    char why[256] = "";
    if (status < 0) gleeman_last_error(voice, why, sizeof why);
    printf("answer\t%s\t%llu\t%s\n", gleeman_status_name(status), (unsigned long long)value, why);
}

static void connect_to(char *rest) {
    char path[1024], *text = rest;
    unsigned rate, wait, reconnect;
    if (sscanf(text, "%1023s %u %u %u", path, &rate, &wait, &reconnect) != 4) return answer(GLEEMAN_E_ARGUMENT, 0);
    gleeman_connect_options o;
    gleeman_connect_options_init(&o);
    if (strcmp(path, "-") != 0) o.discovery_path = path;
    o.rate_hz = rate;
    o.wait_ms = wait;
    o.reconnect_ms = reconnect;
    o.client_name = "c_client";
    answer(gleeman_connect(&o, &voice), 0);
}

static void speak(char *rest) {
    char seed[32], name[300], priority[16];
    unsigned deadline;
    int at = 0;
    if (sscanf(rest, "%31s %299s %15s %u %n", seed, name, priority, &deadline, &at) != 4) return answer(-1, 0);
    gleeman_line_options o;
    gleeman_line_options_init(&o);
    o.text = rest + at;
    o.text_bytes = (uint32_t)strlen(o.text);
    if (strcmp(name, "-") != 0) o.voice = name;
    o.priority = (uint32_t)atoi(priority);
    o.deadline_ms = deadline;
    o.has_seed = seed[0] != '-';
    o.seed = strtoull(seed, NULL, 10);
    uint64_t line;
    gleeman_status status = gleeman_speak(voice, &o, &line);
    answer(status, line);
}

static void play(uint64_t line) {
    uint32_t n = atomic_load(&player_count);
    if (n == PLAYERS) return answer(GLEEMAN_E_BUSY, 0);
    players[n].line = line;
    players[n].samples = malloc(SAMPLES * sizeof(float));
    atomic_store(&player_count, n + 1);
    answer(GLEEMAN_OK, line);
}

static void save(char *rest) {
    int at = 0;
    unsigned long long line;
    if (sscanf(rest, "%llu %n", &line, &at) != 1) return answer(-1, 0);
    for (uint32_t i = 0; i < player_count; i++)
        if (players[i].line == line) {
            FILE *file = fopen(rest + at, "wb");
            if (file == NULL) return answer(-1, 0);
            fwrite(players[i].samples, sizeof(float), players[i].count, file);
            fclose(file);
            return answer(GLEEMAN_OK, players[i].count);
        }
    answer(GLEEMAN_E_UNKNOWN_LINE, 0);
}

static void state_of(uint64_t line) {
    gleeman_line_info info = {.struct_size = sizeof info};
    gleeman_status status = gleeman_line_state(voice, line, &info);
    printf("line\t%u\t%llu\t%llu\t%llu\n", info.state, (unsigned long long)info.heard_samples,
           (unsigned long long)info.buffered_samples, (unsigned long long)info.underrun_samples);
    answer(status, gleeman_heard(voice, line));
}

static int obey(char *text) {
    char *rest = strchr(text, ' ');
    if (rest != NULL) *rest++ = 0;
    else rest = text + strlen(text);
    unsigned long long line = 0;
    unsigned value = 0;
    sscanf(rest, "%llu %u", &line, &value);
    if (strcmp(text, "quit") == 0) return 0;
    if (strcmp(text, "connect") == 0) connect_to(rest);
    else if (strcmp(text, "speak") == 0) speak(rest);
    else if (strcmp(text, "frame") == 0) answer(gleeman_frame(voice), 0);
    else if (strcmp(text, "voices") == 0) answer(gleeman_request_voices(voice), 0);
    else if (strcmp(text, "cancel") == 0) answer(gleeman_cancel(voice, line, value), 0);
    else if (strcmp(text, "pause") == 0) answer(gleeman_pause(voice, line, value), 0);
    else if (strcmp(text, "state") == 0) state_of(line);
    else if (strcmp(text, "play") == 0) play(line);
    else if (strcmp(text, "pace") == 0) atomic_store(&pace, (uint32_t)line), answer(GLEEMAN_OK, 0);
    else if (strcmp(text, "save") == 0) save(rest);
    else answer(GLEEMAN_E_ARGUMENT, 0);
    return 1;
}

int main(void) {
    static char text[40000];
    static gleeman_event events[16]; /* few, so that poll has to stop half way */
    size_t have = 0;
    pthread_t audio;
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    int playing = 0;
    for (int going = 1; going;) {
        struct pollfd in = {0, POLLIN, 0};
        if (poll(&in, 1, 1) == 1) {
            ssize_t n = read(0, text + have, sizeof text - 1 - have);
            if (n <= 0) break;
            have += (size_t)n;
            char *end;
            while (going && (end = memchr(text, '\n', have)) != NULL) {
                *end = 0;
                going = obey(text);
                have -= (size_t)(end + 1 - text);
                memmove(text, end + 1, have);
            }
        }
        if (voice != NULL && !playing) playing = pthread_create(&audio, NULL, play_all, NULL) == 0;
        uint32_t n = 0;
        do {
            if (voice == NULL || gleeman_poll(voice, events, 16, &n) != GLEEMAN_OK) break;
            for (uint32_t i = 0; i < n; i++) show(&events[i]);
        } while (n == 16);
    }
    atomic_store(&stopping, 1);
    if (playing) pthread_join(audio, NULL);
    gleeman_close(voice);
    for (uint32_t i = 0; i < player_count; i++) free(players[i].samples);
    return 0;
}
