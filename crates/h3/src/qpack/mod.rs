//! QPACK (RFC 9204) without a dynamic table.
//!
//! Both tables have the capacity 0, the default of the settings. So a field section refers to the static table alone, no stream
//! waits for another, and a block depends only on its fields: it can be kept with a hot file.

mod decode;
mod encode;
mod instructions;
mod static_table;

pub(crate) use decode::Block;
pub use encode::HeaderBlock;
pub(crate) use encode::SECTION_PREFIX;
pub(crate) use instructions::{DecoderStream, EncoderStream};
