//! The checks of level full for each type, and the unchecked values under nulls (rule A8).

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::*;
use arrow::ipc::writer::IpcWriteOptions;

use super::support::*;
use crate::arrow::decode::Level;

/// An array of parts that arrow-rs refuses to combine. Without `nulls` no row is null.
fn raw(
    ty: DataType,
    len: usize,
    nulls: Option<&[bool]>,
    buffers: Vec<Buffer>,
    children: Vec<ArrayData>,
) -> ArrayData {
    let builder = ArrayData::builder(ty)
        .len(len)
        .nulls(nulls.map(|valid| NullBuffer::from(valid.to_vec())))
        .buffers(buffers)
        .child_data(children);
    // SAFETY: wrong on purpose. It is only written, and the writer reads within bounds.
    unsafe { builder.build_unchecked() }
}

/// The parts of an array whose row 1 is invalid, and the text of the error.
struct Fault {
    ty: DataType,
    buffers: Vec<Buffer>,
    children: Vec<ArrayData>,
    says: &'static str,
}

impl Fault {
    fn of(ty: DataType, buffers: Vec<Buffer>, says: &'static str) -> Self {
        Self {
            ty,
            buffers,
            children: Vec::new(),
            says,
        }
    }

    fn array(&self, nulls: Option<&[bool]>) -> ArrayData {
        let (buffers, children) = (self.buffers.clone(), self.children.clone());
        raw(self.ty.clone(), 2, nulls, buffers, children)
    }
}

fn faults() -> Vec<Fault> {
    use DataType::*;
    let i32s = |values: [i32; 2]| vec![Buffer::from_slice_ref(values)];
    let i64s = |values: [i64; 2]| vec![Buffer::from_slice_ref(values)];
    let text = |first: i32, bytes: &[u8]| {
        let offsets = Buffer::from_slice_ref([0, first, i32::try_from(bytes.len()).unwrap()]);
        vec![offsets, Buffer::from(bytes)]
    };
    let view = |length: u32, rest: [u32; 3]| {
        let mut views = vec![0; 16];
        views.extend(
            [length, rest[0], rest[1], rest[2]]
                .map(u32::to_le_bytes)
                .concat(),
        );
        Buffer::from(views)
    };
    let abcd = u32::from_le_bytes(*b"abcd");
    let data = || Buffer::from(&b"abcdefghijklm\xff"[..]);
    let large = vec![
        Buffer::from_slice_ref([0i64, 1, 2]),
        Buffer::from(&b"a\xff"[..]),
    ];
    let mut faults = vec![
        Fault::of(Utf8, text(1, b"a\xff"), "UTF-8"),
        Fault::of(Utf8, text(0, b"\xc3\xa4\xa4"), "UTF-8"),
        Fault::of(LargeUtf8, large, "UTF-8"),
        Fault::of(Utf8View, vec![view(14, [abcd, 0, 0]), data()], "UTF-8"),
        Fault::of(Utf8View, vec![view(13, [abcd, 0, 2]), data()], "not inside"),
        Fault::of(BinaryView, vec![view(13, [0, 0, 0]), data()], "prefix"),
        Fault::of(BinaryView, vec![view(0, [1, 0, 0]), data()], "padded"),
    ];
    let ints = Int32Array::from(vec![1, 2]).into_data();
    let item = Arc::new(Field::new_list_field(Int32, true));
    for (ty, buffers) in [
        (
            ListView(item.clone()),
            [i32s([0, 7]), i32s([1, 1])].concat(),
        ),
        (LargeListView(item), [i64s([0, 0]), i64s([1, -1])].concat()),
    ] {
        faults.push(Fault {
            ty,
            buffers,
            children: vec![ints.clone()],
            says: "its child has 2",
        });
    }
    faults.push(Fault {
        ty: Dictionary(Box::new(Int32), Box::new(Utf8)),
        buffers: i32s([0, 1]),
        children: vec![StringArray::from(vec!["a"]).into_data()],
        says: "refers to",
    });
    let fields = UnionFields::try_new([5], [Field::new("i", Int32, true)]).unwrap();
    for (mode, buffers, says) in [
        (
            UnionMode::Dense,
            vec![Buffer::from(&[5, 5][..]), Buffer::from_slice_ref([1, 0])],
            "fall",
        ),
        (
            UnionMode::Dense,
            vec![Buffer::from(&[5, 5][..]), Buffer::from_slice_ref([0, 2])],
            "value 2",
        ),
        (
            UnionMode::Dense,
            vec![Buffer::from(&[5, 4][..]), Buffer::from_slice_ref([0, 1])],
            "id 4",
        ),
        (UnionMode::Sparse, vec![Buffer::from(&[5, 4][..])], "id 4"),
    ] {
        faults.push(Fault {
            ty: Union(fields.clone(), mode),
            buffers,
            children: vec![ints.clone()],
            says,
        });
    }
    faults
}

