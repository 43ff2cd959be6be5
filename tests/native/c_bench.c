/* Measures the C client against the running daemon; prints one JSON object. Numbers, not a test.
 *
 *     poll_us       gleeman_poll with 32 live lines, nothing new to tell
 *     read_us       gleeman_read of 480 samples
 *     first_us      gleeman_speak + gleeman_frame of an immediate line until poll says it has begun */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gleeman.h"

enum { LINES = 32, POLLS = 20000, ROUNDS = 300, EVENTS = 256 };

static double figures[POLLS];
static gleeman_event events[EVENTS];

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void nap(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, int n, const char *more) {
    qsort(figures, (size_t)n, sizeof figures[0], by_size);
    printf("\"%s_p50\": %.2f, \"%s_p99\": %.2f%s", name, figures[n / 2], name, figures[n * 99 / 100], more);
}

static uint64_t speak(gleeman_client *c, const char *text) {
    gleeman_line_options o;
    uint64_t line = 0;
    gleeman_line_options_init(&o);
    o.text = text;
    o.text_bytes = (uint32_t)strlen(text);
    o.priority = GLEEMAN_PRIORITY_IMMEDIATE;
    gleeman_speak(c, &o, &line);
    return line;
}

/* Poll until `count` events of a type have come. */
static void until(gleeman_client *c, uint32_t type, int count, long nap_us) {
    while (count > 0) {
        uint32_t n = 0;
        gleeman_poll(c, events, EVENTS, &n);
        for (uint32_t i = 0; i < n; i++) count -= events[i].type == type;
        if (n == 0) nap(nap_us);
    }
}

int main(void) {
    static float block[480];
    gleeman_client *c;
    uint64_t lines[LINES];
    uint32_t n, got;
    if (gleeman_connect(NULL, &c) != GLEEMAN_OK) return 1;
    for (int i = 0; i < LINES; i++)
        lines[i] = speak(c, "Once upon a time there was an old king who lived in a castle by the sea.");
    gleeman_frame(c);
    until(c, GLEEMAN_EVENT_BEGUN, LINES, 200);
    for (int i = 0; i < LINES; i++)
        for (got = 0; got == 0;) gleeman_read(c, lines[i], block, 480, &got);
    until(c, GLEEMAN_EVENT_CLAUSE, LINES, 200);
    for (int i = 0; i < POLLS; i++) {
        double start = now_us();
        gleeman_poll(c, events, EVENTS, &n);
        figures[i] = now_us() - start;
        if (i % 64 == 0) nap(50);
    }
    printf("{");
    report("poll_us", POLLS, ", ");
    for (int i = 0; i < 2000; i++) {
        double start = now_us();
        gleeman_read(c, lines[i % LINES], block, 480, &got);
        figures[i] = now_us() - start;
    }
    report("read_us", 2000, ", ");
    for (int i = 0; i < LINES; i++) gleeman_cancel(c, lines[i], 0);
    for (int i = 0; i < LINES; i++) gleeman_read(c, lines[i], block, 480, &got);
    until(c, GLEEMAN_EVENT_ENDED, LINES, 200);
    for (int i = 0; i < ROUNDS; i++) {
        double start = now_us();
        uint64_t line = speak(c, "Hey!");
        gleeman_frame(c);
        until(c, GLEEMAN_EVENT_BEGUN, 1, 20);
        figures[i] = now_us() - start;
        gleeman_cancel(c, line, 0);
        until(c, GLEEMAN_EVENT_ENDED, 1, 200);
        nap(2000);
    }
    report("first_us", ROUNDS, "}\n");
    gleeman_close(c);
    return 0;
}
