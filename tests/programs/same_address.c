// One function, one address: argv is NAME BASE VERSION FLAGS, again and again. By handle, by the whole process,
// by cuGetProcAddress and by the exported symbol of the interposer, whose path is argv[1].
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

typedef int (*Proc)(const char *, void **, int, unsigned long long, int *);

int main(int argc, char **argv) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *own = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
    if (!lib || !own) return 98;
    Proc proc = (Proc)dlsym(lib, "cuGetProcAddress_v2");
    int compared = 0;
    for (char **row = argv + 2; row + 3 < argv + argc; row += 4) {
        void *exported = dlsym(own, row[0]), *by_handle = dlsym(lib, row[0]), *by_proc = NULL;
        WANT(1, exported != NULL);
        proc(row[1], &by_proc, atoi(row[2]), (unsigned long long)atoll(row[3]), NULL);
        if (!by_handle) continue;  // this driver lacks it
        if (by_handle != exported || by_proc != exported || dlsym(RTLD_DEFAULT, row[0]) != exported)
            return fprintf(stderr, "%s: %p %p %p\n", row[0], exported, by_handle, by_proc), 97;
        compared++;
    }
    printf("%d\n", compared);
    return 0;
}
