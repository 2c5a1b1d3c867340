//! Cross-origin requests (Fetch standard, §3.2).

use regex::Regex;
use schemars::JsonSchema;
use sealion_http::extra_fields::{ExtraFields, is_name};
use sealion_http::{Fields, Method, Request, Status};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::response::{Body, Response};
use crate::values::{At, Problems, Time};

/// Cross-origin access: origins whose scripts may read responses.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CorsConfig {
    /// Allowed origins: `https://app.example.org`, `~ ^https://[a-z]+\\.example\\.org$` (an expression for whole origins), or `*` for all. Empty: none.
    pub origins: Vec<At<String>>,
    /// Allowed methods. The server itself answers GET and HEAD.
    #[default(["GET", "HEAD"].map(|method| method.to_owned().into()).into())]
    pub methods: Vec<At<String>>,
    /// Allowed request fields, besides the fields that browsers always allow, for instance `If-None-Match`.
    pub headers: Vec<At<String>>,
    /// Readable response fields, besides the fields that browsers always allow, for instance `ETag`.
    pub expose: Vec<At<String>>,
    /// How long browsers may cache the response to a preflight request.
    pub max_age: Option<Time>,
    /// Whether scripts may send cookies and passwords.
    pub credentials: At<bool>,
}

/// The CORS policy of a site.
#[derive(Debug)]
pub(crate) struct Cors {
    /// `None`: any origin.
    origins: Option<Vec<Origin>>,
    /// Fields of a response to an allowed origin.
    response: ExtraFields,
    /// Further fields of a preflight response.
    preflight: ExtraFields,
}

/// An origin that is allowed.
#[derive(Debug)]
enum Origin {
    Named(String),
    Matching(Regex),
}

impl Origin {
    fn is(&self, origin: &str) -> bool {
        match self {
            Origin::Named(known) => known == origin,
            Origin::Matching(regex) => regex.is_match(origin),
        }
    }

    /// The origin or expression of a configuration, or the remedy.
    fn parse(text: &str) -> Result<Self, String> {
        let (expression, flags) = match (text.strip_prefix("~ "), text.strip_prefix("~* ")) {
            (Some(expression), _) => (expression, ""),
            (_, Some(expression)) => (expression, "(?i)"),
            (None, None) if is_origin(text) => return Ok(Origin::Named(text.to_owned())),
            (None, None) => {
                return Err(format!(
                    "{text:?} is not an origin: write scheme and host in lowercase, and the port unless it is the default, for instance https://app.example.org"
                ));
            }
        };
        // Otherwise `https://example.org.evil.example` would be allowed.
        let regex = Regex::new(&format!("{flags}^(?:{expression})$"));
        regex.map(Origin::Matching).map_err(|error| format!("{text:?} is not a regular expression: {error}"))
    }
}

