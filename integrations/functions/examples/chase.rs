//! Follows pointers over tables that lie on several servers: `chase` reads an int64 column `next`,
//! which gives for each place the next one, and gives one row: `place`, where it ended, `steps` and
//! `hops`, how often it went to another table.
//!
//! The arguments are a text of lines: `place`, `steps left`, `steps done` and `hops`, each a number;
//! then a line for each part of the table, in order: `FIRST URI DESCRIPTOR`, where FIRST is the part's
//! first place. A part ends where the next one begins. The call starts at the part that has `place`;
//! when steps are left at another part's place, the function goes on there.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

struct Part {
    first: i64,
    uri: String,
    descriptor: String,
}

struct Chase {
    place: i64,
    left: i64,
    steps: i64,
    hops: i64,
    parts: Vec<Part>,
    column: usize,
    /// The part's places so far.
    next: Vec<i64>,
    output: SchemaRef,
}

impl Function for Chase {
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let input = input.ok_or("chase needs a table")?;
        let column = input.index_of("next")?;
        if *input.field(column).data_type() != DataType::Int64 {
            return Err("the column next is not int64".into());
        }
        let mut lines = str::from_utf8(arguments)?.lines();
        let mut number =
            || -> Result<i64> { Ok(lines.next().ok_or("a number is missing")?.parse()?) };
        let (place, left, steps, hops) = (number()?, number()?, number()?, number()?);
        let parts: Vec<_> = lines.map(Part::parse).collect::<Result<_>>()?;
        let names = ["place", "steps", "hops"];
        let fields = names.map(|name| Field::new(name, DataType::Int64, false));
        let output = Arc::new(Schema::new(fields.to_vec()));
        let function = Chase {
            place,
            left,
            steps,
            hops,
            parts,
            column,
            next: Vec::new(),
            output: output.clone(),
        };
        Ok((function, Output::Table(output)))
    }

    fn process(&mut self, batch: &RecordBatch, _out: &mut Out) -> Result<()> {
        let column = batch.column(self.column).as_primitive::<Int64Type>();
        if column.null_count() > 0 {
            return Err("a place has no next one".into());
        }
        self.next.extend_from_slice(column.values());
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let first = self.part(self.place)?.first;
        while self.left > 0 {
            let at = self
                .place
                .checked_sub(first)
                .and_then(|at| usize::try_from(at).ok());
            let Some(next) = at.and_then(|at| self.next.get(at)) else {
                break;
            };
            self.place = *next;
            self.left -= 1;
            self.steps += 1;
        }
        if self.left > 0 {
            let part = self.part(self.place)?;
            if part.first == first {
                return Err(format!("no part has the place {}", self.place).into());
            }
            out.forward(
                &part.uri,
                part.descriptor.as_bytes(),
                self.state()?.as_bytes(),
            )?;
            return Ok(());
        }
        let row = [self.place, self.steps, self.hops];
        let columns = row.map(|value| Arc::new(Int64Array::from(vec![value])) as ArrayRef);
        out.emit(&RecordBatch::try_new(
            self.output.clone(),
            columns.to_vec(),
        )?)
    }
}

impl Chase {
    /// The part that has a place.
    fn part(&self, place: i64) -> Result<&Part> {
        let part = self.parts.iter().rev().find(|part| part.first <= place);
        part.ok_or_else(|| format!("no part has the place {place}").into())
    }

    /// The arguments at the next server.
    fn state(&self) -> Result<String> {
        let (place, left, steps, hops) = (self.place, self.left, self.steps, self.hops + 1);
        let mut text = format!("{place}\n{left}\n{steps}\n{hops}\n");
        for Part {
            first,
            uri,
            descriptor,
        } in &self.parts
        {
            writeln!(text, "{first} {uri} {descriptor}")?;
        }
        Ok(text)
    }
}

impl Part {
    fn parse(line: &str) -> Result<Self> {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().ok_or("a part is FIRST URI DESCRIPTOR");
        Ok(Part {
            first: word()?.parse()?,
            uri: word()?.to_owned(),
            descriptor: word()?.to_owned(),
        })
    }
}

dipc_guest::functions! { "chase" => Chase }
