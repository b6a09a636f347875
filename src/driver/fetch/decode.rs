//! How a stream's messages become arrays in the place where they are wanted.

use crate::arrow::decode::{DecodedBatch, Decoder, ReceivedBody};
use crate::cancel::Cancel;
use crate::device::cuda::Event;
use crate::device::{DeviceKind, Target};
use crate::driver::end::peer_has_ended;
use crate::driver::fetch::taken::{Taken, TakenBody};
use crate::driver::fetch::{EarlyMessages, Fetch};
use crate::driver::waiting::{LONGEST_LOOK, RETRY};
use crate::error::{Error, Result, Status};
use crate::proto::{Header, HeaderKind};
use crate::transport::{Resolved, ResolvedGpu};

/// The memory, besides its bytes, of a dictionary that came before the place of arrays was known.
const EARLY_BYTES: u64 = 1 << 10;

impl Fetch {
    /// Where arrays of this stream will be, now that the server has said where its arrays are.
    /// Arrow's streams ask for one place for all arrays, even if some bodies, such as small ones,
    /// come as bytes.
    pub(super) fn settle_target(&self) -> Target {
        if self.target != Target::AsSent {
            return self.target;
        }
        let info = self.stream(|stream| stream.info().cloned());
        let Some(info) = info.filter(|info| info.device_type == DeviceKind::CUDA.0) else {
            return Target::Host;
        };
        // The server's number may stand for another GPU here, or for none.
        let said = Target::of(DeviceKind::CUDA, info.device_id).ok();
        let mut here = said.into_iter().chain([Target::Cuda(0)]);
        here.find(|target| target.ensure_available().is_ok())
            .unwrap_or(Target::Host)
    }

    /// Turns a message into an array. Returns `None` for a dictionary.
    pub(super) fn decode(
        &mut self,
        taken: Taken,
        cancel: Option<&Cancel>,
    ) -> Result<Option<DecodedBatch>> {
        let Taken { header, body } = taken;
        let (body, gpu) = self.find_body(&header, body, cancel)?;
        if let Some(mut early) = self.early.take() {
            let is_dictionary = header.kind() == HeaderKind::Dictionary;
            if gpu.is_none() && is_dictionary && early.bytes <= self.decode.message_limit {
                // Dictionaries need not have bodies, and there may be any number of them.
                let held = (header.bytes().len() as u64).saturating_add(header.body_len());
                early.bytes = (early.bytes.saturating_add(held)).saturating_add(EARLY_BYTES);
                early.messages.push((header, body));
                self.early = Some(early);
                return Ok(None);
            }
            self.follow_to(gpu, early)?;
        }
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::protocol(
                // Rule M4.
                "a record batch came before the schema",
            ));
        };
        if header.kind() == HeaderKind::Dictionary {
            self.stats.bytes_copied += decoder.add_dictionary(&header, &body)?;
            return Ok(None);
        }
        let batch = decoder.batch(&header, &body)?;
        // Rows without columns take no memory, so a peer may send any number of them.
        self.stats.rows = self.stats.rows.saturating_add(batch.rows);
        self.stats.batches += 1;
        self.stats.bytes_copied += batch.copied;
        self.stats.bytes_copied_on_device += batch.copied_on_device;
        self.stats.bytes_staged += batch.staged;
        Ok(Some(batch))
    }

    /// Decides where the arrays of this stream stay, by the first body that shows it: a body on
    /// `gpu`, or the body of a batch that came as bytes.
    fn follow_to(&mut self, gpu: Option<i32>, early: EarlyMessages) -> Result<()> {
        if let (Some(header), Some(ordinal)) = (self.schema(), gpu)
            && self.target != Target::Cuda(ordinal)
        {
            self.target = Target::Cuda(ordinal);
            self.decoder = Some(Decoder::with_target(&header, self.decode, self.target)?);
        }
        if let Some(decoder) = &mut self.decoder {
            for (header, body) in early.messages {
                self.stats.bytes_copied += decoder.add_dictionary(&header, &body)?;
            }
        }
        Ok(())
    }

    /// The body of a message, and the GPU on which it lies, if it lies on one.
    fn find_body(
        &mut self,
        header: &Header,
        body: TakenBody,
        cancel: Option<&Cancel>,
    ) -> Result<(ReceivedBody, Option<i32>)> {
        match body {
            TakenBody::Packed(memory) => {
                self.stats.bytes_received += memory.len() as u64;
                let gpu = memory.gpu();
                Ok((memory.find(header)?, gpu))
            }
            TakenBody::Lent { len, lent, memory } => {
                let Resolved {
                    buffers,
                    owner,
                    shared,
                    pulled,
                    gpu,
                } = memory.map_err(|error| self.explain(error))?;
                if gpu.is_some() && self.target == Target::Host {
                    return Err(Error::protocol(
                        "the server lent memory of a GPU, which was not asked for",
                    ));
                }
                let owner = if pulled {
                    self.stats.bytes_received += len;
                    drop(lent);
                    owner
                } else {
                    self.stats.bytes_lent += len;
                    lent.into_owner(owner)
                };
                Ok(match gpu {
                    Some(ResolvedGpu { device, ready }) => {
                        let ordinal = device.ordinal();
                        if let Some(ready) = ready {
                            self.wait_until_ready(&ready, cancel)?;
                        }
                        // SAFETY: the transport resolved the spans to memory of `device` that
                        // `owner` keeps mapped, by itself or from inside a `LentBody`. The peer's
                        // work on it is done, as `ready` said. `shared` says whether the peer could
                        // still write.
                        let body =
                            unsafe { ReceivedBody::on_gpu(buffers, owner, shared, device, None) };
                        (body, Some(ordinal))
                    }
                    // SAFETY: the transport resolved the spans to memory of the host that `owner`
                    // keeps mapped. The peer has written it before it sent the list. `shared` says
                    // whether the peer could still write.
                    None => (unsafe { ReceivedBody::new(buffers, owner, shared) }, None),
                })
            }
        }
    }

    /// Explains why lent memory cannot be read. The driver forgets the memory of a process a moment
    /// before the system reports the end of that process.
    fn explain(&self, error: Error) -> Error {
        let bodies = self.bodies();
        let has_ended =
            error.status() != Status::Protocol && bodies.readiness().peer_dies_within(RETRY);
        if has_ended {
            peer_has_ended(bodies.peer(), false)
        } else {
            error
        }
    }

    /// Waits for the server's work on a body that lies on a GPU. The wait is not put on a stream:
    /// if the server dies, the event may never happen, and all later work of that stream would
    /// wait.
    fn wait_until_ready(&self, ready: &Event, cancel: Option<&Cancel>) -> Result<()> {
        while !ready.is_ready()? {
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            let readiness = self.bodies().readiness();
            if readiness.peer_death.is_none() {
                std::thread::sleep(LONGEST_LOOK);
            }
            if readiness.peer_dies_within(LONGEST_LOOK) {
                return Err(Error::disconnected(format!(
                    "the server's process ({}) ended before its work on a GPU was done",
                    self.bodies().peer()
                )));
            }
        }
        Ok(())
    }
}
