// Allocations at odd moments: in a thread that ends while main does, in destructors of thread-specific data, in
// an atexit handler, and in a destructor of the program. 1 + 20 + 300 + 4000 + 50000 bytes.
#include <pthread.h>
#include <unistd.h>
#include "cuda.h"

static void hold(size_t bytes) {
    Ptr p;
    OK(cuMemAlloc_v2(&p, bytes));
}
static pthread_key_t key;
static void end_of_thread(void *value) { hold(20); }
static void at_exit(void) { hold(4000); }
__attribute__((destructor)) static void end_of_program(void) { hold(50000); }

static void *work(void *argument) {
    pthread_setspecific(key, &key);
    hold(1);
    return NULL;
}
static void *endless(void *argument) {
    hold(300);
    __atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}

int main(void) {
    static int ready;
    pthread_t thread;
    pthread_key_create(&key, end_of_thread);
    atexit(at_exit);
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, endless, &ready);
    while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) usleep(1000);
    return 0;
}