impl CorsConfig {
    /// Validates origins, methods and names. `None`: no origin is configured.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Option<Cors> {
        let Some(first) = self.origins.first() else {
            if *self != CorsConfig::default() {
                let remedy = "is missing: list the origins, for instance origins = [\"https://app.example.org\"]";
                problems.add(&self.credentials.span, &format!("{key}.origins"), remedy);
            }
            return None;
        };
        let every = self.origins.iter().find(|origin| origin.value == "*");
        if let Some(every) = every {
            if self.origins.len() > 1 {
                problems.add(&every.span, &format!("{key}.origins"), "\"*\" allows all origins: remove the others");
            }
            if self.credentials.value {
                let remedy =
                    "cannot be combined with origins = [\"*\"], which browsers refuse: list the origins instead";
                problems.add(&self.credentials.span, &format!("{key}.credentials"), remedy);
            }
        } else {
            for origin in &self.origins {
                if let Err(remedy) = Origin::parse(origin) {
                    problems.add(&origin.span, &format!("{key}.origins"), remedy);
                }
            }
        }
        for (names, which) in [(&self.methods, "methods"), (&self.headers, "headers"), (&self.expose, "expose")] {
            for name in names.iter().filter(|name| !is_name(name)) {
                problems.add(&name.span, &format!("{key}.{which}"), format!("{:?} is not a token", name.value));
            }
        }
        self.check_names(key, problems);
        if self.methods.is_empty() {
            problems.add(&first.span, &format!("{key}.methods"), "is empty: write for instance [\"GET\", \"HEAD\"]");
        }
        if !problems.is_empty() {
            return None;
        }
        let list = |names: &[At<String>]| names.iter().map(|name| &*name.value).collect::<Vec<_>>().join(", ");
        let mut response = ExtraFields::default();
        if self.credentials.value {
            response.add("Access-Control-Allow-Credentials", "true");
        }
        let mut preflight = response.clone();
        if !self.expose.is_empty() {
            response.add("Access-Control-Expose-Headers", &list(&self.expose));
        }
        preflight.add("Access-Control-Allow-Methods", &list(&self.methods));
        if !self.headers.is_empty() {
            preflight.add("Access-Control-Allow-Headers", &list(&self.headers));
        }
        if let Some(max_age) = self.max_age {
            preflight.add("Access-Control-Max-Age", &max_age.0.as_secs().to_string());
        }
        let origins =
            every.is_none().then(|| self.origins.iter().filter_map(|origin| Origin::parse(origin).ok()).collect());
        Some(Cors { origins, response, preflight })
    }
}

impl CorsConfig {
    /// Finds names that browsers ignore (Fetch standard, §2.2): scripts can neither send nor read these fields, nor use these methods.
    fn check_names(&self, key: &str, problems: &mut Problems) {
        let mut refuse = |names: &[At<String>], which: &str, is_refused: &dyn Fn(&str) -> bool, what: &str| {
            for name in names.iter().filter(|name| is_refused(name)) {
                problems.add(&name.span, &format!("{key}.{which}"), format!("{:?} {what}", name.value));
            }
        };
        let is_one_of = |names: &[&str], name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let never_sent = |name: &str| {
            let start = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
            is_one_of(&NEVER_SENT, name) || start("proxy-") || start("sec-")
        };
        refuse(&self.headers, "headers", &never_sent, "is a field that browsers let no script set: remove it");
        let never_read = |name: &str| is_one_of(&["set-cookie", "set-cookie2"], name);
        refuse(&self.expose, "expose", &never_read, "is a field that browsers let no script read: remove it");
        let never_used = |name: &str| is_one_of(&["connect", "trace", "track"], name);
        refuse(&self.methods, "methods", &never_used, "is a method that browsers let no script use: remove it");
        if *self.credentials {
            let remedy = "means a field of that name where credentials is true: list the names instead";
            for (names, which) in [(&self.methods, "methods"), (&self.headers, "headers"), (&self.expose, "expose")] {
                refuse(names, which, &|name| name == "*", remedy);
            }
        }
    }
}

