//! How fast batches arrive: the streams of the client, and its threads.

use std::mem::MaybeUninit;
use std::ops::Add;
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use dipc::{Client, DeviceArray, Reader, StreamStats};
use rustix::event::epoll;

use crate::bench::base::case::{Case, Take, Touch};
use crate::bench::base::message::{Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, WARM_UP, event_loop, new_client};
use crate::bench::base::values::Values;
use crate::output::whole;
use crate::report::as_float;

/// Most batches to take from a stream before another stream has its turn.
const AT_ONCE: usize = 16;

/// The figures of one stream.
#[derive(Default)]
pub struct Fetched {
    /// The times of its start and of its last batch.
    pub time: Option<(Instant, Instant)>,
    pub batches: u64,
    pub fetches: u64,
    stats: StreamStats,
}

/// Fetches the batches of a case.
#[derive(Clone, Copy)]
pub struct Fetcher<'a> {
    pub case: &'a Case,
    pub ready: &'a Ready,
    pub client: &'a Client,
}

/// The table of a case, fetched in one stream after another until the batches suffice.
struct TableFetch<'a> {
    of: Fetcher<'a>,
    /// Batches to take; `None`: as many as arrive in time.
    share: Option<u64>,
    start: Instant,
    deadline: Instant,
    open: Option<Open>,
    fetched: Fetched,
    done: bool,
}

/// A stream, and its position.
struct Open {
    stream: Reader,
    values: Values,
    index: usize,
    /// The event loop, where batches are taken without waits.
    epoll: Option<OwnedFd>,
}

impl Open {
    fn next(&mut self) -> Result<Option<DeviceArray>> {
        let Some(epoll) = &self.epoll else {
            return Ok(self.stream.next_array()?);
        };
        loop {
            if let Poll::Ready(next) = self.stream.try_next_array()? {
                return Ok(next);
            }
            let mut event = [MaybeUninit::uninit()];
            epoll::wait(epoll, &mut event, None)?;
        }
    }
}

impl Fetcher<'_> {
    fn open(&self, ticket: &[u8]) -> Result<Open> {
        let options = self.case.get_options();
        let mut stream = self.client.get_with(&self.ready.uri, ticket, &options)?;
        Ok(Open {
            values: Values::of(&stream.schema(), self.case.shape())?,
            epoll: match self.case.take {
                Take::Next => None,
                Take::TryNext => Some(event_loop(stream.fd()?)?),
            },
            stream,
            index: 0,
        })
    }

    /// Fetches a few batches in the same way, up to the stream's end, so that the connection can be
    /// reused.
    pub fn warm_up(&self) -> Result<()> {
        let mut open = self.open(WARM_UP)?;
        while let Some(array) = open.next()? {
            self.touch(&open.values, &array, open.index)?;
            open.index += 1;
        }
        open.values.finish()
    }

    /// Fetches one stream for each share, on the calling thread: the share's number of batches, or
    /// as many as arrive in time.
    pub fn fetch(&self, shares: &[Option<u64>]) -> Result<Vec<Fetched>> {
        let start = Instant::now();
        let mut streams: Vec<_> = shares
            .iter()
            .map(|share| TableFetch {
                of: *self,
                share: *share,
                start,
                deadline: start + self.case.seconds,
                open: None,
                fetched: Fetched::default(),
                done: *share == Some(0),
            })
            .collect();
        if let [stream] = streams.as_mut_slice() {
            while !stream.done {
                stream.take()?;
            }
        }
        while streams.iter().any(|stream| !stream.done) {
            let mut found = false;
            for stream in &mut streams {
                found |= stream.take_what_is_here()?;
            }
            if !found && let Some(stream) = streams.iter_mut().find(|stream| !stream.done) {
                stream.take()?;
            }
        }
        Ok(streams.into_iter().map(|stream| stream.fetched).collect())
    }

    /// Does the case's work on a batch. `index`: the batch's position in its stream.
    fn touch(&self, values: &Values, array: &DeviceArray, index: usize) -> Result<()> {
        if self.case.touch == Touch::None {
            return values.follow(array);
        }
        // SAFETY: the array is of the stream that `values` was made of (the callers).
        let sum = unsafe { values.sum(array) }?;
        let sums = &self.ready.sums;
        // Each batch has its own sum, so that the order is checked too.
        if sums.get(index % sums.len().max(1)) != Some(&sum) {
            bail!("batch {index} does not hold what the server wrote");
        }
        Ok(())
    }
}

