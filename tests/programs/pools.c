// Pools of the program's own, on two devices and in host memory. FAKE_DEVICES=2.
#include "cuda.h"

int main(int argc, char **argv) {
    Prop second = {1, 0, 1, 1}, host = {1, 0, 3, 0}, managed = {2, 0, 1, 1};
    void *pool, *on_host, *of_managed;
    Ptr p, q;
    OK(cuMemPoolCreate(&pool, &second));
    OK(cuMemPoolCreate(&on_host, &host));
    OK(cuMemAllocFromPoolAsync(&p, 1000, pool, NULL));  // the current device is 0
    OK(cuMemAllocFromPoolAsync_ptsz(&q, 200, pool, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemAllocFromPoolAsync(&p, 3000, on_host, NULL));
    fake_refuse_frees(1);
    WANT(700, cuMemPoolDestroy(on_host));
    fake_refuse_frees(0);
    OK(cuMemAllocFromPoolAsync(&p, 4000, on_host, NULL));
    OK(cuMemPoolDestroy(on_host));  // its memory lives on
    OK(cuMemPoolCreate(&of_managed, &managed));  // with the same handle
    WANT(1, of_managed == on_host);
    OK(cuMemAllocFromPoolAsync(&p, 50, of_managed, NULL));
    OK(cuMemAllocFromPoolAsync(&q, 6, NULL, NULL));
    return 0;
}
