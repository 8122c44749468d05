// Allocates once through each path, and leaves all of it live, so that the classes can be compared.
#include "cuda.h"

int main(void) {
    unsigned small;
    Ptr p;
    size_t pitch;
    void *host, *array;
    unsigned long long handle, host_handle;
    OK(cuMemAlloc(&small, 1000));
    OK(cuMemAlloc_v2(&p, 3000));
    OK(cuMemAllocPitch_v2(&p, &pitch, 700, 10, 4));  // 1024 bytes a row
    OK(cuMemAllocManaged(&p, 5000, 1));
    OK(cuMemAllocAsync(&p, 7000, NULL));
    OK(cuMemAllocAsync_ptsz(&p, 7000, NULL));
    OK(cuMemAllocFromPoolAsync(&p, 6000, NULL, NULL));
    OK(cuMemHostAlloc(&host, 11000, 0));
    OK(cuMemAllocHost_v2(&host, 2000));
    Array descriptor = {.width = 16, .height = 8, .format = 0x20, .channels = 4};
    OK(cuArrayCreate_v2(&array, &descriptor));
    Prop device = {1, 0, 1, 0}, on_host = {1, 0, 2, 12345};
    OK(cuMemCreate(&handle, 1 << 21, &device, 0));
    OK(cuMemCreate(&host_handle, 1 << 21, &on_host, 0));
    ArrayV1 old = {.width = 10, .height = 10, .format = 0x20, .channels = 1};
    Array3d solid = {.width = 8, .height = 4, .depth = 0, .format = 0x20, .channels = 1};
    Array3dV1 old_solid = {.width = 5, .height = 1, .depth = 2, .format = 1, .channels = 1};
    OK(cuArrayCreate(&array, &old));           // 400
    OK(cuArray3DCreate_v2(&array, &solid));    // 128
    OK(cuArray3DCreate(&array, &old_solid));   // 10
    OK(cuMipmappedArrayCreate(&array, &solid, 3));  // 128 + 32 + 8
    OK(cuMemHostRegister_v2(&p, sizeof p, 0));
    OK(cuMemHostRegister(&descriptor, 16, 0));
    WANT(0, fake_holds(0));  // nothing of ours has made or held a context
    return 0;
}
