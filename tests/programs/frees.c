// A free by another call than the one that allocation came with, and a level of a mipmapped array.
#include "cuda.h"

int main(void) {
    Ptr p, q, r;
    void *array, *host;
    Array3d solid = {.width = 8, .height = 4, .depth = 0, .format = 0x20, .channels = 1};
    char own[64];
    OK(cuMemAlloc_v2(&p, 1000));
    OK(cuMemAllocAsync(&q, 200, NULL));
    OK(cuMemAllocManaged(&r, 30, 1));
    OK(cuMemHostAlloc(&host, 7, 0));
    OK(cuMipmappedArrayCreate(&array, &solid, 2));
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemFree_v2(q));
    OK(cuMemFreeAsync(r, NULL));
    OK(cuMemFreeHost(host));
    fake_refuse_frees(1);
    WANT(700, cuMipmappedArrayDestroy(array));
    WANT(700, cuMemHostUnregister(own));
    fake_refuse_frees(0);
    OK(cuMipmappedArrayDestroy(array));
    OK(cuMemHostUnregister(own));
    return 0;
}
