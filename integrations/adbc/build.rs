//! What the linker makes of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The C API of libdipc is linked in. The driver exports its entry points only, so that no other
    // libdipc of the process takes the place of its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // A driver manager may unload a driver whose threads are about to end.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