/// Request fields that no script can set.
const NEVER_SENT: [&str; 20] = [
    "accept-charset",
    "accept-encoding",
    "access-control-request-headers",
    "access-control-request-method",
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "expect",
    "host",
    "keep-alive",
    "origin",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

impl Cors {
    /// The response, if this is a preflight request. An origin that is not allowed gets a response without permission.
    ///
    /// Browsers send preflight requests without credentials, so they are answered before authentication.
    pub(crate) fn preflight(&self, request: &Request<'_>) -> Option<Response> {
        let asks_for_method = || request.fields.first("access-control-request-method").is_some();
        if request.method != Method::Other("OPTIONS") || !asks_for_method() {
            return None;
        }
        let origin = request.fields.singleton("origin").value()?;
        let mut extra = ExtraFields::default();
        if self.allow(origin, &mut extra) {
            extra.extend(&self.preflight);
        }
        if self.origins.is_some() {
            extra.add("Vary", "Origin");
        }
        Some(Response::new(Status::NO_CONTENT, Fields { extra, ..Fields::default() }, Body::Empty))
    }

    /// Adds the CORS fields for the origin of the request.
    pub(crate) fn add(&self, request: &Request<'_>, fields: &mut Fields) {
        // Also without Origin, because a cache may reuse the response for another origin: it needs Vary, or the permission that
        // is the same for all (Fetch standard, "CORS protocol and HTTP caches").
        let origin = request.fields.singleton("origin").value().or(self.origins.is_none().then_some(b""));
        if origin.is_some_and(|origin| self.allow(origin, &mut fields.extra)) {
            fields.extra.extend(&self.response);
        }
        if self.origins.is_some() {
            fields.extra.add("Vary", "Origin");
        }
    }

    fn allow(&self, origin: &[u8], extra: &mut ExtraFields) -> bool {
        let allowed = match &self.origins {
            None => Some("*"),
            Some(origins) => {
                let origin = std::str::from_utf8(origin).ok();
                origin.filter(|origin| origins.iter().any(|known| known.is(origin)))
            }
        };
        if let Some(allowed) = allowed {
            extra.add("Access-Control-Allow-Origin", allowed);
        }
        allowed.is_some()
    }
}

/// Whether the text is an origin as browsers serialize it: `scheme://host[:port]` in lowercase. `null` is not accepted, since any
/// opaque origin sends it.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let port_is_default =
        matches!((scheme, host.rsplit_once(':')), ("https", Some((_, "443"))) | ("http", Some((_, "80"))));
    !scheme.is_empty()
        && scheme.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"+-.".contains(&octet))
        && !host.is_empty()
        && host.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"-._:[]".contains(&octet))
        && !port_is_default
}

#[cfg(test)]
mod tests {
    use sealion_http::http1::framing::ResponseFraming;
    use sealion_http::http1::head::Version;
    use sealion_http::request::Conditions;
    use sealion_http::{FieldSection, Target};

    use super::*;

    fn build(text: &str) -> (Option<Cors>, Problems) {
        let mut problems = Problems::of_file("f".as_ref(), text);
        (toml::from_str::<CorsConfig>(text).unwrap().build("cors", &mut problems), problems)
    }

    fn lines(fields: &Fields) -> String {
        String::from_utf8(fields.extra.lines().to_vec()).unwrap().replace("\r\n", "|").replace("Access-Control-", "AC-")
    }

    /// The field lines of a request from `origin`; with `wants`, of a preflight request for that method.
    fn field_lines(origin: Option<&str>, wants: Option<&str>) -> String {
        let line =
            |name: &str, value: Option<&str>| value.map_or(String::new(), |value| format!("{name}: {value}\r\n"));
        line("Origin", origin) + &line("Access-Control-Request-Method", wants)
    }

    fn request<'a>(method: Method<'a>, lines: &'a str) -> Request<'a> {
        Request {
            method,
            target: Target::Path { path: "/x", query: None },
            raw_target: "/x",
            authority: None,
            conditions: Conditions::default(),
            fields: FieldSection::from_lines(lines.as_bytes()),
        }
    }

    #[test]
    fn responses() {
        const NAMED: &str =
            "origins = ['https://a.example', 'http://b.example:81']\nexpose = ['ETag']\ncredentials = true";
        const MATCHED: &str = r"origins = ['~ ^https://([a-z]+\.)?b\.test$']";
        const A: &str =
            "AC-Allow-Origin: https://a.example|AC-Allow-Credentials: true|AC-Expose-Headers: ETag|Vary: Origin|";
        for (text, origin, expected) in [
            (NAMED, None, "Vary: Origin|"),
            (NAMED, Some("https://a.example"), A),
            (NAMED, Some("https://a.example.evil"), "Vary: Origin|"),
            (NAMED, Some("http://a.example"), "Vary: Origin|"),
            (NAMED, Some("null"), "Vary: Origin|"),
            (MATCHED, Some("https://x.b.test"), "AC-Allow-Origin: https://x.b.test|Vary: Origin|"),
            (MATCHED, Some("https://b.test.evil.test"), "Vary: Origin|"),
            (MATCHED, Some("https://evil.test?https://b.test"), "Vary: Origin|"),
            ("origins = ['~ https://a|https://b']", Some("https://a.evil.test"), "Vary: Origin|"),
            ("origins = ['~ https://a|https://b']", Some("https://b"), "AC-Allow-Origin: https://b|Vary: Origin|"),
            ("origins = ['*']", None, "AC-Allow-Origin: *|"),
            ("origins = ['*']", Some("https://any"), "AC-Allow-Origin: *|"),
        ] {
            let (cors, problems) = build(text);
            assert!(problems.is_empty(), "{problems}");
            let mut fields = Fields::default();
            let lines_of_request = field_lines(origin, None);
            cors.unwrap().add(&request(Method::Get, &lines_of_request), &mut fields);
            assert_eq!(lines(&fields), expected, "{text} {origin:?}");
        }
    }

