//! `libcudart.so.12`: the runtime of [`simgpu_runtime`] under the name and version of CUDA 12.9.
//!
//! `build.rs` sets the SONAME and the version node; the entry points come with the runtime crate, which is
//! told its version when the object is loaded.

/// Runs when the object is loaded: before any program's own start-up code registers a kernel, since the
/// loader initialises a library before what needs it.
#[used]
// SAFETY: `.init_array` holds pointers to functions; the loader's arguments, if any, are ignored.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    simgpu_runtime::answer_as(12_090);
}
