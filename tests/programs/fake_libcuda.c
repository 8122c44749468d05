// A small driver for tests: it hands out addresses, refuses what a driver refuses, and counts. No memory is
// behind an address. Environment:
//   FAKE_DEVICES=N    devices seen (1)          FAKE_MEMORY=BYTES  room on each device (1 TiB)
//   FAKE_CONTEXT=B    the context's bytes (0)   FAKE_OTHERS=B      other jobs' bytes on each device (0)
//   FAKE_PROC=1       cuGetProcAddress returns other addresses than dlsym, as some driver may
//   FAKE_NESTED=1     cuMemAllocManaged calls the exported cuMemAlloc_v2
//   FAKE_FIRST=N      the first device seen is the Nth, as CUDA_VISIBLE_DEVICES has it (0)
//   FAKE_ALL=1        cuGetProcAddress knows each name, as a function that answers "not supported"
// -DOLD leaves out what drivers before CUDA 11.3 lack.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>

typedef int Status;
typedef unsigned long long Ptr;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 700 };
enum { PLACES = 1 << 17 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// What is not charged to a device has device -1; what belongs to no context has context 0.
static struct { uint64_t bytes, context; int device; char used; } places[PLACES];
static int freed[PLACES], nfreed, fresh = 1;
static uint64_t in_use[16];
static __thread int current;
static int refuse_frees;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

// What the process's context costs on each device, and what other jobs have there.
static uint64_t besides(void) { return (uint64_t)(number("FAKE_CONTEXT", 0) + number("FAKE_OTHERS", 0)); }

// The primary context of device N is PRIMARY + N; others are numbered on.
static const uint64_t PRIMARY = 0x1000, CREATED = 0x2000;
static uint64_t created = CREATED;
static int holds[16];
static __thread uint64_t chosen;
static uint64_t context(void) { return chosen ? chosen : PRIMARY + current; }

// Addresses are used again at once, the last freed first, which is what makes races show.
static Status take_on(Ptr *pointer, uint64_t bytes, Ptr base, int device, uint64_t context) {
    static long room;
    Status status = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (!room) room = number("FAKE_MEMORY", 1L << 40) - (long)besides();
    if (bytes == 0) {
        status = INVALID_VALUE;
    } else if ((device < 0 || in_use[device] + bytes <= (uint64_t)room) && (nfreed || fresh < PLACES)) {
        int place = nfreed ? freed[--nfreed] : fresh++;
        places[place].bytes = bytes, places[place].device = device, places[place].used = 1;
        places[place].context = context;
        if (device >= 0) in_use[device] += bytes;
        *pointer = base + ((Ptr)place << 9);
        status = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static Status take(Ptr *pointer, uint64_t bytes, Ptr base) {
    return take_on(pointer, bytes, base, current, context());
}

static const Ptr BASE = 0x7f0000000000, BASE_V1 = 0x10000000;

static void drop_place(int place) {
    places[place].used = 0;
    if (places[place].device >= 0) in_use[places[place].device] -= places[place].bytes;
    freed[nfreed++] = place;
}
static int place_of(Ptr pointer) {
    uint64_t place = (pointer - (pointer >= BASE ? BASE : BASE_V1)) >> 9;
    return place < PLACES && places[place].used ? (int)place : -1;
}

static Status give(Ptr pointer) {
    if (__atomic_load_n(&refuse_frees, __ATOMIC_RELAXED)) return LAUNCH_FAILED;
    if (pointer == 0) return SUCCESS;
    Status status = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int place = place_of(pointer);
    if (place >= 0) {
        drop_place(place);
        status = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

// A context ends with all that lives in it.
static Status end_context(uint64_t which) {
    if (__atomic_load_n(&refuse_frees, __ATOMIC_RELAXED)) return LAUNCH_FAILED;
    pthread_mutex_lock(&lock);
    for (int place = 0; place < fresh; place++)
        if (places[place].used && places[place].context == which) drop_place(place);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// For the tests themselves.
void fake_refuse_frees(int refuse) { __atomic_store_n(&refuse_frees, refuse, __ATOMIC_RELAXED); }
uint64_t fake_in_use(int device) { return in_use[device]; }
void fake_set_device(int device) { current = device; }
static __thread int no_context;
void fake_no_context(void) { no_context = 1; }
int fake_holds(int device) { return holds[device]; }
// The driver's own lock must be free in a forked child.
void fake_before_fork(void) { pthread_mutex_lock(&lock); }
void fake_after_fork(void) { pthread_mutex_unlock(&lock); }

Status cuInit(unsigned flags) { return SUCCESS; }
Status cuDeviceGetCount(int *count) { *count = (int)number("FAKE_DEVICES", 1); return SUCCESS; }
Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
Status cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0xa0 + (int)number("FAKE_FIRST", 0) + device, 16); return SUCCESS; }
Status cuCtxGetDevice(int *device) { *device = current; return no_context ? INVALID_CONTEXT : SUCCESS; }

Status cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
Status cuGetExportTable(const void **table, const void *id) { return NOT_FOUND; }

static Status create_context(void **made) {
    chosen = __atomic_fetch_add(&created, 1, __ATOMIC_RELAXED);
    *made = (void *)chosen;
    return SUCCESS;
}
Status cuCtxCreate(void **made, unsigned flags, int device) { return create_context(made); }
Status cuCtxCreate_v2(void **made, unsigned flags, int device) { return create_context(made); }
Status cuCtxCreate_v3(void **made, void *affinity, int count, unsigned flags, int device) {
    return create_context(made);
}
Status cuCtxCreate_v4(void **made, void *parameters, unsigned flags, int device) {
    return flags == 44 && device == 0 ? create_context(made) : INVALID_VALUE;
}
Status cuCtxDestroy(void *which) { return end_context((uint64_t)which); }
Status cuCtxDestroy_v2(void *which) { return end_context((uint64_t)which); }
Status cuCtxGetCurrent(void **which) { *which = (void *)context(); return SUCCESS; }
Status cuCtxSetCurrent(void *which) { chosen = (uint64_t)which; return SUCCESS; }
Status cuDevicePrimaryCtxRetain(void **which, int device) {
    holds[device]++;
    *which = (void *)(PRIMARY + device);
    return SUCCESS;
}
static Status release_primary(int device) {
    if (!holds[device]) return INVALID_CONTEXT;
    return --holds[device] ? SUCCESS : end_context(PRIMARY + device);
}
static Status reset_primary(int device) {
    Status status = end_context(PRIMARY + device);
    if (status == SUCCESS) holds[device] = 0;
    return status;
}
Status cuDevicePrimaryCtxRelease(int device) { return release_primary(device); }
Status cuDevicePrimaryCtxRelease_v2(int device) { return release_primary(device); }
Status cuDevicePrimaryCtxReset(int device) { return reset_primary(device); }
Status cuDevicePrimaryCtxReset_v2(int device) { return reset_primary(device); }
Status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0, *active = holds[device] > 0;
    return SUCCESS;
}
// A green context holds the primary one.
Status cuGreenCtxCreate(void **made, void *resources, int device, unsigned flags) {
    holds[device]++;
    *made = (void *)(0x3000L + device);
    return SUCCESS;
}
Status cuGreenCtxDestroy(void *which) { return release_primary((int)((uint64_t)which - 0x3000)); }

Status cuPointerGetAttribute(void *value, int attribute, Ptr pointer) {
    pthread_mutex_lock(&lock);
    int place = place_of(pointer);
    if (place >= 0 && attribute == 1) *(uint64_t *)value = places[place].context;
    pthread_mutex_unlock(&lock);
    return place >= 0 && attribute == 1 ? SUCCESS : INVALID_VALUE;
}
Status cuMemGetAddressRange_v2(Ptr *base, size_t *bytes, Ptr pointer) {
    pthread_mutex_lock(&lock);
    int place = place_of(pointer);
    if (place >= 0) *base = pointer, *bytes = places[place].bytes;
    pthread_mutex_unlock(&lock);
    return place >= 0 ? SUCCESS : INVALID_VALUE;
}

// Another process's memory. The handle names its size, and its end must arrive as well.
typedef struct { uint64_t bytes; char rest[48]; uint64_t end; } IpcHandle;
static Status open_range(Ptr *pointer, uint64_t bytes) { return take_on(pointer, bytes, BASE, -1, context()); }
Status cuIpcOpenMemHandle(Ptr *pointer, IpcHandle handle, unsigned flags) {
    return handle.end == 0x1234 && flags == 1 ? open_range(pointer, handle.bytes) : INVALID_VALUE;
}
Status cuIpcOpenMemHandle_v2(Ptr *pointer, IpcHandle handle, unsigned flags) {
    return cuIpcOpenMemHandle(pointer, handle, flags);
}
Status cuIpcCloseMemHandle(Ptr pointer) { return give(pointer); }
typedef struct { int kind; uint64_t handle[2], size; unsigned flags; } External;
Status cuImportExternalMemory(void **memory, const External *descriptor) {
    return open_range((Ptr *)memory, descriptor->size);
}
Status cuExternalMemoryGetMappedBuffer(Ptr *pointer, void *memory, const void *descriptor) {
    *pointer = 0x7e0000000000;
    return SUCCESS;
}
Status cuDestroyExternalMemory(void *memory) { return give((Ptr)memory); }

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
Status cuMemAllocPitch(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc(pointer, *pitch * height);
}
Status cuMemAllocManaged(Ptr *pointer, size_t bytes, unsigned flags) {
    return number("FAKE_NESTED", 0) ? cuMemAlloc_v2(pointer, bytes) : take(pointer, bytes, BASE);
}
Status cuMemFree(unsigned pointer) { return give(pointer); }
Status cuMemFree_v2(Ptr pointer) { return give(pointer); }
Status cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) { return take((Ptr *)pointer, bytes, BASE); }
Status cuMemAllocHost_v2(void **pointer, size_t bytes) { return take((Ptr *)pointer, bytes, BASE); }
Status cuMemAllocHost(void **pointer, unsigned bytes) { return take((Ptr *)pointer, bytes, BASE); }
Status cuMemFreeHost(void *pointer) { return give((Ptr)pointer); }
Status cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) { return SUCCESS; }
Status cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) { return SUCCESS; }
Status cuMemHostUnregister(void *pointer) { return refuse_frees ? LAUNCH_FAILED : SUCCESS; }

