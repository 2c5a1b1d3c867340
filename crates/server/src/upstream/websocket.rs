//! The handshake of WebSocket (RFC 6455 §4): with the key of the client, or with a key for clients of HTTP/2, whose own handshake has none
//! (RFC 8441 §5).

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use sealion_http::Request;

/// The name of the protocol, for `:protocol` and Upgrade.
pub(crate) const WEBSOCKET: &str = "websocket";

/// The key of a handshake.
#[derive(Debug, Clone)]
pub(crate) struct Key(HeaderValue);

impl Key {
    /// A random key. `None`: the system gives no random numbers.
    pub(crate) fn random() -> Option<Self> {
        let mut nonce = [0; 16];
        rand::fill(&mut nonce).ok()?;
        HeaderValue::try_from(STANDARD.encode(nonce)).ok().map(Key)
    }

    /// The key of a client's request. `None`: it has no key, or several.
    pub(crate) fn of_client(request: &Request<'_>) -> Option<Self> {
        let key = request.fields.singleton(SEC_WEBSOCKET_KEY.as_str()).value()?;
        HeaderValue::from_bytes(key).ok().map(Key)
    }

    /// The field that a request has it in.
    pub(super) fn field(&self) -> (HeaderName, &HeaderValue) {
        (SEC_WEBSOCKET_KEY, &self.0)
    }

    /// Whether the fields of a response have the reply to the key, and no other.
    pub(super) fn is_replied_to(&self, fields: &HeaderMap) -> bool {
        let mut replies = fields.get_all(SEC_WEBSOCKET_ACCEPT).iter();
        let fits = |reply: &HeaderValue| reply.as_bytes().trim_ascii() == self.reply().as_bytes();
        replies.next().is_some_and(fits) && replies.next().is_none()
    }

    fn reply(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        context.update(self.0.as_bytes());
        context.update(GUID);
        STANDARD.encode(context.finish())
    }
}

/// RFC 6455 §1.3
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_fits_one_key() {
        // RFC 6455 §1.3
        let key = Key(HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        let reply = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut fields = HeaderMap::from_iter([(SEC_WEBSOCKET_ACCEPT, reply.clone())]);
        assert!(key.is_replied_to(&fields));
        assert!(!key.is_replied_to(&HeaderMap::new()));
        let other = Key::random().expect("random numbers");
        assert!(!other.is_replied_to(&fields));
        fields.append(SEC_WEBSOCKET_ACCEPT, reply);
        assert!(!key.is_replied_to(&fields), "RFC 6455 §11.3.3: once");
        assert_eq!(STANDARD.decode(other.0.as_bytes()).expect("base64").len(), 16);
    }
}
