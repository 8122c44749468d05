// Allocates through one path to device memory, and says at each step what the ledger must show: bytes by class, to
// the byte, and between what and what cuMemGetInfo's figure must have changed.
//
// usage: paths ROW
// With LOOKUP=proc the calls are found by cuGetProcAddress, else by dlsym. With STEPS=1 it waits for a byte on its
// standard input after each step. Status 77: the driver or device lacks what the row needs, which is said.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "driver.h"

enum { MIB = 1 << 20, STEP = 2 * MIB };
enum class_ { DEVICE, MANAGED, ARRAY, POOL, VMM, GRAPH, IMPORTED, HOST, CLASSES };
static const char *const NAMES[CLASSES] = {"device", "managed", "array", "pool", "vmm", "graph", "imported", "host"};

static struct driver cu;
static Obj context;
static int is_real;

// What is asked for and not given back. `parts` counts allocations: each may round up to a step.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long long live[CLASSES], parts, peak, allocations, frees, base_free;
// In place of asked bytes: what the driver says that its pools and graphs have reserved.
static long long pools_reserved = -1;

#define OK(call) WANT(0, call)
#define WANT(expected, call) \
    do { \
        int status_ = (call); \
        if (status_ != (expected)) { \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, status_, (int)(expected)); \
            exit(1); \
        } \
    } while (0)

static void leave_out(const char *why) {
    fprintf(stderr, "left out: %s\n", why);
    exit(77);
}
#define NEED(name) \
    if (!cu.name) leave_out("the driver has no cu" #name)
// On a real device a refusal is a lack; on the simulated one it is a fault.
#define TRY(call, why) \
    do { \
        int status_ = (call); \
        if (status_ && is_real) leave_out(why); \
        WANT(0, status_); \
    } while (0)

static int is_reserved(enum class_ class) {
    return class == DEVICE || class == ARRAY || class == POOL || class == VMM || class == GRAPH;
}

static void changed(enum class_ class, long long bytes, int count) {
    pthread_mutex_lock(&lock);
    live[class] += bytes;
    parts += count;
    long long now = live[DEVICE] + live[ARRAY] + live[POOL] + live[VMM] + live[GRAPH];
    if (now > peak) peak = now;
    if (is_reserved(class)) *(count > 0 ? &allocations : &frees) += 1;
    pthread_mutex_unlock(&lock);
}
static void got(enum class_ class, long long bytes) { changed(class, bytes, 1); }
static void gave(enum class_ class, long long bytes) { changed(class, -bytes, -1); }

static long long free_bytes(void) {
    size_t free, total;
    OK(cu.MemGetInfo_v2(&free, &total));
    return (long long)free;
}

static unsigned long long graph_reserved(void) {
    unsigned long long bytes = 0;
    if (cu.DeviceGetGraphMemAttribute) OK(cu.DeviceGetGraphMemAttribute(0, 2, &bytes));
    return bytes;
}

static void step(const char *label) {
    long long charged = base_free - free_bytes();
    long long held = live[DEVICE] + live[ARRAY] + live[VMM] + (long long)graph_reserved();
    held += pools_reserved >= 0 ? pools_reserved : live[POOL];
    printf("at %s", label);
    for (int class = 0; class < CLASSES; class++) printf(" %s=%lld", NAMES[class], live[class]);
    // Each allocation is rounded up at most to a step. One step more or less is the driver's own: a real one keeps the
    // block of small allocations that was there at the start.
    long long least = is_real ? held - STEP : held;
    printf(" charged=%lld least=%lld most=%lld\n", charged, least, held + (parts + 1) * STEP);
    fflush(stdout);
    char byte;
    if (getenv("STEPS") && read(0, &byte, 1) != 1) exit(3);
}

static void *find(const char *exported, const char *base, int version) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) leave_out(dlerror());
    const char *lookup = getenv("LOOKUP");
    if (lookup && !strcmp(lookup, "proc")) {
        int (*ask)(const char *, void **, int, unsigned long long, int *);
        *(void **)&ask = dlsym(library, "cuGetProcAddress_v2");
        if (!ask) leave_out("the driver has no cuGetProcAddress_v2");
        void *found = NULL;
        unsigned long long flags = strstr(exported, "_ptsz") ? 2 : 1;
        return ask(base, &found, version, flags, NULL) ? NULL : found;
    }
    return dlsym(library, exported);
}

