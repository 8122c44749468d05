// Graph traversal: breadth-first search over size nodes with 8 random edges each, one level an iteration.
// After 32 levels the search starts again from the next node. Offsets, edges, levels and two frontiers.
#include "common.cuh"

#define DEGREE 8U
#define LEVELS 32U

extern "C" __global__ void bfs_build(unsigned *offsets, unsigned *edges, unsigned n) {
    unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node > n) return;
    offsets[node] = node * DEGREE;
    if (node == n) return;
    for (unsigned edge = node * DEGREE; edge < (node + 1) * DEGREE; edge++) edges[edge] = scramble(edge) % n;
}

extern "C" __global__ void bfs_seed(int *levels, unsigned char *frontier, unsigned char *next, unsigned n,
                                    unsigned source) {
    unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n) return;
    levels[node] = node == source ? 0 : -1;
    frontier[node] = node == source;
    next[node] = 0;
}

// Several nodes of the frontier may reach one neighbour: all of them store the same values.
extern "C" __global__ void bfs_expand(const unsigned *offsets, const unsigned *edges, int *levels,
                                      const unsigned char *frontier, unsigned char *next, unsigned n, int level) {
    unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n || !frontier[node]) return;
    for (unsigned edge = offsets[node]; edge < offsets[node + 1]; edge++) {
        unsigned neighbour = edges[edge];
        if (levels[neighbour] < 0) {
            levels[neighbour] = level + 1;
            next[neighbour] = 1;
        }
    }
}

extern "C" __global__ void bfs_advance(unsigned char *frontier, unsigned char *next, unsigned n) {
    unsigned node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n) return;
    frontier[node] = next[node];
    next[node] = 0;
}

static void check(const int *device, unsigned n, unsigned long long iterations) {
    if (!iterations) return;
    int *levels = (int *)malloc((size_t)n * 4), *found = (int *)malloc((size_t)n * 4);
    CHECK(cudaMemcpy(found, device, (size_t)n * 4, cudaMemcpyDeviceToHost));
    unsigned source = (unsigned)((iterations - 1) / LEVELS % n);
    int last = (int)((iterations - 1) % LEVELS);
    for (unsigned node = 0; node < n; node++) levels[node] = node == source ? 0 : -1;
    for (int level = 0; level <= last; level++)
        for (unsigned node = 0; node < n; node++)
            if (levels[node] == level)
                for (unsigned edge = node * DEGREE; edge < (node + 1) * DEGREE; edge++)
                    if (levels[scramble(edge) % n] < 0) levels[scramble(edge) % n] = level + 1;
    require(!memcmp(levels, found, (size_t)n * 4), "levels differ from the CPU's");
    free(levels);
    free(found);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4000000;
    given.iterations = 100;
    given = parse(argc, argv, "bfs", given);
    unsigned n = (unsigned)given.size, grid = blocks_for(given.size + 1, 256);
    unsigned *offsets = allocate<unsigned>(given.size + 1), *edges = allocate<unsigned>(given.size * DEGREE);
    int *levels = allocate<int>(given.size);
    unsigned char *frontier = allocate<unsigned char>(given.size), *next = allocate<unsigned char>(given.size);
    bfs_build<<<grid, 256>>>(offsets, edges, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        unsigned level = (unsigned)(step % LEVELS);
        if (level == 0) bfs_seed<<<grid, 256>>>(levels, frontier, next, n, (unsigned)(step / LEVELS % n));
        bfs_expand<<<grid, 256>>>(offsets, edges, levels, frontier, next, n, (int)level);
        bfs_advance<<<grid, 256>>>(frontier, next, n);
        finish_iteration();
    }
    if (given.check) check(levels, n, given.iterations);
    release(offsets, given.size + 1);
    release(edges, given.size * DEGREE);
    release(levels, given.size);
    release(frontier, given.size);
    release(next, given.size);
    summary(given);
    return 0;
}
