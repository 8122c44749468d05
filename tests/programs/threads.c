// 64 threads allocate and free at once, a third of the blocks through another thread's hands. Prints what is
// left: live bytes, allocations, frees.
#include <pthread.h>
#include "cuda.h"

enum { THREADS = 64, ROUNDS = 4000, HELD = 16 };
static Ptr shared[256];
static uint64_t allocations, frees;

static void count(uint64_t *what) { __atomic_fetch_add(what, 1, __ATOMIC_RELAXED); }

static void release(Ptr p) {
    if (!p) return;
    OK(cuMemFree_v2(p));
    count(&frees);
}

static void *work(void *argument) {
    uint64_t seed = (uint64_t)argument * 0x9e3779b97f4a7c15u + 1;
    Ptr held[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        Ptr p;
        OK(cuMemAlloc_v2(&p, 1 + (seed >> 40) % 100000));
        count(&allocations);
        if (seed >> 33 & 1) {
            release(__atomic_exchange_n(&shared[seed >> 50 & 255], p, __ATOMIC_ACQ_REL));
        } else {
            int place = seed >> 50 & (HELD - 1);
            release(held[place]);
            held[place] = p;
        }
    }
    return NULL;
}

// Threads that come and go: each takes over what an ended one has left.
static void *one_of_many(void *argument) {
    Ptr p;
    for (int i = 0; i < 20; i++) {
        OK(cuMemAlloc_v2(&p, 4096));
        count(&allocations);
        release(__atomic_exchange_n(&shared[i], p, __ATOMIC_ACQ_REL));
    }
    return argument;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, one_of_many, NULL);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    }
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%llu %llu %llu\n", (Ptr)fake_in_use(0), (Ptr)allocations, (Ptr)frees);
    return 0;
}