static void start(void) {
#define FIND(name, base, version, arguments) *(void **)&cu.name = find("cu" #name, "cu" #base, version);
    DRIVER_CALLS(FIND)
#undef FIND
    TRY(cu.Init(0), "cuInit finds no device");
    OK(cu.CtxCreate_v2(&context, 0, 0));
    // The first allocation may bring something of the driver's own.
    Ptr first;
    OK(cu.MemAlloc_v2(&first, 1));
    OK(cu.MemFree_v2(first));
    base_free = free_bytes();
}

static Ptr allocate(size_t bytes) {
    Ptr address;
    OK(cu.MemAlloc_v2(&address, bytes));
    got(DEVICE, (long long)bytes);
    return address;
}
static void release(Ptr address, size_t bytes) {
    gave(DEVICE, (long long)bytes);
    OK(cu.MemFree_v2(address));
}

static void row_alloc(void) {
    const size_t sizes[] = {1, 1000, MIB - 1, MIB, 3 * MIB + 5, 32 * MIB};
    Ptr at[6];
    for (int i = 0; i < 6; i++) at[i] = allocate(sizes[i]);
    step("allocated");
    for (int i = 0; i < 6; i += 2) release(at[i], sizes[i]);
    step("half_freed");
    for (int i = 1; i < 6; i += 2) release(at[i], sizes[i]);
    step("freed");
}

static void row_alloc_v1(void) {
    unsigned address;
    TRY(cu.MemAlloc(&address, 5000), "the driver hands out no 32-bit addresses");
    got(DEVICE, 5000);
    step("allocated");
    gave(DEVICE, 5000);
    OK(cu.MemFree(address));
    step("freed");
}

static void row_pitch(void) {
    const size_t widths[] = {1, 700, 512, 4097};
    Ptr at[4];
    size_t pitch[4];
    for (int i = 0; i < 4; i++) {
        OK(cu.MemAllocPitch_v2(&at[i], &pitch[i], widths[i], 1000, 4));
        got(DEVICE, (long long)pitch[i] * 1000);
    }
    step("allocated");
    for (int i = 0; i < 4; i++) release(at[i], pitch[i] * 1000);
    step("freed");
}

static void row_managed(void) {
    Ptr at;
    TRY(cu.MemAllocManaged(&at, 300000, 1), "the device has no managed memory");
    got(MANAGED, 300000);
    step("allocated");
    gave(MANAGED, 300000);
    OK(cu.MemFree_v2(at));
    step("freed");
}

static void row_host(void) {
    void *first, *second, *own = aligned_alloc(4096, MIB);
    OK(cu.MemHostAlloc(&first, 70000, 3));
    got(HOST, 70000);
    OK(cu.MemAllocHost_v2(&second, 5000));
    got(HOST, 5000);
    OK(cu.MemHostRegister_v2(own, MIB, 0));
    got(HOST, MIB);
    step("allocated");
    gave(HOST, MIB);
    OK(cu.MemHostUnregister(own));
    gave(HOST, 70000);
    OK(cu.MemFreeHost(first));
    gave(HOST, 5000);
    OK(cu.MemFreeHost(second));
    step("freed");
}

