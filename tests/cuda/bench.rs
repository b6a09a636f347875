//! `dipc bench` with batches on a GPU.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{fake, places};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(places::command());
    command.args(["bench", "--json"]).args(arguments);
    command.env("LD_LIBRARY_PATH", fake::folder());
    command.output().unwrap()
}

fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = bench(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Promise of `--device` and `--to`: values are right for each source and target (`--touch sum`
/// checks each batch). The figures show the lent and copied bytes: within a GPU no copy, between
/// the host and a GPU one copy of everything.
#[test]
fn bench_moves_tables_from_and_to_gpus() {
    for (device, to) in [
        ("cuda:0", "cuda:0"),
        ("cuda:0", "as-sent"),
        ("cuda:0", "host"),
        ("host", "cuda:0"),
    ] {
        let cases = lines(&[
            "--op=get",
            "--device",
            device,
            "--to",
            to,
            "--memory=arena,heap",
            "--touch=none,sum",
            "--source=provider",
            "--batch-bytes=128K",
            "--columns=2",
            "--batches=20",
        ]);
        assert_eq!(cases.len(), 4);
        for line in cases {
            let figure = |name: &str| line[name].as_u64().unwrap();
            assert_eq!(figure("bytes"), 20 * (128 << 10));
            assert_eq!((&line["device"], &line["to"]), (&device.into(), &to.into()));
            // The server's figures include the warm-up.
            let within = device != "host" && to != "host";
            let staged = figure("bytes_staged");
            assert_eq!(staged == 0, within, "{line}");
            assert!(within || staged >= figure("bytes"), "{line}");
            assert_eq!(figure("bytes_copied_on_device"), 0, "{line}");
            if within {
                assert_eq!(figure("bytes_lent"), figure("bytes"), "{line}");
                assert_eq!(figure("bytes_copied"), 0, "{line}");
            }
        }
    }
}

/// Promise of `--op latency` on a GPU: the time stamped on a batch there is read.
#[test]
fn bench_times_batches_on_gpus() {
    let [line] = &lines(&[
        "--op=latency",
        "--device=cuda:0",
        "--to=cuda:0",
        "--batches=20",
    ])[..] else {
        panic!("one case");
    };
    assert_eq!(line["latency_ns"]["count"], 20);
    // Without a read of the stamp, the time would count from the start of the clock, hours ago.
    assert!(line["latency_ns"]["p50"].as_u64().unwrap() < 10_000_000_000);
}

/// Promise of `--op machine` with `--device cuda:N`: only the driver's own copies, without the
/// host's figures.
#[test]
fn bench_measures_copies_of_pinned_memory() {
    let lines = lines(&[
        "--op=machine",
        "--device=cuda:0",
        "--batch-bytes=1M",
        "--batches=10",
    ]);
    let whats: Vec<_> = lines
        .iter()
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        whats,
        ["pinned_to_device", "device_to_pinned", "device_to_device"]
    );
    for line in lines {
        assert_eq!(line["device"], "cuda:0");
        assert!(line["bytes_per_second"].as_f64().unwrap() > 0.0);
    }
}

/// A wrong device and a missing GPU are errors of one line.
#[test]
fn bench_says_which_place_is_none() {
    for (arguments, text) in [
        (
            ["--device=as-sent", "--op=get"],
            "the server has its batches somewhere",
        ),
        (["--to=gpu", "--op=get"], "no place for arrays"),
        (["--to=cuda:77", "--op=get"], "there is no GPU 77"),
        (["--device=cuda:77", "--op=get"], "there is no GPU 77"),
    ] {
        let output = bench(&arguments);
        assert!(!output.status.success());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(text), "{told}");
    }
}
