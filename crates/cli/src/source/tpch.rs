//! TPC-H tables, generated as they are read.

use std::fmt;

use anyhow::{Result, bail};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use super::reader::Reader;

/// The largest scale factor: beyond it keys overflow the generators' integers.
const MAX_SCALE: f64 = 100_000.0;

macro_rules! tables {
    ($($variant:ident $name:literal $generator:ident $arrow:ident;)*) => {
        /// A table of the TPC-H benchmark.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
        pub enum Table {
            $(#[doc = concat!("The table `", $name, "`.")] #[value(name = $name)] $variant,)*
        }

        impl Table {
            /// Its name, which is also its ticket.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its rows at `scale`, in batches of `batch_rows`. Every call gives the same rows.
            pub fn reader(self, scale: f64, batch_rows: usize) -> Reader {
                match self {
                    $(Self::$variant => Reader::plain(
                        $arrow::new($generator::new(scale, 1, 1)).with_batch_size(batch_rows),
                    ),)*
                }
            }
        }
    };
}

tables! {
    Customer "customer" CustomerGenerator CustomerArrow;
    Lineitem "lineitem" LineItemGenerator LineItemArrow;
    Nation "nation" NationGenerator NationArrow;
    Orders "orders" OrderGenerator OrderArrow;
    Part "part" PartGenerator PartArrow;
    Partsupp "partsupp" PartSuppGenerator PartSuppArrow;
    Region "region" RegionGenerator RegionArrow;
    Supplier "supplier" SupplierGenerator SupplierArrow;
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a scale factor: 1 is about six million rows of `lineitem`.
pub fn parse_scale(text: &str) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= MAX_SCALE => Ok(scale),
        _ => bail!("the scale factor is a number above 0 and up to {MAX_SCALE}, not {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// Promise of `--tpch`: all eight tables exist, and reading one twice gives the same rows.
    #[test]
    fn every_table_is_generated_and_repeats() {
        assert_eq!(Table::value_variants().len(), 8);
        for table in Table::value_variants() {
            let read = || table.reader(0.001, 100).batches().unwrap();
            let batches = read();
            assert!(batches.iter().all(|batch| batch.num_rows() <= 100));
            assert!(!batches.is_empty(), "{table}");
            assert_eq!(table.reader(0.001, 1).schema(), batches[0].schema());
            assert_eq!(batches, read(), "{table}");
        }
    }

    /// Scale factors outside the range are refused, with the range in the text.
    #[test]
    fn scales_are_positive_numbers() {
        assert_eq!(parse_scale("0.01").unwrap(), 0.01);
        for bad in ["0", "-1", "nan", "inf", "1e9", "", "ten"] {
            assert!(
                parse_scale(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("above 0"),
                "{bad}"
            );
        }
    }
}
