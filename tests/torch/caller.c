// Calls libc10's report as its CUDA allocator does, and stands in for the profiler behind it: prints what arrives there.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { signed char type, index; } Device;

#if FORM == 1
void report(void *, long, Device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE");
#define REPORT(block, bytes, allocated, reserved, device) report(block, bytes, device)
#elif FORM == 2
void report(void *, long, long, long, Device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
void oom(long, long, long, Device) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE");
#define REPORT report
#else
void report(void *, long, size_t, size_t, Device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void oom(long, size_t, size_t, Device) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
#define REPORT report
#endif

static void nothing(void *self) {}
#if FORM == 1
static void profiled(void *self, void *block, long bytes, Device device) {
    printf("profiled %p %ld on %d:%d\n", block, bytes, device.type, device.index);
}
#else
static void profiled(void *self, void *block, long bytes, size_t allocated, size_t reserved, Device device) {
    printf("profiled %p %ld %zu %zu on %d:%d\n", block, bytes, allocated, reserved, device.type, device.index);
}
static void profiled_oom(void *self, long bytes, size_t allocated, size_t reserved, Device device) {
    printf("out of memory %ld %zu %zu on %d:%d\n", bytes, allocated, reserved, device.type, device.index);
}
#endif

// A c10::MemoryReportingInfoBase: two destructors, then its methods.
#if FORM == 1
static void *methods[] = {nothing, nothing, profiled, nothing};
#else
static void *methods[] = {nothing, nothing, profiled, profiled_oom, nothing, nothing};
#endif
static void *profiler = methods;
static int profiling;

// c10::ThreadLocalDebugInfo::get, by which libc10's own function looks for the profiler.
void *get(int kind) __asm__("_ZN3c1020ThreadLocalDebugInfo3getENS_13DebugInfoKindE");
void *get(int kind) { return profiling ? &profiler : NULL; }

#define NEED(call) if ((call) != 0) { fprintf(stderr, "%s failed\n", #call); exit(99); }

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*make)(unsigned long long *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    void *context;
    unsigned long long segment;
    NEED(init(0));
    NEED(retain(&context, 0));
    NEED(use(context));
    NEED(make(&segment, 20 << 20));
    Device cuda = {1, 0}, host = {0, -1}, absent = {1, 7};
    profiling = argc > 1;
    REPORT((void *)0x100, 7000, 7000, 20 << 20, cuda);
    REPORT((void *)0x200, 512, 7512, 20 << 20, cuda);
    REPORT((void *)0x300, 1 << 30, 1 << 30, 1 << 30, host);
    REPORT((void *)0x400, 1 << 30, 1 << 30, 1 << 30, absent);
    REPORT((void *)0x100, -7000, 512, 20 << 20, cuda);
#if FORM != 1
    oom(30 << 20, 512, 20 << 20, cuda);
    REPORT((void *)0x500, 30 << 20, 30 << 20, 20 << 20, cuda);
#endif
    return 0;
}
