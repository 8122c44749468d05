// A preload in front of the interposer. It hands out its own cuGetProcAddress, and prints what the one behind it has
// found: NAME VERSION FLAGS LIBRARY.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*Proc1)(const char *, void **, int, unsigned long long);
typedef int (*Proc2)(const char *, void **, int, unsigned long long, int *);
static Proc1 proc1;
static Proc2 proc2;

static void tell(int status, const char *name, void **found, int version, unsigned long long flags) {
    Dl_info info;
    if (status || !found || !*found || !dladdr(*found, &info)) return;
    const char *base = strrchr(info.dli_fname, '/');
    printf("%s %d %llu %s\n", name, version, flags, base ? base + 1 : info.dli_fname);
}
static int spy2(const char *, void **, int, unsigned long long, int *);
static int spy1(const char *name, void **found, int version, unsigned long long flags) {
    int status = proc1(name, found, version, flags);
    tell(status, name, found, version, flags);
    return status;
}
// The lookup asked for itself is spied upon as well.
static int spy2(const char *name, void **found, int version, unsigned long long flags, int *symbol) {
    int status = proc2(name, found, version, flags, symbol);
    tell(status, name, found, version, flags);
    if (!status && !strcmp(name, "cuGetProcAddress")) {
        if (version >= 12000) proc2 = (Proc2)*found, *found = (void *)spy2;
        else proc1 = (Proc1)*found, *found = (void *)spy1;
    }
    return status;
}

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = next(handle, name);
    if (!found || strncmp(name, "cuGetProcAddress", 16)) return found;
    if (name[16]) return proc2 = (Proc2)found, (void *)spy2;
    return proc1 = (Proc1)found, (void *)spy1;
}
