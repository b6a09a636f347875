//! The C structs with an owner: moved as the C data interface defines, and released when dropped.

use std::ptr;

use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};

mod sealed {
    /// Limits [`CStruct`](super::CStruct) to Arrow's own structs, which [`Owned`](super::Owned)
    /// needs.
    pub trait Sealed {}
}

/// One of Arrow's C structs. The struct has a pointer to its release function; NULL means that the
/// struct is released or moved away.
pub trait CStruct: sealed::Sealed + Sized {
    /// A released structure.
    const EMPTY: Self;

    /// True if the struct is released or moved away.
    fn is_released(&self) -> bool;

    /// Marks the struct as moved away, without a release.
    fn disarm(&mut self);

    /// Calls the release function.
    ///
    /// # Safety
    ///
    /// The struct is not released and follows Arrow's C interface. Nobody uses it during or after
    /// the call.
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
                    // SAFETY: the function belongs to this struct, which is live. The caller
                    // promises that nobody else uses the struct.
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

/// A C struct with the duty to release it.
///
/// # Promise
///
/// The caller of [`take`](Self::take), [`from_raw`](Self::from_raw) or [`raw_mut`](Self::raw_mut)
/// promises the following, and safe code relies on it. Either the struct is released, or:
///
/// - nobody else owns the struct, calls its functions or writes to anything under it, and any
///   thread may call its release function once;
/// - each non-NULL pointer under it leads to the memory that Arrow's C interface defines for it, of
///   the size that numbers and type require, until the release;
/// - the schemas and arrays of a stream keep the same promise, and the arrays have its schema.
///
/// The promise does not cover the following, so readers check it: numbers are sensible (a negative
/// length, too few children), parts are present (a NULL buffer), and counts match the schema.
///
/// An array does not carry its type: "its type" is that of its schema. The code that combines an
/// array and a schema is responsible for the match.
#[derive(Debug)]
pub struct Owned<T: CStruct>(T);

/// A schema, released when dropped.
pub type OwnedSchema = Owned<ArrowSchema>;
/// A host array, released when dropped.
pub type OwnedArray = Owned<ArrowArray>;
/// A device array, released when dropped.
pub type OwnedDeviceArray = Owned<ArrowDeviceArray>;
/// A stream of host arrays, released when dropped.
pub type OwnedStream = Owned<ArrowArrayStream>;
/// A stream of device arrays, released when dropped.
pub type OwnedDeviceStream = Owned<ArrowDeviceArrayStream>;

// SAFETY: the trait is sealed, so `T` is one of the five structs above. Arrow's C interfaces allow
// a move to another thread and a release there, without concurrent calls of their functions.
// `&self` gives access to the functions only through unsafe code, which must prevent concurrent
// calls.
unsafe impl<T: CStruct> Send for Owned<T> {}
// SAFETY: a shared reference only reads plain fields. The functions are reached only by unsafe
// code, which must prevent concurrent calls.
unsafe impl<T: CStruct> Sync for Owned<T> {}

impl<T: CStruct> Owned<T> {
    /// Moves the struct out of `source`, whose `release` becomes NULL.
    ///
    /// # Safety
    ///
    /// `source` points to an initialised struct that nobody else uses during the call. The struct
    /// keeps the [promise](Self#promise) once the returned value owns it.
    pub unsafe fn take(source: *mut T) -> Self {
        // SAFETY: the caller promises a readable, initialised `source`. The read leaves two bitwise
        // copies. Disarming the source makes `taken` the only owner, as the C data interface
        // defines a move ("Moving an array").
        let taken = unsafe { ptr::read(source) };
        // SAFETY: the caller promises that `source` is valid and that nobody else uses it.
        unsafe { (*source).disarm() };
        Self(taken)
    }

    /// Owns a struct that this process made.
    ///
    /// # Safety
    ///
    /// The struct keeps the [promise](Self#promise): it is released, or follows Arrow's C interface
    /// and has no other owner.
    pub unsafe fn from_raw(raw: T) -> Self {
        Self(raw)
    }

    /// Returns the struct; the caller must release it.
    pub fn into_raw(mut self) -> T {
        std::mem::replace(&mut self.0, T::EMPTY)
    }

    /// True if the struct is released or moved away.
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }

    /// The struct, for reading.
    pub fn raw(&self) -> &T {
        &self.0
    }

    /// The struct, for calls of its functions.
    ///
    /// # Safety
    ///
    /// After the caller's changes the struct still keeps the [promise](Self#promise).
    pub unsafe fn raw_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl OwnedDeviceArray {
    /// The array, which lies in host memory.
    ///
    /// # Safety
    ///
    /// The array follows the C data interface and has no other owner.
    pub(crate) unsafe fn on_host(array: ArrowArray) -> Self {
        let device = ArrowDeviceArray {
            array,
            ..ArrowDeviceArray::empty()
        };
        // SAFETY: the caller promises an array that follows the C data interface and has no other
        // owner. `empty` declares the host as its device.
        unsafe { Self::from_raw(device) }
    }
}

impl<T: CStruct> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.0.is_released() {
            // SAFETY: the struct is not released, follows Arrow's C interface and has no other
            // owner, as the callers of `take`, `from_raw` and `raw_mut` promised.
            unsafe { self.0.release() };
        }
    }
}
