//! The library as a file and as C: its start and end, and the calls that NVIDIA's does not have.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::*;

use crate::bench::*;

#[test]
fn a_bad_specification_leaves_a_line() {
    let bench = Bench::new("a100-40gb", true);
    let (code, id) = create_machine(&bench.control, "b200-180gb", false, "580.82.07", "");
    assert_eq!((code, id.as_bytes()), (2, &b""[..]));
    let line = bench.last_error();
    assert!(
        line.starts_with("placements of `b200-180gb` are not known"),
        "{line}"
    );
}

#[test]
fn the_file_is_named_as_nvidias() {
    let file = std::fs::read(library_path()).unwrap();
    let name = b"libnvidia-ml.so.1\0";
    assert!(file.windows(name.len()).any(|window| window == name));
}

#[test]
fn nothing_answers_before_init_and_after_shutdown() {
    let mut bench = Bench::new("a100-40gb", true);
    drop(bench.nvml.take());
    // SAFETY: the function has this type.
    let count = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn(*mut c_uint) -> c_uint>(b"nvmlDeviceGetCount_v2\0")
    };
    let mut devices = 77;
    // SAFETY: the out pointer is ours.
    let code = unsafe { count.unwrap()(&raw mut devices) };
    assert_eq!((code, devices), (1, 77));
    // SAFETY: the function has this type.
    let shutdown = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn() -> c_uint>(b"nvmlShutdown\0")
    }
    .unwrap();
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { shutdown() }, 1);
}

#[test]
fn no_pointer_of_the_caller_is_needed_to_be_good() {
    let bench = Bench::new("a100-40gb", true);
    let nowhere: nvmlDevice_t = std::ptr::without_provenance_mut(0xdead_beef);
    let name = bench.lib().nvmlDeviceGetName.as_ref().unwrap();
    let mut buffer = [0; 4];
    // SAFETY: handles are numbers to this library; the buffer is of this length.
    let wrong_handle = unsafe { name(nowhere, buffer.as_mut_ptr(), 4) };
    // SAFETY: as above.
    let short_buffer = unsafe { name(bench.gpu(), buffer.as_mut_ptr(), 4) };
    // SAFETY: null is allowed to be given, and refused.
    let no_buffer = unsafe { name(bench.gpu(), std::ptr::null_mut(), 4) };
    assert_eq!(
        (wrong_handle, short_buffer, no_buffer),
        (INVALID_ARGUMENT, 7, INVALID_ARGUMENT)
    );
}
