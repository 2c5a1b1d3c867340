//! Converts rustls' secrets to this crate's keys.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::{CommonState, ConnectionTrafficSecrets, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use sealion_ktls::{AeadKey, Version};

use super::client_auth::ClientCertificate;
use super::{Group, HandshakeInfo};
use crate::error::HandshakeError;
use crate::record::{Aead, TrafficKeys};

/// Converts the secrets of one direction.
///
/// For TLS 1.2 GCM the explicit nonce starts a separate series, because continuing from the extracted IV would repeat
/// the nonce of Finished (observed on the wire): see [`AeadKey::from_rustls`].
///
/// # Errors
/// [`HandshakeError::Tls`] if rustls negotiated an AEAD that this crate does not know.
pub fn traffic_keys(version: Version, secrets: &ConnectionTrafficSecrets) -> Result<TrafficKeys, HandshakeError> {
    let unknown = || HandshakeError::Tls("an AEAD this record layer does not know".into());
    let (key, iv) = AeadKey::from_rustls(version, secrets).map_err(|_| unknown())?;
    let aead = Aead::ALL.into_iter().find(|aead| aead.cipher() == key.cipher()).ok_or_else(unknown)?;
    Ok(TrafficKeys::new(version, aead, key.as_bytes(), &iv))
}

/// The information that rustls has about a finished handshake; other fields are left open.
pub(super) fn info(connection: &CommonState) -> Result<HandshakeInfo, HandshakeError> {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
        Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
        other => return Err(HandshakeError::Tls(format!("unexpected version {other:?}"))),
    };
    let suite = connection.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("");
    Ok(HandshakeInfo {
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        group: connection.negotiated_key_exchange_group().map(|group| Group(group.name().into())),
        client_certificate: connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(|certificate| Arc::new(ClientCertificate::of(certificate))),
        ..HandshakeInfo::new(version, iana_name(suite))
    })
}

/// The number of records that one key of the suite may seal.
pub(super) fn confidentiality_limit(connection: &UnbufferedServerConnection) -> u64 {
    match connection.negotiated_cipher_suite() {
        Some(SupportedCipherSuite::Tls12(suite)) => suite.common.confidentiality_limit,
        Some(SupportedCipherSuite::Tls13(suite)) => suite.common.confidentiality_limit,
        None => 0,
    }
}

/// The suite's name in the registry.
pub(crate) fn suite_name(suite: SupportedCipherSuite) -> &'static str {
    iana_name(suite.suite().as_str().unwrap_or(""))
}

/// The suite's AEAD. `None`: this record layer does not know it. Today it knows all of rustls'.
pub(crate) fn aead(suite: SupportedCipherSuite) -> Option<Aead> {
    let aeads = [
        ("_AES_128_GCM_", Aead::Aes128Gcm),
        ("_AES_256_GCM_", Aead::Aes256Gcm),
        ("_CHACHA20_POLY1305_", Aead::Chacha20Poly1305),
    ];
    aeads.into_iter().find(|(part, _)| suite_name(suite).contains(part)).map(|(_, aead)| aead)
}

/// rustls writes `TLS13_` where the registry has `TLS_`.
fn iana_name(rustls_name: &'static str) -> &'static str {
    match rustls_name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        other => other,
    }
}
