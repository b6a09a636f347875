//! Certificates, tokens and users at `dipc serve`, for libdipc's clients and for Flight's.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, getuid};

use crate::certificates::Authority;
use crate::support::*;

const TABLES: [&str; 2] = [NATION, REGION];

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of its own.
fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn with(token: &Path) -> [&str; 2] {
    ["--token-file", path(token)]
}

fn get(uri: &str, name: &str, args: &[&str]) -> Result<(), String> {
    let output = run(&[&["get", uri, name], args].concat());
    match output.status.success() {
        true => Ok(()),
        false => Err(text(&output.stderr)),
    }
}

/// Over tls and grpc+tls: the certificate is checked, and the client's where the server asks for
/// it.
#[test]
fn certificates_are_checked_at_both_ends() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let (own, own_key) = authority.issue("alice");
    let (other, other_key) = authority.issue("mallory");
    let ca = authority.ca();
    let files = ["--tls-cert", path(&certificate), "--tls-key", path(&key)];
    let asks = ["--tls-ca", path(&ca), "--allow-subject", "CN=alice"];
    let trusts = ["--tls-ca", path(&ca)];
    let alice = [
        &trusts[..],
        &["--tls-cert", path(&own), "--tls-key", path(&own_key)],
    ]
    .concat();
    let mallory = [
        &trusts[..],
        &["--tls-cert", path(&other), "--tls-key", path(&other_key)],
    ]
    .concat();
    let listen = ["--listen", "tls://127.0.0.1:0"];
    let args = [&files[..], &asks, &TABLES].concat();
    let server = Server::start_as(dipc(), "tls://127.0.0.1:", "tls://127.0.0.1:0", &args);
    get(&server.uri, "nation", &alice).unwrap();
    let told = get(&server.uri, "nation", &mallory).unwrap_err();
    assert!(told.contains("does not admit this client"), "{told}");
    let told = get(&server.uri, "nation", &trusts).unwrap_err();
    assert!(told.contains("--tls-cert"), "{told}");
    let told = get(&server.uri, "nation", &[]).unwrap_err();
    assert!(told.contains("--tls-ca"), "{told}");
    assert!(server.stop().0.success());

    let flight = Server::start_flight(&[&listen[..], &args].concat());
    assert!(flight.uri.starts_with("grpc+tls://"), "{}", flight.uri);
    get(&flight.uri, "nation", &alice).unwrap();
    let told = get(&flight.uri, "nation", &mallory).unwrap_err();
    assert!(told.contains("does not admit this client"), "{told}");
    for args in [&trusts[..], &[]] {
        get(&flight.uri, "nation", args).unwrap_err();
    }
    assert!(flight.stop().0.success());
    let told = failure(1, &["serve", "--listen", "tls://127.0.0.1:0", REGION]);
    assert!(told.contains("--tls-cert"), "{told}");
}

/// SIGHUP has the certificates read again, over both ways to the server: who trusts the old
/// authority alone is refused from then on.
#[test]
fn certificates_are_read_again() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert"), folder.path().join("key"));
    let put = |authority: &Authority| {
        let (from, of) = authority.issue("127.0.0.1");
        std::fs::copy(from, &certificate).unwrap();
        std::fs::copy(of, &key).unwrap();
    };
    put(&old);
    let files = ["--tls-cert", path(&certificate), "--tls-key", path(&key)];
    let listen = ["--listen", "tls://127.0.0.1:0"];
    let flight = Server::start_flight(&[&listen[..], &files, &TABLES].concat());
    let (before, after) = (old.ca(), new.ca());
    get(&flight.uri, "nation", &["--tls-ca", path(&before)]).unwrap();
    put(&new);
    signal(&flight.child, Signal::HUP);
    until("the new certificate is used", || {
        get(&flight.uri, "nation", &["--tls-ca", path(&after)]).is_ok()
    });
    get(&flight.uri, "nation", &["--tls-ca", path(&before)]).unwrap_err();
    assert!(flight.stop().0.success());
}

