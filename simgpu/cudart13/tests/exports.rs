//! What the built `libcudart.so.13` exports, and its answers without any driver.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::ffi::{c_int, c_void};

fn library() -> libloading::Library {
    let path = std::env::current_exe()
        .unwrap()
        .with_file_name("libsimgpu_cudart13.so");
    // SAFETY: loading it runs no code of ours.
    unsafe { libloading::Library::new(path) }.unwrap()
}

/// What programs built by nvcc import as a rule.
const NAMES: &[&str] = &[
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaUnregisterFatBinary",
    "__cudaRegisterFunction",
    "__cudaRegisterVar",
    "__cudaPushCallConfiguration",
    "__cudaPopCallConfiguration",
    "__cudaGetKernel",
    "__cudaLaunchKernel",
    "__cudaInitModule",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMalloc",
    "cudaFree",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaMallocManaged",
    "cudaMallocPitch",
    "cudaMalloc3D",
    "cudaMallocArray",
    "cudaFreeArray",
    "cudaMallocAsync",
    "cudaFreeAsync",
    "cudaMallocFromPoolAsync",
    "cudaMemGetInfo",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpy2D",
    "cudaMemcpy2DAsync",
    "cudaMemcpyToSymbol",
    "cudaMemcpyFromSymbol",
    "cudaMemcpyToArray",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaCreateChannelDesc",
    "cudaDeviceSynchronize",
    "cudaDeviceReset",
    "cudaSetDevice",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaDeviceGetAttribute",
    "cudaDeviceGetPCIBusId",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPointByVersion",
    "cudaPointerGetAttributes",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamSynchronize",
    "cudaStreamDestroy",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaEventElapsedTime",
    "cudaEventDestroy",
    "cudaFuncSetCacheConfig",
    "cudaFuncGetAttributes",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
];

fn exports(library: &libloading::Library, name: &str) -> bool {
    // SAFETY: the address is not used.
    unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_ok()
}

#[test]
fn what_programs_import_is_exported_though_only_the_runtime_crate_defines_it() {
    let library = library();
    for name in NAMES {
        assert!(exports(&library, name), "{name}");
    }
}

#[test]
fn what_is_not_modelled_is_not_exported() {
    let library = library();
    for name in [
        "cudaGraphCreate",
        "cudaCreateTextureObject",
        "cudaIpcGetMemHandle",
    ] {
        assert!(!exports(&library, name), "{name}");
    }
}

#[test]
fn it_is_cuda_13_0() {
    let library = library();
    // SAFETY: the runtime's function of this name has this signature.
    let version =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cudaRuntimeGetVersion") }
            .unwrap();
    let mut found = 0;
    // SAFETY: the output is ours.
    assert_eq!(unsafe { version(&raw mut found) }, 0);
    assert_eq!(found, 13_000);
}
