//! The tables of the TPC-H benchmark, as files of Parquet that are written once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::record_batch::RecordBatchReader;
use datafusion::parquet::arrow::ArrowWriter;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// The largest scale factor: beyond it keys overflow the generators' integers.
const MAX_SCALE: f64 = 100_000.0;

/// Files of a large table. Workers scan files, or parts of them, at once.
const PARTS: i32 = 4;

type Reader = Box<dyn RecordBatchReader>;

/// A table: its name, its number of files, and how the rows of a file are made.
type Table = (&'static str, i32, fn(f64, i32, i32) -> Reader);

macro_rules! table {
    ($name:literal, $parts:expr, $arrow:ident, $generator:ident) => {
        ($name, $parts, |scale, part, parts| {
            Box::new($arrow::new($generator::new(scale, part, parts)))
        })
    };
}

const TABLES: [Table; 8] = [
    table!("customer", PARTS, CustomerArrow, CustomerGenerator),
    table!("lineitem", PARTS, LineItemArrow, LineItemGenerator),
    table!("nation", 1, NationArrow, NationGenerator),
    table!("orders", PARTS, OrderArrow, OrderGenerator),
    table!("part", PARTS, PartArrow, PartGenerator),
    table!("partsupp", PARTS, PartSuppArrow, PartSuppGenerator),
    table!("region", 1, RegionArrow, RegionGenerator),
    table!("supplier", 1, SupplierArrow, SupplierGenerator),
];

macro_rules! queries {
    ($($name:literal),*) => {
        [$(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tpch/", $name, ".sql"))),*]
    };
}

/// The queries, from the first on.
pub const QUERIES: [&str; 22] = queries![
    "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15",
    "q16", "q17", "q18", "q19", "q20", "q21", "q22"
];

/// Reads a scale factor: 1 is about six million rows of `lineitem`.
pub fn parse_scale(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= MAX_SCALE => Ok(scale),
        _ => bail!("the scale factor is a number above 0 and up to {MAX_SCALE}, not {text:?}"),
    }
}

/// The names and the folders of all tables. Writes in `folder` those that are not there.
pub fn tables(scale: f64, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let folder = folder.join(format!("scale-{scale}"));
    let mut tables = Vec::new();
    for table in TABLES {
        let path = folder.join(table.0);
        if !path.exists() {
            write(table, scale, &path)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        tables.push((table.0.to_owned(), path));
    }
    Ok(tables)
}

/// Writes a table under another name, and then moves it to its place, so that nobody sees a part of
/// it.
fn write((name, parts, make): Table, scale: f64, path: &Path) -> Result<()> {
    let unfinished = path.with_file_name(format!("{name}.unfinished-{}", std::process::id()));
    fs::create_dir_all(&unfinished)?;
    for part in 1..=parts {
        let rows = make(scale, part, parts);
        let file = File::create(unfinished.join(format!("{part}.parquet")))?;
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None)?;
        for batch in rows {
            writer.write(&batch?)?;
        }
        writer.close()?;
    }
    let moved = fs::rename(&unfinished, path);
    if moved.is_err() {
        // Another process may have written the same meanwhile.
        fs::remove_dir_all(&unfinished)?;
    }
    match path.exists() {
        true => Ok(()),
        false => Ok(moved?),
    }
}
