"""Tells migm what a framework's own pool holds, for pools that it cannot look into: JAX, RMM, vLLM in sleep mode.

`reporter()` is all there is to copy. Call what it returns whenever the figures change, or once an iteration:
    jax    stats = jax.local_devices()[0].memory_stats(); report(stats["bytes_in_use"], stats["pool_bytes"])
    rmm    report(adaptor.allocation_counts.current_bytes, pool.pool_size())
"""
import ctypes


def reporter():
    """A function of (allocated, reserved) in bytes of the current device; without migm it does nothing."""
    try:
        report = ctypes.CDLL(None).migm_report
    except AttributeError:
        return lambda allocated, reserved: None
    report.argtypes, report.restype = [ctypes.c_uint64, ctypes.c_uint64], None
    return report


if __name__ == "__main__":  # A pool of 64 MiB, of which more and more is used.
    cuda, context, pool = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(pool), ctypes.c_size_t(64 << 20)) == 0
    report = reporter()
    for used in range(0, 48 << 20, 1 << 20):
        report(used, 64 << 20)
