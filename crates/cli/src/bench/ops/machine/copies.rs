//! Copies to, from and within a GPU, by its driver alone.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::bench::base::case::{Case, What};
use crate::bench::base::gpu::{Gpu, PinnedMemory};
use crate::bench::base::message::Parent;
use crate::bench::base::timing::{many, repeat};

/// Copies in flight at once: one runs while the next one is enqueued.
const IN_FLIGHT: usize = 2;

/// Copies between pinned memory and a GPU's, or within the GPU's, by the driver alone.
pub fn run(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let gpu = Gpu::of(case.device)?.context("--device says which GPU")?;
    let here = gpu.allocate(2 * size)?;
    let there = here + size as u64;
    let pinned = PinnedMemory::new(&gpu, size)?;
    let (target, source) = match case.what {
        What::PinnedToDevice => (here, pinned.address()),
        What::DeviceToPinned => (pinned.address(), here),
        _ => (there, here),
    };
    let events = [gpu.event()?, gpu.event()?];
    if !parent.ready()? {
        return Ok(());
    }
    let mut next = 0;
    let outcome = repeat(case, many(case), || {
        let event = &events[next % IN_FLIGHT];
        next += 1;
        event.synchronize()?;
        // SAFETY: the memory is ours and has `size` bytes at both addresses. The code below waits
        // for the copies before it frees the memory. The order of the copies does not matter,
        // because all copy the same bytes.
        unsafe { gpu.copy(target, source, size) }?;
        gpu.record(event)
    });
    let begun = Instant::now();
    gpu.synchronize()?;
    let mut outcome = outcome?;
    outcome.seconds += begun.elapsed().as_secs_f64();
    drop(pinned);
    parent.say(outcome)
}
