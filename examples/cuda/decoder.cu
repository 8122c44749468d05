// Grower, linear: a decoder with --start bytes of weights keeps --growth bytes of keys and values for every token,
// in one allocation a token, and looks at all of them for the next.
#include "common.cuh"
#include <vector>

#define WIDTH 256U

extern "C" __global__ void decoder_fill(float *weights, unsigned long long count) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) weights[at] = unit((unsigned)at) - 0.5f;
}

// The token's state passes through the weights: every state cell gathers a sample of them.
extern "C" __global__ void decoder_mix(const float *weights, unsigned long long count, float *state,
                                       unsigned long long token) {
    float sum = 0;
    for (unsigned long long at = threadIdx.x; at < count; at += (unsigned long long)WIDTH * 4096) sum += weights[at];
    state[threadIdx.x] = sum / (1.0f + sum * sum) + unit((unsigned)token + threadIdx.x);
}

extern "C" __global__ void decoder_append(float *chunk, unsigned long long count, const float *state) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < count; at += (unsigned long long)gridDim.x * blockDim.x) chunk[at] = state[at % WIDTH];
}

// One block an earlier token: its keys are matched with the state and the weighted sum is added to it.
extern "C" __global__ void decoder_attend(const float *const *chunks, unsigned long long count, float *answer,
                                          const float *state) {
    const float *chunk = chunks[blockIdx.x];
    float sum = 0;
    for (unsigned long long at = threadIdx.x; at < count; at += WIDTH) sum += chunk[at] * state[threadIdx.x];
    atomicAdd(&answer[threadIdx.x], sum / gridDim.x);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.start = 256 << 20;
    given.growth = 16 << 20;
    given.iterations = 50;
    given = parse(argc, argv, "decoder", given);
    unsigned long long weight_count = given.start / 4, chunk_count = given.growth / 4;
    float *weights = (float *)allocate<char>(given.start);
    float **chunks = allocate<float *>(given.iterations + 1);
    float *state = allocate<float>(WIDTH), *answer = allocate<float>(WIDTH);
    std::vector<float *> kept;
    decoder_fill<<<stride_blocks(weight_count), 256>>>(weights, weight_count);
    CHECK(cudaMemset(answer, 0, WIDTH * 4));
    for (unsigned long long token = 0; token < given.iterations; token++) {
        float *chunk = (float *)allocate<char>(given.growth);
        kept.push_back(chunk);
        CHECK(cudaMemcpy(chunks + token, &chunk, sizeof chunk, cudaMemcpyHostToDevice));
        decoder_mix<<<1, WIDTH>>>(weights, weight_count, state, token);
        decoder_append<<<stride_blocks(chunk_count), 256>>>(chunk, chunk_count, state);
        decoder_attend<<<(unsigned)kept.size(), WIDTH>>>(chunks, chunk_count, answer, state);
        finish_iteration();
    }
    if (given.check && given.iterations && chunk_count) {
        // All of a chunk repeats the state that was appended last.
        float states[WIDTH], last;
        CHECK(cudaMemcpy(states, state, sizeof states, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&last, kept.back() + chunk_count - 1, 4, cudaMemcpyDeviceToHost));
        require(last == states[(chunk_count - 1) % WIDTH], "the last token was not kept");
    }
    for (float *chunk : kept) release((char *)chunk, given.growth);
    release((char *)weights, given.start);
    release(chunks, given.iterations + 1);
    release(state, WIDTH);
    release(answer, WIDTH);
    summary(given);
    return 0;
}
