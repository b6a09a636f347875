//! Socket files: owners, takeover, and files to leave alone.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use dipc::error::Status;
use dipc::proto::Uri;
use dipc::transport::{AccessOptions, Incoming, LinkOptions, Outgoing};

use crate::{connect, listen, next, readable, shm};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Only this user may open the socket, from the start. The listener's drop removes it and its lock.
#[test]
fn a_socket_is_private_and_goes_with_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut listener = listen(text(&path)).unwrap();
    assert_eq!(listener.address(), format!("shm:{}", text(&path)));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let client = connect(text(&path)).unwrap();
    let server = listener.accept().unwrap().expect("a connection");
    for end in [&client, &server] {
        assert!(end.identity().same_user);
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(
            end.identity().peer,
            format!("pid {}, uid {uid}", std::process::id())
        );
    }
    drop(listener);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Other users are admitted only on request.
    let uri = Uri::parse(&format!("shm:{}", text(&path))).unwrap();
    let options = LinkOptions {
        access: AccessOptions {
            any_user: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    let listener = shm().listen(&uri, &options).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    drop(listener);
}

/// The address of a live server is refused, with its process number; the server is not disturbed.
#[test]
fn a_live_server_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut listener = listen(text(&path)).unwrap();
    for _ in 0..2 {
        let error = listen(text(&path)).err().unwrap();
        assert_eq!(error.status(), Status::AddressInUse);
        assert!(
            error
                .text()
                .contains(&format!("this process itself (pid {}", std::process::id())),
            "{error}"
        );
    }
    drop(connect(text(&path)).unwrap());
    assert!(listener.accept().unwrap().is_some());
    let name = format!("@{}", crate::name());
    let _abstract = listen(&name).unwrap();
    let error = listen(&name).err().unwrap();
    assert_eq!(error.status(), Status::AddressInUse);
    assert!(
        error
            .text()
            .contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    // Also for a server without libdipc's lock.
    let other = folder.path().join("other");
    let foreign = UnixListener::bind(&other).unwrap();
    let error = listen(text(&other)).err().unwrap();
    assert_eq!(error.status(), Status::AddressInUse);
    assert!(error.text().contains("pid"), "{error}");
    assert!(!folder.path().join("other.lock").exists());
    drop(foreign);
}

/// Clients of a killed server's socket get an error that calls it stale; the next server takes it
/// over.
#[test]
fn a_stale_socket_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    // A socket without a listener, and a lock without a holder, as after a kill.
    drop(UnixListener::bind(&path).unwrap());
    let lock = folder.path().join("socket.lock");
    std::fs::write(&lock, "").unwrap();
    let error = connect(text(&path)).err().unwrap();
    assert_eq!(error.status(), Status::Unreachable);
    assert!(error.text().contains("stale"), "{error}");
    let mut listener = listen(text(&path)).unwrap();
    let _client = connect(text(&path)).unwrap();
    assert!(listener.accept().unwrap().is_some());
}

/// Only one of many servers that start at once gets the address, with any remains there.
#[test]
fn one_of_many_gets_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for _ in 0..20 {
        drop(UnixListener::bind(&path).unwrap());
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| listen(text(&path))))
                .collect();
            starts
                .into_iter()
                .map(|start| start.join().unwrap())
                .collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        for error in lost {
            assert_eq!(error.err().unwrap().status(), Status::AddressInUse);
        }
        drop(won);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A foreign file is never deleted.
