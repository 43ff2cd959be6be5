/* Linux and macOS. Included by platform.h, which says what each function does. */
#ifndef GLEEMAN_PLATFORM_POSIX_H
#define GLEEMAN_PLATFORM_POSIX_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SO_NOSIGPIPE below */
#endif

typedef int plat_socket;
#define PLAT_NO_SOCKET (-1)

struct plat_thread {
    pthread_t id;
    void (*run)(void *);
    void *argument;
};
struct plat_wakeup {
    int read_end, write_end;
};

static inline uint64_t plat_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void plat_sleep_ms(uint32_t ms) {
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static inline uint32_t plat_pid(void) { return (uint32_t)getpid(); }

static void *plat_thread_main(void *argument) {
    plat_thread *thread = argument;
    thread->run(thread->argument);
    return NULL;
}

static int plat_thread_start(plat_thread *thread, void (*run)(void *), void *argument) {
    sigset_t all, before; /* the game's signals are the game's threads' business */
    thread->run = run;
    thread->argument = argument;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread->id, NULL, plat_thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}

static void plat_thread_join(plat_thread *thread) { pthread_join(thread->id, NULL); }

static int plat_no_wait(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static int plat_wake_open(plat_wakeup *wakeup) {
    int ends[2];
    if (pipe(ends) != 0) return 0;
    wakeup->read_end = ends[0];
    wakeup->write_end = ends[1];
    if (plat_no_wait(ends[0]) && plat_no_wait(ends[1])) return 1;
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static void plat_wake_close(plat_wakeup *wakeup) {
    close(wakeup->read_end);
    close(wakeup->write_end);
}

static void plat_wake(plat_wakeup *wakeup) {
    ssize_t ignored = write(wakeup->write_end, "", 1); /* full: it is awake already */
    (void)ignored;
}

static int plat_finish_connect(int fd, const struct sockaddr *address, socklen_t bytes) {
    int error = 0;
    socklen_t n = sizeof error;
    if (!plat_no_wait(fd)) return 0;
    if (connect(fd, address, bytes) == 0) return 1;
    if (errno != EINPROGRESS) return 0;
    struct pollfd wait = {fd, POLLOUT, 0};
    if (poll(&wait, 1, 1000) != 1) return 0;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
}

static plat_socket plat_connect(const char *endpoint) {
    int fd = -1, on = 1, done = 0;
    if (strncmp(endpoint, "ipc://", 6) == 0) {
        struct sockaddr_un address;
        memset(&address, 0, sizeof address);
        address.sun_family = AF_UNIX;
        if (endpoint[6] != '/' || strlen(endpoint + 6) >= sizeof address.sun_path) return PLAT_NO_SOCKET;
        strcpy(address.sun_path, endpoint + 6);
        if ((fd = socket(AF_UNIX, SOCK_STREAM, 0)) < 0) return PLAT_NO_SOCKET;
        done = plat_finish_connect(fd, (struct sockaddr *)&address, sizeof address);
    } else if (strncmp(endpoint, "tcp://127.0.0.1:", 16) == 0) { /* the token goes to no other machine */
        struct sockaddr_in address;
        char *rest;
        unsigned long port = strtoul(endpoint + 16, &rest, 10);
        if (*rest != 0 || port == 0 || port > 65535) return PLAT_NO_SOCKET;
        memset(&address, 0, sizeof address);
        address.sin_family = AF_INET;
        address.sin_port = htons((uint16_t)port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if ((fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) return PLAT_NO_SOCKET;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        done = plat_finish_connect(fd, (struct sockaddr *)&address, sizeof address);
    }
    if (fd >= 0 && !done) {
        close(fd);
        fd = PLAT_NO_SOCKET;
    }
#ifdef SO_NOSIGPIPE
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
}

static void plat_disconnect(plat_socket socket) { close(socket); }

static long plat_moved(ssize_t n) {
    if (n > 0) return (long)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    return -1;
}

static long plat_send(plat_socket socket, const uint8_t *bytes, size_t n) {
    return plat_moved(send(socket, bytes, n, MSG_NOSIGNAL));
}

static long plat_receive(plat_socket socket, uint8_t *bytes, size_t n) {
    return plat_moved(recv(socket, bytes, n, 0));
}

static void plat_wait(plat_socket socket, int want_read, int want_write, plat_wakeup *wakeup, int timeout_ms) {
    struct pollfd wait[2] = {
        {wakeup->read_end, POLLIN, 0},
        {socket, (short)((want_read ? POLLIN : 0) | (want_write ? POLLOUT : 0)), 0},
    };
    nfds_t n = socket != PLAT_NO_SOCKET && (want_read || want_write) ? 2 : 1;
    if (poll(wait, n, timeout_ms) > 0 && wait[0].revents) {
        uint8_t scrap[64];
        while (read(wakeup->read_end, scrap, sizeof scrap) == (ssize_t)sizeof scrap) {}
    }
}

static long plat_read_private_file(const char *path, char *buffer, size_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat found;
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? -1 : -2;
    long got = -2;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
        (found.st_mode & 077) == 0)
        got = (long)read(fd, buffer, n);
    close(fd);
    return got < 0 ? -2 : got;
}

static uint8_t *plat_map(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat found;
    if (fd < 0) return NULL;
    void *base = MAP_FAILED;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
        found.st_size == (off_t)bytes)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

static void plat_unmap(uint8_t *base, size_t bytes) { munmap(base, bytes); }

#ifdef __linux__
static uint64_t plat_process_start_ns(uint32_t pid) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", (unsigned)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = strrchr(text, ')'); /* the name may hold anything, brackets too */
    if (at == NULL || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X' || at[2] == 'x') return 0;
    at += 2;
    for (int field = 3; field < 22; field++) { /* 22: start time in clock ticks */
        at = strchr(at, ' ');
        if (at == NULL) return 0;
        at++;
    }
    long per_second = sysconf(_SC_CLK_TCK);
    return strtoull(at, NULL, 10) * UINT64_C(1000000000) / (uint64_t)(per_second > 0 ? per_second : 100);
}

static int plat_same_start(uint64_t a, uint64_t b) { return a == b; }
#elif defined(__APPLE__)
static uint64_t plat_process_start_ns(uint32_t pid) {
    int name[4] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, (int)pid};
    struct kinfo_proc found;
    size_t n = sizeof found;
    if (sysctl(name, 4, &found, &n, NULL, 0) != 0 || n == 0 || found.kp_proc.p_stat == SZOMB) return 0;
    return (uint64_t)found.kp_proc.p_starttime.tv_sec * 1000000000u +
           (uint64_t)found.kp_proc.p_starttime.tv_usec * 1000u;
}

/* The daemon goes through a float of seconds. */
static int plat_same_start(uint64_t a, uint64_t b) { return (a > b ? a - b : b - a) < 1000000; }
#else
/* Without a way to a process's start its number has to do: 1 for "there is one". */
static uint64_t plat_process_start_ns(uint32_t pid) {
    return kill((pid_t)pid, 0) == 0 || errno == EPERM ? 1 : 0;
}

static int plat_same_start(uint64_t a, uint64_t b) { return (a != 0) == (b != 0); }
#endif

static int plat_runtime_folder(char *buffer, size_t n) {
    const char *home = getenv("GLEEMAN_HOME"), *session = getenv("XDG_RUNTIME_DIR"), *user = getenv("HOME");
    char found[PLAT_PATH_BYTES];
    if (user == NULL || user[0] == 0) {
        struct passwd record, *entry = NULL;
        char space[2048];
        if (getpwuid_r(getuid(), &record, space, sizeof space, &entry) != 0 || entry == NULL) return 0;
        if (snprintf(found, sizeof found, "%s", entry->pw_dir) >= (int)sizeof found) return 0;
        user = found;
    }
    int wrote;
    if (home != NULL && home[0] == '~' && (home[1] == '/' || home[1] == 0))
        wrote = snprintf(buffer, n, "%s%s/run", user, home + 1);
    else if (home != NULL && home[0] != 0)
        wrote = snprintf(buffer, n, "%s/run", home);
    else if (session != NULL && session[0] == '/')
        wrote = snprintf(buffer, n, "%s/gleeman", session);
    else {
#ifdef __APPLE__
        wrote = snprintf(buffer, n, "%s/Library/Application Support/gleeman/run", user);
#else
        const char *data = getenv("XDG_DATA_HOME");
        if (data != NULL && data[strspn(data, " \t")] != 0)
            wrote = snprintf(buffer, n, "%s/gleeman/run", data);
        else
            wrote = snprintf(buffer, n, "%s/.local/share/gleeman/run", user);
#endif
    }
    return wrote > 0 && (size_t)wrote < n;
}

#endif
