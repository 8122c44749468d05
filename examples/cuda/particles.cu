// Particle filter: size guesses of where an object is are moved, weighed against a sighting, and drawn again in
// proportion to their weights. Six float arrays, and a sum for each block of 256.
#include "common.cuh"

extern "C" __global__ void particles_fill(float *x, float *y, unsigned n) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    x[at] = unit(2 * at);
    y[at] = unit(2 * at + 1);
}

// Every guess drifts a little at random; its weight falls with its distance from the sighting.
extern "C" __global__ void particles_weigh(float *x, float *y, float *weight, unsigned n, unsigned step, float seen_x,
                                           float seen_y) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    x[at] += 0.02f * (unit(scramble(at) + step) - 0.5f);
    y[at] += 0.02f * (unit(scramble(at) + step + 0x80000000U) - 0.5f);
    float east = x[at] - seen_x, north = y[at] - seen_y;
    weight[at] = 1.0f / (0.001f + east * east + north * north);
}

// Running sums inside each block, and the block's total.
extern "C" __global__ void particles_scan(const float *weight, float *sum, float *total, unsigned n) {
    __shared__ float run[256];
    unsigned at = blockIdx.x * 256 + threadIdx.x, me = threadIdx.x;
    run[me] = at < n ? weight[at] : 0;
    __syncthreads();
    for (unsigned reach = 1; reach < 256; reach *= 2) {
        float before = me >= reach ? run[me - reach] : 0;
        __syncthreads();
        run[me] += before;
        __syncthreads();
    }
    if (at < n) sum[at] = run[me];
    if (me == 255) total[blockIdx.x] = run[255];
}

// Running sums over the blocks' totals, by one thread: there are few.
extern "C" __global__ void particles_totals(float *total, unsigned blocks) {
    float sum = 0;
    for (unsigned block = 0; block < blocks; block++) total[block] = sum += total[block];
}

static __host__ __device__ inline float particles_upto(const float *sum, const float *total, unsigned at) {
    return sum[at] + (at < 256 ? 0 : total[at / 256 - 1]);
}

// Guess i becomes the one in whose share the i-th of n evenly spaced points falls.
extern "C" __global__ void particles_draw(const float *x, const float *y, const float *sum, const float *total,
                                          float *next_x, float *next_y, unsigned n, unsigned blocks) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float point = (at + 0.5f) / n * total[blocks - 1];
    unsigned low = 0, high = n - 1;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (particles_upto(sum, total, middle) < point) low = middle + 1;
        else high = middle;
    }
    next_x[at] = x[low];
    next_y[at] = y[low];
}

// The sums must add up to the weights, and the guesses gather round the last sighting.
static void check(const float *weight, const float *total, const float *x, const float *y, unsigned n, float seen_x,
                  float seen_y) {
    float *values = (float *)malloc((size_t)n * 4), all;
    double sum = 0, mean_x = 0, mean_y = 0;
    CHECK(cudaMemcpy(values, weight, (size_t)n * 4, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at < n; at++) sum += values[at];
    CHECK(cudaMemcpy(&all, total + blocks_for(n, 256) - 1, 4, cudaMemcpyDeviceToHost));
    require(near(sum, all, 1e-2), "the running sums do not end at the sum of the weights");
    CHECK(cudaMemcpy(values, x, (size_t)n * 4, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at < n; at++) mean_x += values[at] / n;
    CHECK(cudaMemcpy(values, y, (size_t)n * 4, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at < n; at++) mean_y += values[at] / n;
    require(near(mean_x, seen_x, 0.2) && near(mean_y, seen_y, 0.2), "the guesses lost the object");
    free(values);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4000000;
    given.iterations = 100;
    given = parse(argc, argv, "particles", given);
    unsigned n = (unsigned)given.size, blocks = blocks_for(n, 256);
    float *x = allocate<float>(given.size), *y = allocate<float>(given.size);
    float *weight = allocate<float>(given.size), *sum = allocate<float>(given.size);
    float *next_x = allocate<float>(given.size), *next_y = allocate<float>(given.size);
    float *total = allocate<float>(blocks), seen = 0;
    particles_fill<<<blocks, 256>>>(x, y, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        seen = 0.3f + 0.4f * (step % 100) / 100.0f;
        particles_weigh<<<blocks, 256>>>(x, y, weight, n, (unsigned)step, seen, 0.5f);
        particles_scan<<<blocks, 256>>>(weight, sum, total, n);
        particles_totals<<<1, 1>>>(total, blocks);
        particles_draw<<<blocks, 256>>>(x, y, sum, total, next_x, next_y, n, blocks);
        finish_iteration();
        float *swap_x = x, *swap_y = y;
        x = next_x;
        y = next_y;
        next_x = swap_x;
        next_y = swap_y;
    }
    if (given.check && given.iterations) check(weight, total, x, y, n, seen, 0.5f);
    release(x, given.size);
    release(y, given.size);
    release(weight, given.size);
    release(sum, given.size);
    release(next_x, given.size);
    release(next_y, given.size);
    release(total, blocks);
    summary(given);
    return 0;
}
