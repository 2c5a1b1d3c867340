//! Record types, and whether a record may stay open.

/// The maximum plaintext length of a record in bytes, RFC 8446 §5.1.
pub const MAX_PLAINTEXT: usize = 1 << 14;

/// The content type of a record, RFC 8446 §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u8);

impl RecordType {
    /// change_cipher_spec(20): TLS 1.3 sends it for middleboxes only.
    pub const CHANGE_CIPHER_SPEC: Self = Self(20);
    /// alert(21): close_notify, or the error that ends the connection.
    pub const ALERT: Self = Self(21);
    /// handshake(22): session tickets and KeyUpdate after the handshake.
    pub const HANDSHAKE: Self = Self(22);
    /// application_data(23); in TLS 1.3 also the outer type of every protected record.
    pub const APPLICATION_DATA: Self = Self(23);
}

/// Whether more data follows at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Seal everything now, including an open record.
    No,
    /// `MSG_MORE`: keep the last record open for the next data. It stays with the kernel, unsealed and unsent, until it
    /// is full, something is sent without `More`, or it is flushed; `close(2)` drops it.
    Yes,
}
