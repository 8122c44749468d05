// Grower, leak: every iteration takes and returns a scratch buffer of twice --growth bytes, and forgets to free an
// answer of --growth bytes.
#include "common.cuh"

extern "C" __global__ void leak_scratch(float *scratch, unsigned long long count, unsigned step) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) scratch[at] = unit((unsigned)at ^ step);
}

// The answer is the first half of the scratch buffer plus its second.
extern "C" __global__ void leak_answer(const float *scratch, float *answer, unsigned long long count) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x)
        answer[at] = scratch[at] + scratch[at + count];
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.start = 256 << 20;
    given.growth = 8 << 20;
    given.iterations = 50;
    given = parse(argc, argv, "leak", given);
    unsigned long long count = given.growth / 4;
    float *base = (float *)allocate<char>(given.start), *answer = NULL;
    leak_scratch<<<stride_blocks(given.start / 4), 256>>>(base, given.start / 4, 0);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        float *scratch = (float *)allocate<char>(2 * given.growth);
        answer = (float *)allocate<char>(given.growth);
        leak_scratch<<<stride_blocks(2 * count), 256>>>(scratch, 2 * count, (unsigned)step);
        leak_answer<<<stride_blocks(count), 256>>>(scratch, answer, count);
        finish_iteration();
        release((char *)scratch, 2 * given.growth);
    }
    if (given.check && answer && count) {
        float last;
        unsigned at = (unsigned)count - 1, step = (unsigned)given.iterations - 1;
        CHECK(cudaMemcpy(&last, answer + at, 4, cudaMemcpyDeviceToHost));
        require(near(last, unit(at ^ step) + unit((at + (unsigned)count) ^ step), 1e-6), "the answer is wrong");
    }
    release((char *)base, given.start);
    summary(given);
    return 0;
}
