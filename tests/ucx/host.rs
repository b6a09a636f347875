//! What the process notices that libdipc, and with it UCX, runs in.

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::Duration;

use dipc::client::GetOptions;

use crate::common::{counting, read_all};
use crate::{Other, ROLE, client, role, serve, serving, works};

/// For how long nothing happens.
const IDLE: Duration = Duration::from_secs(4);

/// What happens on each signal: the handler and its flags.
fn handlers() -> Vec<(usize, i32)> {
    (1..=64)
        .map(|signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: NULL changes nothing, and `action` is writable.
            unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: zeros are valid in all its fields, and the call wrote the rest.
            let action = unsafe { action.assume_init() };
            // The C library adds this one by itself.
            const SA_RESTORER: i32 = 0x0400_0000;
            (action.sa_sigaction, action.sa_flags & !SA_RESTORER)
        })
        .collect()
}

/// Design, "UCX at run time": the host's signal handlers and its environment stay as they were, and
/// nothing is printed.
#[test]
fn the_host_process_stays_as_it_was() {
    const TEST: &str = "host::the_host_process_stays_as_it_was";
    if role().is_some() {
        let before: (_, Vec<_>) = (handlers(), std::env::vars_os().collect());
        {
            let (server, uri) = serving();
            serve(&server, "t", counting(3, 100_000));
            let uris = [uri.as_str()];
            let mut stream = client()
                .get(&uris, b"t", &GetOptions::default(), None)
                .unwrap();
            read_all(&mut stream).unwrap();
        }
        assert_eq!(handlers(), before.0);
        assert!(std::env::vars_os().eq(before.1));
        return;
    }
    if !works() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture", "--quiet"])
        .env(ROLE, "host -")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (printed, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{printed}{complained}");
    assert_eq!(complained, "");
    // The harness's own words, and nothing else.
    assert!(!printed.contains("UCX"), "{printed}");
}

/// What this process has used: time on a processor, and how often one of its threads went to sleep.
fn used() -> (Duration, i64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: integers all over, and written by the call.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_nvcsw)
}

/// Issue 3: an idle server and an idle connection use less than a thousandth of a processor. What
/// that is in time hangs on what else runs, so the test counts: they sleep, and wake ten times in a
/// second at most, of which each takes some 20 us.
#[test]
fn an_idle_connection_costs_nothing() {
    if role().is_some() {
        let (server, uri) = serving();
        serve(&server, "t", counting(3, 100_000));
        let client = client();
        let uris = [uri.as_str()];
        let mut stream = client
            .get(&uris, b"t", &GetOptions::default(), None)
            .unwrap();
        read_all(&mut stream).unwrap();
        drop(stream);
        assert_eq!(client.stats().connections_idle, 1);
        let (time, sleeps) = used();
        std::thread::sleep(IDLE);
        let (time, sleeps) = (used().0 - time, used().1 - sleeps);
        println!("share={}", time.as_secs_f64() / IDLE.as_secs_f64());
        println!("sleeps={sleeps}");
        return;
    }
    if !works() {
        return;
    }
    let mut other = Other::start("host::an_idle_connection_costs_nothing", "idle", "-");
    let share: f64 = other.line("share=").parse().unwrap();
    let sleeps: u64 = other.line("sleeps=").parse().unwrap();
    println!(
        "an idle server and connection use {:.4} % of a processor and sleep {sleeps} times in \
         {IDLE:?}",
        share * 100.0
    );
    assert!(sleeps <= 10 * IDLE.as_secs(), "{sleeps}");
    // Whoever looks all the time does not sleep at all.
    assert!(share < 0.1, "{share}");
}
