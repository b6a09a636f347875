//! Getters of a sender.

use crate::ffi::machines::sender::dipc_sender;
use crate::proto::SenderState;

/// No request waits and no stream is running.
pub const DIPC_SENDER_IDLE: i32 = 1;
/// A request waits for its answer.
pub const DIPC_SENDER_REQUESTED: i32 = 2;
/// A stream is running.
pub const DIPC_SENDER_STREAMING: i32 = 3;
/// The stream has ended and the client cannot ask for another.
pub const DIPC_SENDER_ENDED: i32 = 4;
/// The connection is over.
pub const DIPC_SENDER_CLOSED: i32 = 5;

/// Gives the state of a sender.
///
/// @param sender  Sender, or NULL.
/// @return DIPC_SENDER_*; DIPC_SENDER_CLOSED for NULL and in the child of a fork.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_state(sender: *const dipc_sender) -> i32 {
    export!(sender or DIPC_SENDER_CLOSED, |sender| match sender.inner.state() {
        // These states count as idle: a refused put ends without the host, and a bare sender never
        // asks for a stream.
        SenderState::Idle
        | SenderState::Draining
        | SenderState::Taking
        | SenderState::Asked
        | SenderState::Ending => DIPC_SENDER_IDLE,
        SenderState::Requested => DIPC_SENDER_REQUESTED,
        SenderState::Streaming => DIPC_SENDER_STREAMING,
        SenderState::Ended => DIPC_SENDER_ENDED,
        SenderState::Closed => DIPC_SENDER_CLOSED,
    })
}

/// Tells whether the client's window has room for a batch.
///
/// @param sender  Sender, or NULL.
/// @return true if dipc_sender_send_batch() would not return DIPC_ERR_BUSY; false for NULL.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_may_send(sender: *const dipc_sender) -> bool {
    export!(sender or false, |sender| sender.inner.may_send())
}

/// Tells whether the client has cancelled the stream.
///
/// @param sender  Sender, or NULL.
/// @return true if it has; false for NULL.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_is_cancelled(sender: *const dipc_sender) -> bool {
    export!(sender or false, |sender| sender.inner.is_cancelled())
}

/// Counts the lent addresses that the client has not given back. The sender needs its connection
/// until the count is 0.
///
/// @param sender  Sender, or NULL.
/// @return Number of addresses; 0 for NULL.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_lent_count(sender: *const dipc_sender) -> usize {
    export!(sender or 0, |sender| sender.inner.lent_outstanding())
}
