// NVIDIA's runtime over the small driver. It comes as far as a table that no documented call explains, so
// cudaMalloc fails; what it has looked up before is what counts.
#include <stdio.h>
int cudaMalloc(void **pointer, size_t bytes);

int main(void) {
    void *pointer = NULL;
    printf("cudaMalloc %d\n", cudaMalloc(&pointer, 1 << 20));
    return 0;
}
