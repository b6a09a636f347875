//! Bodies of the fuzz targets in `fuzz/`.

use arrow::array::RecordBatch;

use crate::wasm32::array_in::{self, Budget};
use crate::wasm32::read::{Memory, u32_at};
use crate::wasm32::schema_in;

const BUDGET: Budget = Budget {
    rows: 1 << 20,
    bytes: 1 << 22,
};

/// Reads the output of a module whose memory is `memory`. Its first two words point to the schema and
/// to the batch.
///
/// # Panics
///
/// If a batch was taken that is not sound.
pub fn output(memory: &[u8]) {
    if let Some(batch) = read(memory) {
        for column in batch.columns() {
            let checked = column.to_data().validate_full();
            assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

/// The batch; `None` if it is refused.
pub(crate) fn read(memory: &[u8]) -> Option<RecordBatch> {
    if memory.len() < 8 {
        return None;
    }
    let (schema, array) = (u32_at(memory, 0), u32_at(memory, 4));
    let schema = schema_in::read(Memory(memory), schema).ok()??;
    array_in::batch(Memory(memory), array, &schema, &mut BUDGET.clone()).ok()
}
