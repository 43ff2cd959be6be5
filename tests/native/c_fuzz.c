/* Mutated bytes into everything that parses: to be built with the address and undefined-behaviour
 * sanitizers. argv: seed, rounds. stdin: the starting points, "message HEX" or "discovery HEX". */
#include "gleeman.c" /* first: it says which system functions it wants */

enum { SEEDS = 256, MOST = 8192 };

static uint8_t *seeds[SEEDS];
static size_t sizes[SEEDS];
static int kinds[SEEDS];
static uint64_t random_state;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t mutate(uint8_t *data, size_t n) {
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0x8f, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc6, 0xc9, 0xcf, 0xd3,
                                      0xd8, 0xdb, 0xdd, 0xdf, 0xe0, 0xff, '"', '\\', '{', '[', 'u'};
    for (uint64_t turns = 1 + next_random() % 6; turns > 0 && n > 0; turns--) {
        size_t at = (size_t)(next_random() % n);
        switch (next_random() % 5) {
        case 0: data[at] ^= (uint8_t)(1u << next_random() % 8); break;
        case 1: data[at] = telling[next_random() % sizeof telling]; break;
        case 2: n = at; break;
        case 3: /* a hole */
            memmove(data + at, data + at + 1, n - at - 1);
            n--;
            break;
        default: /* a piece twice */
            if (n + 8 < MOST && at + 8 < n) {
                memmove(data + at + 8, data + at, n - at);
                n += 8;
            }
        }
    }
    return n;
}

static uint64_t walk(message *m) {
    uint64_t sum = m->code.n + m->text.n + m->mapping.n;
    for (uint32_t i = 0; i < m->code.n; i++) sum += (uint8_t)m->code.at[i];
    for (uint32_t i = 0; i < m->text.n; i++) sum += (uint8_t)m->text.at[i];
    msg_clause clause;
    for (uint32_t i = 0; i < m->list_n; i++) {
        mp_reader map = m->list;
        msg_text name;
        if (m->type == MSG_CLAUSES) {
            if (!msg_next_clause(&m->list, &clause)) break;
            sum += clause.spoken.n;
        } else {
            if (!mp_skip(&m->list)) break;
            if (msg_str(map, "name", &name)) sum += name.n;
        }
    }
    return sum;
}

/* A good greeting and READY, the message in one frame of any kind, and again; then damage, in pieces. */
static uint64_t feed_zmtp(const uint8_t *body, size_t n) {
    static uint8_t stream[64 + 64 + 2 * (MOST + 16)], buffer[ZMTP_BUFFER_BYTES];
    size_t end = zmtp_put_greeting(stream);
    stream[end] = 4, stream[end + 1] = 0x1c;
    memcpy(stream + end + 2, "\x05READY\x0bSocket-Type\0\0\0\x06ROUTER", 0x1c);
    end += 2 + 0x1c;
    size_t start = next_random() % 8 == 0 ? 0 : end; /* mostly leave the handshake whole */
    for (int i = 0; i < 2; i++) {
        end += zmtp_put_head(stream + end, n);
        memcpy(stream + end, body, n);
        end += n;
    }
    end = start + mutate(stream + start, end - start < MOST ? end - start : MOST);
    zmtp z;
    zmtp_reset(&z, buffer);
    uint64_t sum = 0;
    for (size_t at = 0; at < end;) {
        size_t room, piece = 1 + (size_t)(next_random() % 97);
        uint8_t *to = zmtp_space(&z, &room);
        if (piece > end - at) piece = end - at;
        if (piece > room) piece = room;
        if (piece == 0) return sum;
        memcpy(to, stream + at, piece);
        at += piece;
        zmtp_received(&z, piece);
        for (;;) {
            zmtp_frame frame = {NULL, 0};
            enum zmtp_got got = zmtp_next(&z, &frame);
            if (got == ZMTP_BROKEN) return sum;
            if (got == ZMTP_MORE_BYTES) break;
            for (size_t i = 0; i < frame.n; i++) sum += frame.body[i];
            uint8_t pong[32];
            if (got == ZMTP_PING) sum += zmtp_put_pong(pong, frame.body, frame.n);
            zmtp_consume(&z);
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    static char line[1 << 17];
    if (argc != 3) return 2;
    random_state = strtoull(argv[1], NULL, 10) | 1;
    unsigned long rounds = strtoul(argv[2], NULL, 10);
    int count = 0;
    while (count < SEEDS && fgets(line, sizeof line, stdin) != NULL) {
        char *text = strchr(line, ' ') + 1;
        unsigned byte;
        seeds[count] = malloc(MOST);
        while (sizes[count] < MOST / 2 && sscanf(text + 2 * sizes[count], "%2x", &byte) == 1)
            seeds[count][sizes[count]++] = (uint8_t)byte;
        kinds[count] = line[0] == 'd';
        count++;
    }
    uint64_t sum = 0, good = 0;
    for (unsigned long i = 0; i < rounds && count > 0; i++) {
        int which = (int)(next_random() % (uint64_t)count);
        uint8_t work[MOST];
        memcpy(work, seeds[which], sizes[which]);
        size_t n = mutate(work, sizes[which]);
        uint8_t *exact = malloc(n ? n : 1); /* of the exact size: a byte too far is found */
        memcpy(exact, work, n);
        if (kinds[which]) {
            discovery d;
            good += (uint64_t)discovery_parse((const char *)exact, n, &d);
        } else {
            message m;
            msg_decode(exact, n, &m);
            good += m.type > MSG_UNKNOWN;
            sum += walk(&m);
            sum += feed_zmtp(exact, n);
        }
        free(exact);
    }
    for (int i = 0; i < count; i++) free(seeds[i]);
    printf("%llu good, sum %llu\n", (unsigned long long)good, (unsigned long long)sum);
    return 0;
}
