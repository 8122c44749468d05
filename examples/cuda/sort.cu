// Sort: a bitonic network over size keys, rounded up to a power of two; one whole sort an iteration.
#include "common.cuh"

extern "C" __global__ void sort_fill(unsigned *keys, unsigned n, unsigned seed) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) keys[at] = scramble(at ^ scramble(seed));
}

// Exchanges pairs `stride` apart so that runs of `span` keys end up rising and falling in turn.
extern "C" __global__ void sort_exchange(unsigned *keys, unsigned n, unsigned stride, unsigned span) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, other = at ^ stride;
    if (at >= n || other <= at) return;
    unsigned here = keys[at], there = keys[other];
    bool rising = (at & span) == 0;
    if ((here > there) == rising) {
        keys[at] = there;
        keys[other] = here;
    }
}

// The keys must rise, and be the keys that were filled in.
static void check(const unsigned *device, unsigned n, unsigned seed) {
    unsigned *found = (unsigned *)malloc((size_t)n * 4);
    CHECK(cudaMemcpy(found, device, (size_t)n * 4, cudaMemcpyDeviceToHost));
    unsigned long long sum = 0, mixed = 0;
    for (unsigned at = 0; at < n; at++) {
        require(at == 0 || found[at - 1] <= found[at], "the keys do not rise");
        sum += scramble(at ^ scramble(seed)) - (unsigned long long)found[at];
        mixed += scramble(scramble(at ^ scramble(seed))) - (unsigned long long)scramble(found[at]);
    }
    require(sum == 0 && mixed == 0, "the keys are not those that were filled in");
    free(found);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 1 << 24;
    given.iterations = 20;
    given = parse(argc, argv, "sort", given);
    if (given.size > 1ULL << 31) refuse("--size", "above 2147483648");
    unsigned n = 1;
    while (n < given.size) n *= 2;
    unsigned *keys = allocate<unsigned>(n), grid = blocks_for(n, 256);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        sort_fill<<<grid, 256>>>(keys, n, (unsigned)step);
        for (unsigned span = 2; span <= n && span; span *= 2)
            for (unsigned stride = span / 2; stride; stride /= 2) sort_exchange<<<grid, 256>>>(keys, n, stride, span);
        finish_iteration();
    }
    if (given.check && given.iterations) check(keys, n, (unsigned)(given.iterations - 1));
    release(keys, n);
    summary(given);
    return 0;
}