static void row_array(void) {
    Obj flat, plane, solid, layers, mipmap, level;
    // Elements of 4 channels of 32 bits, of one byte, of two halves.
    Array2d line = {1000, 0, 0x20, 4}, square = {640, 480, 0x01, 1};
    Array3d cube = {64, 32, 16, 0x10, 2, 0}, layered = {256, 0, 6, 0x20, 1, 1}, mip = {1024, 512, 0, 0x20, 1, 0};
    OK(cu.ArrayCreate_v2(&flat, &line));
    got(ARRAY, 16 * 1000);
    OK(cu.ArrayCreate_v2(&plane, &square));
    got(ARRAY, 640 * 480);
    OK(cu.Array3DCreate_v2(&solid, &cube));
    got(ARRAY, 4 * 64 * 32 * 16);
    OK(cu.Array3DCreate_v2(&layers, &layered));
    got(ARRAY, 4 * 256 * 6);
    OK(cu.MipmappedArrayCreate(&mipmap, &mip, 3));
    const long long levels = 4 * (1024 * 512 + 512 * 256 + 256 * 128);
    got(ARRAY, levels);
    OK(cu.MipmappedArrayGetLevel(&level, mipmap, 1));
    step("created");
    gave(ARRAY, 16 * 1000);
    OK(cu.ArrayDestroy(flat));
    gave(ARRAY, levels);
    OK(cu.MipmappedArrayDestroy(mipmap));
    step("some_destroyed");
    gave(ARRAY, 640 * 480);
    OK(cu.ArrayDestroy(plane));
    gave(ARRAY, 4 * 64 * 32 * 16);
    OK(cu.ArrayDestroy(solid));
    gave(ARRAY, 4 * 256 * 6);
    OK(cu.ArrayDestroy(layers));
    step("destroyed");
}

static void row_array_v1(void) {
    Obj array;
    ArrayV1 square = {100, 50, 0x20, 2};
    TRY(cu.ArrayCreate(&array, &square), "the driver makes no arrays of 32-bit sizes");
    got(ARRAY, 8 * 100 * 50);
    step("created");
    gave(ARRAY, 8 * 100 * 50);
    OK(cu.ArrayDestroy(array));
    step("destroyed");
}

static void need_pools(void) {
    int supported = 0;
    NEED(MemAllocAsync);
    OK(cu.DeviceGetAttribute(&supported, 115, 0));
    if (!supported) leave_out("the device has no memory pools");
}

static long long pool_attribute(Obj pool, int attribute) {
    unsigned long long bytes;
    OK(cu.MemPoolGetAttribute(pool, attribute, &bytes));
    return (long long)bytes;
}

static Ptr allocate_async(size_t bytes, Obj stream) {
    Ptr at;
    OK(cu.MemAllocAsync(&at, bytes, stream));
    got(POOL, (long long)bytes);
    return at;
}
static void release_async(Ptr at, size_t bytes, Obj stream) {
    gave(POOL, (long long)bytes);
    OK(cu.MemFreeAsync(at, stream));
}

static void row_async(void) {
    need_pools();
    Obj stream, pool;
    Ptr own, mixed;
    OK(cu.StreamCreate(&stream, 1));
    OK(cu.DeviceGetDefaultMemPool(&pool, 0));
    Ptr first = allocate_async(7000, stream), second = allocate_async(5 * MIB, stream);
    OK(cu.MemAllocAsync_ptsz(&own, 3 * MIB, NULL));
    got(POOL, 3 * MIB);
    mixed = allocate_async(MIB, NULL);
    OK(cu.CtxSynchronize());
    pools_reserved = pool_attribute(pool, 5);
    step("allocated");
    release_async(first, 7000, stream);
    gave(POOL, 3 * MIB);
    OK(cu.MemFreeAsync_ptsz(own, NULL));
    gave(POOL, MIB);
    OK(cu.MemFree_v2(mixed));  // the plain call frees it too
    OK(cu.CtxSynchronize());
    pools_reserved = pool_attribute(pool, 5);
    step("some_freed");
    release_async(second, 5 * MIB, stream);
    OK(cu.CtxSynchronize());
    OK(cu.MemPoolTrimTo(pool, 0));
    pools_reserved = pool_attribute(pool, 5);
    step("freed");
}

