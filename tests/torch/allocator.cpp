// PyTorch's caching allocator, used as its tensors use it. Prints, after each step, what the allocator itself says that
// its blocks (allocated) and its segments (reserved) are.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace allocator = c10::cuda::CUDACachingAllocator;

static void tell(const char *step) {
    auto stats = allocator::getDeviceStats(0);
    printf("%s %lld %lld\n", step, (long long)stats.allocated_bytes[0].current, (long long)stats.reserved_bytes[0].current);
    fflush(stdout);
}

int main(int argc, char **argv) {
    allocator::init(1);
    if (argc > 1 && !strcmp(argv[1], "oom")) {
        // A limit of PyTorch's own: the driver is never asked.
        allocator::setMemoryFraction(0.02, 0);
        void *held = allocator::raw_alloc(40 << 20);
        try {
            allocator::raw_alloc(800ull << 20);
        } catch (const std::exception &error) {
            printf("thrown\n");
        }
        fflush(stdout);
        if (argc > 2) {
            allocator::raw_delete(held);
            allocator::setMemoryFraction(1.0, 0);
            allocator::raw_alloc(900ull << 20);
        }
        return 1;
    }
    void *three = allocator::raw_alloc(3 << 20);
    void *hundred = allocator::raw_alloc(100);
    void *fifty = allocator::raw_alloc(50 << 20);
    tell("made");
    allocator::raw_delete(fifty);
    allocator::raw_delete(three);
    tell("freed");
    void *again = allocator::raw_alloc(48 << 20);
    tell("again");
    allocator::raw_delete(again);
    allocator::raw_delete(hundred);
    allocator::emptyCache();
    tell("empty");
    return 0;
}
