// Allocates 1000 bytes, then loads the library argv[1] "deep" or as "usual", and has it work.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

int main(int argc, char **argv) {
    Ptr p;
    OK(cuMemAlloc_v2(&p, 1000));
    void *lib = dlopen(argv[1], RTLD_LAZY | (strcmp(argv[2], "deep") ? 0 : RTLD_DEEPBIND));
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 98;
    usleep(200000);
    int (*work)(void) = (int (*)(void))dlsym(lib, "work");
    OK(work());
    usleep(500000);
    return 0;
}
