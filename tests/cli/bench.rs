//! `dipc bench`: the output of each measurement, and its end after the end of a process.

use std::process::{Child, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::support::*;

/// Runs a measurement, which must succeed; gives its lines.
fn lines(args: &[&str]) -> Vec<Value> {
    let all = [&["bench", "--json"], args].concat();
    let output = run(&all);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {told}");
    let printed = text(&output.stdout);
    let lines = printed.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().ok_or((name, line)).unwrap()
}

fn rate(line: &Value, name: &str) -> f64 {
    line[name].as_f64().ok_or((name, line)).unwrap()
}

/// The transports that work here; prints the others.
fn transports() -> Vec<String> {
    let info = json(&["info", "--json"]);
    let transports = info["transports"].as_array().unwrap();
    let works = |part: &&Value| {
        let works = part["available"].as_bool().unwrap();
        if !works {
            println!(
                "skipped: {} does not work here: {}",
                part["name"], part["reason"]
            );
        }
        works
    };
    let name = |part: &Value| part["name"].as_str().unwrap().to_owned();
    transports.iter().filter(works).map(name).collect()
}

/// Checks the fields that every line has.
fn check_common(line: &Value, op: &str, transport: &str) {
    assert_eq!(line["op"], op);
    assert_eq!(line["transport"], transport);
    let level = if transport == "shm" {
        "structure"
    } else {
        "full"
    };
    assert_eq!(line["level"], level);
    assert_eq!(line["spin"], false);
    for name in [
        "batch_bytes",
        "columns",
        "streams",
        "total_bytes",
        "window_batches",
        "window_bytes",
        "batches",
        "bytes",
    ] {
        assert!(number(line, name) > 0, "{name} of {line}");
    }
    for name in ["seconds", "bytes_per_second", "batches_per_second"] {
        assert!(rate(line, name) > 0.0, "{name} of {line}");
    }
    for name in ["bytes_lent", "bytes_copied", "bytes_received"] {
        number(line, name);
    }
    for side in ["server", "client"] {
        assert!(rate(&line["cpu_seconds"], side) >= 0.0);
        assert!(number(&line["peak_memory_bytes"], side) > 0);
    }
}

fn check_latency(line: &Value, count: u64) {
    let times = &line["latency_ns"];
    assert_eq!(number(times, "count"), count);
    let of = |name| number(times, name);
    assert!(0 < of("p50") && of("p50") <= of("p99"), "{times}");
    assert!(
        of("p99") <= of("p99_9") && of("p99_9") <= of("max"),
        "{times}"
    );
}

/// Fetches report bytes by their way, and check the sums.
#[test]
fn fetches_are_measured_on_every_transport() {
    for transport in transports() {
        for source in ["published", "provider", "push"] {
            let lines = lines(&[
                "--op=get",
                "--transport",
                &transport,
                "--memory=arena,heap",
                "--touch=sum",
                "--batch-bytes=80K",
                "--columns=10",
                "--total-bytes=1M",
                "--ring-bytes=400K",
                "--source",
                source,
            ]);
            assert_eq!(lines.len(), 2);
            for (line, memory) in lines.iter().zip(["arena", "heap"]) {
                check_common(line, "get", &transport);
                assert_eq!(line["memory"], memory);
                assert_eq!(line["touch"], "sum");
                assert_eq!(line["source"], source);
                assert_eq!(number(line, "batch_bytes"), 80 << 10);
                assert_eq!(number(line, "distinct_batches"), 5);
                assert_eq!(number(line, "batches"), 13);
                assert_eq!(number(line, "bytes"), 13 * (80 << 10));
                assert_eq!(number(line, "total_bytes"), 13 * (80 << 10));
                let crossed = number(line, "bytes_lent") + number(line, "bytes_received");
                assert!(crossed >= number(line, "bytes"), "{line}");
                if transport == "shm" {
                    assert_eq!(number(line, "bytes_received"), 0);
                    let copied = number(line, "bytes_copied");
                    assert_eq!(copied > 0, memory == "heap", "{line}");
                }
                assert!(line["latency_ns"].is_null());
            }
        }
    }
}

/// Batches that the client sends are reported by their way, like those that it fetches.
#[test]
fn puts_are_measured_on_every_transport() {
    for transport in transports() {
        let args = ["--op=put", "--transport", &transport, "--memory=arena,heap"];
        let more = ["--batch-bytes=80K", "--columns=10", "--batches=13"];
        let lines = lines(&[&args[..], &more, &["--ring-bytes=400K"]].concat());
        assert_eq!(lines.len(), 2);
        for (line, memory) in lines.iter().zip(["arena", "heap"]) {
            check_common(line, "put", &transport);
            assert_eq!(line["memory"], memory);
            assert_eq!(number(line, "batches"), 13);
            assert_eq!(number(line, "bytes"), 13 * (80 << 10));
            let crossed = number(line, "bytes_lent")
                + number(line, "bytes_copied")
                + number(line, "bytes_received");
            assert!(crossed >= number(line, "bytes"), "{line}");
            if transport == "shm" {
                assert_eq!(number(line, "bytes_received"), 0);
                assert_eq!(number(line, "bytes_copied") > 0, memory == "heap", "{line}");
            }
        }
    }
}

/// `--take try_next`: the same batches in an event loop, beside those of a call that waits.
#[test]
fn event_loops_are_measured_on_every_transport() {
    for transport in transports() {
        let args = ["--op=get", "--transport", &transport, "--memory=arena"];
        let more = ["--touch=sum", "--batch-bytes=64K", "--batches=40"];
        let lines = lines(&[&args[..], &more, &["--take=next,try_next"]].concat());
        assert_eq!(lines.len(), 2);
        for (line, take) in lines.iter().zip(["next", "try_next"]) {
            check_common(line, "get", &transport);
            assert_eq!(line["take"], take);
            assert_eq!(number(line, "batches"), 40);
        }
    }
}

/// Promise of `--consumer-pause`: the client keeps each batch for that time, so that the server,
/// limited by the window, waits.
#[test]
fn a_consumer_that_pauses_is_measured() {
    for transport in transports() {
        let args = ["--op=get", "--transport", &transport, "--memory=heap"];
        let more = [
            "--touch=none",
            "--batch-bytes=64K",
            "--batches=10",
            "--consumer-pause=5ms",
        ];
        let lines = lines(&[&args[..], &more].concat());
        let line = &lines[0];
        check_common(line, "get", &transport);
        assert!((rate(line, "consumer_pause_seconds") - 0.005).abs() < 1e-9);
        assert!(rate(line, "seconds") >= 0.05, "{line}");
    }
}

/// Promise of `--values bool`: one bit for each row, so 64 times the rows of int64 in the same
/// bytes, with equal values.
#[test]
fn rows_of_bits_are_measured() {
    let args = [
        "--op=get",
        "--memory=arena,heap",
        "--touch=sum",
        "--values=bool",
    ];
    let lines = lines(&[&args[..], &["--batch-bytes=64K", "--batches=7"]].concat());
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!(line["values"], "bool");
        assert_eq!(number(line, "batch_bytes"), 64 << 10);
        assert_eq!(number(line, "rows"), 8 * (64 << 10));
        assert_eq!(number(line, "bytes"), 7 * (64 << 10));
    }
}

