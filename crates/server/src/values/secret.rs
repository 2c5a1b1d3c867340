//! Configuration values that may contain secrets. Messages and logs show a fingerprint instead, which only reveals
//! whether a value changed.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text or key that no message shows: a header field's value, a password, a token.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// The value itself.
    pub(crate) fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Secret(value)
    }
}

impl<T: Hash> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{:016x})", fingerprint(&self.0))
    }
}

impl<T: Hash> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T: Hash> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HiddenText).map(Secret)
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A text that may be a URL. Messages show it without user, password and query.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretUrl(String);

impl SecretUrl {
    /// The URL itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretUrl {
    fn from(url: String) -> Self {
        SecretUrl(url)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_url(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", shown_url(&self.0))
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match shown_url(&self.0) {
            Cow::Borrowed(all) => serializer.serialize_str(all),
            Cow::Owned(part) => {
                serializer.collect_str(&format_args!("{part} with {MARK}{:016x})", fingerprint(&self.0)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HiddenText).map(SecretUrl)
    }
}

impl JsonSchema for SecretUrl {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "URL".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A URL for messages, without user, password and query. It is borrowed if the URL has none of these.
pub(crate) fn shown_url(url: &str) -> Cow<'_, str> {
    // An operator may forget to encode a slash or a question mark in a password, so the last `@` ends it.
    let authority = url.find("://").map_or(0, |at| at + 3);
    let user = url[authority..].rfind('@').map(|at| authority + at).filter(|_| !url.starts_with("unix:"));
    let host = user.unwrap_or(authority);
    let query = url[host..].find(['?', '#']).map(|at| host + at + 1);
    if user.is_none() && query.is_none_or(|at| at == url.len()) {
        return Cow::Borrowed(url);
    }
    let (scheme, dots) = (&url[..authority], if user.is_some() { "…" } else { "" });
    let rest = &url[host..query.unwrap_or(url.len())];
    Cow::Owned(format!("{scheme}{dots}{rest}{}", if query.is_some() { "…" } else { "" }))
}

/// The prefix of each fingerprint.
pub(crate) const MARK: &str = "a secret (";

/// Differs for different secrets. Its key is random for each process, so that guessing texts reveals nothing.
fn fingerprint(secret: &(impl Hash + ?Sized)) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(secret)
}

/// Accepts a text. An error does not show the value found instead.
struct HiddenText;

impl HiddenText {
    fn refuse<E: Error>(what: &str) -> E {
        E::invalid_type(Unexpected::Other(what), &HiddenText)
    }
}

impl Visitor<'_> for HiddenText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<String, E> {
        Err(Self::refuse("boolean"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<String, E> {
        Err(Self::refuse("integer"))
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<String, E> {
        Err(Self::refuse("integer"))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<String, E> {
        Err(Self::refuse("integer"))
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<String, E> {
        Err(Self::refuse("integer"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<String, E> {
        Err(Self::refuse("number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown_and_a_change_of_it_is() {
        let [one, same, other] = ["hunter2", "hunter2", "hunter3"].map(|text| Secret(text.to_owned()));
        let json = |secret: &Secret| serde_json::to_string(secret).unwrap();
        assert!(!json(&one).contains("hunter") && !format!("{one:?}{one}").contains("hunter"));
        assert_eq!(json(&one), json(&same));
        assert_ne!(json(&one), json(&other));
        let key = Secret(vec![7_u8, 7, 7]);
        assert!(format!("{key:?}").starts_with(MARK) && !format!("{key:?}").contains("7, 7"));
    }

    #[test]
    fn a_url_is_shown_without_user_and_query() {
        for (url, shown) in [
            ("https://example.org/a", "https://example.org/a"),
            ("redis://:hunter2@10.0.0.9:6379/purges", "redis://…@10.0.0.9:6379/purges"),
            ("redis://name:hun/ter?2@host/purges", "redis://…@host/purges"),
            ("name:hunter2@host", "…@host"),
            ("https://host/check?token=hunter2", "https://host/check?…"),
            ("https://name:hunter2@host/?hunter2", "https://…@host/?…"),
            ("/verify?token=hunter2", "/verify?…"),
            ("/verify?", "/verify?"),
            ("unix:/run/auth@1.sock:/verify", "unix:/run/auth@1.sock:/verify"),
            ("", ""),
        ] {
            let secret = SecretUrl(url.to_owned());
            assert_eq!(secret.to_string(), shown, "{url}");
            assert!(!format!("{secret:?}").contains("hunter"), "{url}");
            let json = serde_json::to_string(&secret).unwrap();
            assert!(!json.contains("hunter") && json.contains(MARK) == (url != shown), "{json}");
        }
        let json = |url: &str| serde_json::to_string(&SecretUrl(url.to_owned())).unwrap();
        assert_ne!(json("http://a:b@c"), json("http://a:d@c"));
    }

    #[test]
    fn an_error_of_the_type_does_not_show_the_value() {
        #[derive(Debug, Deserialize)]
        struct Table {
            #[expect(dead_code, reason = "it cannot be made")]
            key: Secret,
        }
        for value in ["90210", "-90210", "9021.0", "[\"90210\"]", "{ a = \"90210\" }", "true"] {
            let error = toml::from_str::<Table>(&format!("key = {value}")).unwrap_err();
            assert!(error.message().contains("expected a string"), "{value}: {error}");
            assert!(!error.message().contains("9021"), "{value}: {error}");
        }
    }
}
