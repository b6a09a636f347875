//! Arguments that several exports take.

use crate::error::Error;

/// Checks the arguments that come first in the calls of a client, in their order, and binds each
/// checked value to the name of its argument:
/// `asked!(uris: n_uris, ticket: ticket_len_bytes, options; cancel);`.
macro_rules! asked {
    (
        $uris:ident: $n_uris:ident, $bytes:ident: $len:ident,
        $($options:ident),+ $(; $cancel:ident)?
    ) => {
        // SAFETY: the section `# Safety` of each export, which its caller upholds, says that its
        // URIs are `$n_uris` pointers, each NULL or a string.
        let $uris = unsafe { $crate::ffi::text::try_strs($uris, $n_uris) }?;
        // SAFETY: the same section says that `$bytes` is readable for `$len` bytes.
        let $bytes = unsafe { $crate::ffi::text::try_bytes($bytes, $len, stringify!($bytes)) }?;
        $(
            // SAFETY: the same section says that options are NULL or live.
            let given = unsafe { $crate::ffi::handle::try_option($options) }?;
            let $options = given.map(|given| given.inner.clone()).unwrap_or_default();
        )+
        $(
            // SAFETY: the same section says that a token is NULL or live.
            let given = unsafe { $crate::ffi::handle::try_option($cancel) }?;
            let $cancel = given.map(|given| &given.inner);
        )?
    };
}

/// The error for an unknown figure.
pub(super) fn unknown_stat(stat: i32, names: &str) -> Error {
    Error::invalid_argument(format!("stat is {stat}: no {names} of this library"))
}
