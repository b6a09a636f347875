//! A published table on its way out: sent from wherever its connection is turned, without a thread
//! of its own.
//!
//! Nothing here calls the host, and little is copied, so that the I/O thread can do it: a request is
//! answered, and credit used, by the thread that has just read it. Over UCX whole bodies may be, one of them in a turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::arrow::{EncodedMessage, Encoder, OwnedDeviceArray, share};
use crate::device::DeviceKind;
use crate::driver::callbacks::{Deferred, HostOwner};
use crate::driver::io::{Source, guarded};
use crate::driver::produce::body::{Figures, Ready, Room, is_lendable, place, room_for};
use crate::driver::produce::{ProduceOptions, stream_info};
use crate::driver::served::ServedLink;
use crate::driver::signal::Wake;
use crate::driver::telling::Account;
use crate::error::{Error, Result, Status};
use crate::proto::HeaderKind;
use crate::transport::BodyPolicy;

/// Bodies up to this many bytes may be copied, or written to a socket, by the I/O thread.
const SMALL_BODY_BYTES: u64 = 64 << 10;
/// The same of bodies for a socket, where no other stream would wait for it: most of what a socket takes is
/// written by the I/O thread in any case, and a thread of the stream's is then in its way.
const ALONE_BODY_BYTES: u64 = 512 << 10;
/// Most bytes of such bodies, and most messages, in one turn: then other connections have theirs.
const COPIES_AT_ONCE: u64 = 1 << 20;
const MESSAGES_AT_ONCE: usize = 256;
/// A table whose headers take more than this is encoded anew for each stream.
const MOST_HEADER_BYTES: usize = 64 << 20;

/// A published table as messages: they are the same for every stream.
pub struct Table {
    schema: Arc<[u8]>,
    device_type: i32,
    messages: Vec<EncodedMessage>,
    /// The largest body, and the largest of those that do not lie in lendable memory.
    largest: u64,
    largest_to_copy: u64,
}

impl Table {
    /// Encodes a table, or gives `None` where each stream has to do that itself: the table is not
    /// valid, which its streams are told, or its headers would take much memory.
    pub fn encode(mut encoder: Encoder, batches: &[Arc<OwnedDeviceArray>]) -> Option<Self> {
        let device = batches.first().map(|batch| batch.raw().device_type);
        let device_type = device.unwrap_or(DeviceKind::CPU.0);
        DeviceKind(device_type).ensure_readable().ok()?;
        let mut table = Self {
            schema: Arc::clone(encoder.schema_header()),
            device_type,
            messages: Vec::with_capacity(batches.len()),
            largest: 0,
            largest_to_copy: 0,
        };
        let mut header_bytes = 0;
        for batch in batches {
            for message in encoder.encode(share(batch), None).ok()? {
                let before = table.messages.last();
                if before.is_none_or(|before| !Arc::ptr_eq(&before.header, &message.header)) {
                    header_bytes += message.header.len();
                }
                if header_bytes > MOST_HEADER_BYTES {
                    return None;
                }
                table.largest = table.largest.max(message.body_len);
                if !is_lendable(&message) {
                    table.largest_to_copy = table.largest_to_copy.max(message.body_len);
                }
                table.messages.push(message);
            }
        }
        Some(table)
    }

    /// Whether sending it over `link` is little enough work for the I/O thread. `extension`: the peer
    /// speaks ours. `alone`: no other stream is served.
    pub fn suits(
        &self,
        link: &ServedLink,
        policy: BodyPolicy,
        extension: bool,
        alone: bool,
    ) -> bool {
        let lends = policy != BodyPolicy::Packed && link.lender().is_some();
        // What is announced is not copied, unless it is to be lent wherever it lies.
        if link.profile().announces_from.is_some() && !(lends && policy == BodyPolicy::Lent) {
            return true;
        }
        // Baseline peers are lent copies alone.
        let largest = if lends && extension {
            self.largest_to_copy
        } else {
            self.largest
        };
        let most = if alone && !lends {
            ALONE_BODY_BYTES
        } else {
            SMALL_BODY_BYTES
        };
        largest <= most
    }
}

/// One stream of a published table.
pub struct Replay {
    link: Arc<ServedLink>,
    table: Arc<Deferred<Table>>,
    options: ProduceOptions,
    me: Weak<Self>,
    /// Notices that are not dealt with; whoever brings the first one turns the stream.
    notices: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    /// Number of the next message.
    next: usize,
    /// The message before it, whose body turned out to need room that there was not.
    waiting: Option<Ready>,
    /// STREAM was sent: errors are now ERROR messages of a running stream.
    accepted: bool,
    /// Called when the last word is about to be sent; `None` once the stream is over.
    ending: Option<Box<dyn FnOnce() + Send>>,
    /// The stream's place at its server, dropped when the last word is sent.
    place: Option<Box<dyn Send>>,
    /// For the log, until it has the stream's end.
    account: Option<Box<Account>>,
}

impl Replay {
    /// Begins to send `table`, which `ticket` asked for, over `link`. `ending` is called when the
    /// last word is about to be sent, and `place` dropped when it has been.
    pub fn start(
        link: &Arc<ServedLink>,
        ticket: &[u8],
        table: Arc<Deferred<Table>>,
        options: ProduceOptions,
        ending: Box<dyn FnOnce() + Send>,
        place: Box<dyn Send>,
    ) {
        let replay = Arc::new_cyclic(|me| Self {
            link: Arc::clone(link),
            table,
            options,
            me: Weak::clone(me),
            notices: AtomicUsize::new(0),
            state: Mutex::new(State {
                next: 0,
                waiting: None,
                accepted: false,
                ending: Some(ending),
                place: Some(place),
                account: Account::open("to", ticket, link.peer()),
            }),
        });
        link.set_signal(Arc::clone(&replay) as Arc<dyn Wake>);
        replay.notify();
    }

