// Linked with trampolines.c, not with the driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

int main(int argc, char **argv) {
    Ptr p[3];
    // With an argument the driver is there before the first call; else the trampoline brings it.
    if (argc > 1 && !dlopen("libcuda.so.1", RTLD_NOW)) return 98;
    for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&p[i], 1 << 20));
    OK(cuMemFree_v2(p[0]));
    OK(cuMemFree_v2(p[1]));
    return 0;
}