static void row_pool(void) {
    need_pools();
    Obj pool, own;
    PoolProps props = {.type = 1, .location = {1, 0}};
    Ptr first, second;
    unsigned long long most = ~0ull;
    OK(cu.MemPoolCreate(&pool, &props));
    OK(cu.DeviceGetDefaultMemPool(&own, 0));
    OK(cu.MemPoolSetAttribute(pool, 4, &most));
    OK(cu.MemAllocFromPoolAsync(&first, 10 * MIB, pool, NULL));
    got(POOL, 10 * MIB);
    OK(cu.DeviceSetMemPool(0, pool));
    second = allocate_async(4 * MIB + 1, NULL);
    OK(cu.CtxSynchronize());
    pools_reserved = pool_attribute(pool, 5);
    step("allocated");
    release_async(first, 10 * MIB, NULL);
    OK(cu.CtxSynchronize());
    pools_reserved = pool_attribute(pool, 5);
    step("kept_by_the_pool");
    OK(cu.MemPoolTrimTo(pool, 0));
    pools_reserved = pool_attribute(pool, 5);
    step("trimmed");
    OK(cu.DeviceSetMemPool(0, own));
    OK(cu.MemPoolDestroy(pool));
    step("destroyed_while_in_use");
    release_async(second, 4 * MIB + 1, NULL);
    OK(cu.CtxSynchronize());
    pools_reserved = 0;
    step("freed");
}

static size_t granularity(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    size_t bytes;
    NEED(MemGetAllocationGranularity);
    int supported = 0;
    OK(cu.DeviceGetAttribute(&supported, 102, 0));
    if (!supported) leave_out("the device has no virtual memory management");
    OK(cu.MemGetAllocationGranularity(&bytes, &prop, 0));
    return bytes;
}

static void row_vmm(void) {
    const size_t size = 2 * granularity();
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    Access access = {{1, 0}, 3};
    Ptr va, handle, other, again;
    OK(cu.MemAddressReserve(&va, 4 * size, 0, 0, 0));
    step("reserved");
    OK(cu.MemCreate(&handle, size, &prop, 0));
    got(VMM, (long long)size);
    OK(cu.MemCreate(&other, size, &prop, 0));
    got(VMM, (long long)size);
    step("created");
    OK(cu.MemMap(va, size, 0, handle, 0));
    OK(cu.MemMap(va + size, size, 0, handle, 0));
    OK(cu.MemMap(va + 2 * size, size, 0, other, 0));
    OK(cu.MemSetAccess(va, 3 * size, &access, 1));
    OK(cu.MemRelease(handle));
    OK(cu.MemRelease(other));
    step("released_while_mapped");
    OK(cu.MemUnmap(va, size));
    step("one_of_two_mappings_gone");
    OK(cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + size)));
    OK(cu.MemUnmap(va + size, size));
    step("held_by_a_retained_handle");
    gave(VMM, (long long)size);
    OK(cu.MemRelease(again));
    gave(VMM, (long long)size);
    OK(cu.MemUnmap(va + 2 * size, size));
    OK(cu.MemAddressFree(va, 4 * size));
    step("gone");
}

// Two processes: the child opens what the parent exports. The ledger has both.
static int ends[2];

static void pass(const void *bytes, size_t length, int descriptor) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof(room);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    if (sendmsg(ends[0], &message, 0) != (ssize_t)length) exit(4);
}

static int take(void *bytes, size_t length) {
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    if (recvmsg(ends[1], &message, 0) != (ssize_t)length) exit(5);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int descriptor = -1;
    if (header) memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
}

static void wait_for(char expected) {
    char byte;
    if (read(ends[0], &byte, 1) != 1 || byte != expected) exit(6);
}
static void tell(char byte) {
    if (write(ends[1], &byte, 1) != 1) exit(7);
}

static void child_opens_ipc(void) {
    struct { IpcHandle handle; } message;
    take(&message, sizeof(message));
    start();
    Ptr at;
    OK(cu.IpcOpenMemHandle_v2(&at, message.handle, 1));
    tell('o');
    char byte;
    if (read(ends[1], &byte, 1) != 1) exit(8);
    OK(cu.IpcCloseMemHandle(at));
    tell('c');
    if (read(ends[1], &byte, 1) != 0) exit(9);
}

