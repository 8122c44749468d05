// Iterations: argv[1] of them, argv[2] microseconds apart; each allocates 1000 bytes more and marks. With a third
// argument, 7 bytes more after the last mark.
#include <unistd.h>
#include "cuda.h"

int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        Ptr kept, passing;
        OK(cuMemAlloc_v2(&kept, 1000));
        OK(cuMemAlloc_v2(&passing, 50000));
        OK(cuMemFree_v2(passing));
        OK(cuStreamSynchronize(NULL));
        usleep(atoi(argv[2]));
    }
    if (argc > 3) {
        Ptr last;
        OK(cuMemAlloc_v2(&last, 7));
        usleep(400000);
    }
    return 0;
}
