// Nearest neighbour: size places, uploaded in pieces, are searched for the one nearest to a target that moves with
// each iteration; the answer is read back.
#include "common.cuh"

#define PIECE (1U << 20)

// Also clears the answer, for the launch after it.
extern "C" __global__ void nearest_distance(const float2 *places, float *distances, unsigned long long *best,
                                            unsigned n, float latitude, float longitude) {
    unsigned place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place == 0) *best = ~0ULL;
    if (place >= n) return;
    float north = places[place].x - latitude, east = places[place].y - longitude;
    distances[place] = north * north + east * east;
}

// A distance is not negative, so its bits order as it does: the least of (distance, place) is one integer minimum.
extern "C" __global__ void nearest_reduce(const float *distances, unsigned long long *best, unsigned n) {
    __shared__ unsigned long long least[256];
    unsigned place = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long mine = ~0ULL;
    if (place < n) mine = (unsigned long long)__float_as_uint(distances[place]) << 32 | place;
    least[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = 128; half; half /= 2) {
        if (threadIdx.x < half && least[threadIdx.x + half] < least[threadIdx.x])
            least[threadIdx.x] = least[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicMin(best, least[0]);
}

static float2 place_at(unsigned place) {
    return make_float2(180.0f * unit(2 * place) - 90.0f, 360.0f * unit(2 * place + 1) - 180.0f);
}

static void check(unsigned long long best, unsigned n, float latitude, float longitude) {
    float2 found = place_at((unsigned)best);
    float least = 3.0e38f;
    for (unsigned place = 0; place < n; place++) {
        float north = place_at(place).x - latitude, east = place_at(place).y - longitude;
        if (north * north + east * east < least) least = north * north + east * east;
    }
    float north = found.x - latitude, east = found.y - longitude;
    require(near(north * north + east * east, least, 1e-4), "another place is nearer");
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 8000000;
    given.iterations = 100;
    given = parse(argc, argv, "nearest", given);
    unsigned n = (unsigned)given.size, grid = blocks_for(n, 256);
    float2 *places = allocate<float2>(given.size);
    float *distances = allocate<float>(given.size);
    unsigned long long *best = allocate<unsigned long long>(1), answer = 0;
    float2 *piece = (float2 *)malloc(PIECE * sizeof(float2));
    for (unsigned start = 0; start < n; start += PIECE) {
        unsigned count = n - start < PIECE ? n - start : PIECE;
        for (unsigned at = 0; at < count; at++) piece[at] = place_at(start + at);
        CHECK(cudaMemcpy(places + start, piece, count * sizeof(float2), cudaMemcpyHostToDevice));
    }
    free(piece);
    float latitude = 0, longitude = 0;
    for (unsigned long long step = 0; step < given.iterations; step++) {
        latitude = (float)(step % 180) - 90.0f;
        longitude = (float)(step % 360) - 180.0f;
        nearest_distance<<<grid, 256>>>(places, distances, best, n, latitude, longitude);
        nearest_reduce<<<grid, 256>>>(distances, best, n);
        finish_iteration();
        CHECK(cudaMemcpy(&answer, best, sizeof answer, cudaMemcpyDeviceToHost));
    }
    if (given.check && given.iterations) check(answer, n, latitude, longitude);
    release(places, given.size);
    release(distances, given.size);
    release(best, 1);
    summary(given);
    return 0;
}
