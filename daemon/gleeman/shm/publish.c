/* The helper that publish.py needs where the processor may reorder stores (all but x86-64).
 * Build beside this file:  cc -shared -fPIC -O2 -o _publish.so publish.c   (.dylib on macOS) */
#include <stdatomic.h>
#include <stdint.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT void gleeman_store_u64(void *address, uint64_t value) {
    atomic_store_explicit((_Atomic uint64_t *)address, value, memory_order_release);
}

EXPORT void gleeman_store_u32(void *address, uint32_t value) {
    atomic_store_explicit((_Atomic uint32_t *)address, value, memory_order_release);
}

EXPORT void gleeman_fence(void) { atomic_thread_fence(memory_order_acq_rel); }