/// Several streams at once share the batches, and each stream's rate is reported.
#[test]
fn streams_are_measured_at_once() {
    let args = [
        "--op=get",
        "--streams=3",
        "--batches=10",
        "--batch-bytes=4K",
    ];
    let more = ["--memory=heap", "--touch=sum", "--rounds=2", "--cold"];
    let lines = lines(&[args, more].concat());
    assert_eq!(lines.len(), 2);
    for (line, round) in lines.iter().zip(1..) {
        assert_eq!(number(line, "round"), round);
        assert_eq!(number(line, "batches"), 10);
        assert_eq!(number(line, "fetches"), 3);
        let rates = &line["streams_bytes_per_second"];
        assert!(rate(rates, "min") <= rate(rates, "median"));
        assert!(rate(rates, "median") <= rate(rates, "max"));
    }
}

/// A few threads take batches of many streams in turn: each stream gets its share, in order, and a
/// shorter table is fetched again.
#[test]
fn few_threads_take_many_streams() {
    let args = [
        "--op=get",
        "--streams=5",
        "--consumers=2",
        "--batches=203",
        "--batch-bytes=4K",
    ];
    for more in [&["--source=provider"][..], &["--distinct=7", "--touch=sum"]] {
        let lines = lines(&[&args[..], more].concat());
        assert!(!lines.is_empty());
        for line in &lines {
            assert_eq!(number(line, "batches"), 203);
            assert_eq!(number(line, "consumers"), 2);
            assert!(number(line, "fetches") >= 5);
        }
    }
}

