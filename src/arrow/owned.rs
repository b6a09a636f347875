//! The C structs with an owner: moved in as the C data interface defines a move, released on drop.

use std::ptr;

use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};

/// One of Arrow's C structs: it is released by a function pointer of its own, and is released, or
/// moved away, when that pointer is NULL.
pub trait CStruct: Sized {
    /// A released structure.
    const EMPTY: Self;

    /// Whether it was released or moved away.
    fn is_released(&self) -> bool;

    /// Marks it as moved away, without releasing anything.
    fn disarm(&mut self);

    /// Calls its release function.
    ///
    /// # Safety
    ///
    /// It is not released, follows Arrow's C interface, and nobody uses it during or after the call.
    unsafe fn release(&mut self);
}

macro_rules! c_struct {
    ($($raw:ident { $($path:ident).* })*) => {
        $(impl CStruct for $raw {
            const EMPTY: Self = $raw::empty();

            fn is_released(&self) -> bool {
                self.$($path.)*release.is_none()
            }

            fn disarm(&mut self) {
                self.$($path.)*release = None;
            }

            unsafe fn release(&mut self) {
                if let Some(release) = self.$($path.)*release {
                    // SAFETY: the function belongs to this structure, which is live, and the
                    // caller promises that nobody else uses it.
                    unsafe { release(c_struct!(@target self $($path)*)) };
                }
            }
        })*
    };
    (@target $self:ident) => { ptr::from_mut($self) };
    (@target $self:ident $path:ident) => { ptr::from_mut(&mut $self.$path) };
}

c_struct! {
    ArrowSchema {}
    ArrowArray {}
    ArrowDeviceArray { array }
    ArrowArrayStream {}
    ArrowDeviceArrayStream {}
}

/// A C struct that this side must release.
#[derive(Debug)]
pub struct Owned<T: CStruct>(T);

/// A schema to release.
pub type OwnedSchema = Owned<ArrowSchema>;
/// A host array to release.
pub type OwnedArray = Owned<ArrowArray>;
/// A device array to release.
pub type OwnedDeviceArray = Owned<ArrowDeviceArray>;
/// A stream of host arrays to release.
pub type OwnedStream = Owned<ArrowArrayStream>;
/// A stream of device arrays to release.
pub type OwnedDeviceStream = Owned<ArrowDeviceArrayStream>;

// SAFETY: Arrow's C interfaces allow a structure to be moved to another thread and released there,
// as long as its functions are not called at the same time; `&self` gives no way to call them
// without unsafe code, whose author takes that duty over.
unsafe impl<T: CStruct> Send for Owned<T> {}
// SAFETY: as above: a shared reference reads plain fields.
unsafe impl<T: CStruct> Sync for Owned<T> {}

impl<T: CStruct> Owned<T> {
    /// Moves the structure out of `source`, whose `release` becomes NULL.
    ///
    /// # Safety
    ///
    /// `source` points to an initialised structure that follows Arrow's C interface, and nobody
    /// else uses it during the call.
    pub unsafe fn take(source: *mut T) -> Self {
        // SAFETY: the caller promises that `source` is readable and initialised. This leaves two
        // bitwise copies; disarming the source makes this one the only owner, which is how the C
        // data interface defines a move ("Moving an array").
        let taken = unsafe { ptr::read(source) };
        // SAFETY: the caller promises that `source` is valid and that nobody else uses it.
        unsafe { (*source).disarm() };
        Self(taken)
    }

    /// Owns a structure that was made here.
    pub fn from_raw(raw: T) -> Self {
        Self(raw)
    }

    /// Hands the structure out, with the duty to release it.
    pub fn into_raw(mut self) -> T {
        std::mem::replace(&mut self.0, T::EMPTY)
    }

    /// Whether it was released or moved away.
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }

    /// The structure, for reading.
    pub fn raw(&self) -> &T {
        &self.0
    }

    /// The structure, for calls through its function pointers.
    pub fn raw_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: CStruct> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.0.is_released() {
            // SAFETY: it is not released, and this is its only owner.
            unsafe { self.0.release() };
        }
    }
}
