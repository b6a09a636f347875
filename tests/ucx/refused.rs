//! Baseline clients that are refused (rules E7, R5): silent ones, and such as are killed.

use std::fs;
use std::thread;
use std::time::Duration;

use dipc::client::GetOptions;
use dipc::proto::{Role, Uri};
use dipc::transport::{self, Connection, LinkOptions, Outgoing, Payload};

use crate::common::{counting, read_all};
use crate::peer::{Outcome, Peer};
use crate::reference::{WAYS, folder, peer};
use crate::{Other, client, eventually, role, serve, serving, until_told};

/// A server's process, and what baseline clients are given.
fn server(test: &str) -> (Other, [String; 2]) {
    let mut server = Other::start(test, "server", "-");
    let uris = [server.line("uri="), server.line("uri=")];
    (server, uris)
}

/// The part of the server's process.
fn be_server() {
    let (server, _) = serving();
    serve(&server, "t", counting(10, 1000));
    for role in [Role::Metadata, Role::Data] {
        println!("uri={}", server.location(role).unwrap());
    }
    until_told();
}

/// Clients that are refused, wait in silence, and are killed after a second.
fn refuse(peer: &Peer, uris: &[String; 2], clients: usize) {
    let output = folder("refused").join("got");
    // One asks for what is not there, the next by a tag that nobody answers to.
    let foreign = uris.clone().map(|uri| {
        let (address, _) = uri.split_once('?').unwrap();
        format!("{address}?want_data=77777777777777777")
    });
    thread::scope(|scope| {
        for client in 0..clients {
            let uris = if client % 2 == 0 { uris } else { &foreign };
            let (options, output) = (WAYS[client / 2 % 2], &output);
            scope.spawn(move || {
                let outcome = peer.get_within(1, options, uris, "no such table", output);
                assert!(
                    matches!(outcome, Outcome::TimedOut | Outcome::Failed(_)),
                    "{outcome:?}"
                );
            });
        }
    });
}

fn descriptors(process: &Other) -> usize {
    let open = format!("/proc/{}/fd", process.child.id());
    fs::read_dir(open).unwrap().count()
}

/// What UCX keeps of a client that was refused goes when the client has gone.
#[test]
fn refused_clients_leave_nothing() {
    if role().is_some() {
        return be_server();
    }
    let Some(peer) = peer() else { return };
    let (server, uris) = server("refused::refused_clients_leave_nothing");
    // It may have been given some by this process, too.
    let before = descriptors(&server);
    refuse(peer, &uris, 16);
    // What the first of them has the process open stays.
    eventually("nothing is left of them", || {
        descriptors(&server) < before + 16
    });
}

/// Refused clients that stay and do nothing hold up nobody else: UCX waits for their answers, and
/// the server does not.
#[test]
fn silent_clients_hold_up_nobody() {
    const CLIENTS: usize = 40;
    if let Some(role) = role() {
        if role.name == "server" {
            return be_server();
        }
        let _silent: Vec<_> = (0..CLIENTS).map(|_| ask_in_vain(&role.argument)).collect();
        println!("asked=");
        return until_told();
    }
    if !crate::works() {
        return;
    }
    let test = "refused::silent_clients_hold_up_nobody";
    let (server, uris) = server(test);
    let before = descriptors(&server);
    let mut silent = Other::start(test, "client", &uris[0]);
    silent.line("asked=");
    let address = uris[0].split('?').next().unwrap();
    // Far less than it took to wait for each of them, a second.
    let patience = Duration::from_secs(15);
    let impatient = GetOptions {
        connect_timeout: patience,
        stall_timeout: Some(patience),
        ..GetOptions::default()
    };
    let mut stream = client().get(&[address], b"t", &impatient, None).unwrap();
    read_all(&mut stream).unwrap();
    silent.kill();
    // The server has served one since: what that has it open stays.
    eventually("nothing is left of them", || {
        descriptors(&server) < before + CLIENTS
    });
}

/// A connection as a baseline client's, which does not notice its peer's end, and has asked for
/// what is not there.
fn ask_in_vain(uri: &str) -> Box<dyn Connection> {
    let uri = Uri::parse(uri).unwrap();
    let mut options = LinkOptions::default();
    options.settings.set("ucx.error_handling", "none").unwrap();
    let ucx = transport::by_scheme("ucx").unwrap();
    let mut connection = ucx.connect(&uri, &options).unwrap();
    let ticket = Payload::Bytes(b"no such table"[..].into());
    let tag = uri.tags.want_data;
    connection
        .send(Outgoing::Tagged {
            tag,
            payload: ticket,
        })
        .unwrap();
    while !connection.flush().unwrap() {}
    connection
}
