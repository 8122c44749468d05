//! Names the shared object as NVIDIA's, and binds its own calls inside it: a preloaded hook of the same names must
//! not come between two of its functions.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