impl TableFetch<'_> {
    /// Waits for the next batch, or for the end of the stream.
    fn take(&mut self) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                self.fetched.fetches += 1;
                self.open.insert(self.of.open(TABLE)?)
            }
        };
        let next = open.next()?;
        self.taken(next)
    }

    /// Does the work on a batch of the open stream, or ends it.
    fn taken(&mut self, next: Option<DeviceArray>) -> Result<()> {
        let (Some(open), Some(array)) = (&mut self.open, next) else {
            return self.finish();
        };
        self.of.touch(&open.values, &array, open.index)?;
        if !self.of.case.pause.is_zero() {
            thread::sleep(self.of.case.pause);
        }
        drop(array);
        open.index += 1;
        self.fetched.batches += 1;
        if self.is_enough() {
            self.done = true;
            return self.finish();
        }
        Ok(())
    }

    /// Takes batches that have arrived already. Returns whether there were any.
    fn take_what_is_here(&mut self) -> Result<bool> {
        for taken in 0..AT_ONCE {
            if self.done {
                break;
            }
            match &mut self.open {
                Some(open) if (open.index as u64) < self.of.case.published() => {
                    let Poll::Ready(next) = open.stream.try_next_array()? else {
                        return Ok(taken > 0);
                    };
                    self.taken(next)?;
                }
                // The stream's first batch comes soon, or only its end is missing.
                _ => self.take()?,
            }
        }
        Ok(true)
    }

    fn is_enough(&self) -> bool {
        let batches = self.fetched.batches;
        match self.share {
            Some(share) => batches >= share,
            None => {
                batches.is_multiple_of(self.of.case.clock_step()) && Instant::now() >= self.deadline
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        // The GPU's work for a batch is part of its time.
        open.values.finish()?;
        // Before the drop of the stream, which may wait for the server.
        self.fetched.time = Some((self.start, Instant::now()));
        self.fetched.stats = self.fetched.stats + open.stream.stats();
        if open.index == 0 {
            bail!("the server's table has no batches");
        }
        Ok(())
    }
}

/// Never 0, because it is a divisor.
fn seconds_between(time: Option<(Instant, Instant)>) -> f64 {
    let elapsed = time.map_or(Duration::ZERO, |(start, end)| end - start);
    elapsed.max(Duration::from_nanos(1)).as_secs_f64()
}

/// Fetches on the threads of the case, which all begin at once.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let client = &new_client(case)?;
    let fetcher = Fetcher {
        case,
        ready,
        client,
    };
    if !case.cold {
        // One connection for each stream.
        on_threads(u64::from(case.streams), |_| fetcher.warm_up())?;
    }
    if !parent.ready()? {
        return Ok(());
    }
    let consumers = u64::from(case.consumers());
    let before = Usage::now()?;
    let together = Barrier::new(usize::try_from(consumers)?);
    let fetched = on_threads(consumers, |consumer| {
        let shares: Vec<_> = shares(case)
            .skip(usize::try_from(consumer)?)
            .step_by(usize::try_from(consumers)?)
            .collect();
        together.wait();
        fetcher.fetch(&shares)
    })?;
    let used = before.until_now()?;
    let fetched: Vec<_> = fetched.into_iter().flatten().collect();
    let times = || fetched.iter().filter_map(|fetched| fetched.time);
    let (first, last) = (
        times().map(|time| time.0).min(),
        times().map(|time| time.1).max(),
    );
    let stats = fetched.iter().map(|fetched| fetched.stats);
    let rate = |fetched: &Fetched| {
        as_float(fetched.batches * case.batch_bytes()) / seconds_between(fetched.time)
    };
    let outcome = Outcome {
        seconds: seconds_between(first.zip(last)),
        batches: fetched.iter().map(|fetched| fetched.batches).sum(),
        fetches: fetched.iter().map(|fetched| fetched.fetches).sum(),
        rates: fetched.iter().map(rate).collect(),
        ..used
    };
    parent.say(outcome.with(stats.fold(StreamStats::default(), Add::add)))
}

/// How many batches each stream takes.
fn shares(case: &Case) -> impl Iterator<Item = Option<u64>> {
    let streams = u64::from(case.streams);
    // The first streams take the remainder, one batch each.
    (0..streams).map(move |stream| {
        case.batches
            .map(|all| all / streams + u64::from(stream < all % streams))
    })
}

/// Runs `work` on so many threads at the same time.
fn on_threads<T: Send>(threads: u64, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let threads = (0..threads)
            .map(|thread| {
                thread::Builder::new()
                    .name(format!("bench-{thread}"))
                    .spawn_scoped(scope, move || work(thread))
                    .context("cannot start the client's threads")
            })
            .collect::<Result<Vec<_>>>();
        // The started threads would wait for the others for ever, so the process ends.
        let threads = match threads {
            Ok(threads) => threads,
            Err(error) => {
                let _ = Parent.answer::<()>(Err(whole(&error)));
                std::process::exit(1);
            }
        };
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow!("a thread of the client panicked")),
        });
        joined.collect()
    })
}
