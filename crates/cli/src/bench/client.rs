//! The fetching process.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use super::case::{Case, Op};
use super::fetching::{Fetched, Fetcher};
use super::message::{Outcome, Parent, Ready, Usage};
use super::streams::{allow_descriptors, new_client};
use super::{connect, filtering, idle, latency, machine, opening, putting, shed};
use crate::output::whole;
use crate::report::as_float;

/// Measures the case.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    allow_descriptors();
    match case.op {
        Op::Latency => return latency::run(case, ready, parent),
        Op::Connect => return connect::run(case, ready, parent),
        Op::Open => return opening::run(case, ready, parent),
        Op::Put => return putting::run(case, ready, parent),
        Op::Describe => return connect::describe(case, ready, parent),
        Op::Shed => return shed::run(case, ready, parent),
        Op::Idle => return idle::run(case, ready, parent),
        Op::Filter => return filtering::run(case, ready, parent),
        Op::Machine => return machine::run(case, ready, parent),
        Op::Get | Op::Metadata => {}
    }
    let client = new_client(case)?;
    let fetcher = Fetcher {
        case,
        ready,
        client: &client,
    };
    measure(fetcher, parent)
}

/// Never 0, because it is a divisor.
fn seconds_between(time: Option<(Instant, Instant)>) -> f64 {
    let elapsed = time.map_or(Duration::ZERO, |(start, end)| end - start);
    elapsed.max(Duration::from_nanos(1)).as_secs_f64()
}

/// Fetches on the threads of the case, which all begin at once.
fn measure(fetcher: Fetcher<'_>, parent: &Parent) -> Result<()> {
    let case = fetcher.case;
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
    let after = Usage::now()?;
    let fetched: Vec<_> = fetched.into_iter().flatten().collect();
    let times = || fetched.iter().filter_map(|fetched| fetched.time);
    let (first, last) = (
        times().map(|time| time.0).min(),
        times().map(|time| time.1).max(),
    );
    let total = |figure: fn(&Fetched) -> u64| fetched.iter().map(figure).sum();
    let rate = |fetched: &Fetched| {
        as_float(fetched.batches * case.batch_bytes()) / seconds_between(fetched.time)
    };
    parent.say(Outcome {
        seconds: seconds_between(first.zip(last)),
        batches: total(|fetched| fetched.batches),
        fetches: total(|fetched| fetched.fetches),
        lent_bytes: total(|fetched| fetched.lent_bytes),
        copied_bytes: total(|fetched| fetched.copied_bytes),
        copied_on_device_bytes: total(|fetched| fetched.copied_on_device_bytes),
        staged_bytes: total(|fetched| fetched.staged_bytes),
        received_bytes: total(|fetched| fetched.received_bytes),
        rates: fetched.iter().map(rate).collect(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        peak_bytes: after.peak_bytes,
        ..Outcome::default()
    })
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

#[cfg(test)]
mod tests {
    use super::super::server;
    use super::*;
    use crate::bench::case::{Source, Touch, test_case};

    fn fetch(case: &Case, ready: &Ready) -> Result<Fetched> {
        let client = new_client(case)?;
        let fetcher = Fetcher {
            case,
            ready,
            client: &client,
        };
        fetcher.warm_up()?;
        let mut fetched = fetcher.fetch(&[case.batches])?;
        Ok(fetched.remove(0))
    }

    /// Promise of `--touch sum`: wrong values are an error, and so are batches in another order.
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

    /// A published table is fetched repeatedly until the batches suffice; the time limit ends a
    /// fetch too.
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
