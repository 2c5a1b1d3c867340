//! Types used by several configuration tables, and the phase of the process.

mod address;
mod arguments;
pub(crate) mod features;
mod labels;
mod mutex;
mod network;
mod phase;
mod problems;
mod random;
mod secret;
mod short;
mod text;
mod units;

pub(crate) use address::write_address;
pub(crate) use arguments::Given;
pub(crate) use arguments::overridable;
pub(crate) use labels::labels;
pub(crate) use mutex::Mutex;
pub(crate) use network::parse_network;
pub(crate) use phase::Phase;
pub(crate) use phase::draining;
pub(crate) use problems::{Problems, Reported};
pub(crate) use random::random_bits;
#[cfg(any(test, fuzzing))]
pub(crate) use secret::MARK as SECRET_MARK;
pub(crate) use secret::{Secret, SecretUrl, shown_url};
pub(crate) use short::{NOT_ENOUGH, Off, Short};
#[cfg(any(feature = "acme", feature = "otlp"))]
pub(crate) use text::one_line;
pub(crate) use text::printable;
pub(crate) use units::{At, Bounded, Size, Time, Timeout};