static void child_imports(void) {
    size_t size;
    int descriptor = take(&size, sizeof(size));
    start();
    Ptr handle, va;
    OK(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, 1));
    OK(cu.MemAddressReserve(&va, size, 0, 0, 0));
    OK(cu.MemMap(va, size, 0, handle, 0));
    tell('o');
    char byte;
    if (read(ends[1], &byte, 1) != 1) exit(8);
    OK(cu.MemUnmap(va, size));
    OK(cu.MemRelease(handle));
    tell('c');
    if (read(ends[1], &byte, 1) != 0) exit(9);
}

static void parent(const void *message, size_t length, int descriptor, long long size) {
    // The child has a context of its own: what changes from there on is counted.
    pass(message, length, descriptor);
    wait_for('o');
    base_free = free_bytes() + live[DEVICE] + live[VMM];
    live[IMPORTED] += size;
    step("open_elsewhere");
    live[IMPORTED] -= size;
    if (write(ends[0], "c", 1) != 1) exit(10);
    wait_for('c');
    step("closed_elsewhere");
}

static pid_t child;
static void end_child(void) {
    int status;
    shutdown(ends[0], SHUT_WR);
    if (waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "the other process ended with %x\n", status);
        exit(1);
    }
}

static void row_ipc(void) {
    const size_t size = 4 * MIB;
    Ptr at = allocate(size);
    IpcHandle handle;
    TRY(cu.IpcGetMemHandle(&handle, at), "the device shares no memory between processes");
    parent(&handle, sizeof(handle), -1, (long long)size);
    end_child();
    base_free = free_bytes() + (long long)size;
    release(at, size);
    step("freed");
}

static void row_vmm_import(void) {
    const size_t size = 2 * granularity();
    AllocationProp prop = {.type = 1, .handles = 1, .location = {1, 0}};
    Ptr handle;
    int descriptor;
    TRY(cu.MemCreate(&handle, size, &prop, 0), "the device exports no physical memory");
    got(VMM, (long long)size);
    OK(cu.MemExportToShareableHandle(&descriptor, handle, 1, 0));
    step("exported");
    parent(&size, sizeof(size), descriptor, (long long)size);
    end_child();
    close(descriptor);
    base_free = free_bytes() + (long long)size;
    gave(VMM, (long long)size);
    OK(cu.MemRelease(handle));
    step("released");
}

static void row_graph(void) {
    NEED(GraphAddMemAllocNode);
    Obj graph, first, second, last, executable, stream;
    AllocationNode left = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 3 * MIB};
    AllocationNode inner = {.pool = {.type = 1, .location = {1, 0}}, .bytes = 10 * MIB};
    OK(cu.StreamCreate(&stream, 1));
    OK(cu.GraphCreate(&graph, 0));
    OK(cu.GraphAddMemAllocNode(&first, graph, NULL, 0, &left));
    OK(cu.GraphAddMemAllocNode(&second, graph, &first, 1, &inner));
    OK(cu.GraphAddMemFreeNode(&last, graph, &second, 1, inner.address));
    OK(cu.GraphInstantiateWithFlags(&executable, graph, 0));
    step("instantiated");
    OK(cu.GraphLaunch(executable, stream));
    OK(cu.StreamSynchronize(stream));
    live[GRAPH] = (long long)graph_reserved();
    if (live[GRAPH] < 10 * MIB) leave_out("the driver does not say what graphs have");
    step("launched");
    OK(cu.MemFreeAsync(left.address, stream));
    OK(cu.StreamSynchronize(stream));
    live[GRAPH] = (long long)graph_reserved();
    step("freed_outside");
    OK(cu.GraphExecDestroy(executable));
    OK(cu.GraphDestroy(graph));
    OK(cu.DeviceGraphMemTrim(0));
    live[GRAPH] = (long long)graph_reserved();
    step("trimmed");
}

