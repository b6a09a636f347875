//! The C structs with an owner: moved in as the C data interface defines a move, released on drop.

use std::ptr;

use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};

mod sealed {
    /// Keeps [`CStruct`](super::CStruct) to Arrow's own structs, on which [`Owned`](super::Owned)
    /// builds.
    pub trait Sealed {}
}

/// One of Arrow's C structs: it is released by a function pointer of its own, and is released, or
/// moved away, when that pointer is NULL.
pub trait CStruct: sealed::Sealed + Sized {
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
    /// It is not released, follows Arrow's C interface, and nobody uses it during or after the
    /// call.
    unsafe fn release(&mut self);
}

macro_rules! c_struct {
    ($($raw:ident { $($path:ident).* })*) => {
        $(impl sealed::Sealed for $raw {}

        impl CStruct for $raw {
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
///
/// # What it promises
///
/// Whoever makes one, by [`take`](Self::take) or [`from_raw`](Self::from_raw), or changes it
/// through [`raw_mut`](Self::raw_mut), promises this, and safe code relies on it: the structure is
/// released, or
///
/// - nobody else owns it, calls its functions or writes to anything under it, and its release
///   function may be called once, on any thread;
/// - each pointer under it that is not NULL leads to what Arrow's C interface puts there, as large
///   as the numbers in it and its type ask, for as long as it is not released;
/// - the schemas and arrays that a stream hands out keep the same promise, and its arrays are of
///   its schema.
///
/// Not promised, and so checked by whoever reads it: that numbers make sense (a negative length,
/// too few children), that parts are there (a NULL buffer), and that counts agree with the schema.
///
/// An array carries no type of its own: "its type" is that of the schema it was made with. Whoever
/// brings an array and a schema together answers for that.
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

// SAFETY: `T` is one of the five structs above (the trait is sealed). Arrow's C interfaces allow
// them to be moved to another thread and released there, as long as their functions are not called
// at the same time; `&self` gives no way to call them without unsafe code, whose author takes that
// duty over.
unsafe impl<T: CStruct> Send for Owned<T> {}
// SAFETY: as above: a shared reference reads plain fields.
unsafe impl<T: CStruct> Sync for Owned<T> {}

impl<T: CStruct> Owned<T> {
    /// Moves the structure out of `source`, whose `release` becomes NULL.
    ///
    /// # Safety
    ///
    /// `source` points to an initialised structure that nobody else uses during the call, and that
    /// keeps the [promise](Self#what-it-promises) once this is its owner.
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
    ///
    /// # Safety
    ///
    /// It keeps the [promise](Self#what-it-promises): it is released, or follows Arrow's C
    /// interface and is owned by nobody else.
    pub unsafe fn from_raw(raw: T) -> Self {
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
    ///
    /// # Safety
    ///
    /// Whatever the caller does to it, it keeps the [promise](Self#what-it-promises) afterwards.
    pub unsafe fn raw_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: CStruct> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.0.is_released() {
            // SAFETY: it is not released; it follows Arrow's C interface and this is its only
            // owner, as `take`, `from_raw` and `raw_mut` were promised.
            unsafe { self.0.release() };
        }
    }
}
