//! Linker settings of the preloaded library.
#![expect(clippy::disallowed_macros, reason = "cargo reads what a build script prints")]

/// What the standard library asks of the unwinder. A function missing here makes `libgcc_s.so.1` a dependency
/// again, which a test looks at.
const UNWINDER: [&str; 12] = [
    "Backtrace",
    "DeleteException",
    "GetDataRelBase",
    "GetIP",
    "GetIPInfo",
    "GetLanguageSpecificData",
    "GetRegionStart",
    "GetTextRelBase",
    "RaiseException",
    "Resume",
    "SetGR",
    "SetIP",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The table holds the addresses of our own hooks. Without this they would be bound through the global
    // scope, where a library ahead of us may define the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The unwinder is opened when it is needed (`src/unwind.rs`): without references to it, the linker leaves it
    // out of the libraries to be loaded.
    for name in UNWINDER {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=_Unwind_{name}");
    }
}
