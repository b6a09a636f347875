//! A client that sends: it asks the server to take a stream (rule Q3).

use super::commands::misuse;
use super::window::CreditWindow;
use super::{Sender, SenderEvent, SenderState, SentStream, Transmit};
use crate::error::{Error, Status};
use crate::proto::control::error_of;
use crate::proto::extension::FEATURES;
use crate::proto::{Control, Grant, Headers, ProtocolError, Request, Role, StreamInfo, Verb};

impl<P, K> Sender<P, K> {
    /// Asks the server to take the stream that the request describes. Then send the schema, and
    /// wait for [`SenderEvent::Granted`] before the first batch.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: a stream runs, the request describes no stream, selects columns or rows,
    /// or is too long.
    pub fn ask(&mut self, request: &Request) -> Result<(), Error> {
        let tags = self.config.tags.get(Role::Both);
        let (Some(tags), SenderState::Idle) = (tags, self.state) else {
            return Err(misuse("ask", self.state));
        };
        let Some(source) = request.source.filter(|_| request.verb.has_source()) else {
            return Err(Error::invalid_argument("the request describes no stream"));
        };
        request.ensure_fits()?;
        self.extension = true;
        self.is_client = true;
        self.stream = Some(SentStream {
            mark: request.mark(),
            role: Role::Both,
            next_seq: self.config.first_seq,
            schema_sent: false,
            cancelled: false,
            window: None,
            version: request.max_version,
            features: source.features & FEATURES,
            answer_headers: Headers::new(),
            has_source: true,
            is_exchange: request.verb == Verb::Exchange,
            is_granted: false,
            is_incoming_over: false,
            last_header: None,
        });
        self.state = SenderState::Asked;
        self.transmits.push_back(Transmit::Request {
            tag: tags.dipc_want,
            bytes: request.encode().into(),
        });
        Ok(())
    }

    /// Takes an answer of the server.
    pub(super) fn answered(&mut self, message: &Control) -> Result<(), ProtocolError> {
        let runs = matches!(
            self.state,
            SenderState::Asked | SenderState::Streaming | SenderState::Ending
        );
        if !runs {
            return Err(broken!(
                "E4",
                "{} message for no request of this client",
                message.name()
            ));
        }
        match message {
            Control::Grant {
                info,
                grant,
                headers,
            } => self.granted(*info, *grant, headers.clone()),
            Control::Pending { stream } => {
                if self.is_of_stream(*stream) {
                    self.events.push_back(SenderEvent::Pending);
                }
                Ok(())
            }
            Control::Error {
                status,
                text,
                headers,
                ..
            } => {
                // Rule Q8: advice comes with a refusal, and not within a stream.
                let advice = headers
                    .advice()
                    .filter(|_| self.state == SenderState::Asked);
                if self.state != SenderState::Ending {
                    // Rule Q10.
                    self.abort(Status::Cancelled.code(), "the server has ended the stream");
                }
                self.last_word(SenderEvent::Refused {
                    error: error_of(*status, text).with_advice(advice),
                    headers: headers.clone(),
                });
                Ok(())
            }
            Control::Result {
                stream,
                batches,
                bytes,
            } => {
                if self.is_of_stream(*stream) {
                    let sent = self.batches_sent();
                    if *batches > sent {
                        return Err(broken!(
                            "Q4",
                            "RESULT for {batches} batches, of which {sent} were sent"
                        ));
                    }
                    self.events.push_back(SenderEvent::Result {
                        batches: *batches,
                        bytes: bytes.clone(),
                    });
                }
                Ok(())
            }
            Control::End {
                stream,
                batches,
                headers,
                ..
            } => {
                if self.state != SenderState::Ending || !self.is_of_stream(*stream) {
                    return Err(broken!(
                        "Q4",
                        "END of a stream that this client has not ended"
                    ));
                }
                let sent = self.batches_sent();
                if *batches != sent {
                    return Err(broken!(
                        "Q4",
                        "END for {batches} batches, of which {sent} were sent"
                    ));
                }
                self.last_word(SenderEvent::Finished {
                    batches: *batches,
                    headers: headers.clone(),
                });
                Ok(())
            }
            other => Err(self.wrong_side(other)),
        }
    }

    fn batches_sent(&self) -> u64 {
        self.window().map_or(0, CreditWindow::batches_sent)
    }

    fn is_of_stream(&self, mark: u64) -> bool {
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.mark == mark)
    }

    fn granted(
        &mut self,
        info: StreamInfo,
        grant: Grant,
        headers: Headers,
    ) -> Result<(), ProtocolError> {
        let state = self.state;
        let Some(stream) = self.stream.as_mut() else {
            return Ok(());
        };
        // Rule E2: one answer, within the limits of the request.
        let unasked = info.features & !stream.features;
        if stream.window.is_some() || unasked != 0 || info.version > stream.version {
            return Err(broken!(
                "E2",
                "the server grants a stream twice, with version {} or with features \
                     {unasked:#x} that this client did not name",
                info.version
            ));
        }
        stream.window = Some(CreditWindow::new(grant.credit));
        (stream.features, stream.version) = (info.features, info.version);
        // A stream that was given up meanwhile waits for the last word.
        if state == SenderState::Asked {
            self.state = SenderState::Streaming;
            self.events.push_back(SenderEvent::Granted {
                info,
                grant,
                headers,
            });
        }
        Ok(())
    }

    fn last_word(&mut self, event: SenderEvent<K>) {
        self.stream = None;
        self.state = SenderState::Idle;
        self.events.push_back(event);
    }

    /// Ends the stream early (rule Q10).
    pub(super) fn abort(&mut self, status: i32, text: &str) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        // No CANCEL follows, because it would say the same.
        stream.cancelled = true;
        let status = if status < 0 {
            status
        } else {
            Status::Provider.code()
        };
        let abort = Control::Abort {
            stream: stream.mark,
            status,
            seq: stream.next_seq,
            text: text.to_owned(),
        };
        self.control_out(&abort);
        self.state = SenderState::Ending;
    }

    /// Tells the server that nobody waits for its last word (rule Q10).
    pub(super) fn cancel_taking(&mut self) {
        if let Some(stream) = self.stream.as_mut()
            && !std::mem::replace(&mut stream.cancelled, true)
        {
            let stream = stream.mark;
            self.control_out(&Control::Cancel { stream });
        }
    }
}
