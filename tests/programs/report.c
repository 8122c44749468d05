// Reports its own figures as a program with an allocator of its own does, if there is anyone to report to. argv[1]
// threads do so at once.
#include <pthread.h>
#include "cuda.h"

extern void migm_report(uint64_t allocated, uint64_t reserved) __attribute__((weak));

static void *report(void *argument) {
    for (int i = 0; migm_report && i < 10000; i++) migm_report(3000 + i % 7, 8000);
    return NULL;
}

int main(int argc, char **argv) {
    Ptr p;
    pthread_t threads[8];
    int count = atoi(argv[1]);
    if (migm_report) migm_report(1, 1);  // before anything is known
    OK(cuMemAlloc_v2(&p, 8000));
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, report, NULL);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    if (migm_report) migm_report(2500, 8000);
    printf("%s\n", migm_report ? "reported" : "nobody");
    return 0;
}
