// What the example programs share: arguments, error checks, memory with a running total, one line at the end.
//
// Every program takes --size and --iterations; the growers take --start, --growth, --jump and --at too. Sizes may
// end in K, M, G (powers of 1000) or Ki, Mi, Gi (of 1024). --check compares a sample of the results with the CPU:
// it is off by default because a simulated GPU computes nothing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Arguments {
    unsigned long long size, iterations, start, growth, jump, at;
    bool check;
};

static const char *program;

// A failed call ends the program with status 1 and the error's name.
#define CHECK(call) checked((call), #call)

static inline void checked(cudaError_t code, const char *call) {
    if (code == cudaSuccess) return;
    const char *end = strchr(call, '(');
    int length = end ? (int)(end - call) : (int)strlen(call);
    fprintf(stderr, "%s: %.*s: %s\n", program, length, call, cudaGetErrorName(code));
    exit(1);
}

static inline void refuse(const char *option, const char *value) {
    fprintf(stderr, "%s: bad argument: %s %s\n", program, option, value);
    exit(2);
}

static inline unsigned long long parse_size(const char *option, const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *text == '-') refuse(option, text);
    const char *letter = *end ? strchr("KMGT", *end) : NULL;
    if (letter) {
        unsigned long long base = end[1] == 'i' ? 1024 : 1000;
        for (const char *power = "KMGT"; power <= letter; power++) value *= base;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end) refuse(option, text);
    return value;
}

// Reads the command line over a program's defaults.
static inline Arguments parse(int count, char **words, const char *name, Arguments defaults) {
    program = name;
    Arguments given = defaults;
    for (int at = 1; at < count; at++) {
        const char *option = words[at];
        if (!strcmp(option, "--check")) {
            given.check = true;
            continue;
        }
        const char *value = at + 1 < count ? words[++at] : "(no value)";
        if (!strcmp(option, "--size")) given.size = parse_size(option, value);
        else if (!strcmp(option, "--iterations")) given.iterations = parse_size(option, value);
        else if (!strcmp(option, "--start")) given.start = parse_size(option, value);
        else if (!strcmp(option, "--growth")) given.growth = parse_size(option, value);
        else if (!strcmp(option, "--jump")) given.jump = parse_size(option, value);
        else if (!strcmp(option, "--at")) given.at = parse_size(option, value);
        else refuse(option, value);
    }
    // A program that has a size counts it in 32 bits.
    if (defaults.size && (given.size < 1 || given.size > 0xffffffffULL)) refuse("--size", "outside 1 to 4294967295");
    return given;
}

static unsigned long long live_bytes, peak_bytes;

// Device memory for `count` values; its bytes are added to the running total.
template <typename T> static T *allocate(unsigned long long count) {
    T *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    live_bytes += count * sizeof(T);
    if (live_bytes > peak_bytes) peak_bytes = live_bytes;
    return memory;
}

template <typename T> static void release(T *memory, unsigned long long count) {
    CHECK(cudaFree(memory));
    live_bytes -= count * sizeof(T);
}

// Waits for the device: the end of one iteration.
static inline void finish_iteration() {
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

static inline void summary(const Arguments &given) {
    printf("%s: %llu iterations, peak %llu bytes\n", program, given.iterations, peak_bytes);
}

// The verdict of --check.
static inline void require(bool right, const char *what) {
    if (right) return;
    fprintf(stderr, "%s: check failed: %s\n", program, what);
    exit(1);
}

static inline bool near(double a, double b, double tolerance) {
    double gap = a > b ? a - b : b - a, scale = a > 0 ? a : -a;
    return gap <= tolerance * (scale > 1 ? scale : 1);
}

static inline unsigned blocks_for(unsigned long long threads, unsigned block) {
    return (unsigned)((threads + block - 1) / block);
}

// Blocks of 256 threads for a grid-stride loop over `count` values: at least 1, at most 65,536.
static inline unsigned stride_blocks(unsigned long long count) {
    unsigned long long blocks = (count + 255) / 256;
    return (unsigned)(blocks < 1 ? 1 : blocks > 65536 ? 65536 : blocks);
}

// A well mixed function of its argument, the same on both sides: all data of the examples is made of it.
static __host__ __device__ inline unsigned scramble(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ x >> 16;
}

// The same, as a number in [0, 1).
static __host__ __device__ inline float unit(unsigned x) {
    return (scramble(x) >> 8) * (1.0f / 16777216.0f);
}
