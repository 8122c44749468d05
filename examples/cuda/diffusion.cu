// Image diffusion: noise in a size x size image is smoothed, less across edges than along them. Three float arrays.
#include "common.cuh"

extern "C" __global__ void diffusion_fill(float *image, unsigned n) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    size_t at = (size_t)y * n + x;
    image[at] = (x / 32 + y / 32) % 2 + 0.2f * unit((unsigned)at);
}

// How much each pixel lets through: near 1 where the image is smooth, near 0 at an edge.
static __host__ __device__ inline float diffusion_open(const float *image, unsigned x, unsigned y, unsigned n) {
    size_t at = (size_t)y * n + x;
    float east = x + 1 < n ? image[at + 1] - image[at] : 0, south = y + 1 < n ? image[at + n] - image[at] : 0;
    return 1.0f / (1.0f + 25.0f * (east * east + south * south));
}

extern "C" __global__ void diffusion_coefficient(const float *image, float *open, unsigned n) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) open[(size_t)y * n + x] = diffusion_open(image, x, y, n);
}

static __host__ __device__ inline float diffusion_pixel(const float *image, const float *open, unsigned x, unsigned y,
                                                        unsigned n, float rate) {
    size_t at = (size_t)y * n + x;
    float here = image[at], flow = 0;
    if (x > 0) flow += open[at - 1] * (image[at - 1] - here);
    if (y > 0) flow += open[at - n] * (image[at - n] - here);
    if (x + 1 < n) flow += open[at] * (image[at + 1] - here);
    if (y + 1 < n) flow += open[at] * (image[at + n] - here);
    return here + rate * flow;
}

extern "C" __global__ void diffusion_update(const float *image, const float *open, float *next, unsigned n,
                                            float rate) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) next[(size_t)y * n + x] = diffusion_pixel(image, open, x, y, n, rate);
}

static void check(const float *device, unsigned n, unsigned long long iterations) {
    size_t cells = (size_t)n * n;
    float *found = (float *)malloc(cells * 4), *image = (float *)malloc(cells * 4);
    float *open = (float *)malloc(cells * 4), *next = (float *)malloc(cells * 4);
    CHECK(cudaMemcpy(found, device, cells * 4, cudaMemcpyDeviceToHost));
    for (unsigned y = 0; y < n; y++)
        for (unsigned x = 0; x < n; x++)
            image[(size_t)y * n + x] = (x / 32 + y / 32) % 2 + 0.2f * unit((unsigned)((size_t)y * n + x));
    for (unsigned long long step = 0; step < iterations; step++) {
        for (size_t at = 0; at < cells; at++) open[at] = diffusion_open(image, at % n, at / n, n);
        for (size_t at = 0; at < cells; at++) next[at] = diffusion_pixel(image, open, at % n, at / n, n, 0.2f);
        float *swap = image;
        image = next;
        next = swap;
    }
    for (size_t at = 0; at < cells; at++) require(near(image[at], found[at], 1e-3), "a pixel differs from the CPU's");
    free(found);
    free(image);
    free(open);
    free(next);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4096;
    given.iterations = 100;
    given = parse(argc, argv, "diffusion", given);
    unsigned n = (unsigned)given.size;
    unsigned long long cells = given.size * given.size;
    float *image = allocate<float>(cells), *open = allocate<float>(cells), *next = allocate<float>(cells);
    dim3 block(16, 16), grid(blocks_for(n, 16), blocks_for(n, 16));
    diffusion_fill<<<grid, block>>>(image, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        diffusion_coefficient<<<grid, block>>>(image, open, n);
        diffusion_update<<<grid, block>>>(image, open, next, n, 0.2f);
        finish_iteration();
        float *swap = image;
        image = next;
        next = swap;
    }
    if (given.check) check(image, n, given.iterations);
    release(image, cells);
    release(open, cells);
    release(next, cells);
    summary(given);
    return 0;
}
