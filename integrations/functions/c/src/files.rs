use std::os::fd::BorrowedFd;
use std::ptr;

use dipc_sandbox::{HostFile, HostFiles};

use crate::sys::{DIPC_OK, dipc_arena_find_file};

/// The files of this process's arenas.
#[derive(Debug)]
pub(crate) struct Arenas;

impl HostFiles for Arenas {
    fn find(&self, bytes: &[u8]) -> Option<HostFile> {
        let (mut fd, mut offset) = (-1, 0);
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: both outputs are writable, and errors are not asked for.
        let found = unsafe {
            dipc_arena_find_file(data, length, &raw mut fd, &raw mut offset, ptr::null_mut())
        };
        if found != DIPC_OK {
            return None;
        }
        // SAFETY: the arena keeps it open while the bytes are in use.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(HostFile {
            file: Box::new(file.try_clone_to_owned().ok()?),
            offset,
        })
    }
}
