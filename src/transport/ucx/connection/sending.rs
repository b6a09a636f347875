//! Messages on their way into UCX.

use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    Api, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_REPLY, UCP_OP_ATTR_FIELD_FLAGS,
    ucp_request_param_t, ucs_status_ptr_t,
};

use super::progress::note;
use super::{Link, UcxConnection, closed, enter};
use crate::error::{Error, Result};
use crate::transport::ucx::active::Class;
use crate::transport::ucx::bundle::{self, Bundle};
use crate::transport::ucx::callbacks::{Ends, Started, Work};
use crate::transport::ucx::endpoint::Endpoint;
use crate::transport::ucx::gather::Sending;
use crate::transport::{Outgoing, sends_host_memory_only};

impl UcxConnection {
    /// Whether all that is sent goes over tcp.
    fn goes_over_tcp(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.worker.context().goes_over_tcp())
    }

    /// Up to how many bytes a message travels in a bundle.
    pub(super) fn most_in_a_bundle(&self) -> usize {
        match self.goes_over_tcp() {
            true => bundle::MOST_MESSAGE_BYTES_OVER_TCP,
            false => bundle::MOST_MESSAGE_BYTES,
        }
    }

    /// Starts to send. What is not over at once needs progress, for which whoever sleeps is woken.
    pub(super) fn post(
        &mut self,
        sending: Sending,
        extra: impl FnOnce(&mut ucp_request_param_t),
        call: impl FnOnce(
            &Api,
            Endpoint,
            *const c_void,
            usize,
            *const ucp_request_param_t,
        ) -> ucs_status_ptr_t,
    ) -> Result<()> {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return Err(closed());
        };
        let (buffer, count, mut params) = sending.describe();
        extra(&mut params);
        let length = sending.len();
        self.queued_bytes += length as u64;
        let (api, endpoint) = (self.api, *endpoint);
        let started = self
            .shared
            .start(Work::Send(sending), Ends::Send, params, |params| {
                call(api, endpoint, buffer, count, params)
            });
        match started {
            Started::UnderWay(_) => worker.see_to()?,
            Started::Sent(sending) => {
                self.queued_bytes -= length as u64;
                if let Some(bundle) = &mut self.bundle {
                    bundle.keep(sending.into_bytes());
                }
            }
            Started::Over => {}
        }
        if self.shared.has_news() {
            self.settle();
        }
        self.wake_for_inbox();
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Sends a message by itself.
    pub(super) fn send_now(&mut self, message: Outgoing) -> Result<()> {
        if let Outgoing::GpuBody { body, .. } = &message {
            self.gpu = Some(Arc::clone(body.device()));
        }
        let gpu = self.gpu.clone();
        let _current = enter(gpu.as_ref())?;
        match message {
            Outgoing::Metadata { prefix, header } => {
                let header = header.as_deref().unwrap_or_default();
                self.send_active(Class::Metadata, [prefix.as_slice(), header].concat())
            }
            Outgoing::Control { bytes, fd: _ } => self.send_control(bytes),
            Outgoing::Tagged { tag, payload } => {
                self.send_tagged(tag, Sending::payload(payload, self.goes_over_tcp()))
            }
            Outgoing::GpuBody { .. } if !self.knows_cuda => Err(sends_host_memory_only()),
            Outgoing::GpuBody { tag, body } => self.send_tagged(tag, Sending::gpu(body)),
        }
    }

    /// Sends what has waited to leave together.
    pub(super) fn send_bundle(&mut self) -> Result<()> {
        let Some(bundle) = &mut self.bundle else {
            return Ok(());
        };
        let mut messages = bundle.take();
        let sent = match messages.as_slice() {
            [] => Ok(()),
            [alone] if !bundle::is_in_runs(alone) => messages
                .pop()
                .map_or(Ok(()), |message| self.send_now(message)),
            _ => self.send_together(&messages),
        };
        // Now that they are on their way: letting go of what they kept alive may wake a thread.
        if let Some(bundle) = &mut self.bundle {
            bundle.use_again(messages);
        }
        sent
    }

    fn send_together(&mut self, messages: &[Outgoing]) -> Result<()> {
        let gpu = self.gpu.clone();
        let _current = enter(gpu.as_ref())?;
        let room = self.bundle.as_mut().map(Bundle::take_kept);
        let bytes = bundle::together(messages, room.unwrap_or_default())?;
        self.post_active(Class::Bundle, Sending::bytes(bytes))
    }

    /// Sends a control message; a client's waits until the server has proven that it knows such
    /// messages (rule E1).
    pub(super) fn send_control(&mut self, bytes: Vec<u8>) -> Result<()> {
        match &mut self.unproven {
            Some(waiting) => {
                waiting.push(bytes);
                Ok(())
            }
            None => self.send_active(Class::Control, bytes),
        }
    }

    /// The server has sent a control message: what waited for that leaves.
    pub(super) fn prove(&mut self) {
        for bytes in self.unproven.take().unwrap_or_default() {
            let sent = self.send_active(Class::Control, bytes);
            note(&mut self.over, sent);
        }
    }

    fn send_active(&mut self, class: Class, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() as u64 > class.limit() {
            return Err(Error::invalid_argument(format!(
                "a {class:?} message of {} bytes cannot be sent; the limit is {}",
                bytes.len(),
                class.limit()
            )));
        }
        self.post_active(class, Sending::bytes(bytes))
    }

    fn post_active(&mut self, class: Class, sending: Sending) -> Result<()> {
        // Rule R1: no header, and for metadata the reply flag. UCX drops a message with it that is
        // read after the endpoint has failed, as the last word of a server may be. A bundle is
        // small: that its client asks for it first would only cost time.
        let flags = match class {
            Class::Metadata => UCP_AM_SEND_FLAG_REPLY,
            Class::Control => 0,
            Class::Bundle => UCP_AM_SEND_FLAG_EAGER,
        };
        let with_flags = |params: &mut ucp_request_param_t| {
            params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
            params.flags = flags;
        };
        let id = class.id();
        self.post(
            sending,
            with_flags,
            // SAFETY: the endpoint lives; the buffer is the operation's until that is over.
            |api, endpoint, buffer, count, params| unsafe {
                let none = std::ptr::null();
                api.ucp_am_send_nbx(endpoint.handle(), id, none, 0, buffer, count, params)
            },
        )
    }

    pub(super) fn send_tagged(&mut self, tag: u64, sending: Sending) -> Result<()> {
        self.post(
            sending,
            |_| {},
            // SAFETY: the endpoint lives; the buffer is the operation's until that is over.
            |api, endpoint, buffer, count, params| unsafe {
                api.ucp_tag_send_nbx(endpoint.handle(), buffer, count, tag, params)
            },
        )
    }
}