    #[test]
    fn preflights() {
        let options = Method::Other("OPTIONS");
        let (cors, _) =
            build("origins = ['https://a.example']\nheaders = ['X-A', 'X-B']\nmax_age = '10m'\nexpose = ['ETag']");
        let cors = cors.unwrap();
        let answer = |method, origin, wants| cors.preflight(&request(method, &field_lines(origin, wants)));
        let allowed = answer(options, Some("https://a.example"), Some("PUT")).unwrap();
        let framing = ResponseFraming::of(Version::Http11, options, allowed.status, allowed.body.len());
        assert_eq!((allowed.status, framing), (Status::NO_CONTENT, ResponseFraming::Nothing));
        assert_eq!(
            lines(&allowed.fields),
            "AC-Allow-Origin: https://a.example|AC-Allow-Methods: GET, HEAD|AC-Allow-Headers: X-A, X-B|AC-Max-Age: 600|Vary: Origin|"
        );
        let refused = answer(options, Some("https://b.example"), Some("GET")).unwrap();
        assert_eq!((refused.status, lines(&refused.fields).as_str()), (Status::NO_CONTENT, "Vary: Origin|"));
        assert!(answer(options, None, Some("GET")).is_none());
        assert!(answer(options, Some("https://a.example"), None).is_none());
        assert!(answer(Method::Get, Some("https://a.example"), Some("GET")).is_none());
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            ("origins = ['*']\ncredentials = true", "f:2: cors.credentials: cannot be combined with"),
            ("origins = ['https://a', '*']", "f:1: cors.origins: \"*\" allows all origins"),
            ("origins = ['https://a/']", "f:1: cors.origins: \"https://a/\" is not an origin"),
            ("origins = ['https://A']", "f:1: cors.origins: \"https://A\" is not an origin"),
            ("origins = ['https://a:443']", "f:1: cors.origins: \"https://a:443\" is not an origin"),
            ("origins = ['null']", "f:1: cors.origins: \"null\" is not an origin"),
            ("origins = ['~ ^($']", "f:1: cors.origins: \"~ ^($\" is not a regular"),
            ("origins = ['*.example.org']", "f:1: cors.origins: \"*.example.org\" is not an origin"),
            ("credentials = true", "f:1: cors.origins: is missing"),
            ("origins = ['*']\nmethods = []", "f:1: cors.methods: is empty"),
            ("origins = ['*']\nheaders = ['a b']", "f:2: cors.headers: \"a b\" is not a token"),
            (
                "origins = ['*']\nheaders = ['Range', 'Host']",
                "f:2: cors.headers: \"Host\" is a field that browsers let no script",
            ),
            ("origins = ['*']\nheaders = ['Sec-Fetch-Site']", "f:2: cors.headers: \"Sec-Fetch-Site\" is a field"),
            ("origins = ['*']\nexpose = ['ETag', 'set-cookie']", "f:2: cors.expose: \"set-cookie\" is a field"),
            ("origins = ['*']\nmethods = ['TRACE']", "f:2: cors.methods: \"TRACE\" is a method"),
            (
                "origins = ['https://a']\ncredentials = true\nexpose = ['*']",
                "f:3: cors.expose: \"*\" means a field of that name",
            ),
        ] {
            let (cors, problems) = build(text);
            assert!(cors.is_none());
            assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
        }
        assert!(build("").0.is_none() && build("").1.is_empty());
    }
}