fn field(name: &str, data: &ArrayData) -> Arc<Field> {
    Arc::new(Field::new(name, data.data_type().clone(), true))
}

/// Arrays of two rows over a child of two values. Row 1 is visible, or hidden under a null.
fn parents(child: &ArrayData, hidden: bool) -> Vec<(&'static str, ArrayData)> {
    use DataType::*;
    let nulls: Option<&[bool]> = hidden.then_some(&[true, false]);
    let item = field("item", child);
    let one = vec![child.clone()];
    let i32s = |values: &[i32]| Buffer::from_slice_ref(values);
    let i64s = |values: &[i64]| Buffer::from_slice_ref(values);
    let other = Int32Array::from(vec![1, 2]).into_data();
    let fields = [field("a", child), field("b", &other)];
    let unions = UnionFields::try_new([0, 1], fields).unwrap();
    let second = u8::from(hidden);
    let both = || vec![child.clone(), other.clone()];
    let mut parents = vec![
        (
            "struct",
            raw(
                Struct(vec![item.clone()].into()),
                2,
                nulls,
                vec![],
                one.clone(),
            ),
        ),
        (
            "list",
            raw(
                List(item.clone()),
                2,
                nulls,
                vec![i32s(&[0, 1, 2])],
                one.clone(),
            ),
        ),
        (
            "large list",
            raw(
                LargeList(item.clone()),
                2,
                nulls,
                vec![i64s(&[0, 1, 2])],
                one.clone(),
            ),
        ),
        (
            "fixed-size list",
            raw(
                FixedSizeList(item.clone(), 1),
                2,
                nulls,
                vec![],
                one.clone(),
            ),
        ),
        (
            "list view",
            raw(
                ListView(item.clone()),
                2,
                nulls,
                vec![i32s(&[0, 1]), i32s(&[1, 1])],
                one.clone(),
            ),
        ),
        (
            "sparse union",
            raw(
                Union(unions.clone(), UnionMode::Sparse),
                2,
                None,
                vec![Buffer::from(&[0, second][..])],
                both(),
            ),
        ),
        (
            "dense union",
            raw(
                Union(unions, UnionMode::Dense),
                2,
                None,
                vec![Buffer::from(&[0, second][..]), i32s(&[0, 1])],
                both(),
            ),
        ),
    ];
    let runs = RunEndEncoded(
        Arc::new(Field::new("run_ends", Int32, false)),
        field("values", child),
    );
    let runs = raw(
        runs,
        2,
        None,
        vec![],
        vec![Int32Array::from(vec![1, 2]).into_data(), child.clone()],
    );
    let over_runs = Struct(vec![field("runs", &runs)].into());
    parents.push((
        "struct of runs",
        raw(over_runs, 2, nulls, vec![], vec![runs]),
    ));
    // Two levels up.
    let lists = raw(List(item), 2, None, vec![i32s(&[0, 1, 2])], one);
    let over_lists = Struct(vec![field("lists", &lists)].into());
    parents.push((
        "struct of lists",
        raw(over_lists, 2, nulls, vec![], vec![lists]),
    ));
    parents
}

fn sent(data: ArrayData) -> Vec<u8> {
    let array = make_array(data);
    let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
    write(
        &batch.schema(),
        std::slice::from_ref(&batch),
        IpcWriteOptions::default(),
    )
}

/// Decodes a column at level full and reads the whole batch, or returns the text of the decoder's
/// error.
fn full(bytes: &[u8], at: Place) -> Result<RecordBatch, String> {
    let decoded = decode(bytes, Level::Full, at).map_err(|error| error.text().to_owned())?;
    touch(&decoded);
    let (_, mut batches) = read_back(decoded);
    Ok(batches.remove(0))
}

/// Rule A8, level full: each fault of each type is found, in a column and under each parent.
#[test]
fn each_fault_is_found() {
    for fault in faults() {
        let array = fault.array(None);
        let seen = parents(&array, false);
        for (parent, data) in [("none", array)].into_iter().chain(seen) {
            let bytes = sent(data);
            for at in PLACES {
                let error = full(&bytes, at).err().unwrap_or_default();
                assert!(
                    error.contains(fault.says),
                    "{} in {parent}: {error:?}",
                    fault.ty
                );
                decode(&bytes, Level::Structure, at).unwrap();
            }
        }
    }
}

