//! Linker settings of the preloaded library.
#![expect(clippy::disallowed_macros, reason = "cargo reads what a build script prints")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The table holds the addresses of our own hooks. Without this they would be bound through the global
    // scope, where a library ahead of us may define the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
