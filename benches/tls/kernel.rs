//! The kernel's record layer (`CONFIG_TLS`), where there is one.

use std::io::{Error, ErrorKind, IoSliceMut};
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use dipc::transport::measured::Wire;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ConnectionTrafficSecrets, ServerConnection};

use crate::{Configs, Wires};

/// Bytes as they are.
pub struct Plain;

impl Wire for Plain {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::readv(socket, runs)
    }
}

/// `tls12_crypto_info_aes_gcm_128` of linux/tls.h.
#[repr(C)]
struct Keys {
    version: u16,
    cipher: u16,
    iv: [u8; 8],
    key: [u8; 16],
    salt: [u8; 4],
    number: [u8; 8],
}

// Of linux/tls.h.
const VERSION: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const TX: libc::c_int = 1;
const RX: libc::c_int = 2;

impl Keys {
    fn new((number, secrets): (u64, ConnectionTrafficSecrets)) -> Self {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            panic!("another cipher than AES-128-GCM was agreed on");
        };
        let (salt, iv) = iv.as_ref().split_at(4);
        Self {
            version: VERSION,
            cipher: AES_GCM_128,
            iv: iv.try_into().unwrap(),
            key: key.as_ref().try_into().unwrap(),
            salt: salt.try_into().unwrap(),
            number: number.to_be_bytes(),
        }
    }
}

fn set<T>(
    socket: &TcpStream,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<(), Error> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the call reads `len` bytes of `value`, which has as many.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            len,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// A connection each, at the end of its handshake.
fn connections(configs: &Configs, sockets: [&TcpStream; 2]) -> [Connection; 2] {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::clone(&configs.client), name).unwrap();
    let server = ServerConnection::new(Arc::clone(&configs.server)).unwrap();
    let mut ends: [Connection; 2] = [client.into(), server.into()];
    while ends
        .iter()
        .any(|end| end.is_handshaking() || end.wants_write())
    {
        for (end, mut socket) in ends.iter_mut().zip(sockets) {
            while end.wants_write() {
                end.write_tls(&mut socket).unwrap();
            }
            match end.read_tls(&mut socket) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                Ok(_) => drop(end.process_new_packets().unwrap()),
            }
        }
    }
    ends
}

/// Shakes hands by rustls, and hands its keys to the kernel.
pub fn shake(configs: &Configs, sockets: [&TcpStream; 2]) -> Result<Wires, String> {
    for socket in sockets {
        set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
            .map_err(|error| format!("setsockopt(TCP_ULP, \"tls\"): {error}"))?;
    }
    // A ticket behind the handshake would come as a record that `readv` does not give.
    let mut server = rustls::ServerConfig::clone(&configs.server);
    server.send_tls13_tickets = 0;
    let mut client = rustls::ClientConfig::clone(&configs.client);
    server.enable_secret_extraction = true;
    client.enable_secret_extraction = true;
    let configs = Configs {
        client: Arc::new(client),
        server: Arc::new(server),
    };
    let ends = connections(&configs, sockets);
    for (end, socket) in ends.into_iter().zip(sockets) {
        let secrets = end.dangerous_extract_secrets().unwrap();
        for (option, secrets) in [(TX, secrets.tx), (RX, secrets.rx)] {
            set(socket, libc::SOL_TLS, option, &Keys::new(secrets))
                .map_err(|error| format!("setsockopt(SOL_TLS, {option}): {error}"))?;
        }
    }
    Ok((Box::new(Plain), Box::new(Plain)))
}
