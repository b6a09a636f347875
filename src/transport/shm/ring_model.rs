//! The steps of two processes, in every order that the memory's rules allow (`tools/test-slow.sh
//! loom`). If a wake-up is lost, the reader waits for ever, and loom reports that.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::Positions;

/// As `DescriptorReader::divert` does it: a frame goes into the ring while the reader looks there,
/// and the reader is woken if it sleeps. Otherwise the frame goes through the socket, after a
/// SWITCH in the ring.
fn send(positions: &Positions, socket: &Notify, written: u64) {
    let awake = positions.is_awake();
    positions.publish(written);
    if positions.must_be_woken() || !awake {
        socket.notify();
    }
}

/// As `Fetch` does it: looks, and sleeps when there is nothing.
fn receive(positions: &Positions, socket: &Notify, read: u64) -> u64 {
    positions.wake();
    let mut written = positions.written();
    // One look stands for any number of looks that find nothing.
    while written == read {
        if !positions.doze(read) {
            socket.wait();
        }
        written = positions.written();
    }
    positions.give_back(written);
    written
}

fn frames(count: u64) {
    loom::model(move || {
        let shared = Arc::new((Positions::default(), Notify::new()));
        let other = Arc::clone(&shared);
        let server = thread::spawn(move || {
            for written in 1..=count {
                send(&other.0, &other.1, written);
            }
        });
        let mut read = 0;
        while read < count {
            read = receive(&shared.0, &shared.1, read);
        }
        server.join().unwrap();
        assert_eq!(shared.0.taken(), count);
    });
}

/// The head of `ring.rs`, "No wake-up is lost".
#[test]
fn loom_one_frame_is_received() {
    frames(1);
}

/// The same, when the client has come back from a sleep.
#[test]
fn loom_two_frames_are_received() {
    frames(2);
}
