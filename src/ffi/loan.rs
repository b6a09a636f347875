//! Arrow structs whose ownership moves only when the call succeeds.
//!
//! The crate takes arrays by value and drops those that it cannot use. The C API promises that
//! after a failure the caller still owns them. So a [`Loan`] gives the crate a stand-in, a copy of
//! the struct with another release. Once the loan is [`accept`](Loan::accept)ed, the release of the
//! stand-in releases the original. Otherwise the original stays untouched.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use crate::arrow::{CStruct as _, OwnedDeviceArray, OwnedSchema, annotate, annotation};
use crate::error::{Error, Result};
use crate::ffi::handle::null_argument;

/// A copy of the original struct.
struct Original {
    raw: Option<ArrowDeviceArray>,
    accepted: AtomicBool,
}

impl Drop for Original {
    fn drop(&mut self) {
        if *self.accepted.get_mut() {
            let raw = self.raw.take();
            // SAFETY: the caller of `Loan::new` promised a struct that follows Arrow's interface;
            // `accept` has marked the caller's own as moved, and the stand-in, whose last reference
            // this is, has been released: nobody else owns it.
            drop(raw.map(|raw| unsafe { OwnedDeviceArray::from_raw(raw) }));
        }
    }
}

// SAFETY: Arrow's interfaces allow a struct to be released by any thread; the stand-in's holder
// and this side only read it until then.
unsafe impl Send for Original {}
// SAFETY: Arrow's interfaces allow a struct to be released by any thread; the stand-in's holder and
// this side only read it until then.
unsafe impl Sync for Original {}

/// The release of a stand-in: drops its reference to the original.
unsafe extern "C" fn release_stand_in(target: *mut ArrowArray) {
    // SAFETY: Arrow's interface passes the struct that holds this function, live.
    let target = unsafe { &mut *target };
    target.release = None;
    // SAFETY: `Loan::new` put the result of Arc::into_raw there, and `release`, now cleared, is
    // called once.
    drop(unsafe { Arc::from_raw(target.private_data.cast::<Original>()) });
}

/// An array of the caller, lent to the crate until the call succeeds or fails.
pub(super) struct Loan {
    source: *mut ArrowDeviceArray,
    original: Arc<Original>,
}

impl Loan {
    /// Checks `source` and makes its stand-in.
    ///
    /// # Errors
    ///
    /// `NullArgument`; `InvalidArgument` for a released struct.
    ///
    /// # Safety
    ///
    /// `source` is NULL, or points to an initialised struct that follows Arrow's C interface, and
    /// nobody else uses it until the loan is accepted or dropped.
    pub(super) unsafe fn new(source: *mut ArrowDeviceArray) -> Result<(Self, OwnedDeviceArray)> {
        if source.is_null() {
            return Err(null_argument("array"));
        }
        // SAFETY: it is not NULL; the caller promises that it is initialised.
        if unsafe { &*source }.is_released() {
            return Err(Error::invalid_argument("array is released"));
        }
        // SAFETY: it is not NULL; the caller promises that it is initialised. The copy has no drop
        // of its own, and only `accept` makes it an owner.
        let raw = unsafe { std::ptr::read(source) };
        let original = Arc::new(Original {
            raw: Some(raw),
            accepted: AtomicBool::new(false),
        });
        // SAFETY: it is not NULL; the caller promises that it is initialised. The copy's release is
        // replaced before anything can call it.
        let mut stand_in = unsafe { std::ptr::read(source) };
        stand_in.array.private_data = Arc::into_raw(Arc::clone(&original)).cast_mut().cast();
        stand_in.array.release = Some(release_stand_in);
        // SAFETY: it has the parts of a struct that follows Arrow's interface, used by nobody else,
        // as the caller promises, and a release of ours; if the loan is accepted, `original` keeps
        // the parts alive; if not, the crate has dropped the stand-in before the caller gets its
        // array back.
        let stand_in = unsafe { OwnedDeviceArray::from_raw(stand_in) };
        // SAFETY: it is not NULL; the caller promises that it is initialised and used by nobody
        // else.
        let stand_in = annotate(stand_in, annotation(unsafe { &*source }));
        Ok((Self { source, original }, stand_in))
    }

