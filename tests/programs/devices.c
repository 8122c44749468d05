// Two devices: memory is freed while another device is current.
#include "cuda.h"

int main(void) {
    Ptr p, q;
    fake_set_device(1);
    OK(cuMemAlloc_v2(&p, 1000));
    OK(cuMemAlloc_v2(&q, 200));
    fake_set_device(0);
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&p, 30));
    return 0;
}
