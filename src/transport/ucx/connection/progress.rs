//! Incoming messages.

use ucx1_sys::{UCS_ERR_CANCELED, UCS_OK, ucs_status_t};

use super::UcxConnection;
use crate::error::Result;
use crate::transport::Incoming;
use crate::transport::ucx::active;
use crate::transport::ucx::error::{error, lost};
use crate::transport::ucx::operations::Work;

impl UcxConnection {
    /// Makes progress, and handles what UCX has brought. Returns whether anything advanced.
    pub(super) fn progress(&mut self) -> bool {
        let moved = (self.link.as_mut()).is_some_and(|link| link.worker.progress());
        self.settle() || moved
    }

    /// Handles what UCX has brought, until there is nothing more. Returns whether there was
    /// anything. No function of UCX is on the stack here, so every function of UCX may be called.
    pub(super) fn settle(&mut self) -> bool {
        let (mut moved, mut is_proven) = (false, false);
        while let Some(link) = &mut self.link {
            let mut failed = match self.over {
                None => self.tagged.fetch(link),
                Some(_) => Ok(()),
            };
            let finished = link.operations.take_finished();
            let (arrived, announced, lost_by) = link.shared.with(|reports| {
                let lost_by = match (reports.refused.take(), reports.failed) {
                    (Some(refused), _) => Some(refused),
                    (None, status) => status.map(|s| lost(self.api, &self.identity.peer, s)),
                };
                let arrived = std::mem::take(&mut reports.arrived);
                (arrived, std::mem::take(&mut reports.announced), lost_by)
            });
            let is_over = self.over.is_none() && lost_by.is_some();
            // The reason comes first, before errors of operations that end because of it.
            self.over = self.over.take().or(lost_by);
            if !is_over && arrived.is_empty() && announced.is_empty() && finished.is_empty() {
                self.note(failed);
                break;
            }
            moved = true;
            is_proven |= (arrived.iter()).any(|it| matches!(it, (_, Incoming::Control { .. })));
            self.inbox.extend(arrived);
            for message in announced {
                let (worker, shared) = (&link.worker, &link.shared);
                let fetched = active::fetch(worker, shared, &mut link.operations, message);
                failed = failed.and(fetched);
            }
            self.note(failed);
            for (work, status) in finished {
                let came = self.finish(work, status);
                is_proven |= matches!(came, Ok(Some((_, Incoming::Control { .. }))));
                match came {
                    Ok(message) => self.inbox.extend(message),
                    Err(error) => self.note(Err(error)),
                }
            }
        }
        if is_proven && self.over.is_none() {
            self.prove();
        }
        moved
    }

    /// Keeps the first error only.
    pub(super) fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.over.get_or_insert(error);
        }
    }

    /// The result of an operation that has ended.
    fn finish(&mut self, work: Work, status: ucs_status_t) -> Result<Option<(u32, Incoming)>> {
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        let failed = |doing| error(self.api, doing, status);
        match work {
            Work::Send(sending) => {
                self.queued_bytes -= sending.len() as u64;
                // If a send failed, the endpoint's error handler reports the reason, if there is a
                // handler.
                match status {
                    UCS_OK | UCS_ERR_CANCELED => Ok(None),
                    _ => Err(failed("a message was not sent")),
                }
            }
            Work::Active {
                class,
                number,
                bytes,
            } => match status {
                UCS_OK => Ok(Some((number, class.incoming(bytes.into())))),
                _ => Err(failed("a message was not received")),
            },
            Work::Read { list, memory } => {
                // The address list has this memory too.
                drop(memory);
                let outcome = match status {
                    UCS_OK => Ok(()),
                    _ => Err(failed("the memory that the server lent cannot be read")),
                };
                let pulls = self.pulls.as_mut();
                pulls.map_or(Ok(None), |pulls| pulls.finish(list, outcome))
            }
            Work::Tagged { tag, memory } => {
                let came = (self.tagged).finish(&link.worker, tag, memory, status)?;
                match (came, &mut self.pulls) {
                    (Some(message), Some(pulls)) => pulls.take_in(link, message),
                    (came, _) => Ok(came),
                }
            }
        }
    }
}
