//! A module for tests: functions that break the rules, one that keeps a copy, and one that goes on.

use std::cell::RefCell;

use dipc_guest::arrow_array::{ArrayRef, RecordBatch};
use dipc_guest::arrow_schema::Schema;
use dipc_guest::{Function, Out, Output, Result, copy_batch};

/// Gives its input out, or a batch that is one column short.
pub(crate) struct Short;

impl Function for Short {
    fn init(_: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Short, Output::table(input.ok_or("no table")?.clone())))
    }

    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        let columns: Vec<usize> = (1..batch.num_columns()).collect();
        out.emit(&batch.project(&columns)?)
    }
}

/// Panics at its first batch.
pub(crate) struct Panics;

#[allow(clippy::panic, reason = "the fault of this function")]
impl Function for Panics {
    fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Panics, Output::Bytes))
    }

    fn process(&mut self, batch: &RecordBatch, _: &mut Out) -> Result<()> {
        panic!("a batch of {} rows is too much", batch.num_rows())
    }
}

/// Keeps a column of its input, in itself or elsewhere.
pub(crate) struct Keeps(Option<ArrayRef>);

thread_local! {
    static ELSEWHERE: RefCell<Option<ArrayRef>> = const { RefCell::new(None) };
}

impl Function for Keeps {
    fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Keeps(None), Output::Bytes))
    }

    fn process(&mut self, batch: &RecordBatch, _: &mut Out) -> Result<()> {
        self.0 = Some(batch.column(0).clone());
        ELSEWHERE.set(self.0.clone());
        Ok(())
    }
}

/// Gives out at the end what it got, from copies.
#[derive(Default)]
pub(crate) struct Copies(Vec<RecordBatch>);

impl Function for Copies {
    fn init(_: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let input = input.ok_or("no table")?;
        Ok((Copies::default(), Output::table(input.clone())))
    }

    fn process(&mut self, batch: &RecordBatch, _: &mut Out) -> Result<()> {
        self.0.push(copy_batch(batch)?);
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        self.0.iter().try_for_each(|batch| out.emit(batch))
    }
}

/// Never comes to an end. With a line `URI DESCRIPTOR`, it does so there.
pub(crate) struct Endless(Vec<u8>);

impl Function for Endless {
    fn init(arguments: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Endless(arguments.to_vec()), Output::Bytes))
    }

    fn process(&mut self, batch: &RecordBatch, _: &mut Out) -> Result<()> {
        while self.0.is_empty() {
            std::hint::black_box(batch);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        forward(&self.0, out)
    }
}

/// Gives its input out, and goes on at the server and table of its first line, `URI DESCRIPTOR`.
pub(crate) struct Goes(Vec<u8>);

impl Function for Goes {
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let output = Output::table(input.ok_or("no table")?.clone());
        Ok((Goes(arguments.to_vec()), output))
    }

    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        out.emit(batch)
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        forward(&self.0, out)
    }
}

fn forward(lines: &[u8], out: &mut Out) -> Result<()> {
    let Some((first, others)) = str::from_utf8(lines)?.split_once('\n') else {
        return Ok(());
    };
    let (uri, descriptor) = first.split_once(' ').ok_or("a line is URI DESCRIPTOR")?;
    out.forward(uri, descriptor.as_bytes(), others.as_bytes())?;
    Ok(())
}

dipc_guest::functions! {
    "short" => Short,
    "panics" => Panics,
    "keeps" => Keeps,
    "copies" => Copies,
    "endless" => Endless,
    "goes" => Goes,
}