/// A Flight server keeps as many connections as it may, and those that say nothing hold no other
/// client up: they end, and then there is a place again.
#[test]
fn connections_of_flight_are_bounded() {
    let args = ["--max-connections", "2", NATION];
    let flight = Server::start_flight(&args);
    let target = flight.uri.strip_prefix("grpc://").unwrap();
    let silent = [(); 2].map(|()| TcpStream::connect(target).unwrap());
    // The server closes the next one at once.
    until("the server is full", || {
        let mut next = TcpStream::connect(target).unwrap();
        let time = Some(Duration::from_millis(200));
        next.set_read_timeout(time).unwrap();
        matches!(next.read(&mut [0]), Ok(0))
    });
    get(&flight.uri, "nation", &[]).unwrap_err();
    drop(silent);
    until("there is a place", || {
        get(&flight.uri, "nation", &[]).is_ok()
    });
    assert!(flight.stop().0.success());
}

/// A token admits to what its line says, over every way to the server; SIGHUP reads the file again.
#[test]
fn tokens_admit_to_their_tables() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = file(&folder, "tokens", "ann s3cret get nat*\nloader t0ken * *\n");
    let ann = file(&folder, "ann", "s3cret\n");
    let loader = file(&folder, "loader", "t0ken");
    let stranger = file(&folder, "stranger", "t0ke");
    let rows = folder.path().join("rows.arrow");
    let taken = tempfile::tempdir().unwrap();
    let shm = address();
    let args = [
        "--listen",
        &shm,
        "--accept",
        path(taken.path()),
        "--token-file",
        path(&tokens),
    ];
    let server = Server::start_flight(&[&args[..], &TABLES].concat());
    for uri in [&*shm, &server.uri] {
        get(uri, "nation", &with(&ann)).unwrap();
        let told = get(uri, "region", &with(&ann)).unwrap_err();
        assert!(
            told.contains("the token of ann does not allow get"),
            "{told}"
        );
        get(uri, "region", &with(&loader)).unwrap();
        let told = get(uri, "nation", &with(&stranger)).unwrap_err();
        assert!(told.contains("does not know the token"), "{told}");
        let told = get(uri, "nation", &[]).unwrap_err();
        assert!(told.contains("--token-file"), "{told}");
    }
    let listed = |token: &Path| {
        let listed = json(&[&["ls", &shm, "--json"], &with(token)[..]].concat());
        listed.as_array().unwrap().len()
    };
    assert_eq!((listed(&ann), listed(&loader)), (1, 2));
    let write = ["--output", path(&rows)];
    get(&shm, "nation", &[&with(&loader)[..], &write].concat()).unwrap();
    for (number, uri) in [&*shm, &server.uri].into_iter().enumerate() {
        let name = format!("new-{number}");
        let put = |token| {
            let args = ["put", uri, &name, path(&rows)];
            run(&[&args[..], &with(token)].concat())
        };
        let refused = put(&ann);
        let told = text(&refused.stderr);
        assert!(told.contains("does not allow put"), "{told}");
        let output = put(&loader);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    std::fs::write(&tokens, "ann s3cret get region\n").unwrap();
    signal(&server.child, Signal::HUP);
    until("the tokens are read again", || {
        get(&shm, "region", &with(&ann)).is_ok()
    });
    get(&shm, "nation", &with(&ann)).unwrap_err();
    std::fs::write(&tokens, "ann s3cret\n").unwrap();
    signal(&server.child, Signal::HUP);
    get(&shm, "region", &with(&ann)).unwrap();
    assert!(server.stop().0.success());
    let told = failure(
        1,
        &[
            &["serve", "--listen", &address()],
            &TABLES[..],
            &with(&tokens),
        ]
        .concat(),
    );
    assert!(told.contains("line 1"), "{told}");
}

/// A name that no certificate can have admits nobody: the start says so.
#[test]
fn a_bare_name_is_no_subject() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let ca = authority.ca();
    let files = ["--tls-cert", path(&certificate), "--tls-key", path(&key)];
    let asks = ["--tls-ca", path(&ca), "--allow-subject", "alice"];
    let listen = ["serve", "--listen", "tls://127.0.0.1:0"];
    let told = failure(1, &[&listen[..], &files, &asks, &TABLES].concat());
    assert!(told.contains("CN=alice"), "{told}");
}

