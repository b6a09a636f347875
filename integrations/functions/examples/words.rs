//! Functions without a table: their input is the arguments, a text in UTF-8.
//!
//! - `reverse` gives the text with its characters in the reverse order, as bytes.
//! - `words` gives a row for each word, in the order of the alphabet: `word`, and `count`, its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

struct Reverse(String);

impl Function for Reverse {
    fn init(arguments: &[u8], _input: Option<&Schema>) -> Result<(Self, Output)> {
        Ok((Reverse(str::from_utf8(arguments)?.into()), Output::Bytes))
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let reverse: String = self.0.chars().rev().collect();
        out.emit_bytes(reverse.as_bytes())
    }
}

struct Words {
    text: String,
    output: SchemaRef,
}

impl Function for Words {
    fn init(arguments: &[u8], _input: Option<&Schema>) -> Result<(Self, Output)> {
        let text = str::from_utf8(arguments)?.into();
        let output = Arc::new(Schema::new(vec![
            Field::new("word", DataType::Utf8, false),
            Field::new("count", DataType::Int64, false),
        ]));
        let function = Words {
            text,
            output: output.clone(),
        };
        Ok((function, Output::Table(output)))
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let mut counts = BTreeMap::new();
        for word in self.text.split_whitespace() {
            *counts.entry(word).or_insert(0) += 1;
        }
        let words = StringArray::from_iter_values(counts.keys());
        let counts = Int64Array::from_iter_values(counts.values().copied());
        let columns = vec![Arc::new(words) as _, Arc::new(counts) as _];
        out.emit(&RecordBatch::try_new(self.output.clone(), columns)?)
    }
}

dipc_guest::functions! { "reverse" => Reverse, "words" => Words }
