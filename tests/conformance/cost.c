// Nanoseconds of one cuMemAlloc and cuMemFree of argv[1] bytes: the median of 21 rounds of 200 pairs.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "driver.h"

enum { ROUNDS = 21, PAIRS = 200 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || argc != 2) {
        fprintf(stderr, "left out: %s\n", library ? "usage: cost BYTES" : dlerror());
        return 77;
    }
    static struct driver cu;
#define FIND(name, base, version, arguments) *(void **)&cu.name = dlsym(library, "cu" #name);
    DRIVER_CALLS(FIND)
    Obj context;
    if (cu.Init(0) || cu.CtxCreate_v2(&context, 0, 0)) {
        fprintf(stderr, "left out: no device\n");
        return 77;
    }
    size_t bytes = strtoull(argv[1], NULL, 10);
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int pair = 0; pair < PAIRS; pair++) {
            Ptr address;
            if (cu.MemAlloc_v2(&address, bytes) || cu.MemFree_v2(address)) return 1;
        }
        rounds[round] = (now() - start) / PAIRS;
    }
    qsort(rounds, ROUNDS, sizeof(*rounds), compare);
    printf("%.0f\n", rounds[ROUNDS / 2]);
    return 0;
}
