//! The fetching process: how fast batches come.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use dipc::arrow::OwnedDeviceArray;
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Client, ClientOptions, Stream};

use super::case::{Case, Op, Touch};
use super::message::{Outcome, Ready, Usage};
use super::server::{TABLE, WARM_UP};
use super::values::Values;
use super::worker::Parent;
use super::{idle, machine, timing};
use crate::report::as_float;

/// Makes the measurement of the case.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    super::allow_descriptors();
    match case.op {
        Op::Latency => return timing::latency(case, ready, parent),
        Op::Connect => return timing::connect(case, ready, parent),
        Op::Idle => return idle::run(case, ready, parent),
        Op::Machine => return machine::run(case, ready, parent),
        Op::Get | Op::Metadata => {}
    }
    let fetcher = Fetcher {
        case,
        ready,
        client: new_client(case)?,
    };
    fetcher.measure(parent)
}

pub fn new_client(case: &Case) -> Result<Client> {
    Ok(Client::new(ClientOptions {
        settings: crate::settings(&case.settings)?,
        ..ClientOptions::default()
    })?)
}

/// Never 0, which nothing can be divided by.
fn seconds_between(time: Option<(Instant, Instant)>) -> f64 {
    let elapsed = time.map_or(Duration::ZERO, |(start, end)| end - start);
    elapsed.max(Duration::from_nanos(1)).as_secs_f64()
}

/// What one stream's thread measured.
#[derive(Default)]
struct Fetched {
    /// When it began and when it had its last batch.
    time: Option<(Instant, Instant)>,
    batches: u64,
    fetches: u64,
    lent_bytes: u64,
    copied_bytes: u64,
    copied_on_device_bytes: u64,
    staged_bytes: u64,
    received_bytes: u64,
}

struct Fetcher<'a> {
    case: &'a Case,
    ready: &'a Ready,
    client: Client,
}

