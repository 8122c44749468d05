// The driver's outer library and an inner one that has functions of the same names, as on WSL: the driver looks
// them up in the inner library, and must get those. argv[1] is the inner library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "cuda.h"

int main(int argc, char **argv) {
    void *outer = dlopen("libcuda.so.1", RTLD_NOW), *inner = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!outer || !inner) return fprintf(stderr, "%s\n", dlerror()), 98;
    void *found = dlsym(inner, "cuMemAlloc_v2");
    Dl_info info;
    if (!found || !dladdr(found, &info)) return 97;
    return strcmp(info.dli_fname, argv[1]) == 0 && dlsym(outer, "cuMemAlloc_v2") != found ? 0 : 96;
}
