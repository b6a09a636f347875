//! Tables of files and of the generator, as tickets: read for each stream, or once into an arena.

use anyhow::{Context as _, Result};
use dipc::{Arena, ArenaOptions, Batches, DeviceKind, Error, Server, Target};
use tracing::info;

use super::args::Args;
use crate::lend;
use crate::report::bytes_text;
use crate::served::{Served, SourceProvider};
use crate::source::{Reader, Source, batches};
use crate::tables::Table;

/// Serves one ticket. Gives the table, to serve it by Flight too. `room` is the number of bytes
/// left for the arenas of further tickets.
pub(super) fn offer(
    server: &Server,
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
        let provider = SourceProvider {
            source: served.clone(),
            is_fixed: !args.replace,
        };
        server.serve(ticket, provider)?;
        let description = source.describe(reading)?;
        let rows = description.total_rows();
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
    let table = batches.clone().into_iter().map(Ok::<_, Error>);
    let count = server.load(ticket, Batches::with_metadata(schema.clone(), table))?;
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
    server: &Server,
    ticket: &[u8],
    reader: Reader,
    args: &Args,
    room: &mut u64,
) -> Result<usize> {
    let table = batches(reader);
    if !args.arena {
        return Ok(server.load(ticket, table.moved_to(args.device)?)?);
    }
    let arena = arena(args, *room)?;
    let loaded = server.load(ticket, table.moved_into(&arena)?);
    let count = loaded.map_err(|error| lend::explained(error, *room))?;
    *room = room.saturating_sub(arena.mapped_bytes());
    Ok(count)
}
