//! A request to take a table, or to exchange tables.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Look, Request};
use crate::arrow::OwnedSchema;
use crate::cancel::Cancel;
use crate::client::asking::ClientCore;
use crate::client::put::{AskedPut, WantedPut};
use crate::client::uris::KnownUri;
use crate::client::{Answer, GetOptions, Put, PutOptions, Stream};
use crate::error::{Error, Result};
use crate::proto::Timestamp;

/// A put, or an exchange if there are options for the server's stream.
pub(in crate::client) struct PutRequest {
    pub(in crate::client) client: Arc<ClientCore>,
    pub(in crate::client) uri: KnownUri,
    pub(in crate::client) descriptor: Vec<u8>,
    pub(in crate::client) described: (OwnedSchema, i32),
    pub(in crate::client) options: PutOptions,
    pub(in crate::client) answers: Option<GetOptions>,
    pub(in crate::client) due: Option<Timestamp>,
    /// The token of the request, and that of what comes of it.
    pub(in crate::client) cancel: (Cancel, Option<Cancel>),
    pub(in crate::client) state: PutState,
}

/// How far a request is.
#[derive(Default)]
pub(in crate::client) enum PutState {
    #[default]
    New,
    Asked(Box<AskedPut>),
    Accepted(Box<Put>, Option<Box<Stream>>),
}

impl PutRequest {
    fn wanted(&self) -> WantedPut<'_> {
        WantedPut {
            uri: &self.uri,
            descriptor: &self.descriptor,
            described: (&self.described.0, self.described.1),
            options: &self.options,
            answers: self.answers.as_ref(),
            due: self.due,
        }
    }
}

impl Request for PutRequest {
    fn begin(&mut self) -> Result<()> {
        self.cancel.0.check()?;
        let asked = self.wanted().begin(&self.client, Some(&self.cancel.0));
        let asked = asked.map_err(|error| self.client.not_taken(&self.descriptor, error))?;
        self.state = PutState::Asked(Box::new(asked));
        Ok(())
    }

    fn look(&mut self) -> Result<Look> {
        let PutState::Asked(asked) = &mut self.state else {
            return Ok(Look::Answer);
        };
        let accepted = match asked.look(false) {
            Ok(false) => return Ok(Look::NotYet),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let PutState::Asked(asked) = std::mem::take(&mut self.state) else {
            return Ok(Look::Answer);
        };
        let ended = asked.end(accepted, self.cancel.1.as_ref());
        let Some((put, stream)) =
            ended.map_err(|error| self.client.not_taken(&self.descriptor, error))?
        else {
            return Ok(Look::Again);
        };
        self.state = PutState::Accepted(Box::new(put), stream.map(Box::new));
        Ok(Look::Answer)
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match &mut self.state {
            PutState::Asked(asked) => asked.put.fd(),
            PutState::Accepted(put, _) => put.fd(),
            PutState::New => Err(Error::invalid_argument("the request has no connection")),
        }
    }

    fn take(self: Box<Self>) -> Result<Answer> {
        match self.state {
            PutState::Accepted(put, stream) => Ok(Answer::Put(put, stream)),
            _ => Err(Error::protocol("the server has not answered")),
        }
    }
}