    /// Sends what can be sent now, and ends the stream where nothing is left or it cannot go on.
    fn advance(&self) {
        let mut state = self.state.lock();
        if state.ending.is_none() {
            return;
        }
        self.link.cork();
        let outcome = self.send_some(&mut state);
        if let Err(error) = &outcome
            && let Some(ending) = state.ending.take()
        {
            ending();
            if let Some(account) = state.account.take() {
                account.fail(error.status().code(), error.text());
            }
            if let Some(waiting) = state.waiting.take() {
                waiting.give_up(&self.link);
            }
            let accepted = state.accepted;
            // The consumer may be gone; then there is nobody left to tell on this connection.
            let _ = self.link.act(&[], |sender| {
                let (status, text) = (error.status().code(), error.text());
                if accepted {
                    sender.fail(status, text)
                } else {
                    sender.refuse(status, text)
                }
            });
        }
        let over = state.ending.is_none();
        if let Some(account) = state.account.take_if(|_| over) {
            account.end();
        }
        let place = state.place.take_if(|_| over);
        drop(state);
        self.link.uncork();
        drop(place);
        if over {
            if let Some(me) = self.me.upgrade() {
                self.link.clear_signal(&me);
            }
        } else if matches!(outcome, Ok(More::Soon)) {
            let me: Weak<dyn Source> = Weak::clone(&self.me) as Weak<Self>;
            self.link.io().call_soon(me);
        }
    }

    fn send_some(&self, state: &mut State) -> Result<More> {
        let Some(table) = self.table.get() else {
            return Ok(More::Later);
        };
        if !state.accepted {
            self.link.ensure_streaming()?;
            state.accepted = true;
            self.link.act(&[], |sender| {
                sender.accept(stream_info(table.device_type))?;
                sender.send_schema(table.schema.clone())
            })??;
        }
        let mut copies = 0;
        for _ in 0..MESSAGES_AT_ONCE {
            if let Some(waiting) = &state.waiting
                && !waiting.has_room(&self.link)?
            {
                return Ok(More::Later);
            }
            if let Some(waiting) = state.waiting.take() {
                self.send(state, waiting)?;
                continue;
            }
            let Some(message) = table.messages.get(state.next) else {
                self.link.ensure_streaming()?;
                if let Some(ending) = state.ending.take() {
                    ending();
                }
                self.link.act(&[], |sender| sender.end())??;
                return Ok(More::Later);
            };
            // Rule E5: a dictionary uses bytes of the window, a batch also a place in it.
            let room = room_for(&self.options, &self.link, message)?;
            if room == Room::None {
                return Ok(More::Later);
            }
            if copies > COPIES_AT_ONCE {
                break;
            }
            state.next += 1;
            let owner = || HostOwner::share(&self.table);
            let placed = place(&self.options, &self.link, message, owner)?;
            let header = Arc::clone(&message.header);
            let figures = Figures {
                rows: message.rows,
                body_len: message.body_len,
            };
            let ready = Ready::new(message.kind, header, figures, placed);
            let profile = self.link.profile();
            let announced = profile
                .announces_from
                .is_some_and(|least| message.body_len >= least);
            if !ready.is_in_place() && !announced {
                copies += message.body_len;
            }
            if ready.suits(room) {
                self.send(state, ready)?;
            } else {
                state.waiting = Some(ready);
            }
        }
        Ok(More::Soon)
    }

    fn send(&self, state: &mut State, ready: Ready) -> Result<()> {
        let figures = ready.figures();
        let is_batch = ready.send(&self.link)? == HeaderKind::RecordBatch;
        if is_batch {
            let batches = &self.options.counters.batches;
            batches.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(account) = &mut state.account {
            account.sent(is_batch, figures.rows, figures.body_len);
        }
        Ok(())
    }

    /// Ends the stream after a panic. How far it came nobody knows, so the connection ends with it;
    /// each step by itself, for what panicked once may do so again.
    fn break_off(&self) {
        let error = Error::new(
            Status::Panic,
            "to send a published table panicked: please report this bug",
        );
        let (ending, place, waiting, account) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            (
                state.ending.take(),
                state.place.take(),
                state.waiting.take(),
                state.account.take(),
            )
        };
        if let Some(ending) = ending {
            guarded(ending);
        }
        guarded(|| drop(place));
        guarded(|| self.link.break_off(&error));
        guarded(|| {
            if let Some(waiting) = waiting {
                waiting.give_up(&self.link);
            }
        });
        if let Some(account) = account {
            account.fail(error.status().code(), error.text());
        }
    }
}

/// When a stream goes on.
enum More {
    /// When something changes: credit, room.
    Later,
    /// When the other connections have had their turn.
    Soon,
}

impl Wake for Replay {
    fn notify(&self) {
        // Sending may itself bring notices, and so may other threads: they add to the count, and
        // the one that is sending looks again.
        if self.notices.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let mut seen = 1;
        loop {
            // Notices that are not taken back would keep everybody from turning the stream again.
            if !guarded(|| self.advance()) {
                self.break_off();
            }
            match self
                .notices
                .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(more) => seen = more,
            }
        }
    }
}

impl Source for Replay {
    fn ready(&self) {}

    fn turn(&self) {
        self.notify();
    }
}
