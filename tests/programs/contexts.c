// Contexts end with what lives in them; argv[1] says which way and where to stop.
#include <string.h>
#include "cuda.h"

static void *array(void) {
    void *made;
    Array descriptor = {.width = 100, .height = 0, .format = 1, .channels = 1};
    OK(cuArrayCreate_v2(&made, &descriptor));
    return made;
}

// 1000 + 200 + 100 of the context, 30 of the host; 7000 and 2 MiB of the device.
static void fill(void) {
    Ptr p;
    void *host;
    unsigned long long handle;
    Prop prop = {1, 0, 1, 0};
    OK(cuMemAlloc_v2(&p, 1000));
    OK(cuMemAllocManaged(&p, 200, 1));
    array();
    OK(cuMemHostAlloc(&host, 30, 0));
    OK(cuMemAllocAsync(&p, 7000, NULL));
    OK(cuMemCreate(&handle, 1 << 21, &prop, 0));
}

int main(int argc, char **argv) {
    const char *way = argv[1];
    void *primary, *first, *second;
    Ptr p;
    if (!strcmp(way, "destroy")) {
        OK(cuCtxCreate_v2(&first, 0, 0));
        fill();
        OK(cuCtxCreate_v4(&second, NULL, 44, 0));
        OK(cuMemAlloc_v2(&p, 5));
        fake_refuse_frees(1);
        WANT(700, cuCtxDestroy_v2(first));
        fake_refuse_frees(0);
        if (argc > 2) return 0;  // refused: all is still there
        OK(cuCtxDestroy_v2(first));
        return 0;
    }
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    if (!strcmp(way, "reset")) {
        fill();
        OK(cuCtxCreate_v3(&first, NULL, 0, 0, 0));
        OK(cuMemAlloc_v2(&p, 5));
        array();  // stays: 100
        OK(cuDevicePrimaryCtxReset_v2(0));
        return 0;
    }
    if (!strcmp(way, "release")) {
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        fill();
        OK(cuCtxCreate_v2(&first, 0, 0));
        OK(cuMemAlloc_v2(&p, 5));
        array();
        OK(cuDevicePrimaryCtxRelease_v2(0));
        if (argc > 2) return 0;  // one hold is left
        OK(cuDevicePrimaryCtxRelease(0));
        return 0;
    }
    if (!strcmp(way, "green")) {
        OK(cuGreenCtxCreate(&first, NULL, 0, 1));
        OK(cuDevicePrimaryCtxRelease_v2(0));
        fill();
        if (argc > 2) return 0;
        OK(cuGreenCtxDestroy(first));
        return 0;
    }
    if (!strcmp(way, "again")) {  // addresses and handles of the first context are used again in the second
        for (int i = 0; i < 50; i++) {
            OK(cuCtxCreate_v2(&first, 0, 0));
            for (int k = 0; k < 20; k++) OK(cuMemAlloc_v2(&p, 10));
            array();
            OK(cuMemFree_v2(p));
            OK(cuCtxDestroy(first));
        }
        OK(cuCtxSetCurrent(NULL));
        OK(cuMemAlloc_v2(&p, 77));
        return 0;
    }
    return 91;
}
