// Takes 4000 bytes unless argv[1] is "first", asks for more than there is, and is killed as soon as it is refused.
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

int main(int argc, char **argv) {
    Ptr p;
    if (strcmp(argv[1], "first")) OK(cuMemAlloc_v2(&p, 4000));
    if (cuMemAlloc_v2(&p, 8000000) == 2) kill(getpid(), SIGKILL);
    return 1;
}
