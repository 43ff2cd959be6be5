/* Watches a position that another process publishes, and never wants to see a wrong one.
 *
 *   publish_reader FILE BYTES POSITION_OFFSET DATA_OFFSET DATA_ITEMS FINAL
 *
 * The position counts k * (2^32 + 1), so that its halves must agree; data item k mod DATA_ITEMS (u64,
 * a power of two) was set to k before k was published. Prints "loads changes" and exits 0 when it has seen
 * FINAL; exits 1 with a sentence at the first torn, zero, backward or early value; 3 after 60 s. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int wrong(const char *what, uint64_t value, uint64_t before) {
    printf("%s value %016" PRIx64 " after %016" PRIx64 "\n", what, value, before);
    return 1;
}

int main(int count, char **words) {
    if (count != 7) return 2;
    const size_t bytes = strtoull(words[2], NULL, 10);
    const uint64_t items = strtoull(words[5], NULL, 10), final = strtoull(words[6], NULL, 10);
    const int fd = open(words[1], O_RDWR);
    if (fd < 0) return 2;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return 2;
    _Atomic uint64_t *position = (_Atomic uint64_t *)(base + strtoull(words[3], NULL, 10));
    _Atomic uint64_t *data = (_Atomic uint64_t *)(base + strtoull(words[4], NULL, 10));

    printf("watching\n");
    fflush(stdout);
    const time_t limit = time(NULL) + 60;
    uint64_t before = 0, loads = 0, changes = 0;
    for (;;) {
        const uint64_t value = atomic_load_explicit(position, memory_order_acquire);
        loads++;
        if (value != before) {
            const uint64_t step = value & 0xFFFFFFFFu;
            if (value == 0) return wrong("zero", value, before);
            if (value >> 32 != step) return wrong("torn", value, before);
            if (value < before) return wrong("backward", value, before);
            const uint64_t seen = atomic_load_explicit(&data[step & (items - 1)], memory_order_relaxed);
            if (seen < step) return wrong("early", value, before);
            before = value;
            changes++;
            if (step == final) break;
        }
        if ((loads & 0xFFFFF) == 0) {
            if (time(NULL) > limit) return 3;
        }
    }
    printf("%" PRIu64 " %" PRIu64 "\n", loads, changes);
    return 0;
}
