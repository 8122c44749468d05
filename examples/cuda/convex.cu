// Grower, convex: iteration i allocates i x --growth bytes more, so the total grows with the square of the time.
#include "common.cuh"
#include <vector>

extern "C" __global__ void convex_extend(float *values, unsigned long long count, unsigned seed) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) values[at] = unit((unsigned)at + seed);
}

// Adds up the values in `sum`, one atomic a block.
extern "C" __global__ void convex_sum(const float *values, unsigned long long count, double *sum) {
    __shared__ double run[256];
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    double mine = 0;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) mine += values[at];
    run[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = 128; half; half /= 2) {
        if (threadIdx.x < half) run[threadIdx.x] += run[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, run[0]);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.start = 256 << 20;
    given.growth = 1 << 20;
    given.iterations = 50;
    given = parse(argc, argv, "convex", given);
    unsigned long long count = given.start / 4;
    float *values = (float *)allocate<char>(given.start);
    double *sum = allocate<double>(1);
    std::vector<float *> kept;
    convex_extend<<<stride_blocks(count), 256>>>(values, count, 0);
    CHECK(cudaMemset(sum, 0, 8));
    for (unsigned long long step = 1; step <= given.iterations; step++) {
        unsigned long long more = step * given.growth / 4;
        kept.push_back((float *)allocate<char>(step * given.growth));
        convex_extend<<<stride_blocks(more), 256>>>(kept.back(), more, (unsigned)step);
        convex_sum<<<stride_blocks(more), 256>>>(kept.back(), more, sum);
        finish_iteration();
    }
    if (given.check) {
        double found, expected = 0;
        CHECK(cudaMemcpy(&found, sum, 8, cudaMemcpyDeviceToHost));
        for (unsigned long long step = 1; step <= given.iterations; step++)
            for (unsigned long long at = 0; at < step * given.growth / 4; at++)
                expected += unit((unsigned)at + (unsigned)step);
        require(near(found, expected, 1e-6), "the sum differs from the CPU's");
    }
    for (unsigned long long step = 1; step <= given.iterations; step++)
        release((char *)kept[step - 1], step * given.growth);
    release((char *)values, given.start);
    release(sum, 1);
    summary(given);
    return 0;
}
