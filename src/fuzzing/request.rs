use crate::proto::{
    MAX_REQUEST_HEADERS, MAX_SELECTION_BYTES, MAX_TICKET_BYTES, MOST_COLUMNS, RoleTags, Request,
    Sender, SenderConfig, SenderState, Tags, Verb,
};

/// Any bytes are refused as a request, or read into what is written and read back the same; the
/// limits hold, and a server that reads them goes on or ends the connection (rules E1, Q1, Q12).
pub fn request(data: &[u8]) {
    let decoded = Request::decode(data);
    if let Ok(request) = &decoded {
        let mut written = request.encode();
        let back = Request::decode(&written);
        let same = back.as_ref().map(|back| (back.verb, &back.ticket, &back.headers, back.source));
        let expected = (request.verb, &request.ticket, &request.headers, request.source);
        assert_eq!(same, Ok(expected));
        let back = back.unwrap_or_else(|_| request.clone());
        assert_eq!((back.deadline, back.stream_id), (request.deadline, request.stream_id));
        // What is refused, as parts of a later version, need not be written again.
        if request.selection.ensure_fits(Verb::Get).is_ok() {
            assert_eq!(back.selection, request.selection);
        }
        assert!(request.selection.encoded_len() <= MAX_SELECTION_BYTES);
        assert!(request.selection.columns().is_none_or(|names| names.len() <= MOST_COLUMNS));
        assert!(request.headers.encoded_len() <= MAX_REQUEST_HEADERS);
        assert!(request.ticket.len() <= MAX_TICKET_BYTES);
        // Cut anywhere in its fixed part it is none, or a shorter ticket.
        written.truncate(written.len() / 2);
        let _ = Request::decode(&written);
    }
    let mut sender: Sender<(), u32> = Sender::new(SenderConfig {
        tags: RoleTags::DEFAULT,
        first_seq: 0,
    });
    let taken = sender.handle_tagged(Tags::DEFAULT.dipc_want, data);
    while sender.poll_transmit().is_some() {}
    while sender.poll_event().is_some() {}
    if decoded.is_err() {
        assert!(taken.is_err() || sender.state() == SenderState::Closed);
    }
}
