//! A bound on a file that is written from a stranger's data. A few bytes can stand for long values
//! in many rows.

use anyhow::Result;
use dipc::Error;

/// Most bytes of a file for each byte that came.
const MOST_FOR_EACH: u64 = 16;

/// Most bytes of a file, however few have come.
const SMALL: u64 = 256 << 20;

/// How large a Parquet file may be; by default of any size.
#[derive(Debug, Default)]
pub struct Growth(Option<u64>);

impl Growth {
    /// Bounds the file from now on.
    pub fn bound(&mut self) {
        self.0 = Some(SMALL);
    }

    /// So many bytes have come.
    pub fn came(&mut self, bytes: u64) {
        if let Some(most) = &mut self.0 {
            *most = most.saturating_add(bytes.saturating_mul(MOST_FOR_EACH));
        }
    }

    /// Fails if a file of this many bytes is over its bound.
    pub fn ensure(&self, bytes: u64) -> Result<()> {
        match self.0 {
            Some(most) if bytes > most => Err(Error::unsupported(format!(
                "the Parquet file would have more than {most} bytes, many times what has come: \
                     give the table a name that ends in .arrow or .arrows"
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
    use arrow::record_batch::RecordBatch;

    use super::*;
    use crate::sink::{Sink, Target};

    /// Promise of the module: a file that grows over its bound ends between two parts of a batch,
    /// and leaves nothing.
    #[test]
    fn a_bounded_file_ends() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::parse(folder.path().join("t.parquet").to_str().unwrap()).unwrap();
        let noise = |n: u32| char::from(b'a' + (n.wrapping_mul(n) >> 9).to_le_bytes()[0] % 26);
        let word = StringArray::from(vec![(0..2 << 20).map(noise).collect::<String>()]);
        let keys = Int32Array::from(vec![0; 10_000]);
        let column: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(word)));
        let batch = RecordBatch::try_from_iter([("word", column)]).unwrap();
        let mut sink = Sink::create(&target, &batch.schema()).unwrap();
        *sink.growth() = Growth(Some(1 << 20));
        sink.growth().came(1 << 10);
        let error = sink.write(&batch, &|| Ok(())).unwrap_err();
        assert!(format!("{error:#}").contains("many times"), "{error:#}");
        drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