    /// Completes the move after a successful call: marks the caller's struct as moved, and makes
    /// the stand-in its owner. The stand-in may have been released already.
    pub(super) fn accept(self) {
        // SAFETY: `new` saw that it is not NULL, and its caller promised that nobody else uses it.
        unsafe { &mut *self.source }.disarm();
        self.original.accepted.store(true, Ordering::Release);
    }
}

/// A schema argument that is only read. The caller keeps it; it is not released here.
///
/// # Errors
///
/// `NullArgument`; `InvalidArgument` for a released struct.
///
/// # Safety
///
/// `schema` is NULL, or a schema that follows Arrow's C data interface and is not written to or
/// released while the result is used.
pub(super) unsafe fn try_schema(
    schema: *const ArrowSchema,
    name: &str,
) -> Result<ManuallyDrop<OwnedSchema>> {
    // SAFETY: the caller promises that it is NULL or initialised.
    let source = unsafe { schema.as_ref() }.ok_or_else(|| null_argument(name))?;
    if source.is_released() {
        return Err(Error::invalid_argument(format!("{name} is released")));
    }
    // SAFETY: the reference above shows that it is initialised. The copy is never dropped, so only
    // the caller releases the schema.
    let copy = unsafe { std::ptr::read(schema) };
    // SAFETY: it follows the interface and is not written to while the result is used, as the
    // caller promises; the copy is never dropped, so it never releases what the caller owns.
    Ok(ManuallyDrop::new(unsafe { OwnedSchema::from_raw(copy) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn release(target: *mut ArrowArray) {
        // SAFETY: the tests' arrays hold a live counter.
        let target = unsafe { &mut *target };
        target.release = None;
        // SAFETY: as above.
        unsafe { *target.private_data.cast::<u32>() += 1 };
    }

    fn array(counter: &mut u32) -> ArrowDeviceArray {
        let mut array = ArrowDeviceArray::empty();
        array.array.release = Some(release);
        array.array.private_data = std::ptr::from_mut(counter).cast();
        array
    }

    /// Promise: after a failure the caller still owns its array, whole.
    #[test]
    fn a_failed_call_leaves_the_array_alone() {
        let mut counter = 0;
        let mut source = array(&mut counter);
        // SAFETY: `source` is initialised and used by nobody else.
        let (loan, stand_in) = unsafe { Loan::new(&raw mut source) }.unwrap();
        drop(stand_in);
        drop(loan);
        assert!(!source.is_released());
        // SAFETY: it is not released and this is its only user.
        unsafe { source.release() };
        assert_eq!(counter, 1);
    }

    /// Promise: after success the library releases the array, once, in either order.
    #[test]
    fn an_accepted_array_is_released_once() {
        for early in [false, true] {
            let mut counter = 0;
            let mut source = array(&mut counter);
            // SAFETY: `source` is initialised and used by nobody else.
            let (loan, stand_in) = unsafe { Loan::new(&raw mut source) }.unwrap();
            let stand_in = if early {
                drop(stand_in);
                None
            } else {
                Some(stand_in)
            };
            loan.accept();
            assert!(source.is_released());
            drop(stand_in);
            assert_eq!(counter, 1);
        }
    }

    /// Promise: released structs are refused.
    #[test]
    fn released_structs_are_refused() {
        let mut source = ArrowDeviceArray::empty();
        // SAFETY: `source` is initialised and used by nobody else.
        assert!(unsafe { Loan::new(&raw mut source) }.is_err());
        // SAFETY: NULL is allowed.
        assert!(unsafe { Loan::new(std::ptr::null_mut()) }.is_err());
    }
}
