// The life of physical memory by reference; argv[1] says where to stop.
#include <string.h>
#include "cuda.h"

int main(int argc, char **argv) {
    const Ptr va = 0x600000000000, size = 1 << 21;
    Prop prop = {1, 0, 1, 0};
    unsigned long long handle, again, other;
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemMap(va, size, 0, handle, 0));
    OK(cuMemMap(va + size, size, 0, handle, 0));
    OK(cuMemRelease(handle));  // llama.cpp does so at once: the mappings hold the memory
    if (!strcmp(argv[1], "released")) return 0;
    OK(cuMemUnmap(va, size));
    if (!strcmp(argv[1], "one_mapping_left")) return 0;
    OK(cuMemRetainAllocationHandle(&again, (void *)(va + size)));
    OK(cuMemUnmap(va + size, size));
    if (!strcmp(argv[1], "retained")) return 0;
    fake_refuse_frees(1);
    WANT(700, cuMemRelease(again));
    fake_refuse_frees(0);
    if (!strcmp(argv[1], "refused")) return 0;
    OK(cuMemRelease(again));
    if (!strcmp(argv[1], "gone")) return 0;
    // One unmap over many mappings.
    for (int i = 0; i < 40; i++) {
        OK(cuMemCreate(&other, size, &prop, 0));
        OK(cuMemMap(va + i * size, size, 0, other, 0));
        OK(cuMemRelease(other));
    }
    fake_refuse_frees(1);
    WANT(700, cuMemUnmap(va, 40 * size));
    fake_refuse_frees(0);
    if (!strcmp(argv[1], "range_refused")) return 0;
    OK(cuMemUnmap(va, 40 * size));
    return 0;
}
