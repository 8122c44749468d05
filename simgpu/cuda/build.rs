//! Linker arguments of libcuda.so.1.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Programs are linked against, and look for, this name; the file's own name does not matter.
        "-Wl,-soname,libcuda.so.1",
        // The table of addresses must hold our functions, not those of a preloaded interposer that exports the
        // same names: the interposer would be handed itself.
        "-Wl,-Bsymbolic",
        // A thread plays the streams: its code must stay mapped after a dlclose.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