impl Fetcher<'_> {
    /// Fetches on one thread for each stream, which all begin at once.
    fn measure(&self, parent: &Parent) -> Result<()> {
        let case = self.case;
        let streams = u64::from(case.streams);
        if !case.cold {
            self.on_threads(|_| self.warm_up())?;
        }
        parent.say(())?;
        if !parent.go()? {
            return Ok(());
        }
        let before = Usage::now()?;
        let together = Barrier::new(usize::try_from(streams)?);
        let fetched = self.on_threads(|stream| {
            // The first streams have one batch more, where they cannot all have as many.
            let share = case
                .batches
                .map(|all| all / streams + u64::from(stream < all % streams));
            together.wait();
            self.fetch(share)
        })?;
        let after = Usage::now()?;
        let times = || fetched.iter().filter_map(|fetched| fetched.time);
        let (first, last) = (
            times().map(|time| time.0).min(),
            times().map(|time| time.1).max(),
        );
        let total = |figure: fn(&Fetched) -> u64| fetched.iter().map(figure).sum();
        parent.say(Outcome {
            seconds: seconds_between(first.zip(last)),
            batches: total(|fetched| fetched.batches),
            fetches: total(|fetched| fetched.fetches),
            lent_bytes: total(|fetched| fetched.lent_bytes),
            copied_bytes: total(|fetched| fetched.copied_bytes),
            copied_on_device_bytes: total(|fetched| fetched.copied_on_device_bytes),
            staged_bytes: total(|fetched| fetched.staged_bytes),
            received_bytes: total(|fetched| fetched.received_bytes),
            rates: fetched.iter().map(|fetched| self.rate(fetched)).collect(),
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            peak_bytes: after.peak_bytes,
            ..Outcome::default()
        })
    }

    fn rate(&self, fetched: &Fetched) -> f64 {
        as_float(fetched.batches * self.case.batch_bytes()) / seconds_between(fetched.time)
    }

    /// Runs `work` once for each stream, at the same time.
    fn on_threads<T: Send>(&self, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
        let work = &work;
        thread::scope(|scope| {
            let threads = (0..u64::from(self.case.streams))
                .map(|stream| {
                    thread::Builder::new()
                        .name(format!("bench-{stream}"))
                        .spawn_scoped(scope, move || work(stream))
                        .context("cannot start a thread for each stream")
                })
                .collect::<Result<Vec<_>>>();
            // Threads that did start would wait for the others for ever; the process ends.
            let threads = match threads {
                Ok(threads) => threads,
                Err(error) => {
                    let _ = Parent.answer::<()>(Err(format!("{error:#}")));
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

    fn get(&self, ticket: &[u8]) -> Result<Stream> {
        let options = self.case.get_options();
        Ok(self
            .client
            .get(&[&self.ready.uri], ticket, &options, None)?)
    }

    /// Fetches a few batches in the same way, to the end, so that the connection can be used again.
    fn warm_up(&self) -> Result<()> {
        let mut stream = self.get(WARM_UP)?;
        let values = Values::of(&mut stream, self.case.shape())?;
        let mut index = 0;
        while let Some(array) = stream.next()? {
            self.touch(&values, &array, index)?;
            index += 1;
        }
        values.finish()
    }

    /// Fetches `share` batches, or as many as come in time.
    fn fetch(&self, share: Option<u64>) -> Result<Fetched> {
        // The clock is not read for each small batch, which would be felt.
        let check = if self.case.batch_bytes() < 64 << 10 {
            16
        } else {
            1
        };
        let start = Instant::now();
        let deadline = start + self.case.seconds;
        let mut fetched = Fetched::default();
        let over = |batches: u64| match share {
            Some(share) => batches >= share,
            None => batches.is_multiple_of(check) && Instant::now() >= deadline,
        };
        let mut done = false;
        while !done {
            let mut stream = self.get(TABLE)?;
            let values = Values::of(&mut stream, self.case.shape())?;
            fetched.fetches += 1;
            let mut index = 0;
            while !done {
                let Some(array) = stream.next()? else { break };
                self.touch(&values, &array, index)?;
                if !self.case.pause.is_zero() {
                    thread::sleep(self.case.pause);
                }
                drop(array);
                index += 1;
                fetched.batches += 1;
                done = over(fetched.batches);
            }
            // What a GPU still does for a batch belongs to it.
            values.finish()?;
            // Before the stream is dropped, which may have an end to agree on.
            fetched.time = Some((start, Instant::now()));
            let stats = stream.stats();
            fetched.lent_bytes += stats.bytes_lent;
            fetched.copied_bytes += stats.bytes_copied;
            fetched.copied_on_device_bytes += stats.bytes_copied_on_device;
            fetched.staged_bytes += stats.bytes_staged;
            fetched.received_bytes += stats.bytes_received;
            if index == 0 {
                bail!("the server's table has no batches");
            }
        }
        Ok(fetched)
    }

    /// Does with a batch what the case says; `index`: which one of its stream it is.
    fn touch(&self, values: &Values, array: &OwnedDeviceArray, index: usize) -> Result<()> {
        if self.case.touch == Touch::None {
            return values.follow(array);
        }
        // SAFETY: the array is of the stream that `values` was made of (the callers).
        let sum = unsafe { values.sum(array) }?;
        let sums = &self.ready.sums;
        // Each batch by itself, so that their order is checked, too.
        if sums.get(index % sums.len().max(1)) != Some(&sum) {
            bail!("batch {index} does not hold what the server wrote");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::server;
    use super::super::test_case;
    use super::*;
    use crate::bench::case::Source;

    fn fetch(case: &Case, ready: &Ready) -> Result<Fetched> {
        let client = new_client(case)?;
        let fetcher = Fetcher {
            case,
            ready,
            client,
        };
        fetcher.warm_up()?;
        fetcher.fetch(case.batches)
    }

    /// Promise of `--touch sum`: values that are not those of the server's are an error, and so are
    /// batches in another order.
    #[test]
    fn sums_are_checked() {
        for (source, name) in [(Source::Published, "sums-t"), (Source::Provider, "sums-p")] {
            let case = Case {
                source,
                touch: Touch::Sum,
                batches: Some(100),
                ..test_case(name)
            };
            let (server, ready) = server::start(&case).unwrap();
            let fetched = fetch(&case, &ready).unwrap();
            assert_eq!(fetched.batches, 100);
            let mut turned = ready.clone();
            turned.sums.rotate_left(1);
            let mut wrong = ready;
            wrong.sums[1] += 1;
            for (ready, batch) in [(turned, "batch 0"), (wrong, "batch 1")] {
                let error = fetch(&case, &ready).err().unwrap().to_string();
                assert!(error.starts_with(batch), "{error}");
            }
            drop(server);
        }
    }

    /// A published table is fetched again and again until that is enough; time ends a fetch, too.
    #[test]
    fn tables_are_fetched_until_it_is_enough() {
        let case = Case {
            distinct: Some(3),
            ..test_case("often")
        };
        let (_server, ready) = server::start(&case).unwrap();
        let more = Case {
            batches: Some(case.published() + 1),
            ..case.clone()
        };
        let fetched = fetch(&more, &ready).unwrap();
        assert_eq!(fetched.fetches, 2);
        assert_eq!(fetched.batches, case.published() + 1);
        let timed = Case {
            seconds: Duration::ZERO,
            ..case
        };
        assert!(fetch(&timed, &ready).unwrap().batches < timed.published());
    }
}
