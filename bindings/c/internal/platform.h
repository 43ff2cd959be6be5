/* All that differs by operating system: clock, thread, sockets, mapping, files, processes.
 *
 * One set of names, two implementations. Everything here is called at connect, at close or on the
 * connection's thread; only `plat_now_ns`, and `plat_wake` from the game thread, are called elsewhere.
 * Nothing here is called on an audio thread. */
#ifndef GLEEMAN_PLATFORM_H
#define GLEEMAN_PLATFORM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAT_PATH_BYTES = 1024 };

typedef struct plat_thread plat_thread;
typedef struct plat_wakeup plat_wakeup;

#ifdef _WIN32
#include "platform_windows.h"
#else
#include "platform_posix.h"
#endif

/* What both must have:
 *
 *   uint64_t plat_now_ns(void)                     a clock that only grows
 *   void     plat_sleep_ms(uint32_t)
 *   uint32_t plat_pid(void)
 *   int      plat_thread_start(plat_thread *, void (*run)(void *), void *)          1: it runs
 *   void     plat_thread_join(plat_thread *)
 *   int      plat_wake_open(plat_wakeup *), void plat_wake_close(plat_wakeup *)
 *   void     plat_wake(plat_wakeup *)              never blocks
 *   plat_socket plat_connect(const char *endpoint) PLAT_NO_SOCKET: not possible; only loopback and ipc
 *   void     plat_disconnect(plat_socket)
 *   long     plat_send/plat_receive(plat_socket, bytes, n)     > 0 bytes; 0: not now; -1: the connection is over
 *   void     plat_wait(plat_socket, int want_write, plat_wakeup *, int timeout_ms)  until something happens
 *   long     plat_read_private_file(path, buffer, n)           bytes, -1 absent, -2 not to be trusted
 *   uint8_t *plat_map(path, bytes) / plat_unmap(base, bytes)   NULL: not a file of ours of that size
 *   uint64_t plat_process_start_ns(pid)            as daemon/gleeman/host says; 0: no such process
 *   int      plat_same_start(a, b)                 equal, within what this system can tell
 *   int      plat_runtime_folder(buffer, n)        where the discovery file lies; 0: not known
 */

#endif
