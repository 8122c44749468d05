// Sequence alignment: two sequences of size letters are aligned end to end by dynamic programming. The table is
// worked off in tiles of 16 x 16, one anti-diagonal of tiles a launch, one whole table an iteration.
#include "common.cuh"

#define TILE 16U
#define GAP 2

extern "C" __global__ void align_fill(unsigned char *first, unsigned char *second, unsigned n) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    first[at] = scramble(at) & 3;
    second[at] = scramble(at + 0x40000000U) & 3;
}

extern "C" __global__ void align_border(int *score, unsigned n) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at > n) return;
    score[at] = -GAP * (int)at;
    score[(size_t)at * (n + 1)] = -GAP * (int)at;
}

static __host__ __device__ inline int align_cell(int diagonal, int above, int left, int same) {
    int best = diagonal + (same ? 3 : -1);
    if (above - GAP > best) best = above - GAP;
    if (left - GAP > best) best = left - GAP;
    return best;
}

// One block a tile: tile `lowest + blockIdx.x` along x of the given anti-diagonal.
extern "C" __global__ void align_tile(int *score, const unsigned char *first, const unsigned char *second, unsigned n,
                                      unsigned diagonal, unsigned lowest) {
    __shared__ int tile[TILE + 1][TILE + 1];
    unsigned me = threadIdx.x;
    unsigned left = (lowest + blockIdx.x) * TILE, top = (diagonal - lowest - blockIdx.x) * TILE;
    size_t width = n + 1;
    // The row above and the column left of the tile, and the corner between them.
    if (left + me < n) tile[0][me + 1] = score[top * width + left + me + 1];
    if (top + me < n) tile[me + 1][0] = score[(top + me + 1) * width + left];
    if (me == 0) tile[0][0] = score[top * width + left];
    __syncthreads();
    for (unsigned wave = 0; wave < 2 * TILE - 1; wave++) {
        unsigned row = wave - me;
        if (me <= wave && row < TILE && left + me < n && top + row < n) {
            int same = first[left + me] == second[top + row];
            tile[row + 1][me + 1] = align_cell(tile[row][me], tile[row][me + 1], tile[row + 1][me], same);
        }
        __syncthreads();
    }
    for (unsigned row = 0; row < TILE && top + row < n; row++)
        if (left + me < n) score[(top + row + 1) * width + left + me + 1] = tile[row + 1][me + 1];
}

static void check(const int *device, unsigned n) {
    size_t width = n + 1;
    int *score = (int *)malloc(width * width * 4), *found = (int *)malloc(width * width * 4);
    CHECK(cudaMemcpy(found, device, width * width * 4, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at <= n; at++) score[at] = score[at * width] = -GAP * (int)at;
    for (unsigned row = 1; row <= n; row++)
        for (unsigned column = 1; column <= n; column++) {
            int *cell = score + row * width + column;
            int same = (scramble(column - 1) & 3) == (scramble(row - 1 + 0x40000000U) & 3);
            *cell = align_cell(cell[-(long)width - 1], cell[-(long)width], cell[-1], same);
        }
    require(!memcmp(score, found, width * width * 4), "scores differ from the CPU's");
    free(score);
    free(found);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 4096;
    given.iterations = 20;
    given = parse(argc, argv, "align", given);
    unsigned n = (unsigned)given.size, tiles = blocks_for(n, TILE);
    unsigned long long cells = (given.size + 1) * (given.size + 1);
    int *score = allocate<int>(cells);
    unsigned char *first = allocate<unsigned char>(given.size), *second = allocate<unsigned char>(given.size);
    align_fill<<<blocks_for(n, 256), 256>>>(first, second, n);
    align_border<<<blocks_for(given.size + 1, 256), 256>>>(score, n);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        for (unsigned diagonal = 0; diagonal + 1 < 2 * tiles; diagonal++) {
            unsigned lowest = diagonal < tiles ? 0 : diagonal - tiles + 1;
            unsigned highest = diagonal < tiles ? diagonal : tiles - 1;
            align_tile<<<highest - lowest + 1, TILE>>>(score, first, second, n, diagonal, lowest);
        }
        finish_iteration();
    }
    if (given.check && given.iterations) check(score, n);
    release(score, cells);
    release(first, given.size);
    release(second, given.size);
    summary(given);
    return 0;
}
