/* Speaks one line through the running daemon and writes it to a WAV file:  say "Well met." out.wav */
#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdio.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define rest_a_millisecond() Sleep(1)
#else
#include <time.h>
#define rest_a_millisecond() nanosleep(&(struct timespec){0, 1000000}, NULL)
#endif

#include "gleeman.h"

static void put(FILE *file, const char *tag, uint32_t value, int bytes) {
    fputs(tag, file);
    for (int i = 0; i < bytes; i++) fputc((int)(value >> (8 * i) & 255), file);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: say TEXT FILE.wav [VOICE]\n"), 2;
    FILE *file = fopen(argv[2], "wb");
    if (file == NULL) return perror(argv[2]), 2;
    static float samples[24000 * 300]; /* the longest line takes about five minutes */
    uint32_t count = 0, got, n;
    gleeman_client *client;
    gleeman_event event;
    char why[256];

    if (gleeman_connect(NULL, &client) != GLEEMAN_OK) {
        gleeman_last_error(NULL, why, sizeof why);
        return fprintf(stderr, "say: %s\n", why), 1;
    }
    gleeman_line_options options;
    gleeman_line_options_init(&options);
    options.text = argv[1];
    options.voice = argc > 3 ? argv[3] : NULL;
    uint64_t line;
    if (gleeman_speak(client, &options, &line) != GLEEMAN_OK) {
        gleeman_last_error(client, why, sizeof why);
        gleeman_close(client);
        return fprintf(stderr, "say: %s\n", why), 2;
    }
    gleeman_frame(client);
    event.type = 0;
    while (event.type != GLEEMAN_EVENT_ENDED) { /* a game polls in its frame and reads in its audio callback */
        uint32_t room = (uint32_t)(sizeof samples / sizeof samples[0]) - count;
        gleeman_read(client, line, samples + count, room < 512 ? room : 512, &got);
        count += got;
        if (gleeman_poll(client, &event, 1, &n) != GLEEMAN_OK || n == 0) event.type = 0;
        if (n == 0 && got == 0) rest_a_millisecond();
    }
    int failed = event.end != GLEEMAN_END_DONE;
    if (failed) fprintf(stderr, "say: %s: %s\n", event.code, event.text);
    gleeman_close(client);
    if (failed) return 1;
    put(file, "RIFF", 36 + 4 * count, 4);
    put(file, "WAVEfmt ", 16, 4);
    put(file, "", 3, 2); /* float */
    put(file, "", 1, 2); /* mono */
    put(file, "", 24000, 4);
    put(file, "", 24000 * 4, 4);
    put(file, "", 4, 2);
    put(file, "", 32, 2);
    put(file, "data", 4 * count, 4);
    fwrite(samples, 4, count, file); /* little-endian, as the machines we run on */
    return fclose(file) != 0;
}
