// Stencil: heat spreads over a plate of size x size cells, with a fixed source in each. Three float arrays.
#include "common.cuh"

extern "C" __global__ void stencil_fill(float *heat, float *power, unsigned n) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    size_t at = (size_t)y * n + x;
    heat[at] = 300.0f + 20.0f * unit((unsigned)at);
    power[at] = 0.5f * unit((unsigned)at + 77U);
}

// Cells outside the plate are as warm as the border.
extern "C" __global__ void stencil_step(const float *heat, float *next, const float *power, unsigned n) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    size_t at = (size_t)y * n + x;
    float here = heat[at];
    float west = x > 0 ? heat[at - 1] : here, east = x + 1 < n ? heat[at + 1] : here;
    float north = y > 0 ? heat[at - n] : here, south = y + 1 < n ? heat[at + n] : here;
    next[at] = here + 0.2f * (west + east + north + south - 4.0f * here) + power[at];
}

static void check(const float *heat, unsigned n, unsigned long long iterations) {
    size_t cells = (size_t)n * n;
    float *device = (float *)malloc(cells * 4), *now = (float *)malloc(cells * 4), *next = (float *)malloc(cells * 4);
    CHECK(cudaMemcpy(device, heat, cells * 4, cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < cells; at++) now[at] = 300.0f + 20.0f * unit((unsigned)at);
    for (unsigned long long step = 0; step < iterations; step++) {
        for (unsigned y = 0; y < n; y++)
            for (unsigned x = 0; x < n; x++) {
                size_t at = (size_t)y * n + x;
                float here = now[at];
                float west = x > 0 ? now[at - 1] : here, east = x + 1 < n ? now[at + 1] : here;
                float north = y > 0 ? now[at - n] : here, south = y + 1 < n ? now[at + n] : here;
                next[at] = here + 0.2f * (west + east + north + south - 4.0f * here) + 0.5f * unit((unsigned)at + 77U);
            }
        float *swap = now;
        now = next;
        next = swap;
    }
    for (size_t at = 0; at < cells; at++) require(near(now[at], device[at], 1e-4), "heat differs from the CPU's");
    free(device);
    free(now);
    free(next);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4096;
    given.iterations = 100;
    given = parse(argc, argv, "stencil", given);
    unsigned n = (unsigned)given.size;
    unsigned long long cells = given.size * given.size;
    float *heat = allocate<float>(cells), *next = allocate<float>(cells), *power = allocate<float>(cells);
    dim3 block(16, 16), grid(blocks_for(n, 16), blocks_for(n, 16));
    stencil_fill<<<grid, block>>>(heat, power, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        stencil_step<<<grid, block>>>(heat, next, power, n);
        finish_iteration();
        float *swap = heat;
        heat = next;
        next = swap;
    }
    if (given.check) check(heat, n, given.iterations);
    release(heat, cells);
    release(next, cells);
    release(power, cells);
    summary(given);
    return 0;
}
