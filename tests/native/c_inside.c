/* The client's inner parts, for golden bytes: hexadecimal in, what they hold out. One line each way.
 *
 *     layout | encode | decode HEX | discovery HEX | zmtp HEX | old_options          */
#include "gleeman.c" /* first: it says which system functions it wants */

static uint8_t bytes[1 << 20];

static size_t unhex(const char *text) {
    size_t n = 0;
    unsigned byte;
    while (sscanf(text + 2 * n, "%2x", &byte) == 1) bytes[n++] = (uint8_t)byte;
    return n;
}

static void hex(const char *name, const uint8_t *data, size_t n) {
    printf("%s\t", name);
    for (size_t i = 0; i < n; i++) printf("%02x", data[i]);
    printf("\n");
}

static void show_layout(void) {
#define ROW(name) printf(#name "\t%llu\n", (unsigned long long)SHM_##name)
    ROW(MAGIC); ROW(LAYOUT_VERSION); ROW(LANES); ROW(CAPACITY); ROW(EVENTS); ROW(UNKNOWN_END);
    ROW(H_MAGIC); ROW(H_TOTAL_BYTES); ROW(H_SESSION_ID); ROW(H_LANES); ROW(H_RATE_HZ); ROW(H_CAPACITY);
    ROW(H_EVENTS); ROW(H_DAEMON_PID); ROW(H_CLIENT_PID); ROW(H_START_NS); ROW(H_LAYOUT_VERSION);
    ROW(H_FEEDER_BEAT); ROW(H_ENGINE_PROGRESS); ROW(H_ENGINE_BUSY); ROW(H_CLIENT_BEAT);
    ROW(LANE_HEADS); ROW(LANE_HEAD_BYTES); ROW(L_LINE_ID); ROW(L_PREROLL); ROW(L_GENERATION);
    ROW(L_WRITE_POS); ROW(L_END_POS); ROW(L_EVENT_WRITE); ROW(L_END_CODE); ROW(L_READ_POS);
    ROW(L_UNDERRUN_SAMPLES); ROW(L_DONE_GENERATION); ROW(L_EVENT_READ); ROW(L_CANCEL_GENERATION);
    ROW(L_FADE_SAMPLES); ROW(L_PAUSED); ROW(EVENT_RINGS); ROW(EVENT_BYTES); ROW(EVENT_RING_BYTES);
    ROW(SAMPLE_RINGS); ROW(SAMPLE_RING_BYTES); ROW(TOTAL_BYTES);
    printf("event\t%zu %zu %zu %zu %zu %zu %zu %zu\n", offsetof(shm_event, sample), offsetof(shm_event, type),
           offsetof(shm_event, code), offsetof(shm_event, weight), offsetof(shm_event, text_begin),
           offsetof(shm_event, text_end), offsetof(shm_event, duration_samples), offsetof(shm_event, reserved));
}

static void show_encodings(void) {
    gleeman_line_options o;
    gleeman_line_options_init(&o);
    o.text = "Gr\xc3\xbc\xc3\x9f dich, \xe6\x97\x85\xe4\xba\xba! \xf0\x9f\x8d\xba";
    o.text_bytes = (uint32_t)strlen(o.text);
    o.voice = "old_smith", o.emotion = "angry", o.language = "en-gb";
    o.intensity = 0.5, o.speed = 1.25, o.pitch = -2.0, o.energy = 3.5;
    o.priority = GLEEMAN_PRIORITY_IMMEDIATE, o.deadline_ms = 250;
    o.has_seed = 1, o.seed = INT64_MAX;
    hex("speak, every field", bytes, msg_put_speak(bytes, sizeof bytes, INT64_MAX, &o));
    o.has_seed = 0, o.phonemes = 1, o.priority = GLEEMAN_PRIORITY_BACKGROUND;
    hex("speak, phonemes", bytes, msg_put_speak(bytes, sizeof bytes, 2, &o));
    hex("hello", bytes, msg_put_hello(bytes, sizeof bytes, 1, "00112233445566778899aabbccddeeff"
        "00112233445566778899aabbccddeeff", "Tavern", 4242, 48000, GLEEMAN_WHILE_LOADING_BABBLE));
    hex("cancel", bytes, msg_put_cancel(bytes, sizeof bytes, CANCEL_ID | 1, 1));
    hex("frame", bytes, msg_put_frame(bytes, sizeof bytes));
    hex("voices", bytes, msg_put_plain(bytes, sizeof bytes, "voices", REQUEST_ID | 6));
    hex("bye", bytes, msg_put_plain(bytes, sizeof bytes, "bye", UINT64_MAX));
    hex("too small", bytes, msg_put_speak(bytes, 40, 1, &o));
    hex("greeting", bytes, zmtp_put_greeting(bytes));
    hex("ready", bytes, zmtp_put_ready(bytes));
}