/// Latencies within a stream, and of new streams on pooled and new connections.
#[test]
fn delays_are_measured_on_every_transport() {
    for transport in transports() {
        let common = ["--transport", &transport, "--batches=20", "--json"];
        let cases: [(&str, &[&str]); 5] = [
            ("describe", &[]),
            ("latency", &[]),
            ("latency", &["--memory=heap", "--batch-bytes=8K"]),
            ("connect", &[]),
            ("connect", &["--fresh", "--source=provider"]),
        ];
        for (op, more) in cases {
            let lines = lines(&[&["--op", op], &common[..3], more].concat());
            assert_eq!(lines.len(), 1);
            check_common(&lines[0], op, &transport);
            check_latency(&lines[0], 20);
        }
    }
}

/// `--apart` marks each line, and is an error without a second processor.
#[test]
fn processes_are_kept_apart() {
    let args = ["--op=connect,machine", "--batches=20", "--batch-bytes=64"];
    if thread::available_parallelism().unwrap().get() < 2 {
        let output = run(&[&["bench", "--apart"], &args[..]].concat());
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains("--apart needs two processors"));
        return;
    }
    let lines = lines(&[&args[..], &["--apart", "--seconds=10ms"]].concat());
    assert!(lines.len() > 1);
    assert!(lines.iter().all(|line| line["apart"] == true), "{lines:?}");
}

/// All idle streams are open at once, and the memory of each is reported.
#[test]
fn idle_streams_are_measured_on_every_transport() {
    for transport in transports() {
        for source in ["published", "provider", "push"] {
            let args = [
                "--op=idle",
                "--streams=5",
                "--seconds=10ms",
                "--source",
                source,
            ];
            let lines = lines(&[&args[..], &["--transport", &transport]].concat());
            assert_eq!(lines.len(), 1);
            check_common(&lines[0], "idle", &transport);
            assert_eq!(number(&lines[0], "streams"), 5);
            let memory = &lines[0]["stream_memory_bytes"];
            assert!(number(memory, "server") > 0, "{}", lines[0]);
            number(memory, "client");
            number(&lines[0], "region_bytes");
        }
    }
}

/// Batches of one row show the cost of a column.
#[test]
fn metadata_is_measured_on_every_transport() {
    for transport in transports() {
        let args = ["--op=metadata", "--columns=3,200", "--batches=20"];
        let lines = lines(&[&args[..], &["--transport", &transport, "--touch=sum"]].concat());
        assert_eq!(lines.len(), 2);
        for (line, columns) in lines.iter().zip([3, 200]) {
            check_common(line, "metadata", &transport);
            assert_eq!(number(line, "columns"), columns);
            assert_eq!(number(line, "rows"), 1);
            assert_eq!(number(line, "batches"), 20);
            let each = rate(line, "seconds") * 1e9 / 20.0;
            let told = rate(line, "ns_per_column") * rate(line, "columns");
            assert!((each - told).abs() <= each * 1e-6, "{line}");
        }
    }
}

