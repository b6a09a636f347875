//! The readers over memory that was changed at random: they may refuse it or read it, and never
//! panic. The same seeds on each run.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;

use super::array_in::{self, Budget};
use super::image::Image;
use super::read::Memory;
use super::{schema_in, schema_out, write};

/// Where images lie in the memory of these tests.
const BASE: u32 = 64;
const BUDGET: Budget = Budget {
    rows: 1 << 20,
    bytes: 1 << 22,
};

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % bound
    }

    /// Changes a byte or a word: to any value, a bit of it, or one that is often special.
    fn change(&mut self, memory: &mut [u8]) {
        let at = self.below(memory.len() - 8) & if self.below(4) == 0 { !0 } else { !7 };
        let bytes = &mut memory[at..at + 8];
        let special = [
            0,
            1,
            2,
            64,
            65,
            127,
            1 << 31,
            u64::MAX,
            u64::MAX >> 1,
            1 << 32,
            4096,
        ];
        match self.below(5) {
            0 => bytes[0] = u8::try_from(self.below(256)).unwrap(),
            1 => bytes[self.below(8)] ^= 1 << self.below(8),
            2 => bytes.copy_from_slice(&special[self.below(special.len())].to_le_bytes()),
            3 => {
                let word = u32::try_from(self.below(memory.len())).unwrap() & !63;
                memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            _ => {
                let word = bytes[0].wrapping_add(u8::try_from(self.below(3)).unwrap());
                bytes[0] = word.wrapping_sub(1);
            }
        }
    }
}

/// One column of each kind, some within others.
fn table() -> RecordBatch {
    let texts = [
        Some("one"),
        None,
        Some("a text of more than twelve bytes"),
        Some("ä"),
    ];
    let numbers = Int32Array::from(vec![Some(0), None, Some(2), Some(3)]);
    let lists = || {
        ListArray::from_iter_primitive::<Int16Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
            Some(vec![Some(4)]),
        ])
    };
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
    let view_of = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let views = ListViewArray::new(
        view_of,
        vec![2, 0, 1, 0].into(),
        vec![2, 0, 3, 4].into(),
        words,
        None,
    );
    let words = StringArray::from(vec!["a", "b", "c", "d"]);
    let union = |offsets: Option<Vec<i32>>| {
        let fields = [
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8, true),
        ];
        let children: Vec<ArrayRef> = vec![Arc::new(numbers.clone()), Arc::new(words.clone())];
        let ids = ScalarBuffer::from(vec![3_i8, 7, 7, 3]);
        let fields = UnionFields::try_new([3, 7], fields).unwrap();
        UnionArray::try_new(fields, ids, offsets.map(ScalarBuffer::from), children).unwrap()
    };
    let entries = StructArray::from(vec![
        (
            Arc::new(Field::new("keys", DataType::Utf8, false)),
            Arc::new(words.clone()) as ArrayRef,
        ),
        (
            Arc::new(Field::new("values", DataType::Int32, true)),
            Arc::new(numbers.clone()),
        ),
    ]);
    let map = MapArray::new(
        Arc::new(Field::new("entries", entries.data_type().clone(), false)),
        OffsetBuffer::from_lengths([1, 0, 2, 1]),
        entries.clone(),
        None,
        false,
    );
    let runs = RunArray::try_new(&Int32Array::from(vec![1, 4]), &words.slice(0, 2)).unwrap();
    let fixed = [
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(3), Some(4)]),
        None,
    ];
    let decimals = Decimal128Array::from(vec![1, 2, 3, 4]);
    RecordBatch::try_from_iter([
        ("numbers", Arc::new(numbers.clone()) as ArrayRef),
        (
            "bits",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                None,
                Some(false),
                None,
            ])),
        ),
        ("nothing", Arc::new(NullArray::new(4))),
        ("texts", Arc::new(StringArray::from_iter(texts))),
        ("large", Arc::new(LargeStringArray::from_iter(texts))),
        ("views", Arc::new(StringViewArray::from_iter(texts))),
        ("lists", Arc::new(lists())),
        ("list views", Arc::new(views)),
        (
            "fixed lists",
            Arc::new(FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
                fixed, 2,
            )),
        ),
        ("structs", Arc::new(entries)),
        ("maps", Arc::new(map)),
        ("sparse", Arc::new(union(None))),
        ("dense", Arc::new(union(Some(vec![0, 0, 1, 1])))),
        ("runs", Arc::new(runs)),
        (
            "words",
            Arc::new(DictionaryArray::new(numbers, Arc::new(words))),
        ),
        (
            "decimals",
            Arc::new(decimals.with_precision_and_scale(9, 2).unwrap()),
        ),
    ])
    .unwrap()
}

