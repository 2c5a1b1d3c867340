use sealion_http::etag::EntityTag;
use sealion_http::{Fields, Status};

use super::{At, Deserialize, Headers, HeadersConfig, HstsConfig, Known, Problems, SecurityHeaders};

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    headers: HeadersConfig,
    cache_control: At<String>,
    forwarded_cache_control: At<String>,
    security_headers: SecurityHeaders,
    hsts: HstsConfig,
}

fn build(text: &str) -> (Option<Headers>, Problems) {
    let file: File = toml::from_str(text).unwrap();
    let mut problems = Problems::of_file("f".as_ref(), text);
    let tables = crate::placeholders::Tables::default();
    let config = super::Fields {
        config: &file.headers,
        caching: (&file.cache_control, &file.forwarded_cache_control),
        security: file.security_headers,
        hsts: &file.hsts,
        plain: false,
        known: Known::of_request(None, &tables),
    };
    (config.build("site", &mut problems), problems)
}

/// `tagged`: whether the response has a file.
fn fields(headers: &Headers, tagged: bool) -> String {
    let etag = tagged.then(|| EntityTag::from_fingerprint([0; 8]));
    let mut fields = Fields { etag, ..Fields::default() };
    headers.add(Status::OK, None, &mut fields);
    String::from_utf8(fields.extra.lines().to_vec()).unwrap().replace("\r\n", "|")
}

#[test]
fn own_fields_replace_those_of_the_preset() {
    let (headers, problems) = build(
        "security_headers = 'basic'\n\
         headers = { set = { X-One = '1', 'x-frame-options' = 'DENY' }, unset = ['referrer-policy'] }\n\
         [hsts]\nmax_age = '1h'",
    );
    assert!(problems.is_empty(), "{problems}");
    assert_eq!(
        fields(&headers.unwrap(), false),
        "X-Content-Type-Options: nosniff|Strict-Transport-Security: max-age=3600|X-One: 1|x-frame-options: DENY|"
    );
    let (headers, problems) = build("headers = { unset = ['Strict-Transport-Security'] }\n[hsts]\nmax_age = '1h'");
    assert!(problems.is_empty() && headers.is_none(), "{problems}");
}

#[test]
fn without_placeholders_the_fields_are_made_once() {
    let (headers, _) = build("headers = { set = { X-One = '1', X-Two = '2' } }");
    let headers = headers.unwrap();
    assert!(headers.all.is_some());
    assert_eq!(fields(&headers, true), "X-One: 1|X-Two: 2|");
    let mut already = Fields::default();
    already.extra.add("x-one", "own");
    headers.add(Status::OK, None, &mut already);
    assert_eq!(already.extra.lines(), b"x-one: own\r\nX-Two: 2\r\n");
}

#[test]
fn cache_control_is_for_responses_with_an_entity_tag() {
    let headers = build("cache_control = 'max-age=9, immutable'").0.unwrap();
    assert_eq!(fields(&headers, true), "Cache-Control: max-age=9, immutable|");
    assert_eq!(fields(&headers, false), "");
}

#[test]
fn cache_control_of_servers_is_replaced_where_there_is_no_error() {
    let headers = build("forwarded_cache_control = 'max-age=9'").0.unwrap();
    let sent = |status: u16, forwarded: bool| {
        let mut fields = Fields { forwarded, ..Fields::default() };
        fields.extra.add("Cache-Control", "no-store");
        fields.extra.add("Expires", "0");
        headers.replace_cache_control(Status::new(status).unwrap(), None, &mut fields);
        String::from_utf8(fields.extra.lines().to_vec()).unwrap().replace("\r\n", "|")
    };
    assert_eq!([200, 304].map(|status| sent(status, true)), ["Cache-Control: max-age=9|"; 2]);
    assert_eq!(
        [(404, true), (500, true), (200, false)].map(|(status, forwarded)| sent(status, forwarded)),
        ["Cache-Control: no-store|Expires: 0|"; 3]
    );
}

#[test]
fn vary_values_are_merged() {
    let mut already = Fields::default();
    already.extra.add("Vary", "Accept");
    build("headers = { set = { Vary = 'X-Own' } }").0.unwrap().add(Status::OK, None, &mut already);
    assert_eq!(already.extra.lines(), b"Vary: Accept\r\nVary: X-Own\r\n");
}

#[test]
fn nothing_is_built_without_rules() {
    assert!(build("").0.is_none());
}

#[test]
fn configuration_errors_name_the_key() {
    for (text, expected) in [
        (
            "headers = { set = { 'Content-Type' = 'a' } }",
            "f:1: site.headers.set.Content-Type: cannot be set here: use media_types",
        ),
        ("headers = { set = { etag = 'a' } }", "f:1: site.headers.set.etag: cannot be set here: it follows"),
        ("headers = { set = { 'a b' = 'a' } }", "f:1: site.headers.set.a b: is not a field name"),
        ("headers = { set = { A = \"a\\r\\nB: c\" } }", "f:1: site.headers.set.A: write visible ASCII"),
        ("headers = { unset = ['Server'] }", "f:1: site.headers.unset: set server_header = false"),
        ("headers = { unset = ['etag'] }", "f:1: site.headers.unset: removes fields of the preset"),
        ("cache_control = ' a'", "f:1: site.cache_control: write directives"),
        ("forwarded_cache_control = ' a'", "f:1: site.forwarded_cache_control: write directives"),
    ] {
        let (_, problems) = build(text);
        assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
        assert_eq!(problems.len(), 1, "{problems}");
    }
    assert!(toml::from_str::<HeadersConfig>("pth = '*'").is_err());
}

#[test]
fn fields_may_leave_errors_out() {
    let (headers, problems) = build("headers = { set = { X-All = '1' }, set_without_errors = { X-Some = '2' } }");
    assert!(problems.is_empty(), "{problems}");
    let headers = headers.unwrap();
    for (code, expected) in [
        (200, "X-All: 1\r\nX-Some: 2\r\n"),
        (206, "X-All: 1\r\nX-Some: 2\r\n"),
        (304, "X-All: 1\r\nX-Some: 2\r\n"),
        (308, "X-All: 1\r\nX-Some: 2\r\n"),
        (203, "X-All: 1\r\n"),
        (404, "X-All: 1\r\n"),
        (502, "X-All: 1\r\n"),
    ] {
        let mut fields = Fields::default();
        headers.add(Status::new(code).unwrap(), None, &mut fields);
        assert_eq!(String::from_utf8_lossy(fields.extra.lines()), expected, "{code}");
    }
}
