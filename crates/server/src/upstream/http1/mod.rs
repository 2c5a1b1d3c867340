//! HTTP/1.1 with a server (RFC 9112). The task of the client's request writes and reads; only content of the request has a task of its own,
//! since a server may answer while it takes content.
//!
//! ```text
//! forward.rs ─► connection.rs, ask ─► request.rs (head), content.rs (content, if there is any) ─► server
//! reply.rs ◄─ body.rs ◄─ answer.rs (head) ◄───────────────────────────────────────────────────────┘
//! ```
//!
//! httparse reads the heads. ARCHITECTURE.md says why the rest is not a library's.

mod answer;
mod body;
mod connection;
mod content;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod request;

pub(super) use body::AnswerBody;
pub(super) use connection::{Connection, Past, Released, Unasked};
