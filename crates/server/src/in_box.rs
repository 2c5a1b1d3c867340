//! Futures in memory of their own.

use std::pin::Pin;

/// A future in a box. It is made there: `Box::pin` makes it elsewhere, and copies all memory that it may ever use.
#[inline(always)]
pub(crate) fn in_box<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
