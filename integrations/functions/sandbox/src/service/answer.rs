use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use crate::{Error, Forward, Running};

/// Why an answer ends early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The function failed.
    #[error(transparent)]
    Function(#[from] Error),
    /// The table that the function reads failed.
    #[error(transparent)]
    Table(#[from] ArrowError),
}

/// The batches that a function puts out, as its table comes. The function runs on the thread that
/// asks for the next batch.
#[derive(Debug)]
pub struct Answer<T> {
    running: Running,
    table: T,
    /// Put out, and not taken.
    queue: VecDeque<RecordBatch>,
    has_ended: bool,
}

impl<T> Answer<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    /// The answer of a function to the batches of `table`.
    pub fn new(running: Running, table: T) -> Self {
        Self {
            running,
            table,
            queue: VecDeque::new(),
            has_ended: false,
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.running.schema()
    }

    /// Where the call goes on, once its last batch was taken, and how many hops are left before
    /// that one; `None`: nowhere.
    pub fn take_forward(&mut self) -> Option<(Forward, u32)> {
        let hops = self.running.hops();
        Some((self.running.take_forward()?, hops))
    }

    /// The function's output for the next batch of the table, or for its end.
    fn step(&mut self) -> Result<(), Ended> {
        let outputs = match self.table.next() {
            Some(batch) => self.running.process(&batch?)?,
            None => {
                self.has_ended = true;
                self.running.finish()?
            }
        };
        self.queue.extend(outputs);
        Ok(())
    }
}

impl<T> Iterator for Answer<T>
where
    T: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    type Item = Result<RecordBatch, Ended>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.queue.is_empty() && !self.has_ended {
            if let Err(error) = self.step() {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        self.queue.pop_front().map(Ok)
    }
}