static void row_capture(void) {
    need_pools();
    NEED(DeviceGetGraphMemAttribute);
    Obj stream, graph, executable;
    Ptr at;
    OK(cu.StreamCreate(&stream, 1));
    OK(cu.StreamBeginCapture_v2(stream, 0));
    OK(cu.MemAllocAsync(&at, 6 * MIB, stream));
    OK(cu.MemFreeAsync(at, stream));
    OK(cu.StreamEndCapture(stream, &graph));
    step("captured");  // a node, and no memory
    OK(cu.GraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 3; i++) OK(cu.GraphLaunch(executable, stream));
    OK(cu.StreamSynchronize(stream));
    live[GRAPH] = (long long)graph_reserved();
    if (live[GRAPH] < 6 * MIB) leave_out("the driver does not say what graphs have");
    step("launched");
    Ptr beside = allocate(2 * MIB);
    step("beside_it");
    release(beside, 2 * MIB);
    OK(cu.GraphExecDestroy(executable));
    OK(cu.GraphDestroy(graph));
    OK(cu.DeviceGraphMemTrim(0));
    live[GRAPH] = (long long)graph_reserved();
    step("trimmed");
}

static void row_external(void) {
    NEED(ImportExternalMemory);
    if (is_real) leave_out("memory of another API needs that API: none is linked here");
    ExternalHandle handle = {.type = 1, .size = 8 * MIB};
    ExternalBuffer buffer = {.offset = 2 * MIB, .size = 6 * MIB};
    Obj memory;
    Ptr at;
    handle.handle.fd = memfd_create("memory", 0);
    if (ftruncate(handle.handle.fd, 8 * MIB)) exit(11);
    OK(cu.ImportExternalMemory(&memory, &handle));
    live[IMPORTED] += 8 * MIB;
    OK(cu.ExternalMemoryGetMappedBuffer(&at, memory, &buffer));
    step("imported");
    OK(cu.MemFree_v2(at));
    live[IMPORTED] -= 8 * MIB;
    OK(cu.DestroyExternalMemory(memory));
    step("destroyed");
}

static void row_green(void) {
    NEED(GreenCtxCreate);
    Resource all;
    Obj description, green, inside;
    TRY(cu.DeviceGetDevResource(0, &all, 1), "the device has no green contexts");
    OK(cu.DevResourceGenerateDesc(&description, &all, 1));
    TRY(cu.GreenCtxCreate(&green, description, 0, 1), "the device has no green contexts");
    OK(cu.CtxFromGreenCtx(&inside, green));
    base_free = free_bytes();
    OK(cu.CtxSetCurrent(inside));
    Ptr at = allocate(5 * MIB);
    step("allocated");
    release(at, 5 * MIB);
    step("freed");
    OK(cu.CtxSetCurrent(context));
    OK(cu.GreenCtxDestroy(green));
}

static void row_context(void) {
    Obj second;
    OK(cu.CtxCreate_v2(&second, 0, 0));
    base_free = free_bytes();
    allocate(5 * MIB);
    allocate(100);
    Obj array;
    Array2d square = {512, 512, 0x20, 1};
    OK(cu.ArrayCreate_v2(&array, &square));
    got(ARRAY, 4 * 512 * 512);
    step("allocated");
    gave(DEVICE, 5 * MIB);
    gave(DEVICE, 100);
    gave(ARRAY, 4 * 512 * 512);
    OK(cu.CtxDestroy_v2(second));
    OK(cu.CtxSetCurrent(context));
    base_free = free_bytes();
    step("went_with_its_context");
}

static void row_refused(void) {
    Ptr at, kept = allocate(3 * MIB);
    size_t pitch;
    WANT(2, cu.MemAlloc_v2(&at, (size_t)1 << 46));
    WANT(1, cu.MemAlloc_v2(&at, 0));
    WANT(1, cu.MemAllocPitch_v2(&at, &pitch, 0, 10, 4));
    WANT(1, cu.MemFree_v2(kept + 64));
    step("refused");
    release(kept, 3 * MIB);
    step("freed");
}