#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.parquet");
    std::fs::write(&path, "precious").unwrap();
    let error = listen(text(&path)).err().unwrap();
    assert_eq!(error.status(), Status::AddressInUse);
    assert!(error.text().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    // No file of libdipc stays beside it.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = connect(text(&path)).err().unwrap();
    assert_eq!(error.status(), Status::Unreachable);
    assert!(error.text().contains("not a socket"), "{error}");

    let lock = folder.path().join("socket.lock");
    std::fs::write(&lock, "precious too").unwrap();
    let error = listen(text(&folder.path().join("socket"))).err().unwrap();
    assert_eq!(error.status(), Status::AddressInUse);
    assert!(error.text().contains("not a lock file"), "{error}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "precious too");

    // A socket that replaced libdipc's belongs to another program.
    let path = folder.path().join("replaced");
    let listener = listen(text(&path)).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
}

/// An impossible address is refused with a reason.
#[test]
fn impossible_addresses_are_refused() {
    for (address, text) in [
        (format!("/{}", "x".repeat(107)), "at most 107"),
        (format!("@{}", "x".repeat(108)), "at most 107"),
        ("@".into(), "empty"),
        ("localhost:1234".into(), "shm:/path or shm:@name"),
    ] {
        let mut uri = Uri::parse("shm:@x").unwrap();
        uri.address = address;
        let options = LinkOptions::default();
        let listened = shm().listen(&uri, &options).err().unwrap();
        let connected = shm().connect(&uri, &options).err().unwrap();
        for error in [listened, connected] {
            assert_eq!(error.status(), Status::InvalidUri, "{error}");
            assert!(error.text().contains(text), "{error}");
        }
    }
    drop(listen(&format!("@{}", "x".repeat(107))).unwrap());
    let missing = listen("/nonexistent-folder/socket").err().unwrap();
    assert_eq!(missing.status(), Status::Unreachable, "{missing}");
}

/// Promise: the end of the peer's process is noticed, even while its forked child keeps the socket
/// open.
#[test]
fn the_death_of_a_peer_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut listener = listen(text(&path)).unwrap();
    // The connecting process must end while another process holds the socket.
    let script = "import os, socket, sys, time\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.connect(sys.argv[1])\n\
                  if os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)\n\
                  sys.stdin.readline()\n\
                  os._exit(0)\n";
    let child = Command::new("python3")
        .args(["-c", script, text(&path)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: no python3 to be the peer");
        return;
    };
    assert!(readable(&listener.fd()));
    let mut connection = listener.accept().unwrap().expect("a connection");
    let ready = connection.identity().readiness.clone();
    assert!(!ready.peer_has_died());
    assert!(
        connection
            .identity()
            .peer
            .contains(&format!("pid {}", child.id()))
    );
    drop(child.stdin.take());
    assert!(readable(ready.peer_death.as_ref().expect("a pidfd")));
    assert!(ready.peer_has_died());
    assert!(
        connection.receive_any().unwrap().is_none(),
        "the socket itself is still open"
    );
    child.wait().unwrap();
}

/// A forked child drops its copies without removing the parent's socket.
#[test]
fn a_forked_child_leaves_the_socket_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut listener = listen(text(&path)).unwrap();
    let mut client = connect(text(&path)).unwrap();
    let mut server = listener.accept().unwrap().expect("a connection");
    // SAFETY: the child drops its copies, which takes no lock, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = listener.accept().err().map(|error| error.status());
        drop((listener, client, server));
        // SAFETY: ends the child at once.
        unsafe {
            libc::_exit(if refused == Some(Status::Forked) {
                0
            } else {
                1
            })
        };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `child` is this process's own child and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(path.exists());
    server
        .send(Outgoing::Control {
            bytes: vec![9],
            fd: None,
        })
        .unwrap();
    assert!(
        matches!(next(client.as_mut()).unwrap(), Incoming::Control { bytes, .. } if bytes[..] == [9])
    );
    drop(connect(text(&path)).unwrap());
}

/// "Our transports": each side admits only its own user by default; the text names both users.
#[test]
fn other_users_are_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let script = "import os, socket, sys\n\
                  os.setuid(65534)\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  name = chr(0) + sys.argv[2]\n\
                  if sys.argv[1] == 'listen':\n    s.bind(name)\n    s.listen(5)\n\
                  else:\n    s.connect(name)\n\
                  print('ready', flush=True)\n\
                  sys.stdin.readline()\n";
    let other = |what: &str, name: &str| {
        let mut child = Command::new("python3")
            .args(["-c", script, what, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?)
            .read_line(&mut line)
            .ok()?;
        (line == "ready\n").then_some(child)
    };
    let name = crate::name();
    let mut listener = listen(&format!("@{name}")).unwrap();
    let Some(mut client) = other("connect", &name) else {
        println!("skipped: no python3 to be the other user");
        return;
    };
    let same = connect(&format!("@{name}")).unwrap();
    let error = listener.accept().err().unwrap();
    assert_eq!(error.status(), Status::Permission);
    assert!(
        error.text().contains("uid 65534") && error.text().contains("uid 0"),
        "{error}"
    );
    assert!(
        listener.accept().unwrap().is_some(),
        "the next one is not affected"
    );
    drop(same);
    client.kill().unwrap();
    client.wait().unwrap();

    let name = crate::name();
    let mut server = other("listen", &name).unwrap();
    let error = connect(&format!("@{name}")).err().unwrap();
    assert_eq!(error.status(), Status::Permission, "{error}");
    let uri = Uri::parse(&format!("shm:@{name}")).unwrap();
    let options = LinkOptions {
        access: AccessOptions {
            any_user: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    };
    assert!(!shm().connect(&uri, &options).unwrap().identity().same_user);
    server.kill().unwrap();
    server.wait().unwrap();
}
