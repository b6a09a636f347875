//! Tests that need a process of their own: what they count or use up is the whole process's.

use std::process::Command;

/// Set in such a process.
const IN_CHILD: &str = "DIPC_TEST_IN_CHILD";

/// Runs an ignored test of this program, by its whole name, in a process of its own; it must pass.
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

/// Asserts that this is a process which [`in_child`] made.
pub fn assert_in_child() {
    let made = std::env::var_os(IN_CHILD).is_some();
    assert!(made, "run by its parent test only");
}