typedef struct { size_t width, height; int format; unsigned channels; } Array;
Status cuArrayCreate_v2(void **array, const Array *descriptor) { return take((Ptr *)array, 1, BASE); }
typedef struct { unsigned width, height; int format; unsigned channels; } ArrayV1;
Status cuArrayCreate(void **array, const ArrayV1 *descriptor) { return take((Ptr *)array, 1, BASE); }
Status cuArray3DCreate(void **array, const void *descriptor) { return take((Ptr *)array, 1, BASE); }
Status cuArray3DCreate_v2(void **array, const void *descriptor) { return take((Ptr *)array, 1, BASE); }
Status cuArrayDestroy(void *array) { return give((Ptr)array); }
Status cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels) {
    return take((Ptr *)array, 1, BASE);
}
Status cuMipmappedArrayDestroy(void *array) { return give((Ptr)array); }

Status cuCtxSynchronize(void) { return SUCCESS; }
// One stream has work that never ends.
Status cuStreamSynchronize(void *stream) {
    while (stream == (void *)0xe7e47a1) pause();
    return SUCCESS;
}
Status cuCtxSynchronize_v2(void *context) { return SUCCESS; }
Status cuStreamSynchronize_ptsz(void *stream) { return SUCCESS; }
Status cuEventSynchronize(void *event) { return SUCCESS; }
Status cuMemcpyDtoH_v2(void *to, Ptr from, size_t bytes) { return SUCCESS; }
Status cuMemcpyDtoH_v2_ptds(void *to, Ptr from, size_t bytes) { return SUCCESS; }
Status cuMemcpyDtoHAsync_v2(void *to, Ptr from, size_t bytes, void *stream) { return SUCCESS; }
Status cuMemcpyDtoHAsync_v2_ptsz(void *to, Ptr from, size_t bytes, void *stream) { return SUCCESS; }

