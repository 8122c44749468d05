// A program that loads the driver and asks it nothing that counts: says what it can see of us.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

int main(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
    int (*wait)(void) = (int (*)(void))dlsym(lib, "cuCtxSynchronize");
    if (!init || init(0) || !wait || wait()) return 90;
    printf("%d %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
    return 0;
}
