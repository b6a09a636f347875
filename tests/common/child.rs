//! Tests that need a process of their own, because they count or use up resources of the whole
//! process.

use std::process::Command;

/// Set in the environment of such a process.
const IN_CHILD: &str = "DIPC_TEST_IN_CHILD";

/// Runs an ignored test of this program, by its full name, in a new process; it must pass.
pub fn in_child(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that [`in_child`] made this process.
pub fn assert_in_child() {
    let made = std::env::var_os(IN_CHILD).is_some();
    assert!(made, "run by its parent test only");
}
