//! Driver failures while arrays are decoded, and lack of memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch};
use arrow::datatypes::Int32Type;
use dipc::arrow::EncodedMessage;
use dipc::arrow::decode::{Level, ReceivedBody};
use dipc::device::Target;
use dipc::device::cuda::Device;
use dipc::error::Status;

use crate::decoding::{
    Decoding, assert_clean, assert_same, decoder, dictionary, encoder, feed, packed_on_gpu,
};
use crate::headers::{Uploaded, on_device, on_host, whole, wide};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("wrong-faults", every_call_fails),
    ("wrong-memory", memory_runs_out),
];

/// Every driver call fails once, for every kind of body: the error has the driver's name for it,
/// nothing is left behind, and the stream goes on.
#[test]
fn every_call_may_fail_while_decoding() {
    run("wrong-faults", &[("FAKE_CUDA_DEVICES", "2")]);
}

/// Texts, views and a dictionary.
fn mixed(letters: &[&str]) -> RecordBatch {
    let wide = wide();
    let column: DictionaryArray<Int32Type> =
        (0..1000).map(|row| letters[row % letters.len()]).collect();
    let column: ArrayRef = Arc::new(column);
    let columns = ["column 0", "column 1", "column 2"];
    let mut columns: Vec<(&str, ArrayRef)> = columns
        .into_iter()
        .map(|name| (name, Arc::clone(wide.column_by_name(name).unwrap())))
        .collect();
    columns.push(("letters", column));
    RecordBatch::try_from_iter(columns).unwrap()
}

fn every_call_fails() {
    let devices = [Device::get(0).unwrap(), Device::get(1).unwrap()];
    let batch = mixed(&["a", "b"]);
    let schema = batch.schema();
    let mut failed = 0;
    for (from_gpu, target, level, skip) in [
        (false, Target::Cuda(0), Level::Structure, 0),
        (true, Target::Cuda(0), Level::Structure, 1),
        (true, Target::Cuda(1), Level::Structure, 0),
        (true, Target::Cuda(0), Level::Full, 0),
        (true, Target::Host, Level::Structure, 0),
    ] {
        let what = format!("GPU {from_gpu}, {target:?}, {level:?}");
        let messages = encoder(&schema)
            .encode(on_host(&batch, whole), None)
            .unwrap();
        let bodies = || -> Vec<ReceivedBody> {
            let body = |message: &EncodedMessage| match from_gpu {
                true => packed_on_gpu(message, &devices[0], skip),
                false => message.received(true),
            };
            messages.iter().map(body).collect()
        };
        let attempt = |decoder: &mut dipc::arrow::decode::Decoder, bodies: &[ReceivedBody]| {
            let mut array = None;
            for (message, body) in messages.iter().zip(bodies) {
                array = feed(decoder, &message.header, body)?;
            }
            Ok::<_, dipc::error::Error>(array.unwrap().array)
        };
        // Runs once to count the calls.
        let bodies_of_count = bodies();
        let mut decoder_of_count = decoder(&encoder(&schema), level, target);
        let was = fake::counts();
        drop(attempt(&mut decoder_of_count, &bodies_of_count).unwrap());
        drop(decoder_of_count);
        let calls: Vec<(String, i64)> = (fake::counts().into_iter())
            .map(|(name, count)| {
                let earlier = was.iter().find(|(known, _)| *known == name);
                (name, count - earlier.map_or(0, |(_, count)| *count))
            })
            .filter(|(name, count)| *count > 0 && name.starts_with("cu") && name != "cuMemcpy")
            .collect();
        drop(bodies_of_count);
        assert_clean(&what);
        let before = fake::Live::now();
        for (function, count) in calls {
            for nth in (1..=count).filter(|nth| *nth < 8 || nth % 13 == 0 || *nth + 8 > count) {
                let bodies = bodies();
                let mut decoder = decoder(&encoder(&schema), level, target);
                fake::fail_call(&function, nth, 999);
                let outcome = attempt(&mut decoder, &bodies).map(drop);
                fake::fail_call(&function, 0, 0);
                if let Err(error) = outcome {
                    let what = format!("{what}, {function} {nth}: {error}");
                    assert_eq!(error.status(), Status::Io, "{what}");
                    assert!(error.text().contains(&function), "{what}");
                    failed += 1;
                    // The decoder is as before.
                    let array = attempt(&mut decoder, &bodies).unwrap();
                    if nth == 1 {
                        let mut encoders = (encoder(&schema), encoder(&schema));
                        let wanted = (&mut encoders.0, on_host(&batch, whole));
                        assert_same(wanted, (&mut encoders.1, array), &what);
                    }
                }
                drop((decoder, bodies));
                let what = format!("{what}, {function} {nth}");
                assert!(fake::current().is_null(), "{what} left a context");
                assert_clean(&what);
                // Loaded kernels stay.
                let live = fake::Live::now().with_modules(before.modules);
                assert_eq!(live, before, "{what}");
            }
        }
    }
    assert!(failed > 100, "{failed}");
}

/// Lack of GPU memory in the middle of a stream is an error; existing arrays stay valid, and after
/// some are released the stream goes on.
#[test]
fn memory_may_run_out_in_the_middle_of_a_stream() {
    run("wrong-memory", &[("FAKE_CUDA_MEMORY", "33554432")]);
}

fn memory_runs_out() {
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..2 << 20));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let mut passing = Decoding::new(&batch.schema(), Level::Structure, Target::Cuda(0));
    let mut kept = Vec::new();
    let error = loop {
        match passing.pass(on_host(&batch, whole), true) {
            Ok(decoded) => kept.push(decoded.array),
            Err(error) => break error,
        }
        assert!(kept.len() < 10);
    };
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
    assert!(error.text().contains("GPU 0"), "{error}");
    assert!(kept.len() > 1);
    drop(kept.pop());
    kept.push(passing.pass(on_host(&batch, whole), true).unwrap().array);
    let mut wanted = encoder(&batch.schema());
    for array in kept {
        let mut got = encoder(&batch.schema());
        let host = on_host(&batch, whole);
        assert_same((&mut wanted, host), (&mut got, array), "kept");
    }
    drop(passing);
    assert_clean("memory");
    // A body of the GPU for the host needs no GPU memory.
    let small = dictionary(&["a"]);
    let Uploaded { array, memory } = on_device(&small, whole);
    let mut passing = Decoding::new(&small.schema(), Level::Structure, Target::Host);
    passing.pass(array, true).unwrap();
    drop(memory);
}
