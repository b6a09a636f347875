//! `dipc info`, which lists the GPUs.

use std::process::Command;

use crate::{fake, is_left_out};

fn info(variables: &[(&str, &str)]) -> String {
    let output = Command::new(crate::places::command())
        .arg("info")
        .env("LD_LIBRARY_PATH", fake::folder())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn info_lists_the_gpus_and_the_driver() {
    if is_left_out("it is the fake driver's GPUs that are known") {
        return;
    }
    let text = info(&[("FAKE_CUDA_DEVICES", "2")]);
    for line in [
        "device    cuda works",
        "driver: CUDA 12.2",
        "gpu 0: Fake GPU 0, 1024 MiB, compute capability 9.0; exports memory by descriptor and by \
         legacy handle; reaches GPU 1 (copies between GPUs have run on a simulated driver only)",
        "gpu 1: Fake GPU 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = info(&[("FAKE_CUDA_NO_VMM", "1")]);
    assert!(
        text.contains("capability 9.0; exports memory by legacy handle\n"),
        "{text}"
    );
}

#[test]
fn info_says_why_there_is_no_gpu() {
    if is_left_out("this machine has one") {
        return;
    }
    let text = info(&[("FAKE_CUDA_DEVICES", "0")]);
    assert!(
        text.contains("device    cuda does not work: cuInit failed"),
        "{text}"
    );
    assert!(text.contains("sees no GPU"), "{text}");
    let text = info(&[("FAKE_CUDA_VERSION", "11040")]);
    assert!(text.contains("too old"), "{text}");
}
