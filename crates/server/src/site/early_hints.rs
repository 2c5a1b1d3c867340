//! Early hints (RFC 8297): what a page will need, said before the page is there.

use schemars::JsonSchema;
use sealion_http::extra_fields::is_value;
use sealion_http::path::SitePath;
use sealion_http::{Method, Request};
use serde::{Deserialize, Serialize};

use super::pattern::PathPattern;
use crate::values::{At, Problems};

/// Resources that pages need.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EarlyHintsRule {
    /// Requested paths: `/` alone, `/docs/**` from the root, `*.html` by name.
    pub path: At<String>,
    /// Values of Link, for instance `</app.css>; rel=preload; as=style`. Browsers follow `preload` and `preconnect`.
    pub link: Vec<At<String>>,
}

/// The rules of a site; the first that matches applies.
#[derive(Debug)]
pub(crate) struct EarlyHints(Vec<(PathPattern, Box<[String]>)>);

impl EarlyHints {
    /// Validates the rules. `None`: there are none.
    pub(super) fn build(rules: &[EarlyHintsRule], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut hints = Vec::new();
        for rule in rules {
            let path = PathPattern::build(&rule.path, &rule.path.span, &format!("{key}.path"), problems);
            let key = format!("{key}.link");
            if rule.link.is_empty() {
                problems.add(&rule.path.span, &key, format_args!("is empty: {EXAMPLE}"));
            }
            for link in rule.link.iter().filter(|link| !is_link(link)) {
                problems.add(&link.span, &key, format_args!("{:?} is no link: {EXAMPLE}", link.value));
            }
            let links = rule.link.iter().map(|link| link.value.clone()).collect();
            hints.extend(path.map(|path| (path, links)));
        }
        (!hints.is_empty()).then_some(EarlyHints(hints))
    }

    /// The values of Link for a request that a browser can use them for.
    pub(super) fn find(&self, request: &Request<'_>, path: &SitePath<'_>) -> Option<&[String]> {
        if !is_navigation(request) {
            return None;
        }
        let (_, links) = self.0.iter().find(|(pattern, _)| pattern.matches(path.as_bytes()))?;
        Some(links)
    }
}

/// Whether a browser navigates to a page. For others, such as images or scripts, it ignores early hints (HTML standard, "process early hint headers"), and
/// older clients may take 103 for the response.
pub(super) fn is_navigation(request: &Request<'_>) -> bool {
    let navigates = |mode: &[u8]| mode == b"navigate";
    request.method == Method::Get && request.fields.first("sec-fetch-mode").is_some_and(navigates)
}

const EXAMPLE: &str = "write for instance \"</app.css>; rel=preload; as=style\"";

/// Whether it has a target and a relation (RFC 8288 §3).
fn is_link(text: &str) -> bool {
    let target = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let has_relation = |rest: &str| rest.split(';').skip(1).any(|parameter| parameter.trim().starts_with("rel="));
    is_value(text) && target.is_some_and(|(target, rest)| !target.is_empty() && has_relation(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_target_and_a_relation() {
        for (text, expected) in [
            ("</app.css>; rel=preload; as=style", true),
            ("<https://cdn.example>;rel=preconnect;crossorigin", true),
            ("</app.css>; as=style; rel=\"preload\"", true),
            ("</app.css>", false),
            ("</app.css>; as=style", false),
            ("/app.css; rel=preload", false),
            ("<>; rel=preload", false),
            ("</a>; rel=preload\r\nSet-Cookie: a=b", false),
            ("", false),
        ] {
            assert_eq!(is_link(text), expected, "{text}");
        }
    }
}
