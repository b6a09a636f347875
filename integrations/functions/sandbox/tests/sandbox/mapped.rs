//! Input whose pages are a file's: the module gets them without a copy, and what it writes is its own.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, StringArray,
    StringViewArray, make_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::Int64Type;
use dipc_sandbox::{Bound, Error, HostFile, HostFiles, Limits, Module, Options, Sandbox};
use rustix::mm::{MapFlags, ProtFlags};

use crate::support::{Wat, call};

const BYTES: usize = 64 << 20;
/// Rows of int64 with many whole pages.
const ROWS: i64 = 1 << 18;

/// A file and its mapping, from which buffers are taken upwards.
#[derive(Debug)]
struct Memory {
    file: Arc<File>,
    base: NonNull<u8>,
    used: AtomicUsize,
    found: AtomicUsize,
}

// SAFETY: each byte is written once, by whoever takes it, before it is shared.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses the addresses.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        Arc::new(Self {
            file: Arc::new(file),
            base: NonNull::new(base.unwrap().cast()).unwrap(),
            used: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
        })
    }

    fn buffer(self: &Arc<Self>, bytes: &[u8]) -> Buffer {
        let room = bytes.len().next_multiple_of(64);
        let at = self.used.fetch_add(room, Ordering::Relaxed);
        assert!(at + room <= BYTES);
        // SAFETY: the room is within the mapping, and nobody else has it.
        unsafe {
            let at = self.base.add(at);
            at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            Buffer::from_custom_allocation(at, bytes.len(), Arc::clone(self) as _)
        }
    }

    /// The array with its buffers here.
    fn array(self: &Arc<Self>, array: &dyn arrow::array::Array) -> ArrayRef {
        let data = array.to_data();
        let buffers = data.buffers().iter().map(|buffer| self.buffer(buffer));
        let builder = data.clone().into_builder().buffers(buffers.collect());
        make_array(builder.build().unwrap())
    }

    fn numbers(self: &Arc<Self>, first: i64) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(first..first + ROWS);
        RecordBatch::try_from_iter([("number", self.array(&numbers))]).unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: buffers keep this value, so nobody reads the mapping any more.
        unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), BYTES) }.unwrap();
    }
}

impl HostFiles for Memory {
    fn find(&self, bytes: &[u8]) -> Option<HostFile> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.base.as_ptr() as usize)?;
        if offset + bytes.len() > BYTES {
            return None;
        }
        self.found.fetch_add(1, Ordering::Relaxed);
        let file: OwnedFd = self.file.as_fd().try_clone_to_owned().unwrap();
        Some(HostFile {
            file: Box::new(file),
            offset: offset as u64,
        })
    }
}

fn module(files: Arc<dyn HostFiles>, wat: &Wat) -> Module {
    let options = Options {
        files: Some(files),
        ..Options::default()
    };
    let sandbox = Sandbox::new(options).unwrap();
    sandbox.compile(&wat.bytes()).unwrap()
}

/// `dipc_process` that sets `$values` to the place of the first column's values, does `body`, and puts
/// out its input.
fn on_values(body: &str) -> Wat {
    Wat {
        fields: "(global $values (mut i32) (i32.const 0))".into(),
        process: format!(
            "(global.set $values (i32.load offset=4 (i32.load offset=40
                (i32.load (i32.load offset=44 (local.get $array))))))
            {body}
            (drop (call $emit (local.get $array))) (i32.const 0)"
        ),
        ..Wat::default()
    }
}

#[test]
fn a_module_reads_the_same_rows_from_pages_as_from_a_copy() {
    let memory = Memory::new();
    let module = module(memory.clone(), &Wat::default());
    let texts = (0..ROWS).map(|row| (row % 7 != 0).then(|| format!("the text of row {row}")));
    let texts: Vec<_> = texts.collect();
    let numbers = Int64Array::from_iter((0..ROWS).map(|row| (row % 3 != 0).then_some(row)));
    let columns: [ArrayRef; 4] = [
        Arc::new(numbers),
        Arc::new(StringArray::from_iter(&texts)),
        Arc::new(StringViewArray::from_iter(&texts)),
        Arc::new(BooleanArray::from_iter(
            (0..ROWS * 32).map(|row| Some(row % 5 == 0)),
        )),
    ];
    let limits = Limits::default();
    for column in columns {
        let here = memory.array(&column);
        for (offset, length) in [(0, here.len()), (8, here.len() - 8), (3, here.len() - 5)] {
            let rows = RecordBatch::try_from_iter([("c", here.slice(offset, length))]).unwrap();
            let copy = RecordBatch::try_from_iter([("c", column.slice(offset, length))]).unwrap();
            assert_eq!(call(&module, &rows, &limits).unwrap(), [copy]);
        }
    }
    // Numbers, texts, views and bits, in three slices each; bits of one slice are shifted.
    assert!(memory.found.load(Ordering::Relaxed) >= 11);
}

