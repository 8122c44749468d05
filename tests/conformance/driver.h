// The driver API as these programs call it: declared here, found at run time, so that a driver that lacks a call can
// be told from one that refuses it. Names, versions and types are those of cuda.h.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long Ptr;
typedef void *Obj;
typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *security; unsigned char flags[8]; } AllocationProp;
typedef struct { Location location; int flags; } Access;
typedef struct { int type, handles; Location location; void *security; size_t max; unsigned char rest[56]; } PoolProps;
typedef struct { PoolProps pool; const Access *access; size_t accesses, bytes; Ptr address; } AllocationNode;
typedef struct { unsigned width, height; int format; unsigned channels; } ArrayV1;
typedef struct { size_t width, height; int format; unsigned channels; } Array2d;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Array3d;
typedef struct { char bytes[64]; } IpcHandle;
typedef struct { int type; union { int fd; void *words[2]; } handle; unsigned long long size; unsigned flags, rest[16]; } ExternalHandle;
typedef struct { unsigned long long offset, size; unsigned flags, rest[16]; } ExternalBuffer;
typedef struct { int type; unsigned char padding[92]; unsigned sms, least, alignment; unsigned char rest[36]; } Resource;

// exported name without cu, base name without cu, version, arguments
#define DRIVER_CALLS(X) \
    X(Init, Init, 2000, (unsigned)) \
    X(DeviceGet, DeviceGet, 2000, (int *, int)) \
    X(DeviceGetAttribute, DeviceGetAttribute, 2000, (int *, int, int)) \
    X(CtxCreate_v2, CtxCreate, 3020, (Obj *, unsigned, int)) \
    X(CtxDestroy_v2, CtxDestroy, 4000, (Obj)) \
    X(CtxSetCurrent, CtxSetCurrent, 4000, (Obj)) \
    X(CtxSynchronize, CtxSynchronize, 2000, (void)) \
    X(StreamCreate, StreamCreate, 2000, (Obj *, unsigned)) \
    X(StreamSynchronize, StreamSynchronize, 2000, (Obj)) \
    X(MemGetInfo_v2, MemGetInfo, 3020, (size_t *, size_t *)) \
    X(MemAlloc, MemAlloc, 2000, (unsigned *, unsigned)) \
    X(MemFree, MemFree, 2000, (unsigned)) \
    X(MemAlloc_v2, MemAlloc, 3020, (Ptr *, size_t)) \
    X(MemAllocPitch_v2, MemAllocPitch, 3020, (Ptr *, size_t *, size_t, size_t, unsigned)) \
    X(MemAllocManaged, MemAllocManaged, 6000, (Ptr *, size_t, unsigned)) \
    X(MemFree_v2, MemFree, 3020, (Ptr)) \
    X(MemsetD8_v2, MemsetD8, 3020, (Ptr, unsigned char, size_t)) \
    X(MemHostAlloc, MemHostAlloc, 2020, (void **, size_t, unsigned)) \
    X(MemAllocHost_v2, MemAllocHost, 3020, (void **, size_t)) \
    X(MemFreeHost, MemFreeHost, 2000, (void *)) \
    X(MemHostRegister_v2, MemHostRegister, 6050, (void *, size_t, unsigned)) \
    X(MemHostUnregister, MemHostUnregister, 4000, (void *)) \
    X(ArrayCreate, ArrayCreate, 2000, (Obj *, const ArrayV1 *)) \
    X(ArrayCreate_v2, ArrayCreate, 3020, (Obj *, const Array2d *)) \
    X(Array3DCreate_v2, Array3DCreate, 3020, (Obj *, const Array3d *)) \
    X(ArrayDestroy, ArrayDestroy, 2000, (Obj)) \
    X(MipmappedArrayCreate, MipmappedArrayCreate, 5000, (Obj *, const Array3d *, unsigned)) \
    X(MipmappedArrayGetLevel, MipmappedArrayGetLevel, 5000, (Obj *, Obj, unsigned)) \
    X(MipmappedArrayDestroy, MipmappedArrayDestroy, 5000, (Obj)) \
    X(MemAllocAsync, MemAllocAsync, 11020, (Ptr *, size_t, Obj)) \
    X(MemAllocAsync_ptsz, MemAllocAsync, 11020, (Ptr *, size_t, Obj)) \
    X(MemFreeAsync, MemFreeAsync, 11020, (Ptr, Obj)) \
    X(MemFreeAsync_ptsz, MemFreeAsync, 11020, (Ptr, Obj)) \
    X(MemAllocFromPoolAsync, MemAllocFromPoolAsync, 11020, (Ptr *, size_t, Obj, Obj)) \
    X(DeviceGetDefaultMemPool, DeviceGetDefaultMemPool, 11020, (Obj *, int)) \
    X(DeviceSetMemPool, DeviceSetMemPool, 11020, (int, Obj)) \
    X(MemPoolCreate, MemPoolCreate, 11020, (Obj *, const PoolProps *)) \
    X(MemPoolDestroy, MemPoolDestroy, 11020, (Obj)) \
    X(MemPoolTrimTo, MemPoolTrimTo, 11020, (Obj, size_t)) \
    X(MemPoolGetAttribute, MemPoolGetAttribute, 11020, (Obj, int, void *)) \
    X(MemPoolSetAttribute, MemPoolSetAttribute, 11020, (Obj, int, void *)) \
    X(MemGetAllocationGranularity, MemGetAllocationGranularity, 10020, (size_t *, const AllocationProp *, int)) \
    X(MemAddressReserve, MemAddressReserve, 10020, (Ptr *, size_t, size_t, Ptr, unsigned long long)) \
    X(MemAddressFree, MemAddressFree, 10020, (Ptr, size_t)) \
    X(MemCreate, MemCreate, 10020, (Ptr *, size_t, const AllocationProp *, unsigned long long)) \
    X(MemMap, MemMap, 10020, (Ptr, size_t, size_t, Ptr, unsigned long long)) \
    X(MemSetAccess, MemSetAccess, 10020, (Ptr, size_t, const Access *, size_t)) \
    X(MemUnmap, MemUnmap, 10020, (Ptr, size_t)) \
    X(MemRelease, MemRelease, 10020, (Ptr)) \
    X(MemRetainAllocationHandle, MemRetainAllocationHandle, 11000, (Ptr *, void *)) \
    X(MemExportToShareableHandle, MemExportToShareableHandle, 10020, (void *, Ptr, int, unsigned long long)) \
    X(MemImportFromShareableHandle, MemImportFromShareableHandle, 10020, (Ptr *, void *, int)) \
    X(IpcGetMemHandle, IpcGetMemHandle, 4010, (IpcHandle *, Ptr)) \
    X(IpcOpenMemHandle_v2, IpcOpenMemHandle, 11000, (Ptr *, IpcHandle, unsigned)) \
    X(IpcCloseMemHandle, IpcCloseMemHandle, 4010, (Ptr)) \
    X(ImportExternalMemory, ImportExternalMemory, 10000, (Obj *, const ExternalHandle *)) \
    X(ExternalMemoryGetMappedBuffer, ExternalMemoryGetMappedBuffer, 10000, (Ptr *, Obj, const ExternalBuffer *)) \
    X(DestroyExternalMemory, DestroyExternalMemory, 10000, (Obj)) \
    X(GraphCreate, GraphCreate, 10000, (Obj *, unsigned)) \
    X(GraphDestroy, GraphDestroy, 10000, (Obj)) \
    X(GraphAddMemAllocNode, GraphAddMemAllocNode, 11040, (Obj *, Obj, const Obj *, size_t, AllocationNode *)) \
    X(GraphAddMemFreeNode, GraphAddMemFreeNode, 11040, (Obj *, Obj, const Obj *, size_t, Ptr)) \
    X(GraphInstantiateWithFlags, GraphInstantiateWithFlags, 11040, (Obj *, Obj, unsigned long long)) \
    X(GraphLaunch, GraphLaunch, 10000, (Obj, Obj)) \
    X(GraphExecDestroy, GraphExecDestroy, 10000, (Obj)) \
    X(DeviceGraphMemTrim, DeviceGraphMemTrim, 11040, (int)) \
    X(DeviceGetGraphMemAttribute, DeviceGetGraphMemAttribute, 11040, (int, int, void *)) \
    X(StreamBeginCapture_v2, StreamBeginCapture, 10010, (Obj, int)) \
    X(StreamEndCapture, StreamEndCapture, 10000, (Obj, Obj *)) \
    X(DeviceGetDevResource, DeviceGetDevResource, 12040, (int, Resource *, int)) \
    X(DevResourceGenerateDesc, DevResourceGenerateDesc, 12040, (Obj *, Resource *, unsigned)) \
    X(GreenCtxCreate, GreenCtxCreate, 12040, (Obj *, Obj, int, unsigned)) \
    X(GreenCtxDestroy, GreenCtxDestroy, 12040, (Obj)) \
    X(CtxFromGreenCtx, CtxFromGreenCtx, 12040, (Obj *, Obj))

#define DECLARE(name, base, version, arguments) int(*name) arguments;
struct driver { DRIVER_CALLS(DECLARE) };
#undef DECLARE
