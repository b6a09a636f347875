//! What a client asks a worker for: one partition of a task. It is the descriptor of a get.
//!
//! The first byte is the version of the rest, which is a protobuf message.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey};
use dipc::{Error, Status};
use prost::Message;
use uuid::Uuid;

/// The version that this crate speaks.
const VERSION: u8 = 1;

/// Most partitions that a client may have a worker make for a broadcast. Each takes memory.
const MOST_PARTITIONS: u64 = 1 << 20;

/// Asks for the partitions of one task.
pub(super) struct Asking(Wire);

#[derive(Clone, PartialEq, Message)]
struct Wire {
    /// The 16 bytes of the query's UUID.
    #[prost(bytes = "vec", tag = "1")]
    query: Vec<u8>,
    #[prost(uint64, tag = "2")]
    stage: u64,
    #[prost(uint64, tag = "3")]
    task: u64,
    #[prost(uint64, tag = "4")]
    partition: u64,
    #[prost(oneof = "Head", tags = "5, 6, 7")]
    head: Option<Head>,
}

/// The plan node above the task's plan.
#[derive(Clone, PartialEq, prost::Oneof)]
enum Head {
    #[prost(bool, tag = "5")]
    Plain(bool),
    /// How many partitions a broadcast makes.
    #[prost(uint64, tag = "6")]
    Broadcast(u64),
    /// The `Partitioning` message of `datafusion.proto`.
    #[prost(bytes = "vec", tag = "7")]
    Repartition(Vec<u8>),
}

impl Asking {
    /// Asks for what `request` names.
    pub(super) fn new(request: ExecuteTaskRequest, context: &Arc<TaskContext>) -> Result<Self> {
        let head = match request.producer_head {
            ProducerHead::None => Head::Plain(true),
            ProducerHead::BroadcastExec { output_partitions } => {
                Head::Broadcast(output_partitions as u64)
            }
            ProducerHead::RepartitionExec { partitioning } => {
                Head::Repartition(partitioning.encode(context)?)
            }
        };
        Ok(Self(Wire {
            query: request.task_key.query_id.as_bytes().to_vec(),
            stage: request.task_key.stage_id as u64,
            task: request.task_key.task_number as u64,
            partition: 0,
            head: Some(head),
        }))
    }

    /// The descriptor for one partition.
    pub(super) fn descriptor(&mut self, partition: usize) -> Vec<u8> {
        self.0.partition = partition as u64;
        let mut bytes = Vec::with_capacity(1 + self.0.encoded_len());
        bytes.push(VERSION);
        bytes.extend(self.0.encode_to_vec());
        bytes
    }
}

/// The request of a descriptor, for one partition.
///
/// # Errors
///
/// `InvalidArgument`: it is no such descriptor; `Unsupported`: it is of another version.
pub(super) fn parse(descriptor: &[u8]) -> dipc::Result<ExecuteTaskRequest> {
    let Some((version, message)) = descriptor.split_first() else {
        return Err(invalid("is empty"));
    };
    if *version != VERSION {
        let text = format!(
            "the descriptor of a partition has version {version}; this worker speaks version \
             {VERSION}: run the same release of libdipc-datafusion on all workers and clients"
        );
        return Err(Error::new(Status::Unsupported, text));
    }
    let wire = Wire::decode(message).map_err(|error| invalid(&format!("is malformed: {error}")))?;
    let query = Uuid::from_slice(&wire.query).map_err(|_| invalid("has no UUID of a query"))?;
    let number = |value: u64| usize::try_from(value).map_err(|_| invalid("has too large a number"));
    let start = number(wire.partition)?;
    let end = start.checked_add(1);
    let producer_head = match wire.head {
        Some(Head::Plain(_)) => ProducerHead::None,
        Some(Head::Broadcast(count)) if count > MOST_PARTITIONS => {
            let text = format!("asks for more than {MOST_PARTITIONS} partitions of a broadcast");
            return Err(invalid(&text));
        }
        Some(Head::Broadcast(count)) => ProducerHead::BroadcastExec {
            output_partitions: number(count)?,
        },
        Some(Head::Repartition(bytes)) => ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Encoded(bytes),
        },
        None => return Err(invalid("names no head of the plan")),
    };
    Ok(ExecuteTaskRequest {
        task_key: TaskKey {
            query_id: query,
            stage_id: number(wire.stage)?,
            task_number: number(wire.task)?,
        },
        target_partition_start: start,
        target_partition_end: end.ok_or_else(|| invalid("has too large a number"))?,
        producer_head,
    })
}

