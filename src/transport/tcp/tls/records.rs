//! The records of a connection: bytes are sealed on their way out, and opened on their way in.
//!
//! Bytes on their way out are gathered into a record, and encrypted there. A record on its way in
//! is decrypted in the buffer of the socket, and its bytes are copied to their place. Small
//! messages share a record.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{MessageDecrypter, MessageEncrypter};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, ExtractedSecrets,
    SupportedCipherSuite, Tls13CipherSuite,
};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::transport::stream::{Outbox, Wire};
use crate::transport::tcp::tls::opening::{MAX_PLAIN, Opening};
use crate::transport::tcp::tls::refusal;
use crate::transport::tcp::tls::sealing::Sealing;

/// As much is sealed before it is written.
const SEALED_AT_ONCE: usize = 16 * MAX_PLAIN;
/// Most records in a row that bring no data: no peer of ours sends more than a few.
const MOST_IDLE: u32 = 32;

/// The types of messages of TLS that come behind the handshake.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The errno of a failure that [`Wire::explain`] describes.
const BROKEN: Errno = Errno::BADMSG;

/// What renews the keys.
pub enum Keys {
    /// A client's, which is given tickets to resume the session by.
    Client(KernelConnection<ClientConnectionData>),
    /// A server's.
    Server(KernelConnection<ServerConnectionData>),
}

impl Keys {
    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Client(keys) => keys.negotiated_cipher_suite(),
            Self::Server(keys) => keys.negotiated_cipher_suite(),
        }
    }

    fn renew_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_tx_secret(),
            Self::Server(keys) => keys.update_tx_secret(),
        }
    }

    fn renew_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Self::Client(keys) => keys.update_rx_secret(),
            Self::Server(keys) => keys.update_rx_secret(),
        }
    }
}

/// What a handshake has in its hands.
#[derive(Default)]
pub struct HandshakeBytes {
    /// Bytes of the peer's, not looked at.
    pub incoming: Vec<u8>,
    /// Bytes for the peer, not written.
    pub outgoing: Vec<u8>,
    /// Data of the peer's.
    pub early: Vec<u8>,
}

/// The record layer of one connection.
pub struct Records {
    keys: Keys,
    suite: &'static Tls13CipherSuite,
    peer: String,
    sealing: Sealing,
    opening: Opening,
    /// Why nothing more is sent or received.
    failed: Option<Error>,
}

/// What came of a look at the bytes that were read.
enum Opened {
    Record,
    Nothing,
}

fn tls13(suite: SupportedCipherSuite) -> Result<&'static Tls13CipherSuite> {
    suite
        .tls13()
        .ok_or_else(|| Error::disconnected("speaks an older TLS than 1.3, which is needed"))
}

/// The key and the start value, whatever the cipher.
macro_rules! parts {
    ($secrets:expr) => {
        match $secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
            _ => Err(Error::disconnected(
                "chose a cipher that this side does not know",
            )),
        }
    };
}

