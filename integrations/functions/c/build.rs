//! Links `libdipc_functions.so` with `libdipc.so`, and gives it its name.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DIPC_LIBRARY_DIR");
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    let version = format!("{}.{}", part("MAJOR"), part("MINOR"));
    let arguments = [
        format!("-Wl,-soname,libdipc_functions.so.{version}"),
        // Middleware and arrays may outlive a dlclose().
        "-Wl,-z,nodelete".to_owned(),
        "-Wl,-z,relro".to_owned(),
        "-Wl,-z,now".to_owned(),
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    let folder = library_folder();
    // A check needs no library.
    if fs::exists(folder.join("libdipc.so")).unwrap_or(false) {
        println!("cargo:rustc-link-search=native={}", folder.display());
    } else {
        println!(
            "cargo:warning=no libdipc.so in {}: build it there (cargo build --lib), or let \
             DIPC_LIBRARY_DIR name its folder",
            folder.display()
        );
    }
    println!("cargo:rustc-link-lib=dylib=dipc");
    // For the tests.
    println!("cargo:rustc-env=DIPC_LIBRARY_DIR={}", folder.display());
}

/// Where libdipc.so is: `DIPC_LIBRARY_DIR`, or where cargo puts it.
fn library_folder() -> PathBuf {
    if let Some(folder) = env::var_os("DIPC_LIBRARY_DIR") {
        return folder.into();
    }
    let profile = env::var("PROFILE").unwrap_or_default();
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    root.join("../../../target").join(profile)
}
