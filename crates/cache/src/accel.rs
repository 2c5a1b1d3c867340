//! X-Accel-Expires, by which applications tell nginx how long it may store a response.

use http::{HeaderMap, HeaderName};

use crate::Seconds;
use crate::directives::{ResponseDirectives, delta_seconds};

/// The name of the field.
pub(crate) const X_ACCEL_EXPIRES: HeaderName = HeaderName::from_static("x-accel-expires");

/// The field as directives, which replace the directives of Cache-Control. `None`: the field is absent or not a time,
/// which nginx ignores.
pub(crate) fn accel(fields: &HeaderMap) -> Option<ResponseDirectives> {
    let value = fields.get(X_ACCEL_EXPIRES)?.as_bytes().trim_ascii();
    let mut directives = ResponseDirectives::default();
    match value.strip_prefix(b"@") {
        Some(time) => directives.expires = Some(seconds(time)?),
        None => match delta_seconds(value)? {
            0 => directives.no_store = true,
            lifetime => directives.max_age = Some(lifetime),
        },
    }
    Some(directives)
}

/// Seconds since 1970.
fn seconds(digits: &[u8]) -> Option<Seconds> {
    // A sign is not a digit.
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn zero_forbids_storing_and_a_number_or_a_time_is_a_lifetime() {
        for (value, expected) in [
            ("0", Some((true, None, None))),
            ("00", Some((true, None, None))),
            ("60", Some((false, Some(60), None))),
            ("99999999999", Some((false, Some(1 << 31), None))),
            ("@784111777", Some((false, None, Some(784_111_777)))),
            ("@0", Some((false, None, Some(0)))),
            ("", None),
            ("@", None),
            ("-1", None),
            ("+1", None),
            ("@+1", None),
            ("@-1", None),
            ("60s", None),
            ("1.5", None),
            ("off", None),
            ("@99999999999999999999", None),
        ] {
            let found = accel(&fields(&[format!("x-accel-expires: {value}")]));
            assert_eq!(found.map(|all| (all.no_store, all.max_age, all.expires)), expected, "{value:?}");
        }
        assert_eq!(accel(&HeaderMap::new()), None);
    }
}
