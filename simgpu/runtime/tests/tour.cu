// Calls what the runtime models, as a program compiled against NVIDIA's headers does, on a simulated A100-40GB.
// Ends with 0 if every answer is the expected one; else names those that are not.
#include <cstdio>
#include <cstring>
#include <thread>

static int wrong;

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            wrong++; \
        } \
    } while (0)
#define OK(call) EXPECT((call) == cudaSuccess)

__constant__ float table[64];
__device__ int counters[16];

extern "C" __global__ void tour_kernel(float *values, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) values[at] += table[at % 64];
}

static void devices() {
    int count = 0, device = -1, value = 0;
    OK(cudaGetDeviceCount(&count));
    EXPECT(count == 1);
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&device));
    EXPECT(device == 0);
    EXPECT(cudaSetDevice(7) == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
    OK(cudaDriverGetVersion(&value));
    EXPECT(value >= 13000);
    OK(cudaRuntimeGetVersion(&value));
    EXPECT(value == 13000);
    cudaDeviceProp properties;
    memset(&properties, 0xff, sizeof properties);
    OK(cudaGetDeviceProperties(&properties, 0));
    EXPECT(strstr(properties.name, "A100"));
    EXPECT(properties.major == 8 && properties.minor == 0);
    EXPECT(properties.multiProcessorCount == 108);
    EXPECT(properties.maxThreadsPerMultiProcessor == 2048);
    EXPECT(properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
    EXPECT(properties.maxThreadsDim[0] == 1024 && properties.maxGridSize[0] == 2147483647);
    EXPECT(properties.totalGlobalMem > 39ULL << 30 && properties.totalGlobalMem <= 40ULL << 30);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(value == 108);
    char id[32] = "";
    OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
    EXPECT(strlen(id) >= 12);
    OK(cudaDeviceGetByPCIBusId(&device, id));
    EXPECT(device == 0);
    size_t limit = 0;
    OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    OK(cudaFree(0));
}

static void memory() {
    size_t before, after, total, pitch;
    float *plain, *managed, *pinned, *mapped, host[256];
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&plain, 64 << 20));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before - after == 64 << 20);
    OK(cudaMemset(plain, 0, 64 << 20));
    OK(cudaMemcpy(plain, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(host, plain, sizeof host, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(plain + 256, plain, sizeof host, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(host, plain, sizeof host, cudaMemcpyDefault));
    float from[4] = {1, 2, 3, 4}, to[4] = {0};
    OK(cudaMemcpy(to, from, sizeof to, cudaMemcpyHostToHost));
    EXPECT(to[3] == 4);
    EXPECT(cudaMemcpy(plain, host, 4, (cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, plain));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == plain);
    OK(cudaPointerGetAttributes(&attributes, host));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    OK(cudaFree(plain));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(before == after);

    void *nothing = (void *)1;
    OK(cudaMalloc(&nothing, 0));
    EXPECT(nothing == NULL);
    EXPECT(cudaMalloc(&nothing, 1ULL << 40) == cudaErrorMemoryAllocation);
    EXPECT(!strcmp(cudaGetErrorName(cudaPeekAtLastError()), "cudaErrorMemoryAllocation"));
    EXPECT(!strcmp(cudaGetErrorString(cudaGetLastError()), "out of memory"));
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaFree((void *)0x10) != cudaSuccess);
    cudaGetLastError();

    OK(cudaMallocPitch(&plain, &pitch, 1000, 100));
    EXPECT(pitch >= 1000 && pitch % 256 == 0);
    OK(cudaMemset2D(plain, pitch, 1, 1000, 100));
    OK(cudaMemcpy2D(plain, pitch, host, 100, 100, 10, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DAsync(host, 100, plain, pitch, 100, 10, cudaMemcpyDeviceToHost, 0));
    OK(cudaFree(plain));
    cudaPitchedPtr volume;
    OK(cudaMalloc3D(&volume, make_cudaExtent(100, 20, 30)));
    EXPECT(volume.pitch >= 100 && volume.xsize == 100 && volume.ysize == 20);
    OK(cudaFree(volume.ptr));
    OK(cudaMallocManaged(&managed, 4096));
    OK(cudaPointerGetAttributes(&attributes, managed));
    EXPECT(attributes.type == cudaMemoryTypeManaged);
    OK(cudaFree(managed));
    OK(cudaMallocHost(&pinned, 4096));
    pinned[0] = 1;
    OK(cudaFreeHost(pinned));
    OK(cudaHostAlloc(&mapped, 4096, cudaHostAllocMapped));
    void *address = NULL;
    OK(cudaHostGetDevicePointer(&address, mapped, 0));
    EXPECT(address != NULL);
    unsigned flags = 0;
    OK(cudaHostGetFlags(&flags, mapped));
    OK(cudaFreeHost(mapped));
    static char page[8192];
    OK(cudaHostRegister(page, sizeof page, cudaHostRegisterDefault));
    OK(cudaHostUnregister(page));
}

static void symbols_and_arrays() {
    float values[64] = {1}, back[64];
    OK(cudaMemcpyToSymbol(table, values, sizeof values));
    OK(cudaMemcpyFromSymbol(back, table, sizeof back));
    EXPECT(cudaMemcpyToSymbol(table, values, sizeof values, 4) == cudaErrorInvalidValue);
    void *address = NULL;
    size_t bytes = 0;
    OK(cudaGetSymbolAddress(&address, counters));
    OK(cudaGetSymbolSize(&bytes, counters));
    EXPECT(address != NULL && bytes == sizeof counters);
    EXPECT(cudaMemcpyToSymbol((const void *)values, values, 4) == cudaErrorInvalidSymbol);
    cudaGetLastError();

    cudaArray_t array;
    cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>(), found;
    OK(cudaMallocArray(&array, &channels, 16, 4));
    OK(cudaMemcpyToArray(array, 0, 0, values, sizeof values, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DToArray(array, 0, 0, values, 64, 64, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpyFromArray(back, array, 0, 0, sizeof back, cudaMemcpyDeviceToHost));
    cudaExtent extent;
    OK(cudaArrayGetInfo(&found, &extent, NULL, array));
    EXPECT(found.x == 32 && found.y == 0 && found.f == cudaChannelFormatKindFloat);
    EXPECT(extent.width == 16 && extent.height == 4);
    OK(cudaFreeArray(array));
    cudaChannelFormatDesc three = {8, 8, 8, 0, cudaChannelFormatKindUnsigned};
    EXPECT(cudaMallocArray(&array, &three, 16, 4) == cudaErrorInvalidChannelDescriptor);
    cudaGetLastError();
}

static void called(void *flag) { *(volatile int *)flag = 1; }

static void launches() {
    float *values;
    cudaStream_t stream, other;
    cudaEvent_t start, end;
    OK(cudaMalloc(&values, 1 << 20));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    OK(cudaEventRecord(start, stream));
    tour_kernel<<<1024, 256, 0, stream>>>(values, 1 << 18);
    OK(cudaGetLastError());
    int n = 1 << 18;
    void *arguments[] = {&values, &n};
    OK(cudaLaunchKernel((const void *)tour_kernel, dim3(1024), dim3(256), arguments, 0, stream));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1024);
    config.blockDim = dim3(256);
    config.stream = stream;
    OK(cudaLaunchKernelExC(&config, (const void *)tour_kernel, arguments));
    OK(cudaEventRecord(end, stream));
    OK(cudaStreamWaitEvent(other, end, 0));
    volatile int flag = 0;
    OK(cudaLaunchHostFunc(stream, called, (void *)&flag));
    cudaError_t busy = cudaEventQuery(end);
    EXPECT(busy == cudaErrorNotReady || busy == cudaSuccess);
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    OK(cudaEventSynchronize(end));
    float milliseconds = -1;
    OK(cudaEventElapsedTime(&milliseconds, start, end));
    EXPECT(milliseconds > 0);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    EXPECT(flag == 1);
    OK(cudaMemcpyAsync(values, values + 1024, 4096, cudaMemcpyDeviceToDevice, stream));
    OK(cudaMemsetAsync(values, 0, 4096, stream));
    OK(cudaDeviceSynchronize());
    tour_kernel<<<1, 2048>>>(values, 1);
    EXPECT(cudaGetLastError() != cudaSuccess);
    EXPECT(cudaLaunchKernel((const void *)devices, dim3(1), dim3(1), arguments, 0, 0) == cudaErrorInvalidDeviceFunction);
    cudaGetLastError();

    cudaFuncAttributes attributes;
    memset(&attributes, 0xff, sizeof attributes);
    OK(cudaFuncGetAttributes(&attributes, tour_kernel));
    EXPECT(attributes.maxThreadsPerBlock > 0 && attributes.maxThreadsPerBlock <= 1024);
    OK(cudaFuncSetCacheConfig(tour_kernel, cudaFuncCachePreferShared));
    OK(cudaFuncSetAttribute(tour_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    int blocks = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tour_kernel, 256, 0));
    EXPECT(blocks > 0 && blocks <= 8);
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
    OK(cudaFree(values));
}

static void pools() {
    cudaStream_t stream;
    cudaMemPool_t pool;
    float *values;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&values, 1 << 20, stream));
    OK(cudaFreeAsync(values, stream));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMallocFromPoolAsync((void **)&values, 1 << 20, pool, stream));
    OK(cudaFreeAsync(values, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
}

static void entry_points() {
    void *address = NULL;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointVersionNotSufficent;
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &address, 12000, cudaEnableDefault, &status));
    EXPECT(address != NULL && status == cudaDriverEntryPointSuccess);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &address, 12000, cudaEnableDefault, &status));
    EXPECT(address == NULL && status == cudaDriverEntryPointSymbolNotFound);
}

static void reset() {
    size_t before, after, total;
    float *values;
    OK(cudaMalloc(&values, 64 << 20));
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaDeviceReset());
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(after >= before + (64 << 20));
    OK(cudaMalloc(&values, 1 << 20));
    tour_kernel<<<1, 256>>>(values, 256);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
}

int main() {
    devices();
    memory();
    symbols_and_arrays();
    launches();
    pools();
    entry_points();
    // Another thread has its own last error and uses the same context.
    cudaFree((void *)0x10);
    std::thread other([] {
        EXPECT(cudaGetLastError() == cudaSuccess);
        memory();
        launches();
    });
    other.join();
    EXPECT(cudaGetLastError() != cudaSuccess);
    reset();
    std::thread after(launches);
    after.join();
    return wrong ? 1 : 0;
}