Status cuMemGetInfo_v2(size_t *free, size_t *total) {
    size_t room = (size_t)number("FAKE_MEMORY", 1L << 40);
    if (no_context) return INVALID_CONTEXT;
    if (free) *free = room - in_use[current] - besides();
    if (total) *total = room;
    return SUCCESS;
}
Status cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)number("FAKE_MEMORY", 1L << 40);
    return SUCCESS;
}

#ifndef OLD
// One stream may be captured. Calls that a capture bars, by a thread that is not in relaxed mode, spoil it.
static void *captured;
static int capturing, spoiled;
static __thread int capture_mode;
static uint64_t graph_bytes, graph_reserved;
static void unsafe_during_capture(void) {
    if (capturing && capture_mode != 2) spoiled = 1;
}
Status cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode, *mode = before;
    return SUCCESS;
}
Status cuStreamBeginCapture(void *stream) { captured = stream, capturing = 1, spoiled = 0; return SUCCESS; }
Status cuStreamBeginCapture_ptsz(void *stream) { return cuStreamBeginCapture(stream); }
Status cuStreamBeginCapture_v2(void *stream, int mode) { return cuStreamBeginCapture(stream); }
Status cuStreamBeginCapture_v2_ptsz(void *stream, int mode) { return cuStreamBeginCapture(stream); }
Status cuStreamBeginCaptureToGraph(void *stream, void *graph, void *after, void *edges, size_t count, int mode) {
    return mode == 1 ? cuStreamBeginCapture(stream) : INVALID_VALUE;
}
Status cuStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, void *after, void *edges, size_t count, int mode) {
    return cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode);
}
Status cuStreamIsCapturing(void *stream, int *state) { *state = capturing && stream == captured; return SUCCESS; }
Status cuStreamIsCapturing_ptsz(void *stream, int *state) { return cuStreamIsCapturing(stream, state); }
Status cuStreamEndCapture(void *stream, void **graph) {
    capturing = 0, *graph = (void *)0x4000;
    return spoiled ? 901 : SUCCESS;
}
// A node's memory comes with the launch, and stays for the next one until it is trimmed.
Status cuGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count, uint64_t *parameters) {
    graph_bytes += *parameters;
    return SUCCESS;
}
Status cuGraphAddNode(void **node, void *graph, void *const *after, size_t count, int *parameters) {
    graph_bytes += parameters[1];
    return SUCCESS;
}
Status cuGraphAddNode_v2(void **node, void *graph, void *const *after, void *edges, size_t count, int *parameters) {
    return cuGraphAddNode(node, graph, after, count, parameters);
}
Status cuGraphLaunch_ptsz(void *graph, void *stream) { return SUCCESS; }
Status cuGraphLaunch(void *graph, void *stream) { graph_reserved = graph_bytes; return SUCCESS; }
Status cuDeviceGraphMemTrim(int device) { graph_reserved = 0; return SUCCESS; }
Status cuDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    unsafe_during_capture();
    if (attribute != 2) return INVALID_VALUE;
    *(uint64_t *)value = device == 0 ? graph_reserved : 0;
    return SUCCESS;
}

