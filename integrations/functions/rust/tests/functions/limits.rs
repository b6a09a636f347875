//! Hostile modules: each ends its own request.

use dipc::{Client, Error, Status};
use dipc_functions::{Message, Module};

use crate::serving::Serving;
use crate::{above, client, filter, module, numbers, read};

/// A module whose parts are given as text: what `init`, `process` and `finish` do.
fn hostile(init: &str, process: &str, finish: &str) -> Module {
    let text = format!(
        r#"(module
          (import "dipc" "emit" (func $emit (param i32) (result i32)))
          (import "dipc" "emit_bytes" (func $emit_bytes (param i32 i32) (result i32)))
          (memory (export "memory") 40)
          (global $top (mut i32) (i32.const 65536))
          (func (export "dipc_abi_version") (result i32) i32.const 1)
          (func $alloc (export "dipc_alloc") (param i32 i32) (result i32) global.get $top)
          (func (export "dipc_free") (param i32 i32 i32))
          (func (export "dipc_init") (param i32 i32 i32 i32 i32 i32) (result i32) {init} i32.const 0)
          (func (export "dipc_process") (param i32) (result i32) {process} i32.const 0)
          (func (export "dipc_finish") (result i32) {finish} i32.const 0))"#
    );
    Module::new(wat::parse_str(text).unwrap())
}

fn ends(module: &Module, client: &Client, server: &Serving) -> Error {
    let message = Message::new(module, "f", b"");
    match message.get(client, &server.uri, "published") {
        Err(error) => error,
        Ok(mut reader) => loop {
            match reader.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a hostile module came to its end"),
                Err(error) => break error,
            }
        },
    }
}

/// Promise of `Limits`, and of the sandbox: each hostile module ends its own request, with a status
/// and a text; a stream of another client goes on meanwhile, and so does the server.
#[test]
fn a_hostile_module_ends_its_own_request() {
    let forever = "(loop $again (br $again))";
    let bytes =
        "(loop $again (drop (call $emit_bytes (i32.const 16) (i32.const 60000))) (br $again))";
    let cases = [
        (
            "loop in init",
            hostile(forever, "", ""),
            Status::OutOfResources,
        ),
        (
            "loop in process",
            hostile("", forever, ""),
            Status::OutOfResources,
        ),
        (
            "loop in finish",
            hostile("", "", forever),
            Status::OutOfResources,
        ),
        (
            "memory",
            hostile(
                "",
                "(drop (memory.grow (i32.const 60000))) (i32.store (i32.const 0x7fff0000) (i32.const 1))",
                "",
            ),
            Status::OutOfResources,
        ),
        ("output", hostile("", "", bytes), Status::OutOfResources),
        ("trap", hostile("", "unreachable", ""), Status::Provider),
        (
            "an array at nowhere",
            hostile("", "(drop (call $emit (i32.const -8)))", ""),
            Status::Provider,
        ),
        (
            "bytes at nowhere",
            hostile(
                "",
                "(drop (call $emit_bytes (i32.const 0) (i32.const -1)))",
                "",
            ),
            Status::Provider,
        ),
        (
            "a failure",
            hostile("", "i32.const 7 return", ""),
            Status::Provider,
        ),
    ];
    for server in Serving::all("tight") {
        let (client, other) = (client(), crate::client());
        let mut beside = filter(0).get(&other, &server.uri, "published").unwrap();
        beside.next_batch().unwrap().unwrap();
        for (name, module, status) in &cases {
            let error = ends(module, &client, &server);
            assert_eq!(error.status(), *status, "{name}: {error}");
        }
        assert_eq!(read(beside).len(), 2);
        let got = read(
            filter(2_900)
                .get(&client, &server.uri, "published")
                .unwrap(),
        );
        assert_eq!(numbers(&got), above(2_900, 3));
        let many = Message::new(&module("numbers"), "range", b"100000");
        let error = many
            .run(&client, &server.uri)
            .unwrap()
            .find_map(Result::err);
        assert!(error.unwrap().to_string().contains("output rows"));
    }
}

/// Promise of `Options::module_bytes`: a greater module is refused while it comes.
#[test]
fn a_module_that_is_too_large_is_refused() {
    let server = Serving::start("tcp", "tight");
    let large = Module::new(vec![0; 3 << 20]);
    let error = ends(&large, &client(), &server);
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
}
