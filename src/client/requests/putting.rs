//! A request to take a table, or to exchange tables.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::reaching::Reaching;
use super::{Request, not_asked};
use crate::arrow::OwnedSchema;
use crate::cancel::Cancel;
use crate::client::core::ClientCore;
use crate::client::put::{AskedPut, WantedPut};
use crate::client::redirects::Redirects;
use crate::client::uris::KnownUri;
use crate::client::{Answer, GetOptions, PutOptions};
use crate::driver::polling::Poller;
use crate::error::{Error, Result};
use crate::proto::Timestamp;
use crate::transport::Attempt;

/// A put, or an exchange if there are options for the server's stream.
pub(in crate::client) struct PutRequest {
    pub(in crate::client) client: Arc<ClientCore>,
    pub(in crate::client) uri: KnownUri,
    pub(in crate::client) descriptor: Vec<u8>,
    pub(in crate::client) described: (OwnedSchema, i32),
    pub(in crate::client) options: PutOptions,
    pub(in crate::client) answers: Option<GetOptions>,
    pub(in crate::client) due: Option<Timestamp>,
    /// The token of the request, and the token of its result.
    pub(in crate::client) cancel: (Cancel, Option<Cancel>),
    /// The redirects of servers that drain.
    pub(in crate::client) redirects: Option<Box<Redirects>>,
    pub(in crate::client) state: PutState,
}

/// How far a request is.
#[derive(Default)]
pub(in crate::client) enum PutState {
    #[default]
    New,
    Reaching(Reaching),
    /// The server was asked. The result says whether the server has accepted, once it has answered.
    Asked(Box<AskedPut>, Option<Result<()>>),
    /// No connection was reached. The thread still watches the poller.
    Failed(Error, Box<Poller>),
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

    /// Goes on. Returns true once the server was asked, or once that has failed.
    fn ask(&mut self) -> Result<bool> {
        let PutState::Reaching(reaching) = std::mem::take(&mut self.state) else {
            return Err(not_asked());
        };
        let (reached, poller) = match reaching.look() {
            Ok(reached) => reached,
            Err(reaching) => {
                self.state = PutState::Reaching(reaching);
                return Ok(false);
            }
        };
        let cancel = Some(&self.cancel.0);
        match reached.and_then(|it| self.wanted().ask_over(&self.client, it, cancel)) {
            Ok(mut asked) => {
                asked.put.adopt(poller)?;
                self.state = PutState::Asked(Box::new(asked), None);
                self.look()
            }
            Err(error) => {
                self.state = PutState::Failed(error, poller);
                Ok(true)
            }
        }
    }

    /// After `error`, makes the request at the next server, if a server that drains has named one.
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
        let (client, uri, options) = (
            Arc::clone(&self.client),
            self.uri.clone(),
            self.options.clone(),
        );
        let answers = self.answers.as_ref().map(|answers| answers.window.bytes);
        let due = self.due;
        let reach = async move |attempt: Arc<Attempt>| {
            let options = (&options, due);
            client.connection(&uri, options, answers, &attempt).await
        };
        self.state = PutState::Reaching(Reaching::new(&self.cancel.0, reach)?);
        Ok(())
    }

    fn look(&mut self) -> Result<bool> {
        match &mut self.state {
            PutState::Reaching(_) => self.ask(),
            PutState::Asked(asked, accepted) => {
                *accepted = match asked.look(false) {
                    Ok(false) => return Ok(false),
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(error)),
                };
                Ok(true)
            }
            PutState::Failed(..) => Ok(true),
            PutState::New => Err(not_asked()),
        }
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match &mut self.state {
            PutState::Reaching(reaching) => Ok(reaching.fd()),
            PutState::Asked(asked, _) => asked.put.fd(),
            PutState::Failed(_, poller) => Ok(poller.fd()),
            PutState::New => Err(not_asked()),
        }
    }

    fn take(&mut self) -> Result<Option<Answer>> {
        let ended = match std::mem::take(&mut self.state) {
            PutState::Asked(asked, Some(accepted)) => asked.end(accepted, self.cancel.1.as_ref()),
            PutState::Failed(error, _) => Err(error),
            _ => Err(not_asked()),
        };
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
