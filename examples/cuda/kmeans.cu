// k-means: size points in 8 dimensions, 16 clusters, one round of assigning and moving an iteration.
#include "common.cuh"

#define DIMENSIONS 8U
#define CLUSTERS 16U

extern "C" __global__ void kmeans_fill(float *points, unsigned n) {
    unsigned point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= n) return;
    for (unsigned d = 0; d < DIMENSIONS; d++) points[(size_t)d * n + point] = unit(point * DIMENSIONS + d);
}

// The first points are the first centres. One thread a coordinate.
extern "C" __global__ void kmeans_seed(const float *points, float *centres, float *sums, unsigned *counts,
                                       unsigned n) {
    unsigned cluster = threadIdx.x / DIMENSIONS, d = threadIdx.x % DIMENSIONS;
    centres[threadIdx.x] = points[(size_t)d * n + cluster % n];
    sums[threadIdx.x] = 0;
    if (d == 0) counts[cluster] = 0;
}

extern "C" __global__ void kmeans_assign(const float *points, const float *centres, int *labels, float *sums,
                                         unsigned *counts, unsigned n) {
    unsigned point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= n) return;
    float least = 3.0e38f;
    unsigned nearest = 0;
    for (unsigned cluster = 0; cluster < CLUSTERS; cluster++) {
        float distance = 0;
        for (unsigned d = 0; d < DIMENSIONS; d++) {
            float gap = points[(size_t)d * n + point] - centres[cluster * DIMENSIONS + d];
            distance += gap * gap;
        }
        if (distance < least) {
            least = distance;
            nearest = cluster;
        }
    }
    labels[point] = (int)nearest;
    atomicAdd(&counts[nearest], 1U);
    for (unsigned d = 0; d < DIMENSIONS; d++)
        atomicAdd(&sums[nearest * DIMENSIONS + d], points[(size_t)d * n + point]);
}

// Moves each centre to the mean of its points and clears the sums. A cluster without points stays.
extern "C" __global__ void kmeans_move(float *centres, float *sums, unsigned *counts) {
    unsigned cluster = threadIdx.x / DIMENSIONS;
    unsigned count = counts[cluster];
    if (count) centres[threadIdx.x] = sums[threadIdx.x] / (float)count;
    sums[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % DIMENSIONS == 0) counts[cluster] = 0;
}

// Each centre must be the mean of the points that carry its label.
static void check(const float *centres, const int *labels, unsigned n) {
    float found[CLUSTERS * DIMENSIONS];
    int *label = (int *)malloc((size_t)n * 4);
    CHECK(cudaMemcpy(found, centres, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(label, labels, (size_t)n * 4, cudaMemcpyDeviceToHost));
    double sums[CLUSTERS * DIMENSIONS] = {0};
    unsigned counts[CLUSTERS] = {0};
    for (unsigned point = 0; point < n; point++) {
        require(label[point] >= 0 && label[point] < (int)CLUSTERS, "a label is out of range");
        counts[label[point]]++;
        for (unsigned d = 0; d < DIMENSIONS; d++) sums[label[point] * DIMENSIONS + d] += unit(point * DIMENSIONS + d);
    }
    for (unsigned at = 0; at < CLUSTERS * DIMENSIONS; at++) {
        unsigned count = counts[at / DIMENSIONS];
        if (count) require(near(sums[at] / count, found[at], 1e-2), "a centre is not the mean of its points");
    }
    free(label);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4000000;
    given.iterations = 100;
    given = parse(argc, argv, "kmeans", given);
    unsigned n = (unsigned)given.size, grid = blocks_for(n, 256);
    float *points = allocate<float>(given.size * DIMENSIONS);
    int *labels = allocate<int>(given.size);
    float *centres = allocate<float>(CLUSTERS * DIMENSIONS), *sums = allocate<float>(CLUSTERS * DIMENSIONS);
    unsigned *counts = allocate<unsigned>(CLUSTERS);
    kmeans_fill<<<grid, 256>>>(points, n);
    kmeans_seed<<<1, CLUSTERS * DIMENSIONS>>>(points, centres, sums, counts, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        kmeans_assign<<<grid, 256>>>(points, centres, labels, sums, counts, n);
        kmeans_move<<<1, CLUSTERS * DIMENSIONS>>>(centres, sums, counts);
        finish_iteration();
    }
    if (given.check && given.iterations) check(centres, labels, n);
    release(points, given.size * DIMENSIONS);
    release(labels, given.size);
    release(centres, CLUSTERS * DIMENSIONS);
    release(sums, CLUSTERS * DIMENSIONS);
    release(counts, CLUSTERS);
    summary(given);
    return 0;
}
