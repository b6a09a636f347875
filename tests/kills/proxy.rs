//! A relay between a client and a tcp server that cuts the connection at a given byte.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A URI like `uri`, whose connection ends after `bytes` from the server: by a reset if `reset`,
/// otherwise as if the server had closed it.
pub fn cut_after(uri: &str, bytes: u64, reset: bool) -> String {
    let (server, query) = uri.strip_prefix("tcp://").unwrap().split_once('?').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.to_owned();
    thread::spawn(move || {
        let Ok((client, _)) = listener.accept() else {
            return;
        };
        let server = TcpStream::connect(server).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let told = Arc::clone(&over);
        let requests = thread::spawn(move || relay(from, to, u64::MAX, &told));
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        relay(from, to, bytes, &over);
        over.store(true, Ordering::Relaxed);
        requests.join().unwrap();
        // This closes the socket's last descriptor; a linger time of 0 makes the close a reset.
        let linger = reset.then_some(Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(&client, linger);
    });
    format!("tcp://{address}?{query}")
}

/// Relays `left` bytes, until an end or until `over`.
fn relay(mut from: TcpStream, mut to: TcpStream, mut left: u64, over: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let mut buffer = vec![0; 64 << 10];
    while left > 0 && !over.load(Ordering::Relaxed) {
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match from.read(&mut buffer[..most]) {
            Ok(read) if read > 0 && to.write_all(&buffer[..read]).is_ok() => left -= read as u64,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            _ => return,
        }
    }
}