static Status take_ordered(Ptr *pointer, size_t bytes, void *stream, int device) {
    if (!capturing || stream != captured) return take_on(pointer, bytes, BASE, device, 0);
    *pointer = 0x7d0000000000 + graph_bytes;
    graph_bytes += bytes;
    return SUCCESS;
}
Status cuMemAllocAsync(Ptr *pointer, size_t bytes, void *stream) {
    return take_ordered(pointer, bytes, stream, current);
}
Status cuMemAllocAsync_ptsz(Ptr *pointer, size_t bytes, void *stream) {
    return take_ordered(pointer, bytes + 0, stream, current);
}
Status cuMemFreeAsync(Ptr pointer, void *stream) {
    return capturing && stream == captured ? SUCCESS : give(pointer);
}
Status cuMemFreeAsync_ptsz(Ptr pointer, void *stream) { return cuMemFreeAsync(pointer, stream); }

// Pools of the program's own: device N, or -1 for host memory. The handle is a number, used again.
static int pools[16], npools;
typedef struct { int kind, handle_types, location_kind, location; } Prop;
Status cuMemPoolCreate(void **pool, const Prop *prop) {
    pools[++npools] = prop->location_kind == 1 ? prop->location : -1;
    *pool = (void *)(uint64_t)npools;
    return SUCCESS;
}
Status cuMemPoolDestroy(void *pool) {
    if (refuse_frees) return LAUNCH_FAILED;
    npools--;
    return SUCCESS;
}
Status cuMemAllocFromPoolAsync(Ptr *pointer, size_t bytes, void *pool, void *stream) {
    return take_ordered(pointer, bytes, stream, pool ? pools[(uint64_t)pool] : current);
}
Status cuMemAllocFromPoolAsync_ptsz(Ptr *pointer, size_t bytes, void *pool, void *stream) {
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}
Status cuMemPoolImportPointer(Ptr *pointer, void *pool, uint64_t *exported) { return open_range(pointer, *exported); }

