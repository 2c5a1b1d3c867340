//! Handshakes that failed, for metrics.

use sealion_quic::CloseReason;

use crate::observe::metrics::HandshakeFailure;

/// The reason for a failed handshake.
pub(super) fn handshake_failure(reason: &CloseReason) -> HandshakeFailure {
    match reason {
        CloseReason::HandshakeTimedOut | CloseReason::TimedOut => HandshakeFailure::Timeout,
        CloseReason::Violation { code, .. } if CERTIFICATE_ALERTS.contains(&code.wrapping_sub(CRYPTO_ERROR)) => {
            HandshakeFailure::ClientCertificate
        }
        CloseReason::ClosedByTransport { code: CRYPTO_ERROR..=0x1ff, .. } => HandshakeFailure::PeerAlert,
        CloseReason::ClosedByTransport { .. } | CloseReason::ClosedByApplication { .. } | CloseReason::Reset => {
            HandshakeFailure::Closed
        }
        CloseReason::Violation { .. } | CloseReason::Failed => HandshakeFailure::Tls,
    }
}

/// The first code of QUIC for alerts of TLS (RFC 9001 §4.8).
const CRYPTO_ERROR: u64 = 0x100;

/// Alerts about the certificate of a client (RFC 8446 §6.2): bad_certificate to certificate_unknown, unknown_ca, certificate_required.
const CERTIFICATE_ALERTS: [u64; 7] = [42, 43, 44, 45, 46, 48, 116];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_about_certificates_differ_from_others() {
        let violation = |code| CloseReason::Violation { code, why: String::new() };
        for (reason, expected) in [
            (violation(0x100 + 116), HandshakeFailure::ClientCertificate),
            (violation(0x100 + 48), HandshakeFailure::ClientCertificate),
            (violation(0x100 + 40), HandshakeFailure::Tls),
            (violation(0xa), HandshakeFailure::Tls),
            (CloseReason::ClosedByTransport { code: 0x12a, reason: Default::default() }, HandshakeFailure::PeerAlert),
            (CloseReason::ClosedByTransport { code: 0, reason: Default::default() }, HandshakeFailure::Closed),
            (CloseReason::HandshakeTimedOut, HandshakeFailure::Timeout),
        ] {
            assert_eq!(handshake_failure(&reason), expected, "{reason:?}");
        }
    }
}
