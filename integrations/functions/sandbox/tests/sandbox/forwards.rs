//! Calls that ask to go on elsewhere.

use dipc_sandbox::{Bound, Error, Forward, Limits, Result, Running};

use crate::support::{BYTES, Wat};

/// A URI, a descriptor and a state in the module's memory.
const DATA: &str = r#"(data (i32.const 8) "shm:@b") (data (i32.const 16) "table")
    (data (i32.const 32) "state\ff") (data (i32.const 64) "\ff")"#;
const FORWARD: &str = "(call $forward (i32.const 8) (i32.const 6) (i32.const 16) (i32.const 5)
    (i32.const 32) (i32.const 6))";

fn start(finish: &str, hops: u32) -> Running {
    let wat = Wat {
        fields: DATA.into(),
        init: BYTES.into(),
        finish: finish.into(),
        ..Wat::default()
    };
    let limits = Limits {
        hops,
        ..Limits::default()
    };
    wat.module().start("f", b"", None, &limits).unwrap()
}

/// The end of a call whose `dipc_finish` returns what this gives.
fn end(finish: &str, hops: u32) -> Result<Option<Forward>> {
    let mut running = start(finish, hops);
    running.finish()?;
    Ok(running.take_forward())
}

/// Promise of `Running::take_forward`: what a function that ends well has named, once.
#[test]
fn a_call_names_where_it_goes_on() {
    let mut running = start(FORWARD, 1);
    running.finish().unwrap();
    let forward = Forward {
        uri: "shm:@b".into(),
        descriptor: b"table".to_vec(),
        state: b"state\xff".to_vec(),
    };
    assert_eq!(running.take_forward(), Some(forward));
    assert_eq!(running.take_forward(), None);

    let mut failing = start(&format!("(drop {FORWARD}) (i32.const 1)"), 1);
    failing.finish().unwrap_err();
    assert_eq!(failing.take_forward(), None);
}

/// Promise of `forward`: 1 without a hop left; a failure without a text is then that of the bound.
#[test]
fn a_call_without_a_hop_is_told_so() {
    // The code is what `forward` gives.
    for (hops, left) in [(0, 9), (9, 0)] {
        let mut running = start(FORWARD, hops);
        running.limit_hops(left);
        match running.finish().unwrap_err() {
            Error::Limit { bound, value } => {
                assert_eq!((bound, value), (Bound::Hops, hops.into()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        end(&format!("(drop {FORWARD}) (i32.const 0)"), 0).unwrap(),
        None
    );
}

/// Promise of `forward`: a second one, parts that are too long or lie nowhere, and a URI that is no
/// text end the call.
#[test]
fn a_wrong_forward_ends_its_call() {
    let call = |uri: [i32; 2], descriptor: [i32; 2], state: [i32; 2]| {
        let parameters = [uri, descriptor, state].concat();
        let parameters = parameters.iter().map(|n| format!("(i32.const {n}) "));
        format!("(call $forward {})", parameters.collect::<String>())
    };
    let (most, none) = ([8, 48 << 10], [0, 0]);
    end(&call([70000, 4 << 10], [8, 64 << 10], most), 1).unwrap();
    for wrong in [
        format!("(drop {FORWARD}) {FORWARD}"),
        call([70000, (4 << 10) + 1], none, none),
        call(none, [8, (64 << 10) + 1], none),
        call(none, none, [8, (48 << 10) + 1]),
        call([64, 1], none, none),
        call(none, none, [-1, 16]),
    ] {
        let ended = end(&wrong, 2);
        assert!(matches!(ended, Err(Error::Data(_))), "{wrong}: {ended:?}");
    }
}
