// The quietest driver for the benchmark of hooks: no lock, nothing shared between threads. Each thread gets
// back the addresses that it has freed, the last one first, as from a real driver's cache.
#include <stddef.h>
#include <string.h>

typedef unsigned long long Ptr;
static int threads;
static __thread Ptr next, freed[1024];
static __thread int count;

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *devices) { return *devices = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { return memset(uuid, 0x51, 16), 0; }

int cuMemAlloc_v2(Ptr *pointer, size_t bytes) {
    if (count) return *pointer = freed[--count], 0;
    if (!next) next = 0x7f0000000000 + ((Ptr)__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) << 36);
    *pointer = next += 1 << 21;
    return 0;
}
int cuMemFree_v2(Ptr pointer) {
    if (count < 1024) freed[count++] = pointer;
    return 0;
}
