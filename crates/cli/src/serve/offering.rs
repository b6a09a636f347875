//! Tables of files and of the generator, as tickets: read for each stream, or once into an arena.

use anyhow::{Context as _, Result};
use dipc::arrow::stream::DeviceStreamReader;
use dipc::arrow::transfer::{move_into, move_to};
use dipc::arrow::{annotate, batch_to_c, schema_to_c};
use dipc::device::Target;
use dipc::server::ServerHandle;
use dipc::{Arena, ArenaOptions, DeviceKind};
use tracing::info;

use super::args::Args;
use crate::lend;
use crate::report::bytes_text;
use crate::served::{Served, SourceProvider};
use crate::source::{Reader, Source, export};
use crate::tables::Table;

/// Serves one ticket. Gives the table, to serve it by Flight too. `room` is the number of bytes
/// left for the arenas of further tickets.
pub(super) fn offer(
    server: &ServerHandle,
    ticket: &[u8],
    source: Source,
    args: &Args,
    room: &mut u64,
) -> Result<Table> {
    let reading = args.reading();
    let name = String::from_utf8_lossy(ticket).into_owned();
    if args.device != Target::Host {
        let batches = upload(server, ticket, source.reader(reading)?, args, room)
            .with_context(|| format!("cannot serve {source} from {}", args.device))?;
        info!(ticket = name, %source, batches, device = %args.device, "serving");
        // `DoGet` of Flight knows no GPUs, so it reads the table from its source.
        let rows = source.figures(reading)?.rows;
        return Ok(Table::Source {
            source: Served::new(ticket, source, reading),
            rows,
        });
    }
    if !args.arena {
        info!(ticket = name, %source, "serving");
        let served = Served::new(ticket, source.clone(), reading);
        let provider = Box::new(SourceProvider {
            source: served.clone(),
            is_fixed: !args.replace,
        });
        server.serve(ticket, provider).map_err(|(error, _)| error)?;
        let description = source.describe(reading)?;
        let rows = description.rows;
        server.set_description(ticket, description)?;
        return Ok(Table::Source {
            source: served,
            rows,
        });
    }
    let reader = source.reader(reading)?;
    let schema = reader.schema();
    let arena = arena(args, *room)?;
    let batches =
        lend::load(reader, &arena, *room).with_context(|| format!("cannot serve {source}"))?;
    *room = room.saturating_sub(arena.mapped_bytes());
    let count = batches.len();
    let exported = batches.iter().cloned();
    let exported = exported.map(|(batch, metadata)| annotate(batch_to_c(batch), &metadata));
    let exported = exported.collect();
    server
        .publish(ticket, schema_to_c(&schema)?, exported)
        .map_err(|(error, _)| error)?;
    let held = bytes_text(arena.used_bytes());
    info!(ticket = name, %source, batches = count, held, "serving from lendable memory");
    Ok(Table::Loaded { schema, batches })
}

/// An arena for one ticket. Tickets do not share arenas, because a client can read whole regions.
fn arena(args: &Args, max_bytes: u64) -> Result<Arena> {
    let options = ArenaOptions {
        max_bytes,
        ..ArenaOptions::default()
    };
    let (device, id) = match args.device {
        Target::Cuda(ordinal) => (DeviceKind::CUDA, ordinal.into()),
        Target::Host | Target::AsSent => (DeviceKind::CPU, -1),
    };
    Ok(Arena::on(device, id, options)?)
}

/// Copies a table to a GPU and publishes it. Gives the number of batches.
fn upload(
    server: &ServerHandle,
    ticket: &[u8],
    reader: Reader,
    args: &Args,
    room: &mut u64,
) -> Result<usize> {
    let host = Box::new(DeviceStreamReader::new(export(reader)));
    let arena = args.arena.then(|| arena(args, *room)).transpose()?;
    let mut moved = match arena.as_ref().and_then(Arena::room) {
        Some(place) => move_into(host, place).map_err(|error| lend::explained(error, *room))?,
        None => move_to(host, args.device)?,
    };
    let schema = moved.schema()?;
    let mut batches = Vec::new();
    while let Some(batch) = moved
        .next()
        .map_err(|error| lend::explained(error, *room))?
    {
        batches.push(batch);
    }
    if let Some(arena) = &arena {
        *room = room.saturating_sub(arena.mapped_bytes());
    }
    let count = batches.len();
    server
        .publish(ticket, schema, batches)
        .map_err(|(error, _)| error)?;
    Ok(count)
}
