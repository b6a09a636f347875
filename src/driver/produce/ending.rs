//! The end of a stream on its way out: its last word, and what becomes of its connections.

use std::sync::Arc;
use std::time::Duration;

use super::outlet::StreamItem;
use super::production::{Production, no_schema};
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::error::{Result, Status};
use crate::proto::Timestamp;

/// How long a finished stream waits for its second part, if no batch shows whether that is needed.
const LINGER: Duration = Duration::from_secs(2);

impl Production {
    /// Ends the stream: waits until everything has been sent, to both parts of it. After `Timeout`
    /// it may be called again.
    pub fn finish(&mut self, deadline: Option<Timestamp>) -> Result<()> {
        if !self.finished {
            if self.encoder.is_none() {
                return Err(no_schema());
            }
            self.finished = true;
            self.log.push_back(StreamItem::End);
        }
        let linger = *self.linger.get_or_insert_with(|| clock::after(LINGER));
        self.wait_until(deadline, |this| Ok(this.advance()? && this.is_over(linger)))?;
        if let Some(poller) = &mut self.poller {
            poller.end();
        }
        if let Some(account) = self.account.take() {
            account.end();
        }
        Ok(())
    }

    /// Ends the stream with an error for the consumer, unless its end was already sent.
    pub fn fail(&mut self, status: i32, text: &str) {
        self.log_failure(status, text);
        if let Some(poller) = &mut self.poller {
            poller.end();
        }
        self.attach_joined();
        self.finished = true;
        self.broken = None;
        self.log.clear();
        self.end();
        for outlet in &mut self.outlets {
            outlet.fail(status, text);
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending();
        }
    }

    /// Lets go of the connections. If the stream has only one, returns it once the stream is over:
    /// the caller may use it for the next request, if it is free soon.
    pub fn release(mut self) -> Option<Arc<EndLink>> {
        let [outlet] = self.outlets.as_mut_slice() else {
            return None;
        };
        let mut turner = outlet.turner.take_if(|_| outlet.done)?;
        let number = turner.number();
        turner.step(|served, _| served.forget_watch(number, &self.stream.watch));
        Some(turner.give_back_later())
    }

    /// Lets go of the connections of a stream that was finished or has failed. Their next requests
    /// then need not wait until the host drops this value.
    pub fn let_go(&mut self) {
        self.stream.close();
        if let Some(poller) = &mut self.poller {
            poller.end();
        }
        for mut turner in self.outlets.drain(..).filter_map(|it| it.turner) {
            let number = turner.number();
            turner.step(|served, _| served.forget_watch(number, &self.stream.watch));
        }
    }

    /// Logs why the stream ends. If its client has gone, that is given as the reason.
    fn log_failure(&mut self, status: i32, text: &str) {
        let Some(account) = self.account.take() else {
            return;
        };
        let links = self.stream.links();
        match links.iter().find_map(|link| link.ensure_streaming().err()) {
            Some(lost) => account.fail(lost.status().code(), lost.text()),
            None => {
                account.warn_of_provider(status, text);
                account.fail(status, text);
            }
        }
    }
}

impl Drop for Production {
    fn drop(&mut self) {
        self.stream.outlets.lock().absent = None;
        // Also tells parts that joined a moment ago, and parts to which the end was not sent.
        let text = "the producer ended without finishing the stream";
        self.fail(Status::Provider.code(), text);
        self.let_go();
    }
}
