// The soft cap, from a program's side. argv[1]:
//   info          prints what the driver says of its memory, at first and with 1000 bytes held
//   fill B        takes B bytes until it is refused, and prints how often it was not
//   vmm B         the same with physical memory
//   rows W H      takes H rows of W bytes until it is refused, and prints how often it was not
//   no-context B  as vmm, on a thread without a context
//   managed       takes 1 MB of managed and of host memory
//   race N B      takes B bytes N times, gives them back after a moment, and prints how often it had them and how often not
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

static void info(void) {
    size_t free = 0, total = 0, device = 0;
    OK(cuMemGetInfo_v2(&free, NULL));
    OK(cuMemGetInfo_v2(NULL, &total));
    OK(cuMemGetInfo_v2(NULL, NULL));
    OK(cuDeviceTotalMem_v2(&device, 0));
    printf("%zu %zu %zu\n", free, total, device);
}

int main(int argc, char **argv) {
    Ptr p;
    if (!strcmp(argv[1], "info")) {
        info();
        OK(cuMemAlloc_v2(&p, 1000));
        info();
    } else if (!strcmp(argv[1], "fill")) {
        int n = 0, status;
        while ((status = cuMemAlloc_v2(&p, atol(argv[2]))) == 0) n++;
        printf("%d %d\n", n, status);
        OK(cuMemFree_v2(p));
        OK(cuMemAlloc_v2(&p, atol(argv[2])));
    } else if (!strcmp(argv[1], "rows")) {
        int n = 0, status;
        size_t pitch;
        while ((status = cuMemAllocPitch_v2(&p, &pitch, atol(argv[2]), atol(argv[3]), 4)) == 0) n++;
        printf("%d %d\n", n, status);
    } else if (!strcmp(argv[1], "vmm") || !strcmp(argv[1], "no-context")) {
        if (argv[1][0] == 'n') fake_no_context();
        Prop device = {1, 0, 1, 0}, host = {1, 0, 2, 0};
        unsigned long long handle;
        int n = 0, status;
        while ((status = cuMemCreate(&handle, atol(argv[2]), &device, 0)) == 0) n++;
        printf("%d %d\n", n, status);
        OK(cuMemCreate(&handle, atol(argv[2]), &host, 0));
    } else if (!strcmp(argv[1], "managed")) {
        void *host;
        OK(cuMemAllocManaged(&p, 1000000, 1));
        OK(cuMemHostAlloc(&host, 1000000, 0));
    } else if (!strcmp(argv[1], "race")) {
        int refused = 0, granted = 0;
        for (int i = 0; i < atoi(argv[2]); i++) {
            int status = cuMemAlloc_v2(&p, atol(argv[3]));
            if (status == 0) {
                granted++;
                usleep(200);
                OK(cuMemFree_v2(p));
            } else {
                WANT(2, status);
                refused++;
            }
        }
        printf("%d %d\n", granted, refused);
    }
    return 0;
}
