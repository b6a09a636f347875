//! A request to take a table, or to exchange tables.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Request, not_asked};
use crate::arrow::OwnedSchema;
use crate::cancel::Cancel;
use crate::client::core::ClientCore;
use crate::client::put::{AskedPut, WantedPut};
use crate::client::redirects::Redirects;
use crate::client::uris::KnownUri;
use crate::client::{Answer, GetOptions, PutOptions};
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
    /// Where servers that drain have led it.
    pub(in crate::client) redirects: Option<Box<Redirects>>,
    pub(in crate::client) state: PutState,
}

/// How far a request is.
#[derive(Default)]
pub(in crate::client) struct PutState {
    asked: Option<Box<AskedPut>>,
    /// Whether the server has accepted, once it has answered.
    accepted: Option<Result<()>>,
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

    /// After `error`, the request goes on to where a server that drains has led it.
    fn lead_on(&mut self, error: Error) -> Result<()> {
        let redirects = self.redirects.get_or_insert_with(|| {
            let uri = std::slice::from_ref(&self.uri);
            Box::new(Redirects::of(uri, false))
        });
        let uri = redirects.after_put(&self.client, error);
        self.uri = uri.map_err(|error| self.client.not_taken(&self.descriptor, error))?;
        self.options = self.options.for_strangers();
        Ok(())
    }
}

impl Request for PutRequest {
    fn begin(&mut self) -> Result<()> {
        self.cancel.0.check()?;
        let asked = loop {
            match (self.wanted()).begin(&self.client, Some(&self.cancel.0)) {
                Ok(asked) => break asked,
                Err(error) => self.lead_on(error)?,
            }
        };
        self.state.asked = Some(Box::new(asked));
        Ok(())
    }

    fn look(&mut self) -> Result<bool> {
        let PutState { asked, accepted } = &mut self.state;
        let asked = asked.as_mut().ok_or_else(not_asked)?;
        *accepted = match asked.look(false) {
            Ok(false) => return Ok(false),
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        Ok(true)
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.state.asked.as_mut().ok_or_else(not_asked)?.put.fd()
    }

    fn take(&mut self) -> Result<Option<Answer>> {
        let PutState { asked, accepted } = std::mem::take(&mut self.state);
        let (asked, accepted) = asked.zip(accepted).ok_or_else(not_asked)?;
        let ended = asked.end(accepted, self.cancel.1.as_ref());
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.lead_on(error)?;
                return Ok(None);
            }
        };
        Ok(ended.map(|(put, stream)| Answer::Put(Box::new(put), stream.map(Box::new))))
    }
}
