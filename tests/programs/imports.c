// Memory of others, and memory that is none. argv[1]: "open" leaves all of it open, "closed" closes it.
#include <string.h>
#include "cuda.h"

int main(int argc, char **argv) {
    IpcHandle handle = {.bytes = 1000, .end = 0x1234};
    External external = {1, {3, 0}, 60000, 0};
    uint64_t exported = 500;
    Ptr p, q, r, buffer;
    void *memory;
    unsigned long long shared, multicast;
    const Ptr va = 0x600000000000, size = 1 << 21;
    OK(cuIpcOpenMemHandle_v2(&p, handle, 1));
    OK(cuIpcOpenMemHandle(&q, handle, 1));
    OK(cuMemPoolImportPointer(&r, NULL, &exported));
    OK(cuImportExternalMemory(&memory, &external));
    OK(cuExternalMemoryGetMappedBuffer(&buffer, memory, NULL));
    WANT(1, cuMemFree_v2(buffer));  // no allocation of its own: what the driver says of it is its business
    OK(cuMemImportFromShareableHandle(&shared, NULL, 1));
    OK(cuMemMap(va, size, 0, shared, 0));
    OK(cuMemMap(va + size, size, 0, shared, 0));  // the same bytes once more
    OK(cuMemMap(va + 2 * size, size, size, shared, 0));  // and as many behind them
    OK(cuMulticastCreate(&multicast, NULL));
    OK(cuMemMap(va + 3 * size, size, 0, multicast, 0));
    OK(cuMemRelease(multicast));
    OK(cuMemRelease(shared));
    if (!strcmp(argv[1], "open")) return 0;
    OK(cuMemUnmap(va, 4 * size));
    OK(cuIpcCloseMemHandle(p));
    OK(cuIpcCloseMemHandle(q));
    OK(cuMemFreeAsync(r, NULL));
    OK(cuDestroyExternalMemory(memory));
    return 0;
}