fn encrypter(
    suite: &Tls13CipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageEncrypter>> {
    let (key, iv) = parts!(secrets)?;
    Ok(suite.aead_alg.encrypter(key, iv))
}

fn decrypter(
    suite: &Tls13CipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>> {
    let (key, iv) = parts!(secrets)?;
    Ok(suite.aead_alg.decrypter(key, iv))
}

impl Records {
    /// Goes on behind a handshake with `peer`.
    pub fn new(
        secrets: ExtractedSecrets,
        keys: Keys,
        leftover: HandshakeBytes,
        peer: &str,
    ) -> Result<Self> {
        let suite = tls13(keys.suite())?;
        let (sealed, tx) = secrets.tx;
        let (opened, rx) = secrets.rx;
        let unsent = leftover.outgoing.len() as u64;
        let mut opening = Opening {
            cipher: decrypter(suite, rx)?,
            number: opened,
            buffer: Box::default(),
            unread: 0..0,
            plain: 0..0,
            early: leftover.early,
            messages: Vec::new(),
            idle: 0,
            ended: false,
        };
        opening.take_over(leftover.incoming);
        Ok(Self {
            keys,
            suite,
            peer: peer.to_owned(),
            sealing: Sealing {
                cipher: encrypter(suite, tx)?,
                number: sealed,
                limit: suite.common.confidentiality_limit,
                owes_renewal: false,
                records: [leftover.outgoing]
                    .into_iter()
                    .filter(|it| !it.is_empty())
                    .collect(),
                written: 0,
                unsent,
            },
            opening,
            failed: None,
        })
    }

    /// Tells the peer that it speaks TLS with another protocol in it.
    pub fn refuse_protocol(&mut self, socket: impl AsFd) {
        const FATAL: u8 = 2;
        let alert = [FATAL, AlertDescription::NoApplicationProtocol.into()];
        let _ = self.sealing.seal(ContentType::Alert, &[&alert]);
        let _ = self.sealing.write(socket.as_fd());
    }

    fn fail(&mut self, error: &Error) -> Errno {
        let text = format!("the peer ({}) {}", self.peer, error.text());
        self.failed = Some(Error::new(error.status(), text));
        BROKEN
    }

    /// Seals what is in `runs`, up to a bound. Returns how many bytes.
    fn seal(&mut self, runs: &[IoSlice<'_>]) -> Result<usize> {
        let mut taken = 0;
        let mut chunks: SmallVec<[&[u8]; 8]> = SmallVec::new();
        let mut len = 0;
        for run in runs {
            let mut rest: &[u8] = run;
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at(rest.len().min(MAX_PLAIN - len));
                chunks.push(chunk);
                len += chunk.len();
                rest = more;
                if len == MAX_PLAIN {
                    self.seal_data(&chunks)?;
                    taken += len;
                    (len, chunks) = (0, SmallVec::new());
                    if taken >= SEALED_AT_ONCE {
                        return Ok(taken);
                    }
                }
            }
        }
        if len > 0 {
            self.seal_data(&chunks)?;
        }
        Ok(taken + len)
    }

    fn seal_data(&mut self, chunks: &[&[u8]]) -> Result<()> {
        // The renewal itself is sealed with the last number that the key may have.
        if self.sealing.owes_renewal || self.sealing.number + 1 >= self.sealing.limit {
            self.renew_sending()?;
        }
        self.sealing.seal(ContentType::ApplicationData, chunks)
    }

    /// The peer is told that the next record has the next key.
    fn renew_sending(&mut self) -> Result<()> {
        let message = [KEY_UPDATE, 0, 0, 1, 0];
        self.sealing.seal(ContentType::Handshake, &[&message])?;
        let renewed = self.keys.renew_sending();
        let (number, secrets) = renewed.map_err(|error| refusal::explain(&error))?;
        self.sealing.cipher = encrypter(self.suite, secrets)?;
        self.sealing.number = number;
        self.sealing.owes_renewal = false;
        Ok(())
    }

    /// Opens the next record in the buffer. Keeps its data, or handles its alert or its messages.
    fn open(&mut self) -> Result<Opened> {
        let Some((typ, plain)) = self.opening.open()? else {
            return Ok(Opened::Nothing);
        };
        self.opening.idle += 1;
        if typ == ContentType::ApplicationData && !plain.is_empty() {
            self.opening.idle = 0;
        } else if self.opening.idle > MOST_IDLE {
            return Err(Error::disconnected(format!(
                "sent {MOST_IDLE} records of TLS in a row that bring nothing"
            )));
        }
        match typ {
            ContentType::ApplicationData => self.opening.plain = plain,
            ContentType::Alert => self.take_alert(plain)?,
            ContentType::Handshake => self.take_messages(plain)?,
            other => {
                return Err(Error::disconnected(format!(
                    "sent a record of TLS that has no place here ({other:?})"
                )));
            }
        }
        Ok(Opened::Record)
    }

    fn take_alert(&mut self, at: Range<usize>) -> Result<()> {
        match self.opening.buffer.get(at) {
            Some(&[_, alert]) => match AlertDescription::from(alert) {
                AlertDescription::CloseNotify => self.opening.ended = true,
                alert => return Err(refusal::of_alert(alert)),
            },
            _ => return Err(Error::disconnected("sent an alert of TLS that is none")),
        }
        Ok(())
    }

    fn take_messages(&mut self, at: Range<usize>) -> Result<()> {
        let came = self.opening.buffer.get(at).unwrap_or_default();
        self.opening.messages.extend_from_slice(came);
        while let Some(message) = self.opening.next_message()? {
            self.take_message(&message)?;
        }
        Ok(())
    }

    fn take_message(&mut self, message: &[u8]) -> Result<()> {
        let broken = |error: rustls::Error| refusal::explain(&error);
        match (message, &mut self.keys) {
            ([NEW_SESSION_TICKET, _, _, _, ticket @ ..], Keys::Client(keys)) => {
                keys.handle_new_session_ticket(ticket).map_err(broken)
            }
            // The message must be the last that was sealed with the old key.
            ([KEY_UPDATE, 0, 0, 1, asks @ 0..=1], keys) if self.opening.messages.is_empty() => {
                let (number, secrets) = keys.renew_receiving().map_err(broken)?;
                self.opening.cipher = decrypter(self.suite, secrets)?;
                self.opening.number = number;
                self.sealing.owes_renewal |= *asks == 1;
                Ok(())
            }
            _ => Err(Error::disconnected(
                "sent a message of TLS that has no place behind the handshake",
            )),
        }
    }
}

#[cfg(test)]
impl Records {
    /// Has one key seal no more than `limit` records.
    pub fn limit_keys(&mut self, limit: u64) {
        (self.sealing.limit, self.sealing.number) = (limit, self.sealing.number.min(limit));
    }

    /// Renews the key of this side, and asks for the same of the other.
    pub fn ask_for_renewal(&mut self, socket: impl AsFd) -> Result<()> {
        let message = [KEY_UPDATE, 0, 0, 1, 1];
        self.sealing.seal(ContentType::Handshake, &[&message])?;
        let (number, secrets) = self.keys.renew_sending().unwrap();
        self.sealing.cipher = encrypter(self.suite, secrets)?;
        self.sealing.number = number;
        self.sealing.write(socket.as_fd()).unwrap();
        Ok(())
    }

    /// Sends a record without data.
    pub fn send_empty(&mut self, socket: impl AsFd) -> Result<()> {
        self.sealing.seal(ContentType::ApplicationData, &[])?;
        self.sealing.write(socket.as_fd()).unwrap();
        Ok(())
    }
}

impl Wire for Records {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let room: usize = runs.iter().map(|run| run.len()).sum();
        let mut given = 0;
        loop {
            given += self.opening.give(runs, given);
            // The end and a failure are told when all before them has been given.
            let is_over = self.opening.ended || self.failed.is_some();
            if given == room || (is_over && given > 0) {
                return Ok(given);
            }
            if self.failed.is_some() {
                return Err(BROKEN);
            }
            if self.opening.ended {
                return Ok(0);
            }
            match self.open() {
                Ok(Opened::Record) => continue,
                Ok(Opened::Nothing) => {}
                Err(error) => {
                    self.fail(&error);
                    continue;
                }
            }
            match self.opening.fill(socket) {
                Ok(0) => self.opening.ended = true,
                Ok(_) => {}
                Err(Errno::AGAIN) if given > 0 => return Ok(given),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn was_cut_short(&self) -> bool {
        self.opening.ended || self.failed.is_some()
    }

    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        if self.failed.is_some() {
            return Err(BROKEN);
        }
        if !self.sealing.write(socket)? {
            return Ok(false);
        }
        let all = outbox.flush(|runs, _| {
            if !self.sealing.write(socket)? {
                return Err(Errno::AGAIN);
            }
            let taken = self.seal(runs).map_err(|error| self.fail(&error))?;
            self.sealing.write(socket)?;
            Ok(taken)
        })?;
        Ok(all && self.sealing.records.is_empty())
    }

    fn unsent(&self) -> u64 {
        self.sealing.unsent
    }

    fn end(&mut self, socket: BorrowedFd<'_>) {
        const WARNING: u8 = 1;
        let alert = [WARNING, AlertDescription::CloseNotify.into()];
        if self.sealing.seal(ContentType::Alert, &[&alert]).is_ok() {
            // A peer that does not read misses the message. The socket ends all the same.
            let _ = self.sealing.write(socket);
        }
    }

    fn explain(&self, errno: Errno) -> Option<Error> {
        self.failed.clone().filter(|_| errno == BROKEN)
    }

    fn clear(&mut self) {
        self.sealing.records.clear();
        (self.sealing.written, self.sealing.unsent) = (0, 0);
    }
}
