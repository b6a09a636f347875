//! What a receiver asks a server for.

use crate::bare::BareReceiver;
use crate::client::{GetOptions, SILENCE_TIMEOUT};
use crate::device::Target;
use crate::error::{Error, Result};
use crate::proto::{ReceiverConfig, Request, SideConfig, Uri, Verb};

impl BareReceiver {
    /// [`new`](Self::new) for one URI or for two (rule U3). Only the host knows who the server is,
    /// so the default is full validation (rule A8).
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` or `InvalidArgument` for a missing GPU, and the errors of `new`.
    pub fn for_uris(
        uris: &[&str],
        verb: Verb,
        ticket: &[u8],
        stream_id: u128,
        options: &GetOptions,
    ) -> Result<Self> {
        options.device.ensure_available()?;
        let sides = Uri::parse_all(uris)?;
        let mut sides = sides.iter().map(SideConfig::from);
        let metadata = sides
            .next()
            .ok_or_else(|| Error::invalid_argument("no URI was given"))?;
        let request = Request {
            verb,
            lent_limit: options.lent_limit,
            stream_id,
            deadline: options.deadline,
            headers: options.headers.clone(),
            selection: options.selection.clone(),
            ..Request::new(ticket, options.window)
        };
        let config = ReceiverConfig {
            data: sides.next(),
            first_seq: options.first_seq,
            stall_timeout: options.stall_timeout,
            silence_timeout: Some(SILENCE_TIMEOUT),
            // The host connects, and limits the time for an answer itself.
            ..ReceiverConfig::new(request, metadata)
        };
        let mut receiver = Self::new(config, options.decode(false))?;
        receiver.target = match options.device {
            Target::AsSent => Target::Host,
            there => there,
        };
        Ok(receiver)
    }
}
