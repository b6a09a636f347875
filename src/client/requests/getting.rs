//! A get, a list or a describe.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::reaching::Reaching;
use super::{Request, Start, not_asked};
use crate::arrow::description::{Description, MAX_ENDPOINTS};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::client::core::{AtOnce, ClientCore};
use crate::client::dial::DialOptions;
use crate::client::getting::{AskedStream, Wanted};
use crate::client::redirects::Redirects;
use crate::client::sharing::{Opener, not_opened};
use crate::client::uris::KnownUri;
use crate::client::{Answer, GetOptions, NextBatch, Stream};
use crate::device::DeviceKind;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::polling::Poller;
use crate::error::{Error, Result};
use crate::proto::{Timestamp, Verb};
use crate::transport::Attempt;

/// A request for a stream, or for a description.
pub(in crate::client) struct GetRequest {
    pub(in crate::client) client: Arc<ClientCore>,
    pub(in crate::client) uris: Arc<[KnownUri]>,
    pub(in crate::client) verb: Verb,
    pub(in crate::client) descriptor: Vec<u8>,
    pub(in crate::client) options: GetOptions,
    pub(in crate::client) due: Option<Timestamp>,
    /// The token of the request, and the token of its result.
    pub(in crate::client) cancel: (Cancel, Option<Cancel>),
    /// The redirects of servers that drain.
    pub(in crate::client) redirects: Option<Box<Redirects>>,
    pub(in crate::client) state: GetState,
}

/// How far a request is.
#[derive(Default)]
pub(in crate::client) enum GetState {
    #[default]
    New,
    /// The request waits until this time for the connection that another stream opens.
    Queued(Timestamp),
    /// The request has to open the connection for which others wait.
    Opening(Opener),
    Reaching(Reaching),
    /// The server was asked. `found` says whether the schema has come, once that is known.
    Asked {
        asked: Box<AskedStream>,
        /// `None`: a bell rings instead.
        poller: Option<Box<Poller>>,
        found: Option<Result<()>>,
    },
    /// A description is read. The stream has the poller.
    Reading(Box<Stream>, Rows),
    /// No connection was reached. The thread still watches the poller.
    Failed(Error, Box<Poller>),
}

impl GetRequest {
    fn wanted(&self) -> Result<Wanted<'_>> {
        let asked_for = (self.verb, self.descriptor.as_slice());
        Wanted::new(
            &self.client,
            &self.uris,
            asked_for,
            &self.options,
            true,
            self.due,
        )
    }

    /// Sets out for a connection.
    fn reach(&mut self) -> Result<()> {
        let may_share = self.wanted()?.may_share();
        let opener = match std::mem::take(&mut self.state) {
            GetState::Opening(opener) => Some(opener),
            _ => None,
        };
        let shares = (may_share, opener);
        let (client, uris) = (Arc::clone(&self.client), Arc::clone(&self.uris));
        let (options, due) = (self.options.clone(), self.due);
        let reach = async move |attempt: Arc<Attempt>| {
            let options = (&options, due);
            client.connections(&uris, shares, options, &attempt).await
        };
        self.state = GetState::Reaching(Reaching::new(&self.cancel.0, reach)?);
        Ok(())
    }

    /// Goes on. Returns true once the server was asked, or once that has failed.
    fn ask(&mut self) -> Result<bool> {
        let GetState::Reaching(reaching) = std::mem::take(&mut self.state) else {
            return Err(not_asked());
        };
        let (reached, poller) = match reaching.look() {
            Ok(reached) => reached,
            Err(reaching) => {
                self.state = GetState::Reaching(reaching);
                return Ok(false);
            }
        };
        match reached.and_then(|reached| self.client.ask_over(&self.wanted()?, reached)) {
            Ok(asked) => {
                self.state = GetState::Asked {
                    asked: Box::new(asked),
                    poller: Some(poller),
                    found: None,
                };
                self.look()
            }
            Err(error) => {
                self.state = GetState::Failed(error, poller);
                Ok(true)
            }
        }
    }

    /// Whether the schema, or a refusal, has come.
    fn look_for_schema(&mut self) -> Result<bool> {
        let GetState::Asked {
            asked,
            poller,
            found,
        } = &mut self.state
        else {
            return Ok(false);
        };
        let mut poller = poller.as_deref_mut();
        if !asked.try_settle(Some(&self.cancel.0), poller.as_deref_mut()) {
            return Ok(false);
        }
        *found = match asked.fetch.try_schema(Some(&self.cancel.0), poller) {
            Ok(false) => return Ok(false),
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        if self.verb != Verb::Describe || matches!(found, Some(Err(_))) {
            return Ok(true);
        }
        let poller = self.take_poller();
        if let Some(mut stream) = self.end()? {
            let rows = Rows::of(&mut stream)?;
            if let Some(poller) = poller {
                stream.adopt(poller);
            }
            self.state = GetState::Reading(stream, rows);
        }
        self.read()
    }

    /// The poller that waited for the schema; `None` if a bell did.
    fn take_poller(&mut self) -> Option<Box<Poller>> {
        match &mut self.state {
            GetState::Asked { poller, .. } => poller.take(),
            _ => None,
        }
    }

    /// The stream. `None`: to be asked for once more.
    fn end(&mut self) -> Result<Option<Box<Stream>>> {
        let GetState::Asked {
            asked,
            found: Some(found),
            ..
        } = std::mem::take(&mut self.state)
        else {
            return Err(not_asked());
        };
        let ended = asked.end(&self.client, &self.wanted()?, found, Some(&self.cancel.0));
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.lead_on(error)?;
                return Ok(None);
            }
        };
        Ok(ended.map(|mut stream| {
            self.client.note(&self.descriptor, &mut stream);
            Box::new(stream)
        }))
    }

    /// After `error`, makes the request at the next server, if a server that drains has named one.
    fn lead_on(&mut self, error: Error) -> Result<()> {
        let redirects = self.redirects.get_or_insert_with(|| {
            let trusted_network = self.options.trusted_network;
            Box::new(Redirects::of(&self.uris, trusted_network))
        });
        let uris = redirects.after(&self.client, error);
        self.uris = uris.map_err(|error| self.client.not_got(&self.descriptor, error))?;
        self.options = self.options.for_strangers();
        Ok(())
    }

    /// Whether the whole description has come.
    fn read(&mut self) -> Result<bool> {
        let GetState::Reading(stream, rows) = &mut self.state else {
            return Err(not_asked());
        };
        loop {
            match stream.try_next()? {
                NextBatch::NotYet => return Ok(false),
                NextBatch::Batch(array) => rows.add(array)?,
                NextBatch::End => return Ok(true),
            }
        }
    }
}