#[test]
fn what_a_module_writes_into_its_input_stays_in_the_call() {
    let memory = Memory::new();
    let bytes = ROWS * 8;
    let fill = format!("(memory.fill (global.get $values) (i32.const 1) (i32.const {bytes}))");
    let copy = format!("(memory.copy (global.get $values) (i32.const 0) (i32.const {bytes}))");
    let store = "(i64.store (global.get $values) (i64.const 7))";
    for (body, first) in [
        (fill.as_str(), 0x0101_0101_0101_0101),
        (&copy, 0),
        (store, 7),
    ] {
        let module = module(memory.clone(), &on_values(body));
        let batch = memory.numbers(1000);
        let outputs = call(&module, &batch, &Limits::default()).unwrap();
        assert_eq!(
            outputs[0].column(0).as_primitive::<Int64Type>().value(0),
            first
        );
        let numbers = Int64Array::from_iter_values(1000..1000 + ROWS);
        assert_eq!(batch.column(0).as_primitive::<Int64Type>(), &numbers);
        memory.used.store(0, Ordering::Relaxed);
    }
}

#[test]
fn nothing_of_a_file_is_left_when_a_module_runs_again() {
    let memory = Memory::new();
    // At the end, it puts out what lies in the middle of its former input.
    let wat = Wat {
        init: "(i32.const 0)".into(),
        process: "(i32.const 0)".into(),
        finish: "(drop (call $emit_bytes (i32.const 327680) (i32.const 64))) (i32.const 0)".into(),
        ..Wat::default()
    };
    let module = module(memory.clone(), &wat);
    let batch = memory.numbers(1);
    let schema = batch.schema();
    let mut running = (module.start("f", b"", Some(&schema), &Limits::default())).unwrap();
    running.process(&batch).unwrap();
    // The memory becomes another table's.
    drop(batch);
    memory.file.write_all_at(&vec![0xee; BYTES], 0).unwrap();
    let outputs = running.finish().unwrap();
    assert_eq!(outputs[0].column(0).as_binary::<i32>().value(0), [0; 64]);
    assert_eq!(memory.found.load(Ordering::Relaxed), 1);
}

#[test]
fn batches_with_and_without_pages_follow_each_other() {
    let memory = Memory::new();
    let module = module(memory.clone(), &Wat::default());
    let schema = memory.numbers(0).schema();
    let mut running = (module.start("f", b"", Some(&schema), &Limits::default())).unwrap();
    for (first, rows) in (0..).zip([1000, 1 << 18, 1 << 15, 2000, 1 << 18, 1 << 17]) {
        let batch = memory.numbers(first);
        for batch in [batch.slice(0, rows), batch.slice(8, rows - 8)] {
            assert_eq!(running.process(&batch).unwrap(), [batch]);
        }
    }
    running.finish().unwrap();
}

#[test]
fn pages_of_files_count_as_memory_of_the_module() {
    let memory = Memory::new();
    let module = module(memory.clone(), &Wat::default());
    let limits = Limits {
        memory_bytes: 256 << 10,
        ..Limits::default()
    };
    let error = call(&module, &memory.numbers(0), &limits).unwrap_err();
    let bound = Bound::Memory;
    assert!(
        matches!(error, Error::Limit { bound: it, .. } if it == bound),
        "{error}"
    );
}

/// Gives another file than the one that has the bytes.
#[derive(Debug)]
struct Wrong {
    file: Arc<File>,
    offset: u64,
}

impl HostFiles for Wrong {
    fn find(&self, bytes: &[u8]) -> Option<HostFile> {
        let within = bytes.as_ptr() as u64 % 4096;
        Some(HostFile {
            file: Box::new(self.file.as_fd().try_clone_to_owned().unwrap()),
            offset: self.offset + within,
        })
    }
}

#[test]
fn bytes_that_lie_otherwise_in_their_pages_than_in_the_file_are_copied() {
    let files = Wrong {
        file: Arc::new(tempfile::tempfile().unwrap()),
        offset: 8,
    };
    let module = module(Arc::new(files), &Wat::default());
    let batch = Memory::new().numbers(5);
    assert_eq!(call(&module, &batch, &Limits::default()).unwrap(), [batch]);
}

#[test]
fn a_file_that_cannot_be_mapped_ends_the_call_alone() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"no file").unwrap();
    assert!(File::from(OwnedFd::from(writer)).rewind().is_err());
    let files = Wrong {
        file: Arc::new(File::from(OwnedFd::from(reader))),
        offset: 0,
    };
    let module = module(Arc::new(files), &Wat::default());
    let batch = Memory::new().numbers(5);
    let error = call(&module, &batch, &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Host(_)), "{error}");
    let small = batch.slice(0, 10);
    assert_eq!(call(&module, &small, &Limits::default()).unwrap(), [small]);
}

#[test]
fn a_module_with_atomic_operations_is_refused() {
    let wat = on_values("(drop (i32.atomic.rmw.add (global.get $values) (i32.const 1)))");
    let options = Options::default();
    let error = Sandbox::new(options).unwrap().compile(&wat.bytes());
    assert!(matches!(error, Err(Error::Module(_))), "{error:?}");
}

#[test]
fn a_module_that_aligns_to_64_bytes_alone_gets_pages_too() {
    let memory = Memory::new();
    let alloc = Wat::default().alloc;
    let (most, result) = alloc.rsplit_once("65536").unwrap();
    let begin = "(i32.const 65536) (local.get $length)";
    let most = most.replace(begin, "(i32.const 65600) (local.get $length)");
    let wat = Wat {
        alloc: format!("{most}65600{result}"),
        ..Wat::default()
    };
    let module = module(memory.clone(), &wat);
    let batch = memory.numbers(7);
    for batch in [batch.slice(0, 200_000), batch] {
        assert_eq!(call(&module, &batch, &Limits::default()).unwrap(), [batch]);
    }
    assert_eq!(memory.found.load(Ordering::Relaxed), 2);
}
