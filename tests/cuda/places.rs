//! The places of the tests' files: the checkout, or a bundle (`tools/gpu-bundle.sh`) on a machine
//! without a checkout, which `DIPC_TEST_BUNDLE` names.

use std::path::{Path, PathBuf};

fn bundle() -> Option<PathBuf> {
    std::env::var_os("DIPC_TEST_BUNDLE").map(PathBuf::from)
}

/// A file of the checkout.
pub fn in_checkout(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// The `dipc` command.
pub fn command() -> PathBuf {
    bundle().map_or_else(
        || env!("CARGO_BIN_EXE_dipc").into(),
        |bundle| bundle.join("bin/dipc"),
    )
}

/// A folder of this name for a test's files.
pub fn scratch(name: &str) -> PathBuf {
    let folder = bundle().map_or_else(
        || PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        |bundle| bundle.join("scratch"),
    );
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The project's vectors and, if present, Arrow's golden streams.
pub fn vectors() -> [PathBuf; 2] {
    let golden = |otherwise: PathBuf| {
        std::env::var_os("DIPC_GOLDEN")
            .map_or(otherwise, PathBuf::from)
            .join("streams")
    };
    match bundle() {
        Some(bundle) => [bundle.join("vectors"), golden(bundle.join("golden"))],
        None => [
            in_checkout("tests/vectors"),
            golden(in_checkout("../shared/golden")),
        ],
    }
}

/// PyPI's UCX: in the bundle, or in the environment of `tools/setup.sh test`.
pub fn ucx() -> Option<String> {
    let library = match bundle() {
        Some(bundle) => Some(bundle.join("ucx/libucp.so.0")),
        None => std::fs::read_dir(in_checkout(".tools/venv/lib"))
            .ok()?
            .filter_map(|python| Some(python.ok()?.path()))
            .map(|python| python.join("site-packages/libucx/lib/libucp.so.0"))
            .find(|library| library.exists()),
    };
    let library = library.filter(|library| library.exists())?;
    Some(library.display().to_string())
}
