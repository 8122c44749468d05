// argv[1] iterations, each made of the letters of argv[2]: s, c and e wait for a stream, the context and an event; d and
// a copy to the host, at once and in stream order; g launches a graph; . and - are 1 and 10 ms of work; ? is a few
// waits for a stream, at times of chance.
#include <unistd.h>
#include "cuda.h"

static void chance(void) {
    for (int n = rand() % 6; n > 0; n--) {
        usleep(rand() % 4000);
        OK(cuStreamSynchronize(NULL));
    }
}

int main(int argc, char **argv) {
    Ptr held;
    char host[8];
    OK(cuMemAlloc_v2(&held, 1000));
    for (int i = 0; i < atoi(argv[1]); i++)
        for (const char *step = argv[2]; *step; step++)
            switch (*step) {
            case 's': OK(cuStreamSynchronize(NULL)); break;
            case 'c': OK(cuCtxSynchronize()); break;
            case 'e': OK(cuEventSynchronize(NULL)); break;
            case 'd': OK(cuMemcpyDtoH_v2(host, held, 8)); break;
            case 'a': OK(cuMemcpyDtoHAsync_v2(host, held, 8, NULL)); break;
            case 'g': OK(cuGraphLaunch(NULL, NULL)); break;
            case '.': usleep(1000); break;
            case '-': usleep(10000); break;
            case '?': chance(); break;
            }
    // The sender comes round once more.
    Ptr last;
    usleep(400000);
    OK(cuMemAlloc_v2(&last, 7));
    usleep(300000);
    return 0;
}
