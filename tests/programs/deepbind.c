// A library that allocates 234 bytes, by its own link to the driver, or with -DASKS by dlsym.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

int work(void) {
    Ptr p;
#ifdef ASKS
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    return ((int (*)(Ptr *, size_t))dlsym(lib, "cuMemAlloc_v2"))(&p, 234);
#else
    return cuMemAlloc_v2(&p, 234);
#endif
}
