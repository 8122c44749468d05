// n-body in boxes: space is cut into size x size x size boxes of 64 charged particles; each feels the particles
// of its own and the 26 neighbouring boxes. Positions and forces, four floats each.
#include "common.cuh"

#define PER_BOX 64U

// Coordinates inside the particle's box, and its charge.
static __host__ __device__ inline float4 boxes_particle(unsigned particle) {
    return make_float4(unit(4 * particle), unit(4 * particle + 1), unit(4 * particle + 2),
                       unit(4 * particle + 3) - 0.5f);
}

extern "C" __global__ void boxes_fill(float4 *position, unsigned side) {
    unsigned box = blockIdx.x, particle = box * PER_BOX + threadIdx.x;
    float4 inside = boxes_particle(particle);
    inside.x += box % side;
    inside.y += box / side % side;
    inside.z += box / side / side;
    position[particle] = inside;
}

// Adds what one particle at `there` does to one at `here`. The softening keeps a particle from pushing itself.
static __host__ __device__ inline void boxes_add(float4 *force, float4 here, float4 there) {
    float x = here.x - there.x, y = here.y - there.y, z = here.z - there.z;
    float distance = x * x + y * y + z * z + 0.01f;
    float push = here.w * there.w / (distance * sqrtf(distance));
    force->x += push * x;
    force->y += push * y;
    force->z += push * z;
    force->w += push * distance;
}

extern "C" __global__ void boxes_force(const float4 *position, float4 *force, unsigned side) {
    __shared__ float4 neighbour[PER_BOX];
    int box = (int)blockIdx.x, edge = (int)side;
    int x = box % edge, y = box / edge % edge, z = box / edge / edge;
    float4 here = position[blockIdx.x * PER_BOX + threadIdx.x], sum = make_float4(0, 0, 0, 0);
    for (int k = z > 0 ? z - 1 : 0; k <= z + 1 && k < edge; k++)
        for (int j = y > 0 ? y - 1 : 0; j <= y + 1 && j < edge; j++)
            for (int i = x > 0 ? x - 1 : 0; i <= x + 1 && i < edge; i++) {
                unsigned other = (unsigned)((k * edge + j) * edge + i);
                neighbour[threadIdx.x] = position[other * PER_BOX + threadIdx.x];
                __syncthreads();
                for (unsigned at = 0; at < PER_BOX; at++) boxes_add(&sum, here, neighbour[at]);
                __syncthreads();
            }
    force[blockIdx.x * PER_BOX + threadIdx.x] = sum;
}

// Compares the first particle of a box in the middle.
static void check(const float4 *position, const float4 *force, unsigned side) {
    unsigned count = side * side * side * PER_BOX;
    float4 *places = (float4 *)malloc((size_t)count * 16), found, sum = make_float4(0, 0, 0, 0);
    unsigned box = (side / 2 * side + side / 2) * side + side / 2;
    CHECK(cudaMemcpy(places, position, (size_t)count * 16, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&found, force + box * PER_BOX, sizeof found, cudaMemcpyDeviceToHost));
    for (unsigned at = 0; at < count; at++) {
        unsigned other = at / PER_BOX;
        int x = (int)(other % side) - (int)(side / 2), y = (int)(other / side % side) - (int)(side / 2);
        int z = (int)(other / side / side) - (int)(side / 2);
        if (x * x <= 1 && y * y <= 1 && z * z <= 1) boxes_add(&sum, places[box * PER_BOX], places[at]);
    }
    require(near(sum.x, found.x, 1e-2) && near(sum.y, found.y, 1e-2) && near(sum.z, found.z, 1e-2),
            "a force differs from the CPU's");
    free(places);
}

int main(int argc, char **argv) {
    Arguments given = {};
    given.size = 40;
    given.iterations = 50;
    given = parse(argc, argv, "boxes", given);
    unsigned side = (unsigned)given.size, boxes = side * side * side;
    unsigned long long particles = given.size * given.size * given.size * PER_BOX;
    float4 *position = allocate<float4>(particles), *force = allocate<float4>(particles);
    boxes_fill<<<boxes, PER_BOX>>>(position, side);
    for (unsigned long long step = 0; step < given.iterations; step++) {
        boxes_force<<<boxes, PER_BOX>>>(position, force, side);
        finish_iteration();
    }
    if (given.check && given.iterations) check(position, force, side);
    release(position, particles);
    release(force, particles);
    summary(given);
    return 0;
}
