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
    return 0;
}
