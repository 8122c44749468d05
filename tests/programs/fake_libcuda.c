// A small driver for tests: it hands out addresses, refuses what a driver refuses, and counts. No memory is
// behind an address. Environment:
//   FAKE_DEVICES=N    devices seen (1)          FAKE_MEMORY=BYTES  room on each device (1 TiB)
//   FAKE_PROC=1       cuGetProcAddress returns other addresses than dlsym, as some driver may
//   FAKE_NESTED=1     cuMemAllocManaged calls the exported cuMemAlloc_v2
// -DOLD leaves out what drivers before CUDA 11.3 lack.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>

typedef int Status;
typedef unsigned long long Ptr;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, LAUNCH_FAILED = 700 };
enum { PLACES = 1 << 17 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t bytes; int device; char used; } places[PLACES];
static int freed[PLACES], nfreed, fresh = 1;
static uint64_t in_use[16];
static __thread int current;
static int refuse_frees;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

// Addresses are used again at once, the last freed first, which is what makes races show.
static Status take(Ptr *pointer, uint64_t bytes, Ptr base) {
    static long room;
    Status status = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (!room) room = number("FAKE_MEMORY", 1L << 40);
    if (bytes == 0) {
        status = INVALID_VALUE;
    } else if (in_use[current] + bytes <= (uint64_t)room && (nfreed || fresh < PLACES)) {
        int place = nfreed ? freed[--nfreed] : fresh++;
        places[place].bytes = bytes, places[place].device = current, places[place].used = 1;
        in_use[current] += bytes;
        *pointer = base + ((Ptr)place << 9);
        status = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static const Ptr BASE = 0x7f0000000000, BASE_V1 = 0x10000000;

static Status give(Ptr pointer) {
    if (__atomic_load_n(&refuse_frees, __ATOMIC_RELAXED)) return LAUNCH_FAILED;
    if (pointer == 0) return SUCCESS;
    Ptr base = pointer >= BASE ? BASE : BASE_V1;
    uint64_t place = (pointer - base) >> 9;
    Status status = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (place < PLACES && places[place].used) {
        places[place].used = 0;
        in_use[places[place].device] -= places[place].bytes;
        freed[nfreed++] = (int)place;
        status = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

// For the tests themselves.
void fake_refuse_frees(int refuse) { __atomic_store_n(&refuse_frees, refuse, __ATOMIC_RELAXED); }
uint64_t fake_in_use(int device) { return in_use[device]; }
void fake_set_device(int device) { current = device; }

Status cuInit(unsigned flags) { return SUCCESS; }
Status cuDeviceGetCount(int *count) { *count = (int)number("FAKE_DEVICES", 1); return SUCCESS; }
Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
Status cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0xa0 + device, 16); return SUCCESS; }
Status cuCtxGetDevice(int *device) { *device = current; return SUCCESS; }

Status cuMemAlloc(unsigned *pointer, unsigned bytes) {
    Ptr wide;
    Status status = take(&wide, bytes, BASE_V1);
    if (status == SUCCESS) *pointer = (unsigned)wide;
    return status;
}
Status cuMemAlloc_v2(Ptr *pointer, size_t bytes) { return take(pointer, bytes, BASE); }
Status cuMemAllocPitch_v2(Ptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    *pitch = (width + 511) / 512 * 512;
    return take(pointer, *pitch * height, BASE);
}
Status cuMemAllocManaged(Ptr *pointer, size_t bytes, unsigned flags) {
    return number("FAKE_NESTED", 0) ? cuMemAlloc_v2(pointer, bytes) : take(pointer, bytes, BASE);
}
Status cuMemFree(unsigned pointer) { return give(pointer); }
Status cuMemFree_v2(Ptr pointer) { return give(pointer); }
Status cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) { return take((Ptr *)pointer, bytes, BASE); }
Status cuMemAllocHost_v2(void **pointer, size_t bytes) { return take((Ptr *)pointer, bytes, BASE); }
Status cuMemFreeHost(void *pointer) { return give((Ptr)pointer); }

typedef struct { size_t width, height; int format; unsigned channels; } Array;
Status cuArrayCreate_v2(void **array, const Array *descriptor) { return take((Ptr *)array, 1, BASE); }
Status cuArrayDestroy(void *array) { return give((Ptr)array); }

Status cuCtxSynchronize(void) { return SUCCESS; }
// One stream has work that never ends.
Status cuStreamSynchronize(void *stream) {
    while (stream == (void *)0xe7e47a1) pause();
    return SUCCESS;
}
Status cuStreamSynchronize_ptsz(void *stream) { return SUCCESS; }

#ifndef OLD
Status cuMemAllocAsync(Ptr *pointer, size_t bytes, void *stream) { return take(pointer, bytes, BASE); }
Status cuMemAllocAsync_ptsz(Ptr *pointer, size_t bytes, void *stream) { return take(pointer, bytes + 0, BASE); }
Status cuMemAllocFromPoolAsync(Ptr *pointer, size_t bytes, void *pool, void *stream) {
    return take(pointer, bytes, BASE);
}
Status cuMemFreeAsync(Ptr pointer, void *stream) { return give(pointer); }
Status cuMemFreeAsync_ptsz(Ptr pointer, void *stream) { return give(pointer); }

// Physical memory: a handle's references are its own and its mappings.
static struct { uint64_t bytes; int device, references; } handles[256];
static struct { Ptr start; uint64_t bytes; int handle; } mapped[256];
static int nhandles = 1;
typedef struct { int kind, handle_types, location_kind, location; } Prop;

static void drop(int handle) {
    if (--handles[handle].references == 0 && handles[handle].device >= 0)
        in_use[handles[handle].device] -= handles[handle].bytes;
}
Status cuMemCreate(unsigned long long *handle, size_t bytes, const Prop *prop, unsigned long long flags) {
    int device = prop->location_kind == 1 ? prop->location : -1;
    if (device >= 0 && in_use[device] + bytes > (uint64_t)number("FAKE_MEMORY", 1L << 40)) return OUT_OF_MEMORY;
    handles[nhandles].bytes = bytes, handles[nhandles].device = device, handles[nhandles].references = 1;
    if (device >= 0) in_use[device] += bytes;
    *handle = nhandles++;
    return SUCCESS;
}
Status cuMemRelease(unsigned long long handle) {
    if (refuse_frees) return LAUNCH_FAILED;
    drop((int)handle);
    return SUCCESS;
}
Status cuMemRetainAllocationHandle(unsigned long long *handle, void *address) {
    for (int i = 0; i < 256; i++)
        if (mapped[i].bytes && mapped[i].start == (Ptr)address) {
            *handle = mapped[i].handle, handles[mapped[i].handle].references++;
            return SUCCESS;
        }
    return INVALID_VALUE;
}
Status cuMemMap(Ptr start, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
    for (int i = 0; i < 256; i++)
        if (!mapped[i].bytes) {
            mapped[i].start = start, mapped[i].bytes = bytes, mapped[i].handle = (int)handle;
            handles[handle].references++;
            return SUCCESS;
        }
    return OUT_OF_MEMORY;
}
Status cuMemUnmap(Ptr start, size_t bytes) {
    if (refuse_frees) return LAUNCH_FAILED;
    for (int i = 0; i < 256; i++)
        if (mapped[i].bytes && mapped[i].start >= start && mapped[i].start < start + bytes) {
            mapped[i].bytes = 0;
            drop(mapped[i].handle);
        }
    return SUCCESS;
}

// Other addresses for the same functions.
static Status other_alloc(Ptr *pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes); }
static Status other_free(Ptr pointer) { return give(pointer); }

