/* Windows, and games under Wine. Included by platform.h, which says what each function does.
 * ipc:// is not taken here: the daemon's tcp endpoint is. */
#ifndef GLEEMAN_PLATFORM_WINDOWS_H
#define GLEEMAN_PLATFORM_WINDOWS_H

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <winsock2.h>
#include <ws2tcpip.h>

#include <windows.h>

typedef SOCKET plat_socket;
#define PLAT_NO_SOCKET INVALID_SOCKET

struct plat_thread {
    HANDLE handle;
    void (*run)(void *);
    void *argument;
};
struct plat_wakeup { /* a pair of loopback sockets: the only thing that select waits for besides sockets */
    SOCKET read_end, write_end;
};

static inline uint64_t plat_now_ns(void) {
    LARGE_INTEGER count, frequency;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    uint64_t per_second = (uint64_t)frequency.QuadPart, n = (uint64_t)count.QuadPart;
    return n / per_second * 1000000000u + n % per_second * 1000000000u / per_second;
}

static inline void plat_sleep_ms(uint32_t ms) { Sleep(ms); }

static inline uint32_t plat_pid(void) { return (uint32_t)GetCurrentProcessId(); }

static DWORD WINAPI plat_thread_main(void *argument) {
    plat_thread *thread = argument;
    thread->run(thread->argument);
    return 0;
}

static int plat_thread_start(plat_thread *thread, void (*run)(void *), void *argument) {
    thread->run = run;
    thread->argument = argument;
    thread->handle = CreateThread(NULL, 0, plat_thread_main, thread, 0, NULL);
    return thread->handle != NULL;
}

static void plat_thread_join(plat_thread *thread) {
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

static int plat_no_wait(SOCKET s) {
    u_long on = 1;
    return ioctlsocket(s, FIONBIO, &on) == 0;
}

static int plat_wake_open(plat_wakeup *wakeup) {
    WSADATA data;
    struct sockaddr_in address, peer;
    int n = sizeof address, ok = 0;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) return 0;
    /* Two datagram sockets that are connected to each other: nobody else can get in between. */
    wakeup->read_end = socket(AF_INET, SOCK_DGRAM, 0);
    wakeup->write_end = socket(AF_INET, SOCK_DGRAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer = address;
    if (wakeup->read_end != INVALID_SOCKET && wakeup->write_end != INVALID_SOCKET &&
        bind(wakeup->read_end, (struct sockaddr *)&address, sizeof address) == 0 &&
        bind(wakeup->write_end, (struct sockaddr *)&peer, sizeof peer) == 0 &&
        getsockname(wakeup->read_end, (struct sockaddr *)&address, &n) == 0 &&
        getsockname(wakeup->write_end, (struct sockaddr *)&peer, &n) == 0)
        ok = connect(wakeup->write_end, (struct sockaddr *)&address, sizeof address) == 0 &&
             connect(wakeup->read_end, (struct sockaddr *)&peer, sizeof peer) == 0 &&
             plat_no_wait(wakeup->read_end) && plat_no_wait(wakeup->write_end);
    if (ok) return 1;
    if (wakeup->read_end != INVALID_SOCKET) closesocket(wakeup->read_end);
    if (wakeup->write_end != INVALID_SOCKET) closesocket(wakeup->write_end);
    WSACleanup();
    return 0;
}

static void plat_wake_close(plat_wakeup *wakeup) {
    closesocket(wakeup->read_end);
    closesocket(wakeup->write_end);
    WSACleanup();
}

static void plat_wake(plat_wakeup *wakeup) { send(wakeup->write_end, "", 1, 0); }

static plat_socket plat_connect(const char *endpoint) {
    if (strncmp(endpoint, "tcp://127.0.0.1:", 16) != 0) return PLAT_NO_SOCKET; /* the token goes to no other machine */
    char *rest;
    unsigned long port = strtoul(endpoint + 16, &rest, 10);
    if (*rest != 0 || port == 0 || port > 65535) return PLAT_NO_SOCKET;
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((u_short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SOCKET s = socket(AF_INET, SOCK_STREAM, 0);
    if (s == INVALID_SOCKET) return PLAT_NO_SOCKET;
    BOOL on = TRUE;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, (const char *)&on, sizeof on);
    int done = plat_no_wait(s);
    if (done && connect(s, (struct sockaddr *)&address, sizeof address) != 0) {
        WSAPOLLFD wait = {s, POLLWRNORM, 0};
        int error = 0, n = sizeof error;
        done = WSAGetLastError() == WSAEWOULDBLOCK && WSAPoll(&wait, 1, 1000) == 1 &&
               getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&error, &n) == 0 && error == 0;
    }
    if (done) return s;
    closesocket(s);
    return PLAT_NO_SOCKET;
}

static void plat_disconnect(plat_socket s) { closesocket(s); }

static long plat_moved(int n) {
    if (n > 0) return n;
    return n < 0 && WSAGetLastError() == WSAEWOULDBLOCK ? 0 : -1;
}

static long plat_send(plat_socket s, const uint8_t *bytes, size_t n) {
    return plat_moved(send(s, (const char *)bytes, (int)(n < 1 << 20 ? n : 1 << 20), 0));
}

static long plat_receive(plat_socket s, uint8_t *bytes, size_t n) {
    return plat_moved(recv(s, (char *)bytes, (int)(n < 1 << 20 ? n : 1 << 20), 0));
}

static void plat_wait(plat_socket s, int want_read, int want_write, plat_wakeup *wakeup, int timeout_ms) {
    WSAPOLLFD wait[2] = {
        {wakeup->read_end, POLLRDNORM, 0},
        {s, (SHORT)((want_read ? POLLRDNORM : 0) | (want_write ? POLLWRNORM : 0)), 0},
    };
    ULONG n = s != PLAT_NO_SOCKET && (want_read || want_write) ? 2 : 1;
    if (WSAPoll(wait, n, timeout_ms) > 0 && wait[0].revents) {
        char scrap[64];
        while (recv(wakeup->read_end, scrap, sizeof scrap, 0) > 0) {}
    }
}

static int plat_wide(const char *path, wchar_t *wide) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PLAT_PATH_BYTES) > 0;
}

