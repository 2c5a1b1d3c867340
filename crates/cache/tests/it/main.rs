//! Decisions beside those of another implementation.

mod oracle;