/// The machine's figures are reported for each size, as a rate or as times.
#[test]
fn the_machine_is_measured() {
    let lines = lines(&[
        "--op=machine",
        "--batch-bytes=64,4K",
        "--batches=30",
        "--ring-bytes=1M",
    ]);
    let names = [
        "memcpy",
        "process_vm_readv",
        "sum",
        "arrow_stream",
        "socket_write",
        "socket_round_trip",
        "aes_128_gcm",
        "tls_handshake",
        "tcp_connection",
        "tls_connection",
        "tls_resumption",
    ];
    assert_eq!(lines.len(), 2 * names.len());
    for (line, (index, name)) in lines
        .iter()
        .zip((0..2).flat_map(|size| names.map(|name| (size, name))))
    {
        assert_eq!(line["op"], "machine");
        assert_eq!(line["what"], name);
        assert_eq!(number(line, "size_bytes"), [64, 4096][index]);
        let is_delay = name == "socket_round_trip" || name.starts_with("t");
        if is_delay {
            check_latency(line, 30);
            assert!(line["bytes_per_second"].is_null());
        } else {
            assert!(rate(line, "bytes_per_second") > 0.0);
            assert!(line["latency_ns"].is_null());
        }
    }
}

/// `--what` chooses among the machine's figures.
#[test]
fn a_part_of_the_machine_is_measured() {
    let lines = lines(&[
        "--op=machine",
        "--what=sum,tls_resumption",
        "--batch-bytes=64",
        "--batches=3",
        "--ring-bytes=1M",
    ]);
    let names: Vec<_> = lines.iter().map(|line| line["what"].clone()).collect();
    assert_eq!(names, ["sum", "tls_resumption"]);
}

/// As many requests are refused by a busy server as were served, and both have a cost.
#[test]
fn shed_requests_are_measured_on_every_transport() {
    for transport in transports() {
        let args = ["--op=shed", "--batches=20", "--transport", &transport];
        let lines = lines(&args);
        assert_eq!(lines.len(), 1);
        check_common(&lines[0], "shed", &transport);
        check_latency(&lines[0], 20);
        let cost = &lines[0]["request_cpu_seconds"];
        assert!(rate(cost, "served") > 0.0, "{}", lines[0]);
        assert!(rate(cost, "shed") > 0.0, "{}", lines[0]);
    }
}

/// New clients over TLS shake hands anew, or resume a session.
#[test]
fn new_clients_are_measured_over_tls() {
    let args = ["--op=connect", "--transport=tls", "--fresh", "--batches=20"];
    for (more, resumes) in [(&[][..], false), (&["--resume"], true)] {
        let lines = lines(&[&args[..], more].concat());
        assert_eq!(lines.len(), 1);
        check_common(&lines[0], "connect", "tls");
        check_latency(&lines[0], 20);
        assert_eq!(lines[0]["fresh"], true);
        assert_eq!(lines[0]["resume"], resumes);
    }
}

/// A filter is measured at both ends, with the same rows and fewer bytes from the server.
#[test]
fn filters_are_measured_at_both_ends() {
    let args = [
        "--op=filter",
        "--transport=shm,tcp",
        "--passing=1,50",
        "--batch-bytes=64K",
        "--ring-bytes=1M",
        "--seconds=0.05",
    ];
    let lines = lines(&args);
    assert_eq!(lines.len(), 4);
    let places = [("shm", 0.01), ("shm", 0.5), ("tcp", 0.01), ("tcp", 0.5)];
    for (line, (transport, share)) in lines.iter().zip(places) {
        assert_eq!(line["op"], "filter");
        assert_eq!(line["transport"], transport);
        assert_eq!(number(line, "table_rows"), 16 << 10);
        let (client, server) = (&line["at_client"], &line["at_server"]);
        assert_eq!(number(client, "passed"), number(server, "passed"));
        let passed = number(server, "passed") as f64 / number(line, "table_rows") as f64;
        assert!((share * 0.5..share * 1.5).contains(&passed), "{line}");
        assert!(number(client, "bytes") >= 1 << 20, "{line}");
        assert!(number(server, "bytes") < number(client, "bytes"), "{line}");
        let ratio = rate(server, "rows_per_second") / rate(client, "rows_per_second");
        assert!((rate(line, "ratio") / ratio - 1.0).abs() < 1e-6, "{line}");
    }
    let told = text(&run(&[&["bench"][..], &args].concat()).stdout);
    assert!(
        told.contains("filter over tcp: a table of 1 MiB in batches of 64 KiB"),
        "{told}"
    );
    failure(2, &["bench", "--op=filter", "--passing=0"]);
    failure(2, &["bench", "--op=filter", "--touch=sum"]);
}

