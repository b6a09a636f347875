//! Link arguments of `libdipc.so`, which cargo does not set by itself.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    // Before 1.0 each minor version may break the ABI, so the name that programs record holds it.
    let soname = format!("libdipc.so.{}.{}", part("MAJOR"), part("MINOR"));
    let arguments = [
        format!("-Wl,-soname,{soname}"),
        // Release functions of arrays that outlive a dlclose() must stay mapped.
        "-Wl,-z,nodelete".to_owned(),
        "-Wl,-z,relro".to_owned(),
        "-Wl,-z,now".to_owned(),
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
