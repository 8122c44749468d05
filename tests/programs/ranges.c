// Annotates argv[1] iterations with NVTX and prints whether anyone listens: pushed ranges with others inside, or, with
// argv[2] "ends", ranges of the start/end kind. Built with the real headers if WITH_NVTX is defined; else the first part
// plays NVTX's side: it opens the library that the environment names and lets it put its functions in the tables.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include "cuda.h"

#ifdef WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#else
typedef void *nvtxDomainHandle_t;
typedef uint64_t nvtxRangeId_t;
typedef struct { uint16_t version, size; char rest[44]; } nvtxEventAttributes_t;
typedef void (*Function)(void);
#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE 48

static Function functions[2][16];
static Function *core[17], *core2[17];

static int module_functions(int module, Function ***table, unsigned *size) {
    Function **found = module == 1 ? core : module == 5 ? core2 : NULL;
    if (!found) return 0;
    for (int i = 1; i < 16; i++) found[i] = &functions[module == 5][i];
    *table = found;
    *size = 17;
    return 1;
}

static const void *export_table(uint32_t id) {
    static const struct { size_t size; int (*functions)(int, Function ***, unsigned *); } callbacks = {16, module_functions};
    return id == 1 ? &callbacks : NULL;
}

static Function function(int module, int number) {
    static int first = 1;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (first && path) {
        void *library = dlopen(path, RTLD_LAZY);
        int (*start)(const void *(*)(uint32_t)) = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
        if (start && !start(export_table)) memset(functions, 0, sizeof functions);
    }
    first = 0;
    return functions[module == 5][number];
}

#define CALL(module, number, result, none, types, ...) \
    Function f = function(module, number); \
    return f ? ((result (*) types) f)(__VA_ARGS__) : (result) none
static int nvtxRangePushA(const char *name) { CALL(1, 9, int, -2, (const char *), name); }
static int nvtxRangePop(void) { CALL(1, 11, int, -2, (void), ); }
static nvtxRangeId_t nvtxRangeStartA(const char *name) { CALL(1, 5, nvtxRangeId_t, 0, (const char *), name); }
static void nvtxRangeEnd(nvtxRangeId_t id) { CALL(1, 7, void, 0, (nvtxRangeId_t), id); }
static nvtxDomainHandle_t nvtxDomainCreateA(const char *name) { CALL(5, 12, void *, NULL, (const char *), name); }
static int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *what) {
    CALL(5, 4, int, -2, (void *, const nvtxEventAttributes_t *), domain, what);
}
static int nvtxDomainRangePop(nvtxDomainHandle_t domain) { CALL(5, 5, int, -2, (void *), domain); }
#endif

static int heard;

static void level(int level, int is) {
    if (is != (heard ? level : -2)) {
        printf("level %d, should be %d\n", is, level);
        exit(1);
    }
}

static void pushed(nvtxDomainHandle_t domain) {
    nvtxEventAttributes_t what = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    level(0, nvtxRangePushA("iteration"));
    level(1, nvtxRangePushA("forward"));
    level(1, nvtxRangePop());
    level(1, nvtxDomainRangePushEx(NULL, &what));
    level(1, nvtxDomainRangePop(NULL));
    nvtxRangeEnd(nvtxRangeStartA("copy"));
    usleep(10000);
    level(0, nvtxRangePop());
    level(-2, nvtxDomainRangePushEx(domain, &what));
    level(-2, nvtxDomainRangePop(domain));
}

int main(int argc, char **argv) {
    Ptr held;
    heard = nvtxRangePushA("set-up") == 0;
    level(0, nvtxRangePop());  // Before the first allocation: nothing is counted yet.
    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    OK(cuMemAlloc_v2(&held, 1000));
    for (int i = 0; i < atoi(argv[1]); i++)
        if (argc > 2) {
            nvtxRangeId_t id = nvtxRangeStartA("iteration");
            usleep(10000);
            nvtxRangeEnd(id);
        } else {
            pushed(domain);
        }
    level(-1, nvtxRangePop());
    // The sender comes round once more.
    Ptr last;
    usleep(400000);
    OK(cuMemAlloc_v2(&last, 7));
    usleep(300000);
    printf("%s\n", heard ? "heard" : "dead");
    return 0;
}
