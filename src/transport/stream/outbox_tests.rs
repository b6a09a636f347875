//! Tests of what leaves for a socket.

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::*;
use crate::transport::Incoming;
use crate::transport::stream::frame::FrameReader;

/// Messages around the sizes that are copied, more than one run of them, and bodies between.
fn messages() -> Vec<Outgoing> {
    let mut messages = Vec::new();
    for (index, len) in [0, 1, 48, COPIED_BYTES, COPIED_BYTES + 1, 100_000]
        .iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        let byte = u8::try_from(index).unwrap();
        messages.push(Outgoing::Metadata {
            prefix: [byte; 5],
            header: Some(vec![byte; *len].into()),
        });
        messages.push(Outgoing::Control {
            bytes: vec![byte; (*len).min(1000)],
            fd: None,
        });
        let body: Arc<[u8]> = vec![byte; *len].into();
        messages.push(Outgoing::Tagged {
            tag: index as u64,
            payload: Payload::Gather {
                parts: vec![BufferRef::of(&body), BufferRef::EMPTY],
                owner: Box::new(body),
            },
        });
    }
    messages
}

/// What each of these is when it has arrived.
fn expected(message: &Outgoing) -> (u64, Vec<u8>) {
    match message {
        Outgoing::Metadata { prefix, header } => {
            (0, [prefix.as_slice(), header.as_deref().unwrap()].concat())
        }
        Outgoing::Control { bytes, .. } => (0, bytes.clone()),
        Outgoing::Tagged { tag, payload } => {
            let mut bytes = Vec::new();
            payload.append_to(&mut bytes);
            (*tag, bytes)
        }
        Outgoing::GpuBody { .. } => unreachable!("none of these"),
    }
}

/// Every message leaves whole and in its order, however little the socket takes at a time, and at
/// the end no bytes are counted as queued.
#[test]
fn messages_of_all_sizes_leave_in_order() {
    let (here, there) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&here, 4096).unwrap();
    let messages = messages();
    let wanted: Vec<_> = messages.iter().map(expected).collect();
    let mut outbox = Outbox::default();
    let mut reader = FrameReader::new(u64::MAX);
    let mut came = Vec::new();
    let mut left = messages.into_iter();
    let mut pushed = 0;
    loop {
        // Some more while others wait, as a stream does.
        for message in left.by_ref().take(4) {
            outbox.push(pushed % 3, message).unwrap();
            pushed += 1;
        }
        outbox.commit();
        outbox
            .flush(|runs, fd| send(here.as_fd(), runs, fd))
            .unwrap();
        let mut bytes = [0; 3000];
        let read = rustix::net::recv(&there, &mut bytes, RecvFlags::DONTWAIT);
        let Ok((len, _)) = read else {
            break;
        };
        let mut input = &bytes[..len];
        while let Some(frame) = reader.read(&mut input).unwrap() {
            let (number, frame) = frame;
            assert_eq!(number as usize, came.len() % 3);
            came.push(match frame {
                Incoming::Metadata(bytes) | Incoming::Control { bytes, .. } => {
                    (0, bytes.into_vec())
                }
                Incoming::Tagged { tag, bytes } => (tag, bytes.into_vec()),
                Incoming::Body { seq, memory } => (u64::from(seq), memory.as_slice().to_vec()),
                Incoming::GpuBody { .. } => unreachable!("sockets bring bytes"),
            });
        }
    }
    assert_eq!(came.len(), wanted.len());
    assert!(came == wanted);
    assert_eq!(outbox.traffic(), Traffic::default());
    assert!(outbox.is_flushed());
}
