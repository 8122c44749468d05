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
typedef struct { unsigned width, height; int format; unsigned channels; } ArrayV1;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Array3d;
typedef struct { unsigned width, height, depth; int format; unsigned channels, flags; } Array3dV1;
typedef struct { uint64_t bytes; char rest[48]; uint64_t end; } IpcHandle;
typedef struct { int kind; uint64_t handle[2], size; unsigned flags; } External;
int cuArrayCreate(void **, const ArrayV1 *);
int cuArray3DCreate(void **, const Array3dV1 *);
int cuArray3DCreate_v2(void **, const Array3d *);
int cuMipmappedArrayCreate(void **, const Array3d *, unsigned);
int cuMipmappedArrayDestroy(void *);
int cuMemHostRegister(void *, size_t, unsigned);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);
int cuIpcOpenMemHandle(Ptr *, IpcHandle, unsigned);
int cuIpcOpenMemHandle_v2(Ptr *, IpcHandle, unsigned);
int cuIpcCloseMemHandle(Ptr);
int cuImportExternalMemory(void **, const External *);
int cuExternalMemoryGetMappedBuffer(Ptr *, void *, const void *);
int cuDestroyExternalMemory(void *);
int cuMemImportFromShareableHandle(unsigned long long *, void *, int);
int cuMulticastCreate(unsigned long long *, const void *);
int cuMemPoolCreate(void **, const Prop *);
int cuMemPoolDestroy(void *);
int cuMemPoolImportPointer(Ptr *, void *, uint64_t *);
int cuMemAllocFromPoolAsync_ptsz(Ptr *, size_t, void *, void *);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxCreate_v3(void **, void *, int, unsigned, int);
int cuCtxCreate_v4(void **, void *, unsigned, int);
int cuCtxDestroy(void *);
int cuCtxDestroy_v2(void *);
int cuCtxSetCurrent(void *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxRelease(int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuGreenCtxCreate(void **, void *, int, unsigned);
int cuGreenCtxDestroy(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphAddMemAllocNode(void **, void *, void *const *, size_t, uint64_t *);
int cuGraphAddNode_v2(void **, void *, void *const *, void *, size_t, int *);
int cuGraphLaunch(void *, void *);
int cuDeviceGraphMemTrim(int);
int cuCtxSynchronize(void);
int cuStreamSynchronize(void *);
int cuStreamSynchronize_ptsz(void *);
void fake_refuse_frees(int);
uint64_t fake_in_use(int);
void fake_set_device(int);
void fake_no_context(void);
int fake_holds(int);
void fake_before_fork(void);
void fake_after_fork(void);
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
