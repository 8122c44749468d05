// The quietest driver for the benchmarks of hooks: no lock, nothing shared between threads. Each thread gets
// back the addresses that it has freed, the last one first, as from a real driver's cache. It has what
// libraries of other people look for, too. A context takes QUIET_CONTEXT_MS milliseconds.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long Ptr;
static int threads, context;
static __thread Ptr next, freed[1024];
static __thread int count;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 12080, 0; }
int cuGetErrorString(int error, const char **text) { return *text = "an error", 0; }
int cuGetErrorName(int error, const char **text) { return *text = "CUDA_ERROR", 0; }
int cuDeviceGetCount(int *devices) { return *devices = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetUuid(char *uuid, int device) { return memset(uuid, 0x51, 16), 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { return memset(uuid, 0x51, 16), 0; }
int cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "quiet", length), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = 1, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)1 << 50, 0; }

// Called by two functions each, and not through names that a preload may have taken.
static int create(void **created) {
    const char *ms = getenv("QUIET_CONTEXT_MS");
    if (ms) usleep(1000 * atoi(ms));
    return *created = &context, 0;
}
int cuCtxCreate_v2(void **created, unsigned flags, int device) { return create(created); }
int cuDevicePrimaryCtxRetain(void **created, int device) { return create(created); }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxDestroy_v2(void *destroyed) { return 0; }
int cuCtxGetCurrent(void **current) { return *current = &context, 0; }
int cuCtxSetCurrent(void *current) { return 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuCtxSynchronize(void) { return 0; }

// Functions that do nothing, whatever their arguments.
#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuLaunchKernel) NOTHING(cuGetProcAddress) NOTHING(cuGetProcAddress_v2)
NOTHING(cuMemcpy) NOTHING(cuMemcpyAsync) NOTHING(cuMemcpyDtoH_v2) NOTHING(cuMemcpyDtoHAsync_v2)
NOTHING(cuMemcpyHtoD_v2) NOTHING(cuMemcpyHtoDAsync_v2) NOTHING(cuMemcpyDtoD_v2) NOTHING(cuMemcpyDtoDAsync_v2)
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = *total = (size_t)1 << 50, 0; }

static int allocate(Ptr *pointer) {
    if (count) return *pointer = freed[--count], 0;
    if (!next) next = 0x7f0000000000 + ((Ptr)__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) << 36);
    *pointer = next += 1 << 21;
    return 0;
}
int cuMemAlloc_v2(Ptr *pointer, size_t bytes) { return allocate(pointer); }
int cuMemAllocManaged(Ptr *pointer, size_t bytes, unsigned flags) { return allocate(pointer); }
int cuMemFree_v2(Ptr pointer) {
    if (count < 1024) freed[count++] = pointer;
    return 0;
}