/// A token is not sent where others could read it, to a Flight server either (rule Q7).
#[test]
fn a_token_does_not_go_where_it_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let token = file(&folder, "token", "s3cret");
    let args = ["--token-file", path(&token), "--timeout", "1s"];
    let told = get("grpc://192.0.2.1:4000", "t", &args).unwrap_err();
    assert!(told.contains("others could read it"), "{told}");
    let insists = get(
        "grpc://127.0.0.1:1",
        "t",
        &[&args[..], &["--send-secrets"]].concat(),
    );
    assert!(!insists.unwrap_err().contains("others could read it"));
    let empty = file(&folder, "empty", "\n");
    let told = get("shm:@nobody", "t", &["--token-file", path(&empty)]).unwrap_err();
    assert!(told.contains("there is no token"), "{told}");
}

/// `--allow-uid` admits the processes of a user.
#[test]
fn users_are_admitted() {
    let own = getuid().as_raw();
    for (uid, admitted) in [(own, true), (own + 1, false)] {
        let uid = uid.to_string();
        let server = Server::start(&[&["--allow-uid", &uid], &TABLES[..]].concat());
        let outcome = get(&server.uri, "nation", &[]);
        assert_eq!(outcome.is_ok(), admitted, "{outcome:?}");
        assert!(server.stop().0.success());
    }
}

/// A server's certificate that is not valid now is warned of at the start, and after SIGHUP no
/// more.
#[test]
fn a_certificate_out_of_date_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, log] = ["cert", "key", "log"].map(|it| folder.path().join(it));
    let authority = Authority::new();
    let put = |year| {
        let (from, of) = authority.issue_with("127.0.0.1", |params| {
            params.not_after = rcgen::date_time_ymd(year, 5, 6);
        });
        fs::copy(from, &certificate).unwrap();
        fs::copy(of, &key).unwrap();
    };
    put(2001);
    let mut command = dipc();
    command.args(["--log", "info"]);
    command.stderr(File::create(&log).unwrap());
    let files = ["--tls-cert", path(&certificate), "--tls-key", path(&key)];
    let args = [&files[..], &TABLES].concat();
    let server = Server::start_as(command, "tls://127.0.0.1:", "tls://127.0.0.1:0", &args);
    let told = fs::read_to_string(&log).unwrap();
    let words = format!(
        "WARN {} is a certificate that was valid until",
        path(&certificate)
    );
    assert!(told.contains(&words) && told.contains("2001"), "{told}");
    put(2900);
    signal(&server.child, Signal::HUP);
    until("the certificate is read", || {
        fs::read_to_string(&log).unwrap().contains("are read again")
    });
    assert!(server.stop().0.success());
    assert_eq!(
        fs::read_to_string(&log)
            .unwrap()
            .matches("valid until")
            .count(),
        1
    );
}

/// Promise of operation.md: at `warn` the log has refusals for want of a right, a few lines
/// however many there are, and those of tickets that nobody has are no warnings.
#[test]
fn refusals_are_warned_of_a_few_times() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = file(&folder, "tokens", "ann s3cret * *\n");
    let ann = file(&folder, "ann", "s3cret");
    let log = folder.path().join("log");
    let mut command = dipc();
    command.stderr(File::create(&log).unwrap());
    let at = address();
    let args = [&with(&tokens)[..], &TABLES].concat();
    let server = Server::start_as(command, &at, &at, &args);
    get(&server.uri, "nobody's", &with(&ann)).unwrap_err();
    let client = dipc::client::Client::new(Default::default()).unwrap();
    for _ in 0..50 {
        let asked = client.get(&[&server.uri], b"nation", &Default::default(), None);
        assert!(asked.is_err());
    }
    assert!(server.stop().0.success());
    let told = fs::read_to_string(&log).unwrap();
    let lines = told.matches("is refused: DIPC_ERR_PERMISSION: ").count();
    assert!((1..=10).contains(&lines), "{told}");
    assert!(
        told.contains("more lines of this kind are dropped"),
        "{told}"
    );
    assert!(!told.contains("nobody's"), "{told}");
}
