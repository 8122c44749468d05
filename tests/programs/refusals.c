// What the driver refuses.
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

int main(int argc, char **argv) {
    Ptr p, q;
    errno = 77;
    if (!strcmp(argv[1], "free")) {
        OK(cuMemAlloc_v2(&p, 1000));
        fake_refuse_frees(1);
        WANT(700, cuMemFree_v2(p));
        fake_refuse_frees(0);
        WANT(1, cuMemFree_v2(0xdead00));  // never seen: reaches the driver all the same
        OK(cuMemFree_v2(0));
    } else if (!strcmp(argv[1], "alloc")) {
        p = 42;
        WANT(1, cuMemAlloc_v2(&p, 0));
        WANT(42, (int)p);
    } else if (!strcmp(argv[1], "oom")) {  // FAKE_MEMORY=10000
        OK(cuMemAlloc_v2(&p, 4000));
        WANT(2, cuMemAlloc_v2(&q, 8000));
    } else if (!strcmp(argv[1], "oom_goes_on")) {
        OK(cuMemAlloc_v2(&p, 4000));
        WANT(2, cuMemAlloc_v2(&q, 8000));
        WANT(77, errno);
        usleep(500000);
        errno = 77;
    } else if (!strcmp(argv[1], "oom_met")) {
        OK(cuMemAlloc_v2(&p, 4000));
        WANT(2, cuMemAlloc_v2(&q, 8000));
        OK(cuMemFree_v2(p));
        OK(cuMemAlloc_v2(&q, 8000));
    }
    WANT(77, errno);
    return 0;
}
