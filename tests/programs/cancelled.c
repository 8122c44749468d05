// A thread is cancelled inside a call of the driver; its clean-up frees what it has.
#include <pthread.h>
#include <unistd.h>
#include "cuda.h"

static void clean_up(void *pointer) { OK(cuMemFree_v2(*(Ptr *)pointer)); }

static void *work(void *argument) {
    Ptr p;
    OK(cuMemAlloc_v2(&p, 1000));
    pthread_cleanup_push(clean_up, &p);
    cuStreamSynchronize((void *)0xe7e47a1);
    pthread_cleanup_pop(0);
    return argument;
}

int main(void) {
    pthread_t thread;
    void *result;
    Ptr p;
    pthread_create(&thread, NULL, work, NULL);
    usleep(100000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    WANT(1, result == PTHREAD_CANCELED);
    OK(cuMemAlloc_v2(&p, 500));
    return 0;
}