/// New streams are measured beside those of Flight, which has TLS too where libdipc has it.
#[test]
fn new_streams_are_measured_beside_flight() {
    let args = ["--op=open", "--transport=shm,tcp,tls", "--streams=3"];
    let args = [&args[..], &["--seconds=0.05"]].concat();
    let lines = lines(&args);
    assert_eq!(lines.len(), 3);
    for (line, transport) in lines.iter().zip(["shm", "tcp", "tls"]) {
        assert_eq!(line["op"], "open");
        assert_eq!(line["transport"], transport);
        assert_eq!(number(line, "streams"), 3);
        let libdipc = rate(line, "streams_per_second");
        let flight = rate(line, "flight_streams_per_second");
        assert!(libdipc > 0.0 && flight > 0.0, "{line}");
        let ratio = libdipc / flight;
        assert!((rate(line, "ratio") / ratio - 1.0).abs() < 1e-6, "{line}");
    }
    let told = text(&run(&[&["bench"][..], &args].concat()).stdout);
    let head = "open over tls: new streams of one batch, 3 at once, level full";
    assert!(told.contains(head), "{told}");
    failure(2, &["bench", "--op=open", "--touch=sum"]);
    failure(2, &["bench", "--op=open", "--batches=3"]);
}

/// The table names the conditions of each figure, and its columns are aligned.
#[test]
fn tables_can_be_read_alone() {
    let output = run(&[
        "bench",
        "--op=get,connect",
        "--batches=3",
        "--batch-bytes=64,1M",
        "--memory=heap",
        "--window-batches=7",
        "--window-bytes=3M",
        "--spin=20us",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let tables: Vec<Vec<&str>> = printed
        .split("\n\n")
        .map(|table| table.lines().collect())
        .collect();
    assert_eq!(tables.len(), 2, "{printed}");
    for ((table, op), rows) in tables.iter().zip(["get", "connect"]).zip([4, 2]) {
        assert!(table[0].starts_with(&format!("{op} over shm: published, level structure, window 7 batches and 3 MiB, spinning for 20 us")), "{printed}");
        assert!(table[1].contains("touch") && table[1].contains("client peak"));
        assert_eq!(table.len(), 2 + rows, "{printed}");
        for row in &table[1..] {
            assert_eq!(row.len(), table[1].len(), "{printed}");
        }
    }
    assert!(tables[0][2].contains("heap   none      64 B"), "{printed}");
    assert!(tables[0][4].contains("heap    sum      64 B"), "{printed}");
}

/// An impossible measurement is an error of one line: an address in use, a batch without a row, no
/// memory.
#[test]
fn what_cannot_be_measured_is_explained() {
    let server = Server::start_as(dipc(), "tcp://", "tcp://127.0.0.1:0", &[REGION]);
    let taken = server.uri.split('?').next().unwrap();
    let told = failure(
        1,
        &["bench", "--op=get", "--listen", taken, "--transport=tcp"],
    );
    assert!(told.contains("is taken"), "{told}");
    let told = failure(2, &["bench", "--op=get", "--columns=9", "--batch-bytes=64"]);
    assert!(told.contains("has 72 bytes"), "{told}");
    for (args, expected) in [
        (
            ["--op=metadata", "--values=bool"],
            "metadata is of int64 columns",
        ),
        (
            ["--op=idle", "--consumer-pause=1ms"],
            "idle has no consumer that could pause",
        ),
        (
            ["--op=put", "--touch=sum"],
            "whose values the server does not read",
        ),
    ] {
        let told = failure(2, &[&["bench"][..], &args].concat());
        assert!(told.contains(expected), "{told}");
    }
    let told = failure(
        2,
        &[
            "bench",
            "--op=get",
            "--transport=tcp",
            "--listen=shm:@dipc-x",
        ],
    );
    assert!(told.contains("--transport"), "{told}");
    for memory in ["arena", "heap"] {
        let told = failure(
            1,
            &[
                "bench",
                "--op=get",
                "--memory",
                memory,
                "--batch-bytes=4096T",
            ],
        );
        assert!(told.contains("cannot hold the batches"), "{told}");
    }
}

/// A measurement without an end, after both its processes have started.
struct Long {
    child: Child,
    server: Pid,
    client: Pid,
}

impl Long {
    fn start(args: &[&str]) -> Self {
        let child = dipc()
            .args(["bench", "--op=get", "--memory=arena", "--batch-bytes=64K"])
            .args(["--seconds=600", "--touch=none", "--distinct=2"])
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut long = Self {
            child,
            server: Pid::INIT,
            client: Pid::INIT,
        };
        until("both processes are there", || match long.processes()[..] {
            [server, client] => {
                (long.server, long.client) = (server, client);
                true
            }
            _ => false,
        });
        // A client with a waiting thread has a connection.
        until("it fetches", || {
            let tasks = format!("/proc/{}/task", long.client.as_raw_pid());
            names(tasks.as_ref()).iter().any(|task| {
                std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "bench-0\n")
            })
        });
        long
    }

    fn processes(&self) -> Vec<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        let numbers = children.split_whitespace();
        numbers
            .map(|number| Pid::from_raw(number.parse().unwrap()).unwrap())
            .collect()
    }

    fn end(self) -> Output {
        let gone = [self.server, self.client];
        let output = self.child.wait_with_output().unwrap();
        until("its processes are gone", || {
            gone.iter().all(|pid| test_kill_process(*pid).is_err())
        });
        output
    }
}

