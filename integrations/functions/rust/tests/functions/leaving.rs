//! Clients that leave while a function runs for them.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dipc::{Cancel, GetOptions, PutOptions, Status};
use dipc_functions::{Message, Module};

use crate::serving::Serving;
use crate::{above, batch, client, filter, numbers, read, schema};

/// Far below a function's 60 s.
const SOON: Duration = Duration::from_secs(20);

/// Names the server, for the process of a client.
const URI: &str = "DIPC_TEST_FUNCTIONS_URI";

/// Never ends in `init`, or in the first step that follows. With a route as its arguments `process`
/// does nothing, and the call goes on at the table `watched` of the first server of the route.
pub fn endless(in_init: bool) -> Module {
    let init = match in_init {
        true => "(loop $again (br $again))",
        false => "",
    };
    let text = format!(
        r#"(module
          (import "dipc" "forward" (func $forward (param i32 i32 i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 40)
          (data (i32.const 16) "watched")
          (global $length (mut i32) (i32.const 0))
          (func (export "dipc_abi_version") (result i32) i32.const 1)
          (func (export "dipc_alloc") (param i32 i32) (result i32) i32.const 65536)
          (func (export "dipc_free") (param i32 i32 i32))
          (func (export "dipc_init") (param i32 i32 i32 i32 i32 i32) (result i32)
            (memory.copy (i32.const 1024) (local.get 2) (local.get 3))
            (global.set $length (local.get 3))
            {init} i32.const 0)
          (func $step
            (if (i32.eqz (global.get $length)) (then (loop $again (br $again)))))
          (func (export "dipc_process") (param i32) (result i32) (call $step) i32.const 0)
          (func (export "dipc_finish") (result i32)
            (local $uri i32)
            (call $step)
            (local.set $uri (i32.load8_u (i32.const 1024)))
            (call $forward
              (i32.const 1025) (local.get $uri) (i32.const 16) (i32.const 7)
              (i32.add (i32.const 1025) (local.get $uri))
              (i32.sub (global.get $length) (i32.add (local.get $uri) (i32.const 1))))))"#
    );
    Module::new(wat::parse_str(text).unwrap())
}

/// Servers where a call goes on, one after the other: each URI behind its length.
pub fn route(uris: &[&str]) -> Vec<u8> {
    let length = |uri: &str| u8::try_from(uri.len()).unwrap();
    (uris.iter())
        .flat_map(|uri| [&[length(uri)], uri.as_bytes()].concat())
        .collect()
}

/// Does `leave` once the table `watched` is asked for, and sees the call end soon.
fn ends_with(server: &mut Serving, leave: impl FnOnce()) {
    server.hear("asked");
    server.computes();
    let begin = Instant::now();
    leave();
    server.hear("left");
    let took = begin.elapsed();
    assert!(took < SOON, "the call ended {took:?} after its client");
}

fn serves_others(server: &Serving) {
    let got = filter(2_900).get(&client(), &server.uri, "published");
    assert_eq!(numbers(&read(got.unwrap())), above(2_900, 3));
}

/// Promise of `enable`: the step of a reader that is dropped ends, and other clients go on.
#[test]
fn a_step_ends_when_its_reader_is_dropped() {
    for mut server in Serving::all("any") {
        let message = Message::new(&endless(false), "f", b"");
        let reader = message.get(&client(), &server.uri, "watched").unwrap();
        serves_others(&server);
        ends_with(&mut server, || drop(reader));
        serves_others(&server);
    }
}

/// Promise of `enable`: so does a function that begins, when its client cancels.
#[test]
fn a_function_that_begins_ends_when_its_client_cancels() {
    for mut server in Serving::all("any") {
        let token = Cancel::new().unwrap();
        let options = GetOptions::new().cancel(&token);
        let (message, uri) = (Message::new(&endless(true), "f", b""), server.uri.clone());
        let asking = thread::spawn(move || message.get_with(&client(), uri, "watched", &options));
        ends_with(&mut server, || token.cancel());
        let error = asking.join().unwrap().unwrap_err();
        assert_eq!(error.status(), Status::Cancelled, "{error}");
        serves_others(&server);
    }
}

/// Promise of `enable`: so does one on a table that a client puts.
#[test]
fn a_step_of_a_put_ends_when_its_client_leaves() {
    for mut server in Serving::all("any") {
        let (message, client) = (Message::new(&endless(false), "f", b""), client());
        let options = PutOptions::new();
        let put = message.start_put(&client, &server.uri, "watched", &schema(), &options);
        let mut put = put.unwrap();
        put.push(batch(0)).unwrap();
        ends_with(&mut server, || drop(put));
        serves_others(&server);
    }
}

/// Promise of `enable`: so does that of a client whose process is killed, and one hop further.
#[test]
fn a_call_ends_when_its_clients_process_is_killed() {
    for scheme in ["shm", "tcp"] {
        let mut server = Serving::start(scheme, "any");
        let mut asks = asking(&server.uri, "watched", &[]);
        ends_with(&mut server, || asks.kill().unwrap());
        asks.wait().unwrap();
        serves_others(&server);

        let first = Serving::start(scheme, "part-0");
        let mut asks = asking(&first.uri, "published", &[&server.uri]);
        ends_with(&mut server, || asks.kill().unwrap());
        asks.wait().unwrap();
        serves_others(&first);
        serves_others(&server);
    }
}

/// Promise of a chain: a client that leaves ends the step at the third server, by way of the others.
#[test]
fn a_step_two_hops_further_ends_when_the_reader_is_dropped() {
    for scheme in ["shm", "tcp"] {
        let servers = [0, 1].map(|part| Serving::start(scheme, &format!("part-{part}")));
        let mut last = Serving::start(scheme, "any");
        let route = route(&[&servers[1].uri, &last.uri]);
        let message = Message::new(&endless(false), "f", &route);
        let reader = message
            .get(&client(), &servers[0].uri, "published")
            .unwrap();
        ends_with(&mut last, || drop(reader));
        servers.iter().for_each(serves_others);
        serves_others(&last);
    }
}

/// A client in a process of its own.
fn asking(uri: &str, ticket: &str, on: &[&str]) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leaving::asks", "--ignored"])
        .env(URI, [&[uri, ticket], on].concat().join("\n"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The client's process: until the end of its call.
#[test]
#[ignore = "the process of a client, which tests start"]
fn asks() {
    let words = std::env::var(URI).expect("a test starts this process");
    let words: Vec<_> = words.split('\n').collect();
    let message = Message::new(&endless(false), "f", &route(&words[2..]));
    read(message.get(&client(), words[0], words[1]).unwrap());
}