/// Rule A8, level full: an invalid value under a null is accepted, and the decoded array is valid.
#[test]
fn values_under_nulls_may_be_anything() {
    for fault in faults() {
        if matches!(fault.ty, DataType::Union(..)) {
            continue;
        }
        let bytes = sent(fault.array(Some(&[true, false])));
        for at in PLACES {
            let batch = full(&bytes, at).unwrap_or_else(|error| panic!("{}: {error}", fault.ty));
            assert_eq!(batch.column(0).null_count(), 1, "{}", fault.ty);
            assert!(batch.column(0).is_valid(0));
        }
        // An invalid value that is not null is still found.
        let bytes = sent(fault.array(Some(&[false, true])));
        assert!(full(&bytes, Place::Packed).is_err(), "{}", fault.ty);
    }
}

/// Rule A8, level full: a value under a null of a parent, or that no row of a union chooses, may be
/// invalid.
#[test]
fn values_under_nulls_of_parents_may_be_anything() {
    for fault in faults() {
        for (parent, data) in parents(&fault.array(None), true) {
            let bytes = sent(data);
            for at in PLACES {
                let taken = full(&bytes, at);
                taken.unwrap_or_else(|error| panic!("{} in {parent}: {error}", fault.ty));
            }
        }
    }
}

/// Promise of `dipc.h` for level full: these types have no invalid values. Arrow's integration
/// files contain such values.
#[test]
fn numbers_out_of_their_range_are_taken() {
    use DataType::*;
    for ty in [
        Date64,
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Nanosecond, None),
        Duration(TimeUnit::Second),
        Decimal64(3, 0),
    ] {
        let values = vec![Buffer::from_slice_ref([i64::MAX, -1])];
        let array = raw(ty, 2, None, values, vec![]);
        let wanted = make_array(array.clone());
        let bytes = sent(array);
        for at in PLACES {
            assert_eq!(full(&bytes, at).unwrap().column(0), &wanted);
        }
    }
}

/// Offsets of nulls may cover any bytes; the text beside them stays unchanged.
#[test]
fn text_beside_a_null_is_left_alone() {
    let bytes = "ä\u{1F980}".as_bytes();
    let all = [bytes, &[0xff, 0xc3, 0x28], bytes].concat();
    let offsets = [0, 6, 9, 15].map(|offset: i32| offset);
    let buffers = vec![Buffer::from_slice_ref(offsets), Buffer::from(&all[..])];
    let valid: &[bool] = &[true, false, true];
    let bytes = sent(raw(DataType::Utf8, 3, Some(valid), buffers, vec![]));
    for at in PLACES {
        let batch = full(&bytes, at).unwrap();
        let read = batch.column(0).as_string::<i32>();
        let text = Some("ä\u{1F980}");
        assert_eq!(read.iter().collect::<Vec<_>>(), [text, None, text]);
        assert_eq!(read.value(1), "\0\0\0");
    }
}

/// Rule A8, level full: a reachable null in a column that the schema declares without nulls is
/// refused; one below a null of its parent is no value of the column.
#[test]
fn nulls_in_a_column_declared_without_are_found() {
    let number = |valid: &[bool]| {
        raw(
            DataType::Int64,
            2,
            Some(valid),
            vec![Buffer::from_slice_ref([1i64, 2])],
            vec![],
        )
    };
    let strict = |kind| Arc::new(Field::new("x", kind, false));
    let structs = |valid: &[bool], child: &[bool]| {
        let kind = DataType::Struct(vec![strict(DataType::Int64)].into());
        raw(kind, 2, Some(valid), vec![], vec![number(child)])
    };
    let lists = |valid: &[bool]| {
        let kind = DataType::List(strict(DataType::Int64));
        raw(
            kind,
            2,
            Some(valid),
            vec![Buffer::from_slice_ref([0i32, 1, 2])],
            vec![number(&[true, false])],
        )
    };
    for (array, nullable, is_taken) in [
        (number(&[true, false]), true, true),
        (number(&[true, true]), false, true),
        (number(&[true, false]), false, false),
        (structs(&[true, true], &[true, false]), true, false),
        (structs(&[true, false], &[true, false]), true, true),
        (lists(&[true, true]), true, false),
        (lists(&[true, false]), true, true),
    ] {
        let field = Field::new("c", array.data_type().clone(), nullable);
        let schema = Arc::new(Schema::new(vec![field]));
        let text = format!("{array:?}");
        // SAFETY: wrong on purpose. It is only written.
        let batch =
            unsafe { RecordBatch::new_unchecked(Arc::clone(&schema), vec![make_array(array)], 2) };
        let bytes = write(&schema, &[batch], IpcWriteOptions::default());
        for place in PLACES {
            let found = decode(&bytes, Level::Full, place).map(drop);
            assert_eq!(found.is_ok(), is_taken, "{text}");
            if let Err(error) = found {
                assert!(error.text().contains("row 1 is null"), "{error}");
            }
            decode(&bytes, Level::Structure, place).unwrap();
        }
    }
}
