//! Numbers and layouts of `include/uapi/linux/tls.h`, `tcp.h`, `snmp.h` and `capability.h`.
//!
//! They are written by hand, because the headers of an old build machine lack the newer numbers. They are a stable
//! kernel interface, the same on every architecture.

/// The level of the TLS options, `SOL_TLS` of `include/linux/socket.h`.
pub const SOL_TLS: i32 = 282;
/// The option that attaches a protocol layer, `TCP_ULP` of `include/uapi/linux/tcp.h`.
pub const TCP_ULP: i32 = 31;
/// The value of `TCP_ULP` for TLS, as set and as read.
pub const ULP_TLS: &[u8] = b"tls";

/// Option: keys and sequence of the sending half.
pub const TLS_TX: i32 = 1;

/// Option: keys and sequence of the receiving half.
pub const TLS_RX: i32 = 2;

/// Option: file pages are not copied for a network card's cipher. u32, 0 or 1.
pub(crate) const TLS_TX_ZEROCOPY_RO: i32 = 3;
/// Option: records carry no padding. u32, 0 or 1.
pub(crate) const TLS_RX_EXPECT_NO_PAD: i32 = 4;
/// Option: the maximum plaintext length of a record in bytes. u16.
pub(crate) const TLS_TX_MAX_PAYLOAD_LEN: i32 = 5;

/// Control message: the type of the record to send, one byte.
pub(crate) const TLS_SET_RECORD_TYPE: i32 = 1;
/// Control message: the type of the record received, one byte.
pub(crate) const TLS_GET_RECORD_TYPE: i32 = 2;

/// `TLS_1_2_VERSION`: the version as records carry it.
pub(crate) const TLS_1_2_VERSION: u16 = 0x0303;
/// `TLS_1_3_VERSION`, which no record carries.
pub(crate) const TLS_1_3_VERSION: u16 = 0x0304;

/// Field sizes, in bytes, of one `struct tls12_crypto_info_*`.
///
/// The order of the fields is version (u16), cipher (u16), iv, key, salt, sequence (8 bytes, big-endian), without
/// padding, because all but the first two are byte arrays.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// The number of the cipher, `TLS_CIPHER_*`.
    pub(crate) id: u16,
    pub(crate) iv: usize,
    pub(crate) key: usize,
    pub(crate) salt: usize,
}

impl Layout {
    const fn new(id: u16, iv: usize, key: usize, salt: usize) -> Self {
        Self { id, iv, key, salt }
    }

    /// The size of the whole structure in bytes.
    pub(crate) const fn size(self) -> usize {
        self.sequence() + SEQUENCE_LEN
    }

    /// Offset of the sequence number.
    pub(crate) const fn sequence(self) -> usize {
        HEADER_LEN + self.iv + self.key + self.salt
    }
}

/// `struct tls_crypto_info`: version and cipher.
pub(crate) const HEADER_LEN: usize = 4;
/// `TLS_CIPHER_*_REC_SEQ_SIZE`, the same for all.
pub(crate) const SEQUENCE_LEN: usize = 8;
/// Size of the largest structure.
pub(crate) const MAX_LEN: usize = 56;

pub(crate) const AES_GCM_128: Layout = Layout::new(51, 8, 16, 4);
pub(crate) const AES_GCM_256: Layout = Layout::new(52, 8, 32, 4);
pub(crate) const AES_CCM_128: Layout = Layout::new(53, 8, 16, 4);
pub(crate) const CHACHA20_POLY1305: Layout = Layout::new(54, 12, 32, 0);
pub(crate) const SM4_GCM: Layout = Layout::new(55, 8, 16, 4);
pub(crate) const SM4_CCM: Layout = Layout::new(56, 8, 16, 4);
pub(crate) const ARIA_GCM_128: Layout = Layout::new(57, 8, 16, 4);
pub(crate) const ARIA_GCM_256: Layout = Layout::new(58, 8, 32, 4);

#[cfg(test)]
mod tests {
    use super::*;

    /// The `sizeof` of each structure, as computed by a C compiler.
    #[test]
    fn sizes_are_the_headers() {
        let narrow = [AES_GCM_128, AES_CCM_128, SM4_GCM, SM4_CCM, ARIA_GCM_128];
        assert!(narrow.iter().all(|layout| layout.size() == 40));
        assert_eq!([AES_GCM_256, CHACHA20_POLY1305, ARIA_GCM_256].map(Layout::size), [MAX_LEN; 3]);
    }
}
