//! What a producer has brought, on its way to the thread that sends it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::arrow::async_consumer::{AsyncConsumer, HostProducer, Produced};
use crate::error::{Error, Status};

/// The most tasks that a producer is asked for and that are not sent. Each may hold a batch.
const MOST_AHEAD: u32 = 8;

/// The queue of one stream.
pub(super) struct Offers {
    producer: Arc<HostProducer>,
    /// Wakes the thread that sends.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Produced>,
    /// Tasks in the queue.
    tasks: u32,
    /// Tasks that the producer may still bring.
    asked: u32,
    has_schema: bool,
    /// The producer has said its end, or that it has failed or is gone.
    has_ended: bool,
    /// The producer does not follow the interface.
    is_wrong: bool,
    /// Nothing more is wanted.
    is_over: bool,
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

    /// What the producer has brought next. A task only if there is `room` for it.
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
        self.state.lock().is_wrong
    }

    /// Asks the producer for tasks, several at once, as the client has room for `room` of them.
    pub(super) fn ask(&self, room: u64) {
        let most = u32::try_from(room).map_or(MOST_AHEAD, |room| room.min(MOST_AHEAD));
        let due = {
            let mut state = self.state.lock();
            let ahead = state.asked + state.tasks;
            let is_due = ahead <= most / 2 && !state.has_ended && !state.is_wrong;
            let due = if is_due { most - ahead } else { 0 };
            state.asked += due;
            due
        };
        if due > 0 {
            // Without the lock: the producer may bring tasks within this call.
            self.producer.request(due);
        }
    }

    /// Nothing more is wanted. Discards what is here, and tells the producer unless that has ended.
    pub(super) fn close(&self) {
        let (queue, has_ended) = {
            let mut state = self.state.lock();
            state.is_over = true;
            (std::mem::take(&mut state.queue), state.has_ended)
        };
        // Tasks call the host.
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
        if state.is_over || state.has_ended || state.is_wrong {
            let outcome = match is_schema {
                true => Err(libc::ECANCELED),
                false => Ok(()),
            };
            state.has_ended |= matches!(produced, Produced::Release);
            drop(state);
            // A task calls the host.
            drop(produced);
            return outcome;
        }
        match &produced {
            Produced::Schema { .. } => {
                state.is_wrong = std::mem::replace(&mut state.has_schema, true);
            }
            Produced::Task(..) => match state.asked.checked_sub(1) {
                Some(left) => {
                    state.asked = left;
                    state.tasks += 1;
                }
                None => state.is_wrong = true,
            },
            Produced::End => {
                state.is_wrong = !state.has_schema;
                state.has_ended = true;
            }
            Produced::Failure { .. } | Produced::Release => state.has_ended = true,
        }
        let refused = match state.is_wrong {
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
