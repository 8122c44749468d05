// LU: a size x size matrix is factored in place without pivoting, one column an iteration. One float array.
// The matrix is diagonally dominant, so no pivot is small; after the last column it is filled again.
#include "common.cuh"

static __host__ __device__ inline float lu_entry(unsigned row, unsigned column, unsigned n) {
    float noise = unit(row * 2654435761U + column);
    return row == column ? (float)n + noise : noise;
}

extern "C" __global__ void lu_fill(float *matrix, unsigned n) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) matrix[(size_t)y * n + x] = lu_entry(y, x, n);
}

// Divides column k below the diagonal by the pivot.
extern "C" __global__ void lu_scale(float *matrix, unsigned n, unsigned k) {
    unsigned row = k + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) matrix[(size_t)row * n + k] /= matrix[(size_t)k * n + k];
}

// Takes the outer product of column k and row k from what is right of and below them.
extern "C" __global__ void lu_update(float *matrix, unsigned n, unsigned k) {
    unsigned column = k + 1 + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned row = k + 1 + blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n)
        matrix[(size_t)row * n + column] -= matrix[(size_t)row * n + k] * matrix[(size_t)k * n + column];
}

static void check(const float *device, unsigned n, unsigned long long iterations) {
    size_t cells = (size_t)n * n;
    float *matrix = (float *)malloc(cells * 4), *found = (float *)malloc(cells * 4);
    CHECK(cudaMemcpy(found, device, cells * 4, cudaMemcpyDeviceToHost));
    for (unsigned row = 0; row < n; row++)
        for (unsigned column = 0; column < n; column++) matrix[(size_t)row * n + column] = lu_entry(row, column, n);
    unsigned columns = iterations ? (unsigned)((iterations - 1) % (n - 1)) + 1 : 0;
    for (unsigned k = 0; k < columns; k++)
        for (unsigned row = k + 1; row < n; row++) {
            float factor = matrix[(size_t)row * n + k] /= matrix[(size_t)k * n + k];
            for (unsigned column = k + 1; column < n; column++)
                matrix[(size_t)row * n + column] -= factor * matrix[(size_t)k * n + column];
        }
    for (size_t at = 0; at < cells; at++) require(near(matrix[at], found[at], 1e-3), "factors differ from the CPU's");
    free(matrix);
    free(found);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4096;
    given.iterations = 100;
    given = parse(argc, argv, "lu", given);
    if (given.size < 2) refuse("--size", "below 2");
    unsigned n = (unsigned)given.size;
    unsigned long long cells = given.size * given.size;
    float *matrix = allocate<float>(cells);
    dim3 block(16, 16), whole(blocks_for(n, 16), blocks_for(n, 16));
    for (unsigned long long step = 0; step < given.iterations; step++) {
        unsigned k = (unsigned)(step % (n - 1)), rest = n - 1 - k;
        if (k == 0) lu_fill<<<whole, block>>>(matrix, n);
        lu_scale<<<blocks_for(rest, 256), 256>>>(matrix, n, k);
        lu_update<<<dim3(blocks_for(rest, 16), blocks_for(rest, 16)), block>>>(matrix, n, k);
        finish_iteration();
    }
    if (given.check) check(matrix, n, given.iterations);
    release(matrix, cells);
    summary(given);
    return 0;
}