/// Memory with an image at `BASE`.
fn memory(image: &Image<'_>) -> Vec<u8> {
    let base = BASE as usize;
    let mut memory = vec![0; base + image.length() as usize];
    image.write(&mut memory[base..], BASE).expect("no pages");
    memory
}

/// The fuzzer's first input is a whole table, so that it has something to change.
#[test]
fn the_corpus_of_the_fuzzer_has_the_table() {
    let batch = table();
    let columns = write::columns(&batch);
    let mut image = Image::default();
    let schema = BASE + schema_out::put(&mut image, &batch.schema()).unwrap();
    let array = BASE + write::batch(&mut image, batch.num_rows(), &columns).unwrap();
    let mut memory = memory(&image);
    memory[..4].copy_from_slice(&schema.to_le_bytes());
    memory[4..8].copy_from_slice(&array.to_le_bytes());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/output/table");
    if std::env::var_os("DIPC_BLESS").is_some() {
        std::fs::write(path, &memory).unwrap();
    }
    let kept = std::fs::read(path).unwrap();
    assert_eq!(crate::fuzzing::read(&kept), Some(batch));
    assert!(
        kept == memory,
        "{path} is old: run this test with DIPC_BLESS=1"
    );
}

#[test]
fn changed_batches_never_panic() {
    let batch = table();
    let columns = write::columns(&batch);
    let mut image = Image::default();
    let array = BASE + write::batch(&mut image, batch.num_rows(), &columns).unwrap();
    let schema = batch.schema();
    let whole = memory(&image);
    let read = |memory: &[u8]| array_in::batch(Memory(memory), array, &schema, &mut BUDGET.clone());
    assert_eq!(read(&whole).unwrap(), batch);

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut sound = 0;
    for _ in 0..20_000 {
        let mut memory = whole.clone();
        for _ in 0..=random.below(3) {
            random.change(&mut memory);
        }
        if let Ok(batch) = read(&memory) {
            sound += 1;
            // What was taken is sound: all of it can be looked at.
            for column in batch.columns() {
                column.to_data().validate_full().unwrap();
            }
        }
    }
    // Some changes hit padding, and some make other data; many are refused.
    assert!((500..19_500).contains(&sound), "{sound}");
}

#[test]
fn changed_schemas_never_panic() {
    let schema = table().schema();
    let mut image = Image::default();
    let pointer = BASE + schema_out::put(&mut image, &schema).unwrap();
    let whole = memory(&image);
    assert_eq!(
        schema_in::read(Memory(&whole), pointer).unwrap(),
        Some(schema)
    );

    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut sound = 0;
    for _ in 0..20_000 {
        let mut memory = whole.clone();
        for _ in 0..=random.below(3) {
            random.change(&mut memory);
        }
        if let Ok(Some(schema)) = schema_in::read(Memory(&memory), pointer) {
            sound += 1;
            // Arrays of the types that were taken can be made.
            for field in schema.fields() {
                new_empty_array(field.data_type());
            }
        }
    }
    assert!((500..19_500).contains(&sound), "{sound}");
}

#[test]
fn random_memory_never_panics() {
    let schema = table().schema();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..2_000 {
        let mut memory: Vec<u8> = Vec::new();
        memory.resize_with(4096, || {
            u8::try_from(random.below(8) * random.below(9)).unwrap()
        });
        assert!(array_in::batch(Memory(&memory), BASE, &schema, &mut BUDGET.clone()).is_err());
        assert!(schema_in::read(Memory(&memory), BASE).is_err());
    }
}