static HANDLE plat_open(const char *path, DWORD access) {
    wchar_t wide[PLAT_PATH_BYTES];
    if (!plat_wide(path, wide)) {
        SetLastError(ERROR_INVALID_NAME);
        return INVALID_HANDLE_VALUE;
    }
    return CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                       FILE_FLAG_OPEN_REPARSE_POINT, NULL);
}

static int plat_is_plain_file(HANDLE file, uint64_t *bytes) {
    BY_HANDLE_FILE_INFORMATION found;
    if (GetFileType(file) != FILE_TYPE_DISK || !GetFileInformationByHandle(file, &found)) return 0;
    *bytes = (uint64_t)found.nFileSizeHigh << 32 | found.nFileSizeLow;
    return (found.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT)) == 0;
}

/* Who may read it is the folder's business here: it lies in the user's own %LOCALAPPDATA%. */
static long plat_read_private_file(const char *path, char *buffer, size_t n) {
    HANDLE file = plat_open(path, GENERIC_READ);
    if (file == INVALID_HANDLE_VALUE) {
        DWORD error = GetLastError();
        return error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND ? -1 : -2;
    }
    uint64_t bytes;
    DWORD got = 0;
    int ok = plat_is_plain_file(file, &bytes) && ReadFile(file, buffer, (DWORD)n, &got, NULL);
    CloseHandle(file);
    return ok ? (long)got : -2;
}

static uint8_t *plat_map(const char *path, size_t bytes) {
    HANDLE file = plat_open(path, GENERIC_READ | GENERIC_WRITE);
    if (file == INVALID_HANDLE_VALUE) return NULL;
    uint64_t found;
    uint8_t *base = NULL;
    if (plat_is_plain_file(file, &found) && found == bytes) {
        HANDLE section = CreateFileMappingW(file, NULL, PAGE_READWRITE, 0, 0, NULL);
        if (section != NULL) {
            base = MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, bytes);
            CloseHandle(section); /* the view keeps it */
        }
    }
    CloseHandle(file);
    return base;
}

static void plat_unmap(uint8_t *base, size_t bytes) {
    (void)bytes;
    UnmapViewOfFile(base);
}

static uint64_t plat_process_start_ns(uint32_t pid) {
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, pid);
    if (process == NULL) return 0;
    FILETIME created, exited, kernel, user;
    uint64_t start = 0;
    if (WaitForSingleObject(process, 0) == WAIT_TIMEOUT &&
        GetProcessTimes(process, &created, &exited, &kernel, &user)) {
        uint64_t ticks = (uint64_t)created.dwHighDateTime << 32 | created.dwLowDateTime;
        start = (ticks - UINT64_C(116444736000000000)) * 100; /* from 1601 to 1970, from 100 ns to 1 */
    }
    CloseHandle(process);
    return start;
}

static int plat_same_start(uint64_t a, uint64_t b) { return a == b; }

static int plat_environment(const wchar_t *name, char *buffer, size_t n) {
    wchar_t wide[PLAT_PATH_BYTES];
    DWORD got = GetEnvironmentVariableW(name, wide, PLAT_PATH_BYTES);
    return got > 0 && got < PLAT_PATH_BYTES &&
           WideCharToMultiByte(CP_UTF8, 0, wide, -1, buffer, (int)n, NULL, NULL) > 0;
}

static int plat_runtime_folder(char *buffer, size_t n) {
    char base[PLAT_PATH_BYTES];
    int wrote;
    if (plat_environment(L"GLEEMAN_HOME", base, sizeof base)) wrote = snprintf(buffer, n, "%s\\run", base);
    else if (plat_environment(L"LOCALAPPDATA", base, sizeof base)) wrote = snprintf(buffer, n, "%s\\gleeman\\run", base);
    else return 0;
    return wrote > 0 && (size_t)wrote < n;
}

#endif
