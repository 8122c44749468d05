// Physical memory on a thread that has no context. FAKE_DEVICES=2, and asking for the context's device fails.
#include <pthread.h>
#include "cuda.h"

static void *work(void *argument) {
    unsigned long long handle;
    Prop second = {1, 0, 1, 1};
    fake_no_context();
    OK(cuMemCreate(&handle, 1 << 21, &second, 0));
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    return 0;
}
