// Linked with the driver: 3 x 1 MiB, 2 frees, and the same address for one function whichever way it is found.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

int main(void) {
    Ptr p[3];
    for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&p[i], 1 << 20));
    OK(cuMemFree_v2(p[0]));
    OK(cuMemFree_v2(p[1]));
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    WANT(1, dlsym(lib, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
    WANT(1, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
    return 0;
}
