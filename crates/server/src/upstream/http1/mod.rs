//! HTTP/1.1 with a server (RFC 9112). The task of the client's request writes and reads; only content of the request has a task of its own,
//! since a server may answer while it takes content.
//!
//! ```text
//! forward.rs ─► connection.rs, ask ─► request.rs (head), content.rs (content, if there is any) ─► server
//! reply.rs ◄─ body.rs ◄─ answer.rs (head) ◄───────────────────────────────────────────────────────┘
//! ```
//!
//! It is not hyper's: that speaks from a task for each connection, which costs a request two switches of tasks, three channels and a copy of
//! its fields. httparse, which hyper has too, reads the heads.

mod answer;
mod body;
mod connection;
mod content;
mod request;

pub(super) use body::AnswerBody;
pub(super) use connection::Connection;
