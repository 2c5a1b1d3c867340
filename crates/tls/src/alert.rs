//! Alerts (RFC 8446 §6, RFC 5246 §7.2).

/// The description of an alert: a number of the IANA registry "TLS Alerts". Unknown numbers are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AlertDescription(pub u8);

macro_rules! alerts {
    ($($number:literal $constant:ident $name:literal;)*) => {
        impl AlertDescription {
            $(#[doc = concat!("`", $name, "`")] pub const $constant: Self = Self($number);)*

            /// The name in the registry, if this crate knows it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some($name),)* _ => None }
            }
        }
    };
}

alerts! {
    0 CLOSE_NOTIFY "close_notify";
    10 UNEXPECTED_MESSAGE "unexpected_message";
    20 BAD_RECORD_MAC "bad_record_mac";
    22 RECORD_OVERFLOW "record_overflow";
    40 HANDSHAKE_FAILURE "handshake_failure";
    42 BAD_CERTIFICATE "bad_certificate";
    45 CERTIFICATE_EXPIRED "certificate_expired";
    46 CERTIFICATE_UNKNOWN "certificate_unknown";
    47 ILLEGAL_PARAMETER "illegal_parameter";
    48 UNKNOWN_CA "unknown_ca";
    50 DECODE_ERROR "decode_error";
    51 DECRYPT_ERROR "decrypt_error";
    70 PROTOCOL_VERSION "protocol_version";
    80 INTERNAL_ERROR "internal_error";
    90 USER_CANCELED "user_canceled";
    100 NO_RENEGOTIATION "no_renegotiation";
    112 UNRECOGNIZED_NAME "unrecognized_name";
    120 NO_APPLICATION_PROTOCOL "no_application_protocol";
}

impl AlertDescription {
    /// The two bytes on the wire. `close_notify` and the closure alerts are warnings, all others
    /// fatal (RFC 8446 §6).
    pub fn to_wire(self) -> [u8; 2] {
        let level = match self {
            Self::CLOSE_NOTIFY | Self::USER_CANCELED | Self::NO_RENEGOTIATION => 1,
            _ => 2,
        };
        [level, self.0]
    }
}

impl std::fmt::Display for AlertDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "alert {}", self.0),
        }
    }
}

impl std::fmt::Debug for AlertDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