/// kill -9 of one of the processes: the command names it, ends the other process, and fails.
#[test]
fn a_killed_process_ends_the_measurement() {
    for name in ["server", "client"] {
        let long = Long::start(&[]);
        let pid = if name == "server" {
            long.server
        } else {
            long.client
        };
        kill_process(pid, Signal::KILL).unwrap();
        let output = long.end();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(
            told.contains(&format!("the {name} process was killed")),
            "{told}"
        );
    }
}

/// ctrl-C: one line, both processes end, and the address is free.
#[test]
fn an_interrupt_leaves_nothing() {
    for sent in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("shm:{}", path_in(&folder, "socket"));
        let long = Long::start(&["--listen", &address]);
        assert!(!names(folder.path()).is_empty());
        signal(&long.child, sent);
        let output = long.end();
        assert_eq!(output.status.code(), Some(128 + sent.as_raw()));
        assert_eq!(text(&output.stderr), "dipc: interrupted\n");
        assert!(names(folder.path()).is_empty());
    }
}

/// kill -9 of the command: its processes end too, and leave nothing.
#[test]
fn processes_follow_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("shm:{}", path_in(&folder, "socket"));
    let long = Long::start(&["--listen", &address]);
    signal(&long.child, Signal::KILL);
    long.end();
    assert!(names(folder.path()).is_empty());
}

/// Promise of `--hostile`: the measurement goes on beside connections that send nonsense.
#[test]
fn hostile_connections_are_beside_a_measurement() {
    let lines = lines(&[
        "--op=get",
        "--transport=tcp",
        "--memory=heap",
        "--batch-bytes=4K",
        "--batches=30",
        "--hostile=20",
    ]);
    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(number(line, "hostile"), 20);
        assert!(rate(line, "bytes_per_second") > 0.0);
    }
}
