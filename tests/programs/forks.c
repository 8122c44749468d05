// Forks while four threads allocate and free. Each child allocates 10 bytes; none may hang on what a thread of
// its parent was in the middle of.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"

static int stop;
static void *work(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        Ptr p;
        OK(cuMemAlloc_v2(&p, 4096));
        OK(cuMemFree_v2(p));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int children = atoi(argv[1]), status;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < children; i++) {
        fake_before_fork();
        pid_t child = fork();
        fake_after_fork();
        if (!child) {
            Ptr p;
            OK(cuMemAlloc_v2(&p, 10));
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) return 96;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