enum { THREADS = 64, ROUNDS = 40 };

static void *thread(void *number) {
    const size_t seed = (size_t)number, grain = 2 * MIB;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    Obj stream;
    OK(cu.CtxSetCurrent(context));
    OK(cu.StreamCreate(&stream, 1));
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t bytes = 256 * (1 + (seed * 31 + round * 17) % 300), pitch;
        Ptr plain, pitched, ordered, handle;
        void *host;
        Obj array;
        plain = allocate(bytes);
        OK(cu.MemAllocPitch_v2(&pitched, &pitch, bytes / 16, 8, 4));
        got(DEVICE, (long long)pitch * 8);
        ordered = cu.MemAllocAsync ? allocate_async(bytes, stream) : 0;
        OK(cu.MemAllocHost_v2(&host, bytes));
        got(HOST, (long long)bytes);
        Array2d line = {bytes, 0, 0x01, 1};
        OK(cu.ArrayCreate_v2(&array, &line));
        got(ARRAY, (long long)bytes);
        OK(cu.MemCreate(&handle, grain, &prop, 0));
        got(VMM, (long long)grain);
        // The last round's stay, so that there is something to compare.
        gave(VMM, (long long)grain);
        OK(cu.MemRelease(handle));
        if (round == ROUNDS - 1) break;
        release(pitched, pitch * 8);
        if (ordered) release_async(ordered, bytes, stream);
        gave(HOST, (long long)bytes);
        OK(cu.MemFreeHost(host));
        gave(ARRAY, (long long)bytes);
        OK(cu.ArrayDestroy(array));
        release(plain, bytes);
    }
    OK(cu.StreamSynchronize(stream));
    return NULL;
}

static void row_threads(void) {
    need_pools();
    granularity();
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, thread, (void *)i)) exit(12);
    }
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    Obj pool;
    OK(cu.CtxSynchronize());
    OK(cu.DeviceGetDefaultMemPool(&pool, 0));
    pools_reserved = pool_attribute(pool, 5);
    step("after_64_threads");
}

static const struct {
    const char *name;
    void (*run)(void);
    void (*child)(void);
} ROWS[] = {
    {"alloc", row_alloc, NULL},     {"alloc_v1", row_alloc_v1, NULL}, {"pitch", row_pitch, NULL},
    {"managed", row_managed, NULL}, {"host", row_host, NULL},         {"array", row_array, NULL},
    {"array_v1", row_array_v1, NULL}, {"async_", row_async, NULL},     {"pool", row_pool, NULL},
    {"vmm", row_vmm, NULL},         {"vmm_import", row_vmm_import, child_imports},
    {"ipc", row_ipc, child_opens_ipc}, {"graph", row_graph, NULL},    {"capture", row_capture, NULL},
    {"external", row_external, NULL}, {"green", row_green, NULL},     {"context", row_context, NULL},
    {"refused", row_refused, NULL}, {"threads", row_threads, NULL},
};

int main(int argc, char **argv) {
    const char *driver = getenv("DRIVER");
    is_real = driver && !strcmp(driver, "real");
    for (size_t i = 0; argc == 2 && i < sizeof(ROWS) / sizeof(*ROWS); i++) {
        if (strcmp(argv[1], ROWS[i].name)) continue;
        if (ROWS[i].child) {
            // Before any call of the driver: a forked child has none of its own.
            if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) exit(13);
            child = fork();
            if (child == 0) {
                close(ends[0]);
                ROWS[i].child();
                return 0;
            }
            close(ends[1]);
        }
        start();
        ROWS[i].run();
        printf("done peak=%lld allocations=%lld frees=%lld\n", peak, allocations, frees);
        return 0;
    }
    if (argc == 1) {
        for (size_t i = 0; i < sizeof(ROWS) / sizeof(*ROWS); i++) puts(ROWS[i].name);
        return 0;
    }
    fprintf(stderr, "usage: paths [ROW]\n");
    return 2;
}
