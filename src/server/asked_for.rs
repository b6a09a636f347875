//! What a client asks for, and what the host's authorizer has said about it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::driver::figures::Record;
use crate::error::{Error, Result};
use crate::proto::{self, Headers, Selection, Timestamp, Verb};

/// What the host has said about the client when it allowed a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowed {
    /// The host's name for the client.
    pub(super) principal: Option<String>,
    /// The host's label for the request.
    pub(super) label: Option<String>,
}

/// What belongs to a request in addition to its ticket.
pub(super) struct AskedFor {
    pub(super) verb: Verb,
    pub(super) headers: Headers,
    pub(super) selected: Selected,
    pub(super) deadline: Option<Timestamp>,
    /// The host's name for the client.
    pub(super) principal: Mutex<Option<String>>,
    /// The host's label for the request, until the request begins.
    pub(super) label: Mutex<Option<String>>,
    /// `None` while the host decides about the request.
    pub(super) record: Option<Arc<Record>>,
}

impl AskedFor {
    /// For a request that came at the time `at`.
    pub(super) fn of(request: &proto::Request, at: Timestamp) -> Self {
        Self {
            verb: request.verb,
            headers: request.headers.clone(),
            selected: Selected::new(&request.selection),
            deadline: (request.deadline).map(|deadline| at.saturating_add(deadline)),
            principal: Mutex::new(None),
            label: Mutex::new(None),
            record: None,
        }
    }

    /// The same request, but for the whole table, as the middleware passes it on.
    pub(super) fn forwarded(&self) -> Self {
        Self {
            verb: self.verb,
            headers: self.headers.clone(),
            selected: Selected::new(&Selection::new()),
            deadline: self.deadline,
            principal: Mutex::new(self.principal.lock().clone()),
            label: Mutex::new(None),
            record: self.record.clone(),
        }
    }

    /// For a request that the host has allowed.
    pub(super) fn of_allowed(
        request: &proto::Request,
        allowed: Allowed,
        record: &Arc<Record>,
    ) -> Self {
        Self {
            principal: Mutex::new(allowed.principal),
            record: Some(Arc::clone(record)),
            ..Self::of(request, record.at())
        }
    }
}

/// The selection of a request, and who carries it out.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) selection: Selection,
    /// Whether the host selects by itself. If the host has not said so before the stream begins,
    /// the library selects.
    is_left_to_host: OnceLock<bool>,
}

impl Selected {
    pub(super) fn new(selection: &Selection) -> Self {
        Self {
            selection: selection.clone(),
            is_left_to_host: OnceLock::new(),
        }
    }

    /// From now on the host selects by itself.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun.
    pub(super) fn leave_to_host(&self) -> Result<()> {
        match self.is_left_to_host.get_or_init(|| true) {
            true => Ok(()),
            false => Err(Error::invalid_argument(
                "the stream has begun, and the library selects of it",
            )),
        }
    }

    /// What the library still has to select of a stream that begins now.
    pub(super) fn left(&self) -> Selection {
        match self.is_left_to_host.get_or_init(|| false) {
            true => Selection::new(),
            false => self.selection.clone(),
        }
    }
}
