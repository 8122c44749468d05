// The paths of the CUDA runtime: what each call asks of the driver, and gives back. Says at each step what the
// ledger must show, as paths.c does.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static const long long MIB = 1 << 20, GRAIN = 2 << 20;
static long long device, managed, array, pool, host, parts, base_free;

#define OK(call) \
    do { \
        cudaError_t status_ = (call); \
        if (status_ != cudaSuccess) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
            exit(1); \
        } \
    } while (0)

static long long free_bytes() {
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total));
    return (long long)free;
}

static void step(const char *label) {
    long long held = device + array + pool;
    printf("at %s device=%lld managed=%lld array=%lld pool=%lld vmm=0 graph=0 imported=0 host=%lld", label, device,
           managed, array, pool, host);
    const char *driver = getenv("DRIVER");
    long long least = driver && !strcmp(driver, "real") ? held - GRAIN : held;
    printf(" charged=%lld least=%lld most=%lld\n", base_free - free_bytes(), least, held + (parts + 1) * GRAIN);
    fflush(stdout);
    char byte;
    if (getenv("STEPS") && read(0, &byte, 1) != 1) exit(3);
}

__global__ void touch(char *bytes) { bytes[threadIdx.x] = 1; }

int main() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        fprintf(stderr, "left out: the runtime finds no device\n");
        return 77;
    }
    char *first;
    OK(cudaMalloc(&first, 1));
    touch<<<1, 1>>>(first);  // loads the module
    OK(cudaDeviceSynchronize());
    OK(cudaFree(first));
    base_free = free_bytes();

    void *plain, *pitched, *shared, *pinned, *mapped;
    size_t pitch;
    cudaPitchedPtr solid;
    cudaArray_t plane, cube;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    OK(cudaMalloc(&plain, 3 * MIB + 1));
    device += 3 * MIB + 1;
    OK(cudaMallocPitch(&pitched, &pitch, 700, 100));
    device += (long long)pitch * 100;
    OK(cudaMalloc3D(&solid, make_cudaExtent(300, 20, 10)));
    device += (long long)solid.pitch * 200;
    OK(cudaMallocManaged(&shared, 100000));
    managed += 100000;
    OK(cudaMallocHost(&pinned, 50000));
    OK(cudaHostAlloc(&mapped, 60000, cudaHostAllocMapped));
    host += 110000;
    OK(cudaMallocArray(&plane, &format, 128, 64));
    array += 16 * 128 * 64;
    OK(cudaMalloc3DArray(&cube, &format, make_cudaExtent(32, 16, 8)));
    array += 16 * 32 * 16 * 8;
    parts = 5;
    step("allocated");

    cudaStream_t stream;
    void *ordered;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&ordered, 5 * MIB, stream));
    OK(cudaStreamSynchronize(stream));
    pool += 5 * MIB;
    parts += 16;  // a real pool reserves more at once
    step("from_the_pool");
    OK(cudaFreeAsync(ordered, stream));
    OK(cudaStreamSynchronize(stream));
    pool = 0;
    OK(cudaFree(plain));
    OK(cudaFree(pitched));
    OK(cudaFree(solid.ptr));
    device = 0;
    OK(cudaFree(shared));
    managed = 0;
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(mapped));
    host = 0;
    OK(cudaFreeArray(plane));
    OK(cudaFreeArray(cube));
    array = 0;
    step("freed");
    return 0;
}
