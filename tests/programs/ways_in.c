// Finds cuMemAlloc and cuMemFree in one of the ways there are, allocates 3 x 1 MiB and frees 2.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

typedef int (*Alloc)(Ptr *, size_t);
typedef int (*Free)(Ptr);
typedef int (*AllocAsync)(Ptr *, size_t, void *);
typedef int (*FreeAsync)(Ptr, void *);
typedef int (*Proc1)(const char *, void **, int, unsigned long long);
typedef int (*Proc2)(const char *, void **, int, unsigned long long, int *);

static void use(Alloc alloc, Free release) {
    Ptr p[3];
    for (int i = 0; i < 3; i++) OK(alloc(&p[i], 1 << 20));
    OK(release(p[0]));
    OK(release(p[1]));
}

int main(int argc, char **argv) {
    const char *way = argv[1];
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | (!strcmp(way, "global") ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 98;
    if (!strcmp(way, "dlsym")) {
        use((Alloc)dlsym(lib, "cuMemAlloc_v2"), (Free)dlsym(lib, "cuMemFree_v2"));
    } else if (!strcmp(way, "dlvsym")) {
        use((Alloc)dlvsym(lib, "cuMemAlloc_v2", "libcuda.so.1"), (Free)dlvsym(lib, "cuMemFree_v2", "libcuda.so.1"));
    } else if (!strcmp(way, "global")) {
        use((Alloc)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), (Free)dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    } else if (!strcmp(way, "proc1")) {
        Proc1 proc = (Proc1)dlsym(lib, "cuGetProcAddress");
        void *alloc, *release;
        OK(proc("cuMemAlloc", &alloc, 11030, 0));
        OK(proc("cuMemFree", &release, 11030, 0));
        use((Alloc)alloc, (Free)release);
    } else if (!strcmp(way, "proc2")) {
        Proc2 proc = (Proc2)dlsym(lib, "cuGetProcAddress_v2");
        void *alloc, *release;
        int found = 7;
        OK(proc("cuMemAlloc", &alloc, 12000, 0, &found));
        WANT(0, found);
        OK(proc("cuMemFree", &release, 12000, 0, &found));
        use((Alloc)alloc, (Free)release);
        // What the driver does not know stays unknown, in its own words.
        alloc = &alloc;
        WANT(500, proc("cuNoSuchFunction", &alloc, 12000, 0, &found));
        WANT(1, found);
        WANT(1, alloc == NULL);
        WANT(500, proc("cuMemAlloc", &alloc, 1000, 0, &found));
    } else if (!strcmp(way, "self")) {
        // As the runtime does: the lookup is asked for itself, in both of its forms.
        Proc2 proc = (Proc2)dlsym(lib, "cuGetProcAddress_v2");
        void *one, *two, *alloc, *release;
        OK(proc("cuGetProcAddress", &one, 11030, 0, NULL));
        OK(proc("cuGetProcAddress", &two, 12000, 0, NULL));
        WANT(1, one != two);
        OK(((Proc1)one)("cuMemAlloc", &alloc, 11030, 0));
        OK(((Proc2)two)("cuMemFree", &release, 12000, 0, NULL));
        use((Alloc)alloc, (Free)release);
    } else if (!strcmp(way, "perthread")) {
        Proc2 proc = (Proc2)dlsym(lib, "cuGetProcAddress_v2");
        void *legacy, *alloc, *release;
        OK(proc("cuMemAllocAsync", &legacy, 11020, 0, NULL));
        OK(proc("cuMemAllocAsync", &alloc, 11020, 2, NULL));
        OK(proc("cuMemFreeAsync", &release, 11020, 2, NULL));
        WANT(1, legacy != alloc && alloc == dlsym(lib, "cuMemAllocAsync_ptsz"));
        Ptr p[3];
        OK(((AllocAsync)legacy)(&p[0], 1 << 20, NULL));
        OK(((AllocAsync)alloc)(&p[1], 1 << 20, NULL));
        OK(((AllocAsync)alloc)(&p[2], 1 << 20, NULL));
        OK(((FreeAsync)release)(p[0], NULL));
        OK(((FreeAsync)release)(p[1], NULL));
    } else if (!strcmp(way, "newer")) {
        // A form of cuMemAlloc from a later release is the driver's, whatever its arguments are.
        Proc2 proc = (Proc2)dlsym(lib, "cuGetProcAddress_v2");
        void *newer, *again, *alloc;
        Ptr p;
        OK(proc("cuMemAlloc", &newer, 99000, 0, NULL));
        OK(proc("cuMemAlloc", &again, 99010, 0, NULL));
        OK(proc("cuMemAlloc", &alloc, 12000, 0, NULL));
        WANT(1, newer == again && newer != alloc);
        OK(((Alloc)alloc)(&p, 1 << 20));
        WANT(801, ((Alloc)newer)(&p, 1 << 20));
        usleep(500000);
    } else if (!strcmp(way, "unknown")) {
        // A name that is not there is not there, and dlerror says so; one that is there leaves no error.
        WANT(1, dlsym(lib, "cuMemAlloc_v9") == NULL);
        const char *error = dlerror();
        WANT(1, error && strstr(error, "cuMemAlloc_v9") != NULL);
        WANT(1, dlsym(lib, "cuMemAlloc_v2") != NULL);
        WANT(1, dlerror() == NULL);
        // A library opened for itself does not answer for the whole process, with us or without.
        WANT(1, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    } else if (!strcmp(way, "old")) {
        // A driver without async allocation does not get it from us.
        WANT(1, dlsym(lib, "cuMemAllocAsync") == NULL);
        WANT(1, dlsym(lib, "cuGetProcAddress") == NULL);
        use((Alloc)dlsym(lib, "cuMemAlloc_v2"), (Free)dlsym(lib, "cuMemFree_v2"));
    } else {
        return 97;
    }
    return 0;
}
