// Grower, sudden: flat at --start bytes until iteration --at, then one allocation takes it to --jump bytes.
#include "common.cuh"

extern "C" __global__ void jumper_fill(float *values, unsigned long long count, float value) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) values[at] = value;
}

extern "C" __global__ void jumper_sweep(float *values, unsigned long long count, float step) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) values[at] += step;
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.start = 4000000000ULL;
    given.jump = 9000000000ULL;
    given.at = 50;
    given.iterations = 100;
    given = parse(argc, argv, "jumper", given);
    if (given.jump < given.start) refuse("--jump", "below --start");
    unsigned long long count = given.start / 4, more_bytes = given.jump - given.start, more_count = more_bytes / 4;
    float *values = (float *)allocate<char>(given.start), *more = NULL;
    jumper_fill<<<stride_blocks(count), 256>>>(values, count, 0.0f);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        if (step == given.at && more_bytes) {
            more = (float *)allocate<char>(more_bytes);
            jumper_fill<<<stride_blocks(more_count), 256>>>(more, more_count, 0.0f);
        }
        jumper_sweep<<<stride_blocks(count), 256>>>(values, count, 1.0f);
        if (more) jumper_sweep<<<stride_blocks(more_count), 256>>>(more, more_count, 1.0f);
        finish_iteration();
    }
    if (given.check && count) {
        float last;
        CHECK(cudaMemcpy(&last, values + count - 1, 4, cudaMemcpyDeviceToHost));
        require(last == (float)given.iterations, "a value was not swept in every iteration");
    }
    if (more) release((char *)more, more_bytes);
    release((char *)values, given.start);
    summary(given);
    return 0;
}