static void show_message(size_t n) {
    message m;
    msg_decode(bytes, n, &m);
    printf("type=%d\tre=%llu\tline=%llu\tseed=%llu\tprotocol=%llu\tsession=%llu\tmapping_bytes=%llu\trate_hz=%llu"
           "\tlanes=%llu\tend=%u\tstate=%u\tin_lane=%d\tprogress=%.17g\tlist=%u\tcode=%.*s\tmapping=%.*s\ttext=%.*s",
           (int)m.type, (unsigned long long)m.re, (unsigned long long)m.line, (unsigned long long)m.seed,
           (unsigned long long)m.protocol, (unsigned long long)m.session, (unsigned long long)m.mapping_bytes,
           (unsigned long long)m.rate_hz, (unsigned long long)m.lanes, m.end, m.state, m.in_lane, m.progress, m.list_n,
           (int)m.code.n, m.code.at, (int)m.mapping.n, m.mapping.at, (int)m.text.n, m.text.at);
    msg_clause clause;
    for (uint32_t i = 0; m.type == MSG_CLAUSES && i < m.list_n && msg_next_clause(&m.list, &clause); i++)
        printf("\tclause=%llu %llu %.17g %.*s", (unsigned long long)clause.begin, (unsigned long long)clause.end,
               clause.ms, (int)clause.spoken.n, clause.spoken.at);
    printf("\n");
}

static void show_discovery(size_t n) {
    discovery d;
    if (!discovery_parse((const char *)bytes, n, &d)) printf("refused\n");
    else {
        printf("%llu %llu %llu %s", (unsigned long long)d.protocol, (unsigned long long)d.pid,
               (unsigned long long)d.start_ns, d.token);
        for (uint32_t i = 0; i < d.endpoint_count; i++) printf(" %s", d.endpoints[i]);
        printf("\n");
    }
}

/* The bytes come one by one: whatever they are cut into, the frames are the same. */
static void show_zmtp(size_t n) {
    static uint8_t buffer[ZMTP_BUFFER_BYTES];
    zmtp z;
    zmtp_reset(&z, buffer);
    for (size_t i = 0; i < n; i++) {
        size_t room;
        zmtp_frame frame = {NULL, 0};
        uint8_t *to = zmtp_space(&z, &room);
        *to = bytes[i];
        zmtp_received(&z, 1);
        for (;;) {
            enum zmtp_got got = zmtp_next(&z, &frame);
            if (got == ZMTP_MORE_BYTES) break;
            if (got == ZMTP_BROKEN) {
                printf("broken\n");
                return;
            }
            if (got == ZMTP_READY) printf("ready ");
            if (got == ZMTP_OTHER) printf("other ");
            if (got == ZMTP_MESSAGE) printf("message:%zu ", frame.n);
            if (got == ZMTP_PING) {
                uint8_t pong[32];
                size_t bytes_of_pong = zmtp_put_pong(pong, frame.body, frame.n);
                printf("pong:");
                for (size_t k = 0; k < bytes_of_pong; k++) printf("%02x", pong[k]);
                printf(" ");
            }
            zmtp_consume(&z);
        }
    }
    printf("waits\n");
}

/* A caller that was compiled against a header that ended after `speed`. */
static void show_old_options(void) {
    struct {
        gleeman_line_options old;
    } caller;
    memset(&caller, 0xee, sizeof caller);
    uint32_t size = offsetof(gleeman_line_options, pitch);
    gleeman_line_options_init_sized(&caller.old, size);
    uint8_t *behind = (uint8_t *)&caller + size;
    printf("%d ", behind[0] == 0xee && caller.old.struct_size == size && caller.old.speed == 1.0);
    caller.old.speed = 2.0;
    gleeman_line_options ours;
    gleeman_line_options_init(&ours);
    int taken = take_options(&ours, sizeof ours, &caller.old, 16);
    printf("%d %g %g %u ", taken, ours.speed, ours.pitch, ours.priority);
    caller.old.struct_size = 0;
    printf("%d ", take_options(&ours, sizeof ours, &caller.old, 16));
    struct {
        gleeman_line_options line;
        uint64_t later[4];
    } newer;
    memset(&newer, 0xee, sizeof newer);
    gleeman_line_options_init_sized(&newer.line, sizeof newer);
    printf("%d %d\n", newer.later[3] == 0, take_options(&ours, sizeof ours, &newer.line, 16));
}

int main(void) {
    static char line[(1 << 21) + 64];
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *rest = strchr(line, ' ');
        size_t n = rest == NULL ? 0 : unhex(rest + 1);
        if (strncmp(line, "layout", 6) == 0) show_layout();
        if (strncmp(line, "encode", 6) == 0) show_encodings();
        if (strncmp(line, "decode", 6) == 0) show_message(n);
        if (strncmp(line, "discovery", 9) == 0) show_discovery(n);
        if (strncmp(line, "zmtp", 4) == 0) show_zmtp(n);
        if (strncmp(line, "old_options", 11) == 0) show_old_options();
        printf("end\n");
    }
    return 0;
}
