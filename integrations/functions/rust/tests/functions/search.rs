//! A breadth-first search over a graph that four servers have.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use dipc_functions::Message;

use crate::serving::{PLACES, Serving, edges};
use crate::{client, module, read};

const VERTICES: i64 = 4 * PLACES;

/// How many vertices each level reaches first.
fn levels(source: i64) -> Vec<i64> {
    let (mut reached, mut front) = (BTreeSet::from([source]), vec![source]);
    let mut counts = Vec::new();
    while !front.is_empty() {
        let to: BTreeSet<i64> = front.iter().flat_map(|vertex| edges(*vertex)).collect();
        front = to.difference(&reached).copied().collect();
        reached.extend(&front);
        counts.push(i64::try_from(front.len()).unwrap());
    }
    counts.pop();
    counts
}

fn index(vertex: i64) -> usize {
    usize::try_from(vertex).unwrap()
}

/// The arguments of the example `bfs`.
fn arguments(source: i64, servers: &[Serving]) -> Vec<u8> {
    let mut text = format!("0 {VERTICES}\n");
    for (part, server) in servers.iter().enumerate() {
        let first = part as i64 * PLACES;
        writeln!(text, "{first} {} edges-{part}", server.uri).unwrap();
    }
    text.push('\n');
    let none = vec![0; index(VERTICES) / 8];
    let mut from = none.clone();
    from[index(source) / 8] |= 1 << (source % 8);
    [text.as_bytes(), &from, &from, &none].concat()
}

/// Promise of the example: what goes from server to server finds the levels of the whole graph.
#[test]
fn a_search_over_four_servers_finds_what_a_local_one_finds() {
    for scheme in ["shm", "tcp"] {
        let start = |part| Serving::start(scheme, &format!("part-{part}"));
        let servers: Vec<_> = (0..4).map(start).collect();
        for source in [0, VERTICES - 1, 2_500] {
            let message = Message::new(&module("bfs"), "bfs", &arguments(source, &servers));
            let part = source / PLACES;
            let (uri, ticket) = (&servers[index(part)].uri, format!("edges-{part}"));
            let found = read(message.get(&client(), uri, ticket).unwrap());
            let column = |index| -> Vec<i64> {
                let columns = found.iter().map(|batch| batch.column(index));
                columns
                    .flat_map(|column| column.as_primitive::<Int64Type>().values().to_vec())
                    .collect()
            };
            let expected = levels(source);
            let numbers: Vec<i64> = (1..).take(expected.len()).collect();
            assert_eq!(column(1), expected, "{scheme} {source}");
            assert_eq!(column(0), numbers, "{scheme} {source}");
        }
    }
}
