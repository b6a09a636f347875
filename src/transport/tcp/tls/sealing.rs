//! Records on their way out.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::{ContentType, ProtocolVersion};
use smallvec::SmallVec;

use crate::error::Result;
use crate::transport::stream::send;
use crate::transport::tcp::tls::refusal;

/// Seals data into records, and keeps those that the socket has not taken.
pub(super) struct Sealing {
    pub(super) cipher: Box<dyn MessageEncrypter>,
    /// The number of the next record under this key.
    pub(super) number: u64,
    /// How many records one key may seal.
    pub(super) limit: u64,
    /// The peer asks for a new key before more data comes.
    pub(super) owes_renewal: bool,
    /// Records that the socket has not taken.
    pub(super) records: VecDeque<Vec<u8>>,
    /// How much of the first it has taken.
    pub(super) written: usize,
    pub(super) unsent: u64,
}

impl Sealing {
    pub(super) fn seal(&mut self, typ: ContentType, chunks: &[&[u8]]) -> Result<()> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::new(chunks),
        };
        let sealed = self.cipher.encrypt(message, self.number);
        let record = sealed.map_err(|error| refusal::explain(&error))?.encode();
        self.number += 1;
        self.unsent += record.len() as u64;
        self.records.push_back(record);
        Ok(())
    }

    /// Returns whether all was written.
    pub(super) fn write(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while !self.records.is_empty() {
            let runs = self.records.iter().enumerate().map(|(index, record)| {
                IoSlice::new(&record[if index == 0 { self.written } else { 0 }..])
            });
            let runs: SmallVec<[IoSlice<'_>; 16]> = runs.take(16).collect();
            let sent = match send(socket, &runs, None) {
                Ok(sent) => sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            drop(runs);
            self.advance(sent);
        }
        Ok(true)
    }

    pub(super) fn advance(&mut self, sent: usize) {
        self.unsent = self.unsent.saturating_sub(sent as u64);
        self.written += sent;
        while let Some(first) = self.records.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.records.pop_front();
        }
    }
}
