/* What a program sees of its device's memory: the total by the device, then free and total by the driver. */

#include <dlfcn.h>
#include <stdio.h>

#define CALL(name, ...)                                                      \
	do {                                                                     \
		int (*call)() = (int (*)())dlsym(driver, name);                      \
		int status = call ? call(__VA_ARGS__) : -1;                          \
		if (status != 0) {                                                   \
			fprintf(stderr, "%s: %d\n", name, status);                       \
			return 1;                                                        \
		}                                                                    \
	} while (0)

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void *context;
	size_t of_device, available, total;
	unsigned long long pointer;
	int device;

	if (!driver) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	CALL("cuInit", 0);
	CALL("cuDeviceGet", &device, 0);
	CALL("cuDeviceTotalMem_v2", &of_device, device);
	CALL("cuCtxCreate_v2", &context, 0, device);
	CALL("cuMemAlloc_v2", &pointer, (size_t)1 << 30);
	CALL("cuMemGetInfo_v2", &available, &total);
	printf("%zu %zu %zu\n", of_device, available, total);
	return 0;
}
