//! Socket addresses between Rust and C.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::sockaddr_storage;
use ucx1_sys::ucs_sock_addr_t;

/// A socket address as C has it.
#[repr(C)]
union Storage {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Calls `use_it` with the address as UCX takes it, which is valid during the call.
pub(super) fn with_raw<R>(address: SocketAddr, use_it: impl FnOnce(ucs_sock_addr_t) -> R) -> R {
    let (storage, length) = match address {
        SocketAddr::V4(v4) => (
            Storage {
                v4: libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                },
            },
            size_of::<libc::sockaddr_in>(),
        ),
        SocketAddr::V6(v6) => (
            Storage {
                v6: libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                },
            },
            size_of::<libc::sockaddr_in6>(),
        ),
    };
    use_it(ucs_sock_addr_t {
        addr: (&raw const storage).cast(),
        addrlen: u32::try_from(length).unwrap_or(0),
    })
}

/// The address in what UCX filled in; `None` for a family that is neither IPv4 nor IPv6.
pub(super) fn from_raw(raw: &sockaddr_storage) -> Option<SocketAddr> {
    let storage = std::ptr::from_ref(raw);
    match i32::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: a storage has room for an address of any family, is aligned for each, and is
            // integers all over, so that it can be read as one whatever was written.
            let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
            Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// The number of an address family in the width that the structs have.
fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or_default()
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
