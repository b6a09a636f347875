//! What a producer has brought, on its way to the thread that sends it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::arrow::async_consumer::{AsyncConsumer, HostProducer, Produced};
use crate::error::{Error, Status};

/// The most tasks that a producer may be asked for before they are sent. Each may hold a batch.
const MOST_AHEAD: u32 = 8;

/// The queue of one stream.
pub(super) struct Offers {
    producer: Arc<HostProducer>,
    /// Wakes the thread that sends.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<OfferQueue>,
}

#[derive(Default)]
struct OfferQueue {
    queue: VecDeque<Produced>,
    /// Tasks in the queue.
    tasks: u32,
    /// Tasks that the producer may still bring.
    asked: u32,
    brought: Brought,
    usage: Usage,
}

/// The last milestone that the producer has reached.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Brought {
    #[default]
    Nothing,
    Schema,
    /// The producer has ended, has failed or is gone.
    End,
}

/// What to do with what the producer brings.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Usage {
    #[default]
    Queued,
    /// The producer does not follow the interface.
    Refused,
    /// Nothing more is wanted.
    Dropped,
}

impl Offers {
    pub(super) fn new(
        producer: Arc<HostProducer>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            producer,
            wake: Box::new(wake),
            state: Mutex::default(),
        }
    }

    /// The next thing that the producer has brought. A task is returned only if there is `room` for
    /// it.
    pub(super) fn next(&self, room: bool) -> Option<Produced> {
        let mut state = self.state.lock();
        let is_task = matches!(state.queue.front(), Some(Produced::Task(..)));
        if is_task && !room {
            return None;
        }
        state.tasks -= u32::from(is_task);
        state.queue.pop_front()
    }

    /// Whether the producer has brought more than it was asked for, or things out of order.
    pub(super) fn is_wrong(&self) -> bool {
        self.state.lock().usage == Usage::Refused
    }

    /// Asks the producer for tasks, several at once, if the client has room for `room` of them.
    pub(super) fn ask(&self, room: u64) {
        let most = u32::try_from(room).map_or(MOST_AHEAD, |room| room.min(MOST_AHEAD));
        let due = {
            let mut state = self.state.lock();
            let ahead = state.asked + state.tasks;
            let is_due =
                ahead <= most / 2 && state.brought != Brought::End && state.usage != Usage::Refused;
            let due = if is_due { most - ahead } else { 0 };
            state.asked += due;
            due
        };
        if due > 0 {
            // Called without the lock: the producer may bring tasks within this call.
            self.producer.request(due);
        }
    }

    /// Nothing more is wanted. Discards what is here, and cancels the producer unless it has ended.
    pub(super) fn close(&self) {
        let (queue, has_ended) = {
            let mut state = self.state.lock();
            state.usage = Usage::Dropped;
            let has_ended = state.brought == Brought::End;
            (std::mem::take(&mut state.queue), has_ended)
        };
        // The drop of a task calls the host, so the lock must be free.
        drop(queue);
        if !has_ended {
            self.producer.cancel();
        }
    }
}

impl AsyncConsumer for Offers {
    fn take(&self, produced: Produced) -> Result<(), c_int> {
        let mut state = self.state.lock();
        let is_schema = matches!(produced, Produced::Schema { .. });
        if state.usage != Usage::Queued || state.brought == Brought::End {
            let outcome = match is_schema {
                true => Err(libc::ECANCELED),
                false => Ok(()),
            };
            if matches!(produced, Produced::Release) {
                state.brought = Brought::End;
            }
            drop(state);
            // The drop of a task calls the host.
            drop(produced);
            return outcome;
        }
        match &produced {
            Produced::Schema { .. } => {
                if state.brought == Brought::Schema {
                    state.usage = Usage::Refused;
                }
                state.brought = Brought::Schema;
            }
            Produced::Task(..) => match state.asked.checked_sub(1) {
                Some(left) => {
                    state.asked = left;
                    state.tasks += 1;
                }
                None => state.usage = Usage::Refused,
            },
            Produced::End => {
                if state.brought == Brought::Nothing {
                    state.usage = Usage::Refused;
                }
                state.brought = Brought::End;
            }
            Produced::Failure { .. } | Produced::Release => state.brought = Brought::End,
        }
        let refused = match state.usage == Usage::Refused {
            true => Some(produced),
            false => {
                state.queue.push_back(produced);
                None
            }
        };
        drop(state);
        (self.wake)();
        let is_refused = refused.is_some() && is_schema;
        drop(refused);
        match is_refused {
            true => Err(libc::EINVAL),
            false => Ok(()),
        }
    }
}

/// The error of a producer that does not follow its interface.
pub(super) fn wrong(text: &str) -> Error {
    Error::new(
        Status::Provider,
        format!("the server's asynchronous producer {text}"),
    )
}
