// Another preload, which wraps a function by RTLD_NEXT. If dlsym is called from elsewhere on its behalf, the
// next definition is the wrapper itself, without end.
#define _GNU_SOURCE
#include <dlfcn.h>
int answer(void) {
    static int depth;
    if (depth++) return -1;
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "answer");
    int (*versioned)(void) = (int (*)(void))dlvsym(RTLD_NEXT, "answer", "V1");
    return next && next == versioned ? next() + 1 : -2;
}
