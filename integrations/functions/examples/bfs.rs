//! Breadth-first search over a graph whose vertices are cut over several servers: `bfs` reads a column
//! `to`, a list of int64, which gives for each vertex those that it leads to. The output has a row for
//! each level from 1 on: `level` and `vertices`, how many are reached by so many edges and no fewer.
//!
//! The arguments begin with a text: a line `LEVEL VERTICES`, a line `FIRST URI DESCRIPTOR` for each
//! part of the table, in order, where FIRST is the part's first vertex, and an empty line. Three sets
//! of vertices follow, each a bitmap of VERTICES bits, lowest first, in whole bytes: those that were
//! reached, those of LEVEL that are still to be looked at, and those of the next level. A client
//! begins at level 0 with its source in the first two sets, at the part that has the source.
//!
//! A level is looked at part by part: the call goes on at the next part that has vertices of it. What
//! it takes along is the arguments there, so that a graph has about 130,000 vertices at most.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

struct Part {
    first: usize,
    uri: String,
    descriptor: String,
}

/// A set of vertices.
struct Set(Vec<u8>);

struct Search {
    level: i64,
    vertices: usize,
    parts: Vec<Part>,
    reached: Set,
    /// Of this level, still to be looked at.
    front: Set,
    /// Of the next level.
    next: Set,
    column: usize,
    /// Where the edges of each vertex of the part begin in `to`, and where the last ones end.
    begins: Vec<usize>,
    to: Vec<i64>,
    output: SchemaRef,
}

impl Function for Search {
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let input = input.ok_or("bfs needs a table")?;
        let column = input.index_of("to")?;
        match input.field(column).data_type() {
            DataType::List(item) if *item.data_type() == DataType::Int64 => {}
            _ => return Err("the column to is no list of int64".into()),
        }
        let end = arguments.windows(2).position(|bytes| bytes == b"\n\n");
        let (text, sets) = arguments.split_at(end.ok_or("an empty line is missing")?);
        let mut lines = str::from_utf8(text)?.lines();
        let first = lines.next().and_then(|line| line.split_once(' '));
        let (level, vertices) = first.ok_or("the first line is LEVEL VERTICES")?;
        let (level, vertices) = (level.parse()?, vertices.parse::<usize>()?);
        let [reached, front, next] = Set::three(&sets[2..], vertices)?;
        let names = ["level", "vertices"];
        let fields = names.map(|name| Field::new(name, DataType::Int64, false));
        let output = Arc::new(Schema::new(fields.to_vec()));
        let function = Search {
            level,
            vertices,
            parts: lines.map(Part::parse).collect::<Result<_>>()?,
            reached,
            front,
            next,
            column,
            begins: vec![0],
            to: Vec::new(),
            output: output.clone(),
        };
        Ok((function, Output::Table(output)))
    }

    fn process(&mut self, batch: &RecordBatch, _out: &mut Out) -> Result<()> {
        let lists = batch.column(self.column).as_list::<i32>();
        for row in 0..lists.len() {
            if lists.is_valid(row) {
                let edges = lists.value(row);
                let edges = edges.as_primitive::<Int64Type>();
                self.to.extend(edges.iter().flatten());
            }
            self.begins.push(self.to.len());
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let first = self.front.first().ok_or("no vertex of the level is left")?;
        let here = self.part_of(first)?;
        loop {
            self.look_at(here)?;
            if let Some(vertex) = self.front.first() {
                let part = &self.parts[self.part_of(vertex)?];
                let state = self.state()?;
                out.forward(&part.uri, part.descriptor.as_bytes(), &state)?;
                return Ok(());
            }
            let count = self.next.count();
            if count == 0 {
                return Ok(());
            }
            self.level += 1;
            std::mem::swap(&mut self.front, &mut self.next);
            let row = [self.level, count];
            let columns = row.map(|value| Arc::new(Int64Array::from(vec![value])) as ArrayRef);
            out.emit(&RecordBatch::try_new(
                self.output.clone(),
                columns.to_vec(),
            )?)?;
        }
    }
}

impl Search {
    /// Follows the edges of the level's vertices of a part, which is the one that was read.
    fn look_at(&mut self, part: usize) -> Result<()> {
        let first = self.parts[part].first;
        let end = (self.parts.get(part + 1)).map_or(self.vertices, |part| part.first);
        for vertex in self.front.take(first, end) {
            let row = vertex - first;
            let (Some(begin), Some(end)) = (self.begins.get(row), self.begins.get(row + 1)) else {
                return Err(format!("the table has no row of the vertex {vertex}").into());
            };
            for to in &self.to[*begin..*end] {
                let to = usize::try_from(*to).ok().filter(|to| *to < self.vertices);
                let to = to.ok_or_else(|| format!("the vertex {vertex} leads nowhere"))?;
                if self.reached.insert(to) {
                    self.next.insert(to);
                }
            }
        }
        Ok(())
    }

    /// The number of the part that has a vertex.
    fn part_of(&self, vertex: usize) -> Result<usize> {
        let after = self.parts.partition_point(|part| part.first <= vertex);
        let part = after.checked_sub(1);
        part.ok_or_else(|| format!("no part has the vertex {vertex}").into())
    }

    /// The arguments at the next server.
    fn state(&self) -> Result<Vec<u8>> {
        let mut text = format!("{} {}\n", self.level, self.vertices);
        for Part {
            first,
            uri,
            descriptor,
        } in &self.parts
        {
            writeln!(text, "{first} {uri} {descriptor}")?;
        }
        text.push('\n');
        let sets = [&self.reached, &self.front, &self.next].map(|set| &set.0[..]);
        Ok([text.as_bytes(), &sets.concat()].concat())
    }
}

impl Set {
    /// Three sets of so many vertices.
    fn three(bytes: &[u8], vertices: usize) -> Result<[Self; 3]> {
        let length = vertices.div_ceil(8);
        if vertices == 0 || bytes.len() / 3 != length || !bytes.len().is_multiple_of(3) {
            return Err(format!("no three sets of {vertices} vertices follow").into());
        }
        let mut sets = bytes.chunks_exact(length).map(|set| Set(set.to_vec()));
        let sets = [(); 3].map(|()| sets.next().unwrap_or(Set(Vec::new())));
        match sets.iter().all(|set| set.ends_at(vertices)) {
            true => Ok(sets),
            false => Err("a set has more vertices than there are".into()),
        }
    }

    fn ends_at(&self, vertices: usize) -> bool {
        let used = vertices % 8;
        used == 0 || self.0.last().is_none_or(|last| last >> used == 0)
    }

    /// Whether the vertex was not in the set.
    fn insert(&mut self, vertex: usize) -> bool {
        let (byte, bit) = (&mut self.0[vertex / 8], 1 << (vertex % 8));
        let is_new = *byte & bit == 0;
        *byte |= bit;
        is_new
    }

    fn first(&self) -> Option<usize> {
        let at = self.0.iter().position(|byte| *byte != 0)?;
        Some(at * 8 + self.0[at].trailing_zeros() as usize)
    }

    /// Takes out the vertices of a range.
    fn take(&mut self, first: usize, end: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        for vertex in first..end.min(self.0.len() * 8) {
            let (byte, bit) = (&mut self.0[vertex / 8], 1 << (vertex % 8));
            if *byte & bit != 0 {
                *byte &= !bit;
                taken.push(vertex);
            }
        }
        taken
    }

    fn count(&self) -> i64 {
        self.0.iter().map(|byte| i64::from(byte.count_ones())).sum()
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

dipc_guest::functions! { "bfs" => Search }
