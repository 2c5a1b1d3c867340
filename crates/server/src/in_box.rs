//! Values that are made in memory of their own: `Box::new` and `Box::pin` make them elsewhere, and copy them there.

use std::pin::Pin;

/// A value in a box.
#[inline(always)]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// A future in a box, with all memory that it may ever use.
#[inline(always)]
pub(crate) fn in_box<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}
