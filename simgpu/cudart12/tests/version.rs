//! What the built `libcudart.so.12` answers without any driver.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::ffi::{c_int, c_void};
use std::path::PathBuf;

fn library() -> libloading::Library {
    let tests = std::env::current_exe().unwrap();
    let path: PathBuf = tests.with_file_name("libsimgpu_cudart12.so");
    // SAFETY: loading it runs one function of ours, which stores a number.
    unsafe { libloading::Library::new(path) }.unwrap()
}

#[test]
fn it_is_cuda_12_9() {
    let library = library();
    // SAFETY: the runtime's function of this name has this signature.
    let version =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cudaRuntimeGetVersion") }
            .unwrap();
    let mut found = 0;
    // SAFETY: the output is ours.
    assert_eq!(unsafe { version(&raw mut found) }, 0);
    assert_eq!(found, 12_090);
}

#[test]
fn the_property_layout_of_cuda_11_is_refused() {
    const NOT_SUPPORTED: c_int = 801;
    let library = library();
    type Properties = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    // SAFETY: the runtime's function of this name has this signature.
    let properties = unsafe { library.get::<Properties>(c"cudaGetDeviceProperties") }.unwrap();
    let mut structure = [0xab_u8; 1032];
    // SAFETY: the structure is as large as any layout.
    let code = unsafe { properties(structure.as_mut_ptr().cast(), 0) };
    assert_eq!(code, NOT_SUPPORTED);
    assert_eq!(structure, [0xab; 1032]);
}