fn invalid(text: &str) -> Error {
    let text = format!("the descriptor of a partition {text}");
    Error::new(Status::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    fn request(head: ProducerHead) -> ExecuteTaskRequest {
        ExecuteTaskRequest {
            task_key: TaskKey {
                query_id: Uuid::from_u128(7),
                stage_id: 2,
                task_number: 300,
            },
            target_partition_start: 4,
            target_partition_end: 9,
            producer_head: head,
        }
    }

    fn sent(head: ProducerHead) -> Vec<u8> {
        let context = SessionContext::new().task_ctx();
        Asking::new(request(head), &context).unwrap().descriptor(6)
    }

    /// Promise of the format: a worker reads what a client wrote.
    #[test]
    fn descriptors_round_trip() {
        let encoded = MaybeEncoded::Encoded(vec![1, 2, 3]);
        let heads = [
            ProducerHead::None,
            ProducerHead::BroadcastExec {
                output_partitions: 12,
            },
            ProducerHead::RepartitionExec {
                partitioning: encoded,
            },
        ];
        for head in heads {
            let read = parse(&sent(head.clone())).unwrap();
            assert_eq!(read.task_key, request(head.clone()).task_key);
            assert_eq!(read.target_partition_start..read.target_partition_end, 6..7);
            match (head, read.producer_head) {
                (ProducerHead::None, ProducerHead::None) => {}
                (
                    ProducerHead::BroadcastExec { .. },
                    ProducerHead::BroadcastExec { output_partitions },
                ) => assert_eq!(output_partitions, 12),
                (
                    ProducerHead::RepartitionExec { .. },
                    ProducerHead::RepartitionExec {
                        partitioning: MaybeEncoded::Encoded(bytes),
                    },
                ) => assert_eq!(bytes, [1, 2, 3]),
                _ => panic!("another head"),
            }
        }
    }

    /// Promise of `parse`: other bytes than those of a descriptor are refused, and nothing panics.
    #[test]
    fn hostile_descriptors_are_refused() {
        let status = |bytes: &[u8]| parse(bytes).map(drop).unwrap_err().status();
        assert_eq!(status(b""), Status::InvalidArgument);
        assert_eq!(status(b"\x01"), Status::InvalidArgument);
        assert_eq!(status(b"\x01\xff\xff\xff"), Status::InvalidArgument);
        assert_eq!(status(b"\x02"), Status::Unsupported);
        assert_eq!(status(b"lineitem"), Status::Unsupported);
        let wire = |change: fn(&mut Wire)| {
            let good = sent(ProducerHead::None);
            let mut wire = Wire::decode(&good[1..]).unwrap();
            change(&mut wire);
            [vec![VERSION], wire.encode_to_vec()].concat()
        };
        assert!(parse(&wire(|_| ())).is_ok());
        let changes: [fn(&mut Wire); 4] = [
            |wire| wire.query.truncate(15),
            |wire| wire.partition = u64::MAX,
            |wire| wire.head = None,
            |wire| wire.head = Some(Head::Broadcast(u64::MAX)),
        ];
        for change in changes {
            assert_eq!(status(&wire(change)), Status::InvalidArgument);
        }
        // Every prefix, and every change of one byte.
        let good = sent(ProducerHead::BroadcastExec {
            output_partitions: 3,
        });
        for end in 0..good.len() {
            let _ = parse(&good[..end]);
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[end] ^= 1 << bit;
                let _ = parse(&bad);
            }
        }
    }
}