impl Request for GetRequest {
    fn begin_at_once(&mut self, bell: &Arc<Bell>, later: Option<&Arc<Bell>>) -> Result<Start> {
        self.cancel.0.check()?;
        if self.verb == Verb::Describe || matches!(self.state, GetState::Opening(_)) {
            // The host of a describe is told once the description is whole: a thread of the client
            // reads it.
            return Ok(Start::Elsewhere);
        }
        let begun = self.client.begin_at_once(&self.wanted()?, bell, later)?;
        let (state, start) = match (begun, &self.state) {
            (AtOnce::Done(asked), _) => {
                let state = GetState::Asked {
                    asked,
                    poller: None,
                    found: None,
                };
                (state, Start::Asked)
            }
            // A request that has waited too long fails, and does not open a connection of its own.
            (_, GetState::Queued(until)) if clock::now() >= *until => {
                return Err(DialOptions::of_get(&self.options, self.due).explain(not_opened()));
            }
            (AtOnce::Later, GetState::Queued(_)) => return Ok(Start::Later),
            (AtOnce::Later, _) => match later {
                Some(later) => {
                    let dial = DialOptions::of_get(&self.options, self.due);
                    let until = self.client.ring_late(&dial, later);
                    (GetState::Queued(until), Start::Later)
                }
                None => return Ok(Start::Later),
            },
            (AtOnce::Opens(opener), _) => (GetState::Opening(opener), Start::Elsewhere),
            (AtOnce::Elsewhere, _) => (GetState::New, Start::Elsewhere),
        };
        self.state = state;
        Ok(start)
    }

    fn begin(&mut self) -> Result<()> {
        self.cancel.0.check()?;
        let reached = self.reach();
        reached.map_err(|error| self.client.not_got(&self.descriptor, error))
    }

    fn look(&mut self) -> Result<bool> {
        match &self.state {
            GetState::Reaching(_) => self.ask(),
            GetState::Asked { .. } => self.look_for_schema(),
            GetState::Reading(..) => self.read(),
            GetState::Failed(..) => Ok(true),
            _ => Err(not_asked()),
        }
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match &mut self.state {
            GetState::Asked {
                poller: Some(poller),
                ..
            } => Ok(poller.fd()),
            GetState::Reaching(reaching) => Ok(reaching.fd()),
            GetState::Reading(stream, _) => stream.fd(),
            GetState::Failed(_, poller) => Ok(poller.fd()),
            _ => Err(not_asked()),
        }
    }

    fn take(&mut self) -> Result<Option<Answer>> {
        if let GetState::Failed(error, _) = &self.state {
            let error = error.clone();
            self.state = GetState::New;
            return self.lead_on(error).map(|()| None);
        }
        if let GetState::Reading(stream, _) = &self.state {
            let headers = stream.headers();
            let GetState::Reading(_, rows) = std::mem::take(&mut self.state) else {
                return Err(not_asked());
            };
            let description = Description::read(Box::new(rows))?;
            return Ok(Some(Answer::Description(description, headers)));
        }
        let Some(mut stream) = self.end()? else {
            return Ok(None);
        };
        stream.hand_over(self.cancel.1.as_ref());
        Ok(Some(Answer::Stream(stream)))
    }
}

/// The arrays of a description, which a stream of this crate has given and checked.
pub(crate) struct Rows {
    schema: OwnedSchema,
    arrays: VecDeque<OwnedDeviceArray>,
    count: usize,
}

impl Rows {
    /// No rows yet, with the schema of `stream`.
    pub(crate) fn of(stream: &mut Stream) -> Result<Self> {
        Ok(Self {
            schema: stream.schema()?,
            arrays: VecDeque::new(),
            count: 0,
        })
    }

    pub(crate) fn add(&mut self, array: OwnedDeviceArray) -> Result<()> {
        let rows = usize::try_from(array.raw().array.length).unwrap_or(usize::MAX);
        // An array without rows counts too: they must have an end.
        self.count = self.count.saturating_add(rows.max(1));
        if self.count > MAX_ENDPOINTS {
            return Err(Error::invalid_data(format!(
                "the server's description has more than {MAX_ENDPOINTS} endpoints"
            )));
        }
        self.arrays.push_back(array);
        Ok(())
    }
}

impl ArrayReader for Rows {
    fn schema(&mut self) -> Result<OwnedSchema> {
        crate::arrow::copy_schema(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.arrays.pop_front())
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}
