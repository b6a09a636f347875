//! Socket addresses between Rust and C.

use std::net::SocketAddr;

use libc::sockaddr_storage;
use rustix::net::SocketAddrAny;
use rustix::net::addr::{SocketAddrArg, SocketAddrOpaque};
use ucx1_sys::ucs_sock_addr_t;

/// Calls `use_it` with the address as UCX takes it, which is valid during the call.
pub(super) fn with_raw<R>(address: SocketAddr, use_it: impl FnOnce(ucs_sock_addr_t) -> R) -> R {
    let call = |addr: *const SocketAddrOpaque, addrlen| {
        use_it(ucs_sock_addr_t {
            addr: addr.cast(),
            addrlen,
        })
    };
    // SAFETY: the closure only passes on what it is given.
    unsafe { address.with_sockaddr(call) }
}

/// The address in what UCX filled in; `None` for a family that is neither IPv4 nor IPv6.
pub(super) fn from_raw(raw: &sockaddr_storage) -> Option<SocketAddr> {
    let length = u32::try_from(size_of_val(raw)).ok()?;
    // SAFETY: integers all over, initialised to the end, with room for an address of any family.
    let any = unsafe { SocketAddrAny::read(std::ptr::from_ref(raw).cast(), length) };
    any.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> sockaddr_storage {
        // SAFETY: integers all over, for which zeros are valid.
        unsafe { std::mem::zeroed() }
    }

    /// Addresses of both families cross to C and back.
    #[test]
    fn addresses_cross_and_come_back() {
        for text in ["127.0.0.1:4000", "[::1]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = empty();
            with_raw(address, |c| {
                // SAFETY: `addr` has `addrlen` readable bytes, at most those of a storage.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        c.addr.cast::<u8>(),
                        (&raw mut raw).cast::<u8>(),
                        c.addrlen as usize,
                    );
                }
            });
            assert_eq!(from_raw(&raw), Some(address));
        }
        assert_eq!(from_raw(&empty()), None);
    }
}
