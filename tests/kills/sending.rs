//! Kills of both ends of put and exchange at random moments (rules Q4, Q5, F4): the survivor's
//! stream ends with a status, nothing is left behind, and the next stream goes well.

use super::*;
use crate::worker::{IDLE, WRONG, Worker};

const VERBS: [&str; 2] = ["put", "exchange"];

/// Batches of a table.
const COUNT: usize = 200;

fn serving(scheme: &str) -> (Worker, String) {
    let mut server = Worker::start();
    let address = match scheme {
        "shm" => address(),
        _ => format!("{scheme}://127.0.0.1:0"),
    };
    let uri = server.does(&format!("serve {address}"));
    assert!(!uri.starts_with("failed"), "{scheme}: {uri}");
    (server, uri)
}

fn order(verb: &str, uri: &str, count: usize) -> String {
    format!("{verb} {uri} {count}")
}

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    /// Mapped memory files: regions, its own and of the other process.
    regions: usize,
}

impl Holdings {
    fn of(process: &Child) -> Self {
        let of = |what: &str| format!("/proc/{}/{what}", process.id());
        let count = |what: &str| fs::read_dir(of(what)).unwrap().count();
        // A process makes one watch of files in memory, when it first needs one, and keeps it.
        let is_watch = |entry: &std::io::Result<fs::DirEntry>| {
            let link = entry.as_ref().ok().map(|entry| fs::read_link(entry.path()));
            link.is_some_and(|link| link.is_ok_and(|link| link.as_os_str() == "anon_inode:inotify"))
        };
        let watches = fs::read_dir(of("fd")).unwrap().filter(is_watch);
        let maps = fs::read_to_string(of("maps")).unwrap();
        Self {
            descriptors: count("fd") - watches.count(),
            threads: count("task"),
            regions: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
    }

    /// At rest: the same for a while, behind the time that a thread or a connection waits for its
    /// next stream.
    fn settled(process: &Child) -> Self {
        let mut last = (Self::of(process), Instant::now());
        until("the process is at rest", || {
            let now = Self::of(process);
            if now != last.0 {
                last = (now, Instant::now());
            }
            last.1.elapsed() > IDLE * 3
        });
        last.0
    }

    fn has_no_more_than(self, before: Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.regions <= before.regions
    }
}

/// Tries each transport and verb; the transports at once, for the processes mostly wait.
fn each_way(test: impl Fn(&'static str, &'static str, &mut Rng) + Sync) {
    let rng = rng();
    std::thread::scope(|scope| {
        for scheme in schemes() {
            let (mut rng, test) = (rng.clone(), &test);
            scope.spawn(move || VERBS.map(|verb| test(scheme, verb, &mut rng)));
        }
    });
}

/// The time of a whole stream; the processes know each other then.
fn time_of(client: &mut Worker, verb: &str, uri: &str) -> Duration {
    let start = Instant::now();
    assert_eq!(client.does(&order(verb, uri, COUNT)), "whole");
    start.elapsed()
}

/// Rules Q4, Q5, F2: killed clients leave nothing at the server, which serves the next one.
#[test]
fn killed_senders_leave_nothing_behind() {
    each_way(|scheme, verb, rng| {
        let (mut server, uri) = serving(scheme);
        let mut honest = Worker::start();
        let time = time_of(&mut honest, verb, &uri);
        time_of(&mut honest, verb, &uri);
        let before = Holdings::settled(&server.child);
        for _ in 0..rounds() {
            let mut client = Worker::start();
            // It runs, and has a connection.
            assert_eq!(client.does(&order(verb, &uri, 0)), "whole");
            client.order(&order(verb, &uri, COUNT));
            std::thread::sleep(moment(rng, time));
            client.kill();
            // The next request is served at once, and well.
            let next = honest.does(&order(verb, &uri, 3));
            assert_eq!(next, "whole", "{scheme}: {verb} behind a killed client");
        }
        let begun = Instant::now();
        while !Holdings::of(&server.child).has_no_more_than(before) {
            let now = Holdings::of(&server.child);
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{scheme}, {verb}: killed clients leave {now:?}, and {before:?} was there"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        until("no stream is active", || server.does("figures") == "0");
        println!("{scheme}: {} clients killed in {verb}", rounds());
    });
}

/// Rules Q4, Q5, F6: the client of a killed server learns it within its time limit, with a status
/// and a text, has its memory back, and sends to the next server.
#[test]
fn killed_takers_end_their_clients_streams() {
    each_way(|scheme, verb, rng| {
        let mut client = Worker::start();
        let (mut server, uri) = serving(scheme);
        let time = time_of(&mut client, verb, &uri);
        server.kill();
        let before = Holdings::settled(&client.child);
        let mut failed = 0;
        for _ in 0..rounds() {
            let (mut server, uri) = serving(scheme);
            client.order(&order(verb, &uri, COUNT));
            std::thread::sleep(moment(rng, time));
            server.kill();
            let begun = Instant::now();
            let outcome = client.answer();
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{scheme}, {verb}: {outcome}"
            );
            assert!(!outcome.contains(WRONG), "{scheme}, {verb}: {outcome}");
            if outcome != "whole" {
                assert!(
                    outcome.starts_with("failed DIPC_ERR_"),
                    "{scheme}, {verb}: {outcome}"
                );
                failed += 1;
            }
        }
        let (server, uri) = serving(scheme);
        assert_eq!(
            client.does(&order(verb, &uri, COUNT)),
            "whole",
            "{scheme}, {verb}"
        );
        drop(server);
        until("what was of killed servers is gone", || {
            Holdings::of(&client.child).has_no_more_than(before)
        });
        println!(
            "{scheme}: {} servers killed in {verb}, {failed} failed",
            rounds()
        );
    });
}
