// A library that exports the driver's names as trampolines, found by dlopen and dlsym at the first call, as
// TensorFlow's is. A hook that looks for the real function by RTLD_NEXT finds the trampoline, and itself again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

static void *find(const char *name) {
    static void *lib;
    if (!lib) lib = dlopen("libcuda.so.1", RTLD_NOW);
    return dlsym(lib, name);
}
int cuMemAlloc_v2(Ptr *pointer, size_t bytes) {
    static int (*real)(Ptr *, size_t);
    if (!real) real = (int (*)(Ptr *, size_t))find("cuMemAlloc_v2");
    return real(pointer, bytes);
}
int cuMemFree_v2(Ptr pointer) {
    static int (*real)(Ptr);
    if (!real) real = (int (*)(Ptr))find("cuMemFree_v2");
    return real(pointer);
}
