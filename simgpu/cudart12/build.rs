//! Gives the shared object the name and the version node that programs ask the loader for.

fn main() {
    let map = format!("{}/libcudart.map", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed={map}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcudart.so.12");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={map}");
}
