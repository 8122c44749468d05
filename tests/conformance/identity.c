// Compares what dlsym and cuGetProcAddress find for each name of the table on its standard input, without and with the
// interposer: "BASE VERSION FLAGS EXPORTED" a line; prints "EXPORTED DLSYM PROC" as the object that each address is in.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *object_of(void *address) {
    Dl_info info;
    if (!address) return "absent";
    if (!dladdr(address, &info) || !info.dli_fname) return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

int main(void) {
    char base[128], exported[128];
    int version, flags;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "left out: %s\n", dlerror());
        return 77;
    }
    int (*ask)(const char *, void **, int, unsigned long long, int *);
    *(void **)&ask = dlsym(library, "cuGetProcAddress_v2");
    while (scanf("%127s %d %d %127s", base, &version, &flags, exported) == 4) {
        void *found = NULL, *symbol = dlsym(library, exported);
        if (ask && ask(base, &found, version, (unsigned long long)flags, NULL)) found = NULL;
        printf("%s %s %s %s\n", exported, object_of(symbol), object_of(found), symbol == found ? "same" : "differ");
    }
    return 0;
}
