//! Copies to, from and within a GPU, by its driver alone.

use std::time::Instant;

use anyhow::{Context as _, Result};
use dipc::device::cuda::{DeviceMemory, Event, PinnedMemory, Purpose};

use crate::bench::base::case::{Case, What};
use crate::bench::base::gpu::Gpu;
use crate::bench::base::message::Parent;
use crate::bench::base::timing::{many, repeat};

/// Copies in flight at once: one runs while the next one is enqueued.
const IN_FLIGHT: usize = 2;

/// Copies between pinned memory and a GPU's, or within the GPU's, by the driver alone.
pub fn run(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let gpu = Gpu::of(case.device)?.context("--device says which GPU")?;
    let memory = DeviceMemory::new(gpu.device(), 2 * size, Purpose::Own)?;
    let pinned = PinnedMemory::new(gpu.device(), size)?;
    let (here, there) = (memory.address(), memory.address() + size as u64);
    let (target, source) = match case.what {
        What::PinnedToDevice => (here, pinned.address()),
        What::DeviceToPinned => (pinned.address(), here),
        _ => (there, here),
    };
    let events = [Event::new(gpu.device())?, Event::new(gpu.device())?];
    // SAFETY: the memory is ours, and waited for below before it goes. What it holds does not
    // matter, but it is to have been written once.
    unsafe { gpu.stream.fill(here, 1, 2 * size) }?;
    gpu.stream.synchronize()?;
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
        unsafe { gpu.stream.copy(target, source, size) }?;
        Ok(event.record(&gpu.stream)?)
    });
    let begun = Instant::now();
    gpu.stream.synchronize()?;
    let mut outcome = outcome?;
    outcome.seconds += begun.elapsed().as_secs_f64();
    drop((memory, pinned));
    parent.say(outcome)
}