Status cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
Status cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    static const struct { const char *base; int since, per_thread; void *function; } known[] = {
        {"cuInit", 2000, 0, cuInit},
        {"cuMemAlloc", 3020, 0, cuMemAlloc_v2}, {"cuMemAlloc", 2000, 0, cuMemAlloc},
        {"cuMemFree", 3020, 0, cuMemFree_v2}, {"cuMemFree", 2000, 0, cuMemFree},
        {"cuMemAllocAsync", 11020, 1, cuMemAllocAsync_ptsz}, {"cuMemAllocAsync", 11020, 0, cuMemAllocAsync},
        {"cuMemFreeAsync", 11020, 1, cuMemFreeAsync_ptsz}, {"cuMemFreeAsync", 11020, 0, cuMemFreeAsync},
        {"cuGetProcAddress", 12000, 0, cuGetProcAddress_v2}, {"cuGetProcAddress", 11030, 0, cuGetProcAddress},
    };
    *function = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].base, name) && version >= known[i].since && (!known[i].per_thread || (flags & 2))) {
            *function = known[i].function;
            if (number("FAKE_PROC", 0) && *function == (void *)cuMemAlloc_v2) *function = other_alloc;
            if (number("FAKE_PROC", 0) && *function == (void *)cuMemFree_v2) *function = other_free;
            return SUCCESS;
        }
    return NOT_FOUND;
}
Status cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found) {
    Status status = cuGetProcAddress(name, function, version, flags);
    if (found) *found = status == SUCCESS ? 0 : 1;
    return status == SUCCESS ? SUCCESS : NOT_FOUND;
}
#endif
