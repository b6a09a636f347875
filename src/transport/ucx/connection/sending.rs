//! Outgoing messages.

use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    Api, UCP_AM_SEND_FLAG_REPLY, UCP_OP_ATTR_FIELD_FLAGS, UCP_OP_ATTR_FLAG_FAST_CMPL, ucp_ep_h,
    ucp_request_param_t, ucs_status_ptr_t,
};

use super::{UcxConnection, closed, enter};
use crate::error::{Error, Result};
use crate::proto::body_of_tag;
use crate::transport::ucx::callbacks::MessageClass;
use crate::transport::ucx::gather::Sending;
use crate::transport::ucx::operations::Work;
use crate::transport::ucx::tagged::{LARGE_BYTES, numbered};
use crate::transport::{Outgoing, sends_host_memory_only};

impl UcxConnection {
    /// Gives a message of the stream `number` to UCX.
    pub(super) fn send_now(&mut self, number: u32, message: Outgoing) -> Result<()> {
        if let Outgoing::GpuBody { body, .. } = &message {
            self.gpu = Some(Arc::clone(body.device()));
        }
        let gpu = self.gpu.clone();
        let _current = enter(gpu.as_ref())?;
        match message {
            Outgoing::Metadata { prefix, header } => {
                let header = header.as_deref().unwrap_or_default();
                let bytes = [prefix.as_slice(), header].concat();
                self.send_active(MessageClass::Metadata, number, bytes)
            }
            Outgoing::Control { bytes, fd: _ } => match &mut self.unproven {
                Some(waiting) => {
                    waiting.push((number, bytes));
                    Ok(())
                }
                None => self.send_active(MessageClass::Control, number, bytes),
            },
            Outgoing::Tagged { tag, payload } => {
                let sending = Sending::payload(payload)?;
                let tag = body_of_tag(tag).map_or(tag, |_| numbered(tag, number));
                self.send_tagged(tag, sending)
            }
            Outgoing::GpuBody { .. } if !self.knows_cuda => Err(sends_host_memory_only()),
            Outgoing::GpuBody { tag, body } => {
                self.send_tagged(numbered(tag, number), Sending::Gpu(body))
            }
        }
    }

    /// The server takes control messages: it has sent one, or its URI says so (rule E1). Sends the
    /// messages that waited for that.
    pub(in crate::transport::ucx) fn prove(&mut self) {
        for (number, bytes) in self.unproven.take().unwrap_or_default() {
            let sent = self.send_active(MessageClass::Control, number, bytes);
            self.note(sent);
        }
    }

    fn send_active(&mut self, class: MessageClass, number: u32, bytes: Vec<u8>) -> Result<()> {
        let (length, most) = (bytes.len(), class.limit(true));
        if length as u64 > most {
            return Err(Error::invalid_argument(format!(
                "a {class:?} message of {length} bytes cannot be sent; the limit is {most}"
            )));
        }
        // Rule R1: a peer that knows only one stream gets no header; metadata has the reply flag.
        // Control messages do not have this flag: if the endpoint has failed, UCX drops unread
        // messages with the flag, but the last message of a server must still be readable then.
        let flags = match class {
            MessageClass::Metadata => UCP_AM_SEND_FLAG_REPLY,
            MessageClass::Control => 0,
        };
        let sending = Sending::active(number, bytes);
        let (header, header_len) = sending.header();
        self.post(sending, |api, endpoint, buffer, count, mut params| {
            params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
            params.flags = flags;
            let (id, params) = (class.id(), &raw const params);
            // SAFETY: the endpoint lives; header and buffer are the operation's until that is over.
            unsafe { api.ucp_am_send_nbx(endpoint, id, header, header_len, buffer, count, params) }
        })
    }

    fn send_tagged(&mut self, tag: u64, sending: Sending) -> Result<()> {
        let over_tcp = (self.link.as_ref()).is_some_and(|it| it.worker.context.goes_over_tcp());
        let is_on_host = !matches!(sending, Sending::Gpu(_));
        let is_large = sending.len() as u64 > LARGE_BYTES;
        self.post(sending, |api, endpoint, buffer, count, mut params| {
            if over_tcp && is_on_host && !is_large {
                // With rendezvous, a tcp connection would need one round trip more, and save no
                // copy.
                params.op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL;
            }
            // SAFETY: the endpoint lives; the buffer is the operation's until that is over.
            unsafe { api.ucp_tag_send_nbx(endpoint, buffer, count, tag, &raw const params) }
        })
    }

    /// Starts to send. An operation that does not end at once needs progress, so a sleeper is
    /// woken.
    fn post<F>(&mut self, sending: Sending, call: F) -> Result<()>
    where
        F: FnOnce(&Api, ucp_ep_h, *const c_void, usize, ucp_request_param_t) -> ucs_status_ptr_t,
    {
        let Some(link) = &mut self.link else {
            return Err(closed());
        };
        let (buffer, count, params) = sending.describe();
        let returned = call(self.api, link.endpoint.0, buffer, count, params);
        self.queued_bytes += sending.len() as u64;
        if link.operations.add(Work::Send(sending), returned) {
            link.worker.see_to()?;
        }
        self.settle();
        self.wake_for_inbox();
        self.over.clone().map_or(Ok(()), Err)
    }
}
