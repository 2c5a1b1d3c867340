//! Compares decisions with another implementation.

mod oracle;
