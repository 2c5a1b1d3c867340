//! URLs as purges compare them: one spelling for all that name the same.

use std::net::Ipv6Addr;

/// Scheme and host of a URL, with the slash behind.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |slash| host + slash);
    &url[..end]
}

/// A URL whose host is spelled as in keys: in lower case, without a dot at the end, and without the port of the scheme.
/// A server gets no fragment (RFC 9110 §4.2.5), so it is left out.
pub(super) fn with_normal_host(url: &str) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let own = origin(url);
    let (scheme, authority) = own.split_once("://").unwrap_or(("", own));
    let usual = if scheme.eq_ignore_ascii_case("http") { "80" } else { "443" };
    let is_port = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    let (name, port) = authority.rsplit_once(':').filter(|(_, port)| is_port(port)).unwrap_or((authority, ""));
    let mut authority = name.trim_end_matches('.').to_ascii_lowercase();
    // An IPv6 address has many spellings (RFC 5952).
    let bare = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = bare.and_then(|bare| bare.parse::<Ipv6Addr>().ok()) {
        authority = format!("[{address}]");
    }
    // A port may be empty (RFC 3986 §6.2.3).
    let port = port.trim_start_matches('0');
    if !port.is_empty() && port != usual {
        authority = format!("{authority}:{port}");
    }
    format!("{}://{authority}{}", scheme.to_ascii_lowercase(), &url[own.len()..])
}

/// A URL in the spelling that purges compare. Its host is in lower case, without a dot at the end and the port of the scheme. Its path and query have percent
/// signs only where a URL requires them (RFC 3986 §6.2.2). Its path has one slash for several, because some rules forward only one.
pub(super) fn normal(url: &str) -> String {
    let url = with_normal_host(url);
    let (origin, target) = url.split_at(origin(&url).len());
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut normal = origin.to_owned();
    let mut segments = path.split('/');
    // Backslashes there are forwarded as slashes are.
    let first = segments.by_ref().map(|segment| segment.trim_start_matches('\\')).find(|segment| !segment.is_empty());
    for segment in first.into_iter().chain(segments.filter(|segment| !segment.is_empty())) {
        normal.push('/');
        spell(segment, &mut normal);
    }
    if path.ends_with('/') {
        normal.push('/');
    }
    spell(query, &mut normal);
    normal
}

/// A path with one slash at its beginning: readers of URLs take `//x/y` for the path `/y` of the host `x`, and servers get it so.
pub(crate) fn one_slash_first(path: &str) -> &str {
    let slashes = path.len() - path.trim_start_matches('/').len();
    &path[slashes.saturating_sub(1)..]
}

/// A part of a path or query in the spelling that purges compare.
pub(super) fn spelled(part: &str) -> String {
    let mut spelled = String::with_capacity(part.len());
    spell(part, &mut spelled);
    spelled
}

/// Appends path and query: unreserved characters as they are, characters that no URL has by percent signs.
fn spell(target: &str, out: &mut String) {
    let octets = target.as_bytes();
    let is_unreserved = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    let is_reserved = |octet: u8| b":/?#[]@!$&'()*+,;=%".contains(&octet);
    let mut at = 0;
    while let Some(octet) = octets.get(at).copied() {
        let digits = octets.get(at + 1..at + 3).filter(|_| octet == b'%');
        let encoded = digits.and_then(|digits| match std::str::from_utf8(digits) {
            Ok(text) if digits.iter().all(u8::is_ascii_hexdigit) => u8::from_str_radix(text, 16).ok(),
            _ => None,
        });
        match encoded {
            Some(octet) if is_unreserved(octet) => out.push(char::from(octet)),
            Some(octet) => out.push_str(&format!("%{octet:02X}")),
            None if is_unreserved(octet) || is_reserved(octet) => out.push(char::from(octet)),
            None => out.push_str(&format!("%{octet:02X}")),
        }
        at += if encoded.is_some() { 3 } else { 1 };
    }
}

/// The host of a URL that [`normal`] made, without its port.
pub(super) fn host(url: &str) -> &str {
    let authority = origin(url).split_once("://").map_or("", |(_, authority)| authority);
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_beginning_become_one() {
        for (path, expected) in [("//x//y", "/x//y"), ("/x", "/x"), ("/", "/"), ("///", "/"), ("*", "*"), ("", "")] {
            assert_eq!(one_slash_first(path), expected);
        }
    }

    #[test]
    fn urls_that_name_the_same_have_one_spelling() {
        for (url, expected) in [
            ("HTTPS://A.test./x", "https://a.test/x"),
            ("https://a.test:443/x#part", "https://a.test/x"),
            ("https://a.test:0443/x", "https://a.test/x"),
            ("https://a.test:/x", "https://a.test/x"),
            ("https://a.test.:08443/x", "https://a.test:8443/x"),
            ("http://a.test:443/x", "http://a.test:443/x"),
            ("http://[::1]:080/x", "http://[::1]/x"),
            ("http://[::1]/x", "http://[::1]/x"),
            ("http://[0:0::0001]:8080/x", "http://[::1]:8080/x"),
            ("http://[2001:DB8::00a]/x", "http://[2001:db8::a]/x"),
            ("https://a.test/%7e%2f%C3%a9?q=%41#", "https://a.test/~%2F%C3%A9?q=A"),
        ] {
            assert_eq!(normal(url), expected, "{url}");
        }
    }
}
