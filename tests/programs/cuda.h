// What the test programs call.
#pragma once
#include <stddef.h>
#include <stdint.h>
typedef unsigned long long Ptr;
typedef struct { int kind, handle_types, location_kind, location; } Prop;
typedef struct { size_t width, height; int format; unsigned channels; } Array;
int cuMemAlloc(unsigned *, unsigned);
int cuMemFree(unsigned);
int cuMemAlloc_v2(Ptr *, size_t);
int cuMemFree_v2(Ptr);
int cuMemAllocPitch_v2(Ptr *, size_t *, size_t, size_t, unsigned);
int cuMemAllocManaged(Ptr *, size_t, unsigned);
int cuMemAllocAsync(Ptr *, size_t, void *);
int cuMemAllocAsync_ptsz(Ptr *, size_t, void *);
int cuMemAllocFromPoolAsync(Ptr *, size_t, void *, void *);
int cuMemFreeAsync(Ptr, void *);
int cuMemFreeAsync_ptsz(Ptr, void *);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemAllocHost_v2(void **, size_t);
int cuMemFreeHost(void *);
int cuMemCreate(unsigned long long *, size_t, const Prop *, unsigned long long);
int cuMemRelease(unsigned long long);
int cuMemRetainAllocationHandle(unsigned long long *, void *);
int cuMemMap(Ptr, size_t, size_t, unsigned long long, unsigned long long);
int cuMemUnmap(Ptr, size_t);
int cuArrayCreate_v2(void **, const Array *);
int cuArrayDestroy(void *);
int cuCtxSynchronize(void);
int cuStreamSynchronize(void *);
int cuStreamSynchronize_ptsz(void *);
int cuEventSynchronize(void *);
int cuMemcpyDtoH_v2(void *, Ptr, size_t);
int cuMemcpyDtoHAsync_v2(void *, Ptr, size_t, void *);
int cuGraphLaunch(void *, void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuDeviceTotalMem_v2(size_t *, int);
void fake_refuse_frees(int);
uint64_t fake_in_use(int);
void fake_set_device(int);
// Ends the program with the line number if a call does not answer as the driver did.
#include <stdio.h>
#include <stdlib.h>
#define WANT(expected, call) \
    do { \
        int status_ = (call); \
        if (status_ != (expected)) { \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, status_, (int)(expected)); \
            _Exit(99); \
        } \
    } while (0)
#define OK(call) WANT(0, call)
