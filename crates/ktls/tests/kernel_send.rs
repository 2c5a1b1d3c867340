//! Sending by the kernel.
