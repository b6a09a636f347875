use std::time::Duration;

use super::receiver::{Watch, check, step};
use crate::fuzzing::supply::Supply;
use crate::proto::{
    Control, Credit, Receiver, ReceiverConfig, Request, Side, SideConfig, StreamInfo, Tags,
    Timestamp, VERSION, Verb,
};

/// The same for a server that takes a table: a client's messages in any order, well formed and not,
/// end in an error or in the client's batches in order (rules Q3, Q10).
pub fn taking(data: &[u8]) {
    let mut supply = Supply(data);
    let flags = supply.byte();
    let first_seq = if flags & 4 != 0 { u32::MAX - 1 } else { 0 };
    let credit = Credit {
        batches: u64::from(supply.byte() % 8),
        bytes: u64::from(supply.byte()) * 64,
    };
    let request = Request {
        verb: if flags & 1 != 0 {
            Verb::Exchange
        } else {
            Verb::Put
        },
        source: Some(StreamInfo {
            version: VERSION,
            features: 0,
            device_type: 1,
            device_id: -1,
            body_kinds: 3,
        }),
        deadline: (flags & 2 != 0).then_some(Duration::from_nanos(500)),
        ..Request::new("ticket", credit)
    };
    let config = ReceiverConfig {
        first_seq,
        stall_timeout: Some(Duration::from_nanos(100)),
        ..ReceiverConfig::new(request, SideConfig::extended(Tags::DEFAULT))
    };
    let mut now = Timestamp::default();
    let Ok(receiver) = Receiver::of_client(config, now) else {
        return;
    };
    let mut watch = Watch::new(receiver, first_seq);
    while !supply.0.is_empty() {
        let byte = supply.byte();
        now = now.saturating_add(Duration::from_nanos(u64::from(byte >> 4)));
        let failed = if byte & 7 == 0 {
            let abort = Control::Abort {
                stream: u64::from(supply.byte() & 1),
                status: -1,
                seq: watch.next.wrapping_add(u32::from(supply.byte() % 4)),
                text: "why".into(),
            };
            let receiver = &mut watch.receiver;
            receiver
                .handle_control(now, Side::Metadata, &abort.encode())
                .is_err()
        } else {
            step(&mut watch, &mut supply, now, first_seq).is_err()
        };
        check(&mut watch, failed);
    }
}