// Physical memory: a handle's references are its own and its mappings.
static struct { uint64_t bytes; int device, references; } handles[256];
static struct { Ptr start; uint64_t bytes; int handle; } mapped[256];
static int nhandles = 1;

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
static Status import(unsigned long long *handle) {
    handles[nhandles].device = -1, handles[nhandles].references = 1;
    *handle = nhandles++;
    return SUCCESS;
}
Status cuMemImportFromShareableHandle(unsigned long long *handle, void *shared, int kind) { return import(handle); }
// A multicast object binds memory of others.
Status cuMulticastCreate(unsigned long long *handle, const void *prop) {
    return import(handle);
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

static Status unsupported(void) { return 801; }

// Other addresses for the same functions.
static Status other_alloc(Ptr *pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes); }
static Status other_free(Ptr pointer) { return give(pointer); }

Status cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
Status cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    // The first row is a form that came after all that we know.
#define HOOKED(base, since, per_thread, name) {#base, since, per_thread, name}
    static const struct { const char *base; int since, per_thread; void *function; } known[] = {
        HOOKED(cuInit, 2000, 0, cuInit), HOOKED(cuDriverGetVersion, 2020, 0, cuDriverGetVersion),
        HOOKED(cuGetExportTable, 3000, 0, cuGetExportTable),
        HOOKED(cuMemAlloc, 99000, 0, unsupported), HOOKED(cuMemAlloc, 3020, 0, cuMemAlloc_v2), HOOKED(cuMemAlloc, 2000, 0, cuMemAlloc),
        HOOKED(cuMemFree, 3020, 0, cuMemFree_v2), HOOKED(cuMemFree, 2000, 0, cuMemFree),
        HOOKED(cuMemAllocPitch, 3020, 0, cuMemAllocPitch_v2), HOOKED(cuMemAllocPitch, 2000, 0, cuMemAllocPitch),
        HOOKED(cuMemAllocManaged, 6000, 0, cuMemAllocManaged),
        HOOKED(cuMemAllocAsync, 11020, 1, cuMemAllocAsync_ptsz), HOOKED(cuMemAllocAsync, 11020, 0, cuMemAllocAsync),
        HOOKED(cuMemFreeAsync, 11020, 1, cuMemFreeAsync_ptsz), HOOKED(cuMemFreeAsync, 11020, 0, cuMemFreeAsync),
        HOOKED(cuMemAllocFromPoolAsync, 11020, 1, cuMemAllocFromPoolAsync_ptsz),
        HOOKED(cuMemAllocFromPoolAsync, 11020, 0, cuMemAllocFromPoolAsync),
        HOOKED(cuMemPoolCreate, 11020, 0, cuMemPoolCreate), HOOKED(cuMemPoolDestroy, 11020, 0, cuMemPoolDestroy),
        HOOKED(cuMemPoolImportPointer, 11020, 0, cuMemPoolImportPointer),
        HOOKED(cuMemAllocHost, 3020, 0, cuMemAllocHost_v2), HOOKED(cuMemAllocHost, 2000, 0, cuMemAllocHost),
        HOOKED(cuMemHostAlloc, 2020, 0, cuMemHostAlloc),
        HOOKED(cuMemFreeHost, 2000, 0, cuMemFreeHost),
        HOOKED(cuMemHostRegister, 6050, 0, cuMemHostRegister_v2),
        HOOKED(cuMemHostRegister, 4000, 0, cuMemHostRegister),
        HOOKED(cuMemHostUnregister, 4000, 0, cuMemHostUnregister),
        HOOKED(cuArrayCreate, 3020, 0, cuArrayCreate_v2), HOOKED(cuArrayCreate, 2000, 0, cuArrayCreate),
        HOOKED(cuArray3DCreate, 3020, 0, cuArray3DCreate_v2), HOOKED(cuArray3DCreate, 2000, 0, cuArray3DCreate),
        HOOKED(cuArrayDestroy, 2000, 0, cuArrayDestroy),
        HOOKED(cuMipmappedArrayCreate, 5000, 0, cuMipmappedArrayCreate),
        HOOKED(cuMipmappedArrayDestroy, 5000, 0, cuMipmappedArrayDestroy),
        HOOKED(cuIpcOpenMemHandle, 11000, 0, cuIpcOpenMemHandle_v2),
        HOOKED(cuIpcOpenMemHandle, 4010, 0, cuIpcOpenMemHandle),
        HOOKED(cuIpcCloseMemHandle, 4010, 0, cuIpcCloseMemHandle),
        HOOKED(cuImportExternalMemory, 10000, 0, cuImportExternalMemory),
        HOOKED(cuDestroyExternalMemory, 10000, 0, cuDestroyExternalMemory),
        HOOKED(cuMemCreate, 10020, 0, cuMemCreate), HOOKED(cuMemRelease, 10020, 0, cuMemRelease),
        HOOKED(cuMemMap, 10020, 0, cuMemMap), HOOKED(cuMemUnmap, 10020, 0, cuMemUnmap),
        HOOKED(cuMemRetainAllocationHandle, 11000, 0, cuMemRetainAllocationHandle),
        HOOKED(cuMemImportFromShareableHandle, 10020, 0, cuMemImportFromShareableHandle),
        HOOKED(cuCtxCreate, 12050, 0, cuCtxCreate_v4), HOOKED(cuCtxCreate, 11040, 0, cuCtxCreate_v3),
        HOOKED(cuCtxCreate, 3020, 0, cuCtxCreate_v2), HOOKED(cuCtxCreate, 2000, 0, cuCtxCreate),
        HOOKED(cuCtxDestroy, 4000, 0, cuCtxDestroy_v2), HOOKED(cuCtxDestroy, 2000, 0, cuCtxDestroy),
        HOOKED(cuDevicePrimaryCtxRelease, 11000, 0, cuDevicePrimaryCtxRelease_v2),
        HOOKED(cuDevicePrimaryCtxRelease, 7000, 0, cuDevicePrimaryCtxRelease),
        HOOKED(cuDevicePrimaryCtxReset, 11000, 0, cuDevicePrimaryCtxReset_v2),
        HOOKED(cuDevicePrimaryCtxReset, 7000, 0, cuDevicePrimaryCtxReset),
        HOOKED(cuGreenCtxCreate, 12040, 0, cuGreenCtxCreate), HOOKED(cuGreenCtxDestroy, 12040, 0, cuGreenCtxDestroy),
        HOOKED(cuGraphAddMemAllocNode, 11040, 0, cuGraphAddMemAllocNode),
        HOOKED(cuGraphAddNode, 12030, 0, cuGraphAddNode_v2), HOOKED(cuGraphAddNode, 12020, 0, cuGraphAddNode),
        HOOKED(cuDeviceGraphMemTrim, 11040, 0, cuDeviceGraphMemTrim),
        HOOKED(cuStreamBeginCapture, 10010, 1, cuStreamBeginCapture_v2_ptsz),
        HOOKED(cuStreamBeginCapture, 10010, 0, cuStreamBeginCapture_v2),
        HOOKED(cuStreamBeginCapture, 10000, 1, cuStreamBeginCapture_ptsz),
        HOOKED(cuStreamBeginCapture, 10000, 0, cuStreamBeginCapture),
        HOOKED(cuStreamBeginCaptureToGraph, 12030, 1, cuStreamBeginCaptureToGraph_ptsz),
        HOOKED(cuStreamBeginCaptureToGraph, 12030, 0, cuStreamBeginCaptureToGraph),
        HOOKED(cuCtxSynchronize, 13000, 0, cuCtxSynchronize_v2), HOOKED(cuCtxSynchronize, 2000, 0, cuCtxSynchronize),
        HOOKED(cuEventSynchronize, 2000, 0, cuEventSynchronize),
        HOOKED(cuMemcpyDtoH, 7000, 1, cuMemcpyDtoH_v2_ptds), HOOKED(cuMemcpyDtoH, 3020, 0, cuMemcpyDtoH_v2),
        HOOKED(cuMemcpyDtoHAsync, 7000, 1, cuMemcpyDtoHAsync_v2_ptsz),
        HOOKED(cuMemcpyDtoHAsync, 3020, 0, cuMemcpyDtoHAsync_v2),
        HOOKED(cuGraphLaunch, 10000, 1, cuGraphLaunch_ptsz), HOOKED(cuGraphLaunch, 10000, 0, cuGraphLaunch),
        HOOKED(cuMemGetInfo, 3020, 0, cuMemGetInfo_v2), HOOKED(cuDeviceTotalMem, 3020, 0, cuDeviceTotalMem_v2),
        HOOKED(cuStreamSynchronize, 7000, 1, cuStreamSynchronize_ptsz),
        HOOKED(cuStreamSynchronize, 2000, 0, cuStreamSynchronize),
        HOOKED(cuGetProcAddress, 12000, 0, cuGetProcAddress_v2), HOOKED(cuGetProcAddress, 11030, 0, cuGetProcAddress),
    };
    *function = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].base, name) && version >= known[i].since && (!known[i].per_thread || (flags & 2))) {
            *function = known[i].function;
            if (number("FAKE_PROC", 0) && *function == (void *)cuMemAlloc_v2) *function = other_alloc;
            if (number("FAKE_PROC", 0) && *function == (void *)cuMemFree_v2) *function = other_free;
            return SUCCESS;
        }
    if (!number("FAKE_ALL", 0) || strncmp(name, "cu", 2)) return NOT_FOUND;
    *function = unsupported;
    return SUCCESS;
}
Status cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found) {
    Status status = cuGetProcAddress(name, function, version, flags);
    if (found) *found = status == SUCCESS ? 0 : 1;
    return status == SUCCESS ? SUCCESS : NOT_FOUND;
}
#endif
