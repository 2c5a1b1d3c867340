//! Clients that stay with the server that answered them first, by a cookie that names it.

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderValue;
use schemars::JsonSchema;
use sealion_http::FieldSection;
use sealion_http::cookie;
use sealion_http::extra_fields::is_name;
use serde::{Deserialize, Serialize};

use super::config::UpstreamConfig;
use crate::values::{At, Problems, Time};

/// The cookie that names a client's server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StickyConfig {
    /// Name of the cookie [default: `sealion_` and the name of the upstream]
    pub cookie: Option<At<String>>,
    /// Path for which browsers send it [default: `/`]
    pub path: Option<At<String>>,
    /// How long browsers keep it, from the first response of the server [default: until the browser is closed]
    pub max_age: Option<Time>,
    /// Requests from other sites with which browsers send it.
    pub same_site: SameSite,
}

/// `SameSite` of a cookie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SameSite {
    /// Navigations alone.
    #[default]
    Lax,
    /// No request.
    Strict,
    /// All requests, over HTTPS.
    None,
}

/// The names of an upstream's servers in a cookie.
#[derive(Debug)]
pub(super) struct Sticky {
    cookie: Box<str>,
    attributes: Box<str>,
    /// By the index of the server.
    servers: Box<[Box<str>]>,
}

impl Sticky {
    /// `None`: there are problems, or clients stay with no server.
    pub(super) fn build(upstream: &UpstreamConfig, key: &str, problems: &mut Problems) -> Option<Self> {
        let before = problems.len();
        let servers: Vec<Box<str>> = upstream
            .servers
            .iter()
            .map(|server| name_of(upstream, server.id.as_deref(), &server.url.value.to_string()))
            .collect();
        for (index, server) in upstream.servers.iter().enumerate() {
            let Some(id) = &server.id else { continue };
            let what = match () {
                () if !is_name(id) => "is not a name: use letters, digits and hyphens",
                () if servers[..index].contains(&servers[index]) => {
                    "is the id of two servers: name one of them otherwise"
                }
                () => continue,
            };
            problems.add(&id.span, &format!("{key}.servers.id"), format_args!("{:?} {what}", id.value));
        }
        let config = upstream.sticky.clone().into_table()?;
        let key = format!("{key}.sticky");
        if let Some(cookie) = config.cookie.as_ref().filter(|cookie| !is_name(cookie)) {
            problems.add(
                &cookie.span,
                &format!("{key}.cookie"),
                "is not a name of a cookie: use letters, digits, - and _",
            );
        }
        let path = config.path.as_ref().map_or("/", |path| path.as_str());
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        if let Some(at) = config.path.as_ref().filter(|_| !is_path) {
            problems.add(&at.span, &format!("{key}.path"), "is not a path: write for instance /shop/");
        }
        let of_name = || upstream.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' });
        let cookie = config.cookie.map_or_else(|| "sealion_".chars().chain(of_name()).collect(), |name| name.value);
        let age = config.max_age.map(|age| format!("; Max-Age={}", age.0.as_secs())).unwrap_or_default();
        let same_site = match config.same_site {
            SameSite::Lax => "Lax",
            SameSite::Strict => "Strict",
            SameSite::None => "None",
        };
        let attributes = format!("; Path={path}{age}; HttpOnly; SameSite={same_site}");
        (problems.len() == before).then(|| Sticky {
            cookie: cookie.into(),
            attributes: attributes.into(),
            servers: servers.into(),
        })
    }

    /// The server that a client's cookie names.
    pub(super) fn server(&self, fields: FieldSection<'_>) -> Option<usize> {
        cookie::values_of(fields, self.cookie.as_bytes())
            .find_map(|value| self.servers.iter().position(|server| server.as_bytes() == value))
    }

    /// The value of Set-Cookie that names a server. `is_plain`: whether the client came without TLS.
    pub(super) fn set_cookie(&self, server: usize, is_plain: bool) -> Option<HeaderValue> {
        let secure = if is_plain { "" } else { "; Secure" };
        HeaderValue::try_from(format!("{}={}{}{secure}", self.cookie, self.servers[server], self.attributes)).ok()
    }
}

/// The name of a server in cookies: its id, or a hash of its URL, which stays when other servers come and go.
fn name_of(upstream: &UpstreamConfig, id: Option<&String>, url: &str) -> Box<str> {
    if let Some(id) = id {
        return id.as_str().into();
    }
    let hash = digest(&SHA256, format!("{}\0{url}", upstream.name.value).as_bytes());
    hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::config::ServerConfig;
    use crate::values::Short;

    fn upstream(sticky: Short<bool, StickyConfig>, ids: &[Option<&str>]) -> UpstreamConfig {
        let servers = ids.iter().zip(1..).map(|(id, port)| {
            let url = format!("http://10.0.0.7:{port}").parse::<crate::upstream::ServerUrl>().unwrap();
            ServerConfig { id: id.map(|id| id.to_owned().into()), ..ServerConfig::of(url.into()) }
        });
        UpstreamConfig { sticky, ..UpstreamConfig::of("my app", servers.collect()) }
    }

    fn built(config: &UpstreamConfig) -> Result<Option<Sticky>, String> {
        let mut problems = Problems::of_arguments();
        let built = Sticky::build(config, "upstream", &mut problems);
        if problems.is_empty() { Ok(built) } else { Err(problems.to_string()) }
    }

    #[test]
    fn a_cookie_names_a_server_and_not_its_address() {
        let sticky = built(&upstream(Short::Short(true), &[None, None, Some("c")])).unwrap().unwrap();
        let cookie = sticky.set_cookie(1, false).unwrap();
        let text = cookie.to_str().unwrap();
        let (pair, attributes) = text.split_once(';').unwrap();
        assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Secure");
        assert!(pair.starts_with("sealion_my_app=") && !pair.contains("10.0"), "{pair}");
        let server = |line: &str| sticky.server(FieldSection::from_lines(line.as_bytes()));
        assert_eq!(server(&format!("Cookie: a=b; {pair}\r\n")), Some(1));
        assert_eq!(server(&format!("X: 1\r\nCookie: a=b\r\ncookie: {pair};c=d\r\n")), Some(1));
        assert_eq!(server("Cookie: sealion_my_app=none; sealion_my_app=c\r\n"), Some(2));
        for line in
            ["", "Cookie: a=b\r\n", "Cookie: sealion_my_app=\r\n", "Cookie: xsealion_my_app=c\r\n", "Cookie: c\r\n"]
        {
            assert_eq!(server(line), None, "{line}");
        }
        assert_eq!(sticky.set_cookie(2, true).unwrap(), "sealion_my_app=c; Path=/; HttpOnly; SameSite=Lax");
        let fewer = built(&upstream(Short::Short(true), &[None, None])).unwrap().unwrap();
        assert_eq!(fewer.servers[..], sticky.servers[..2], "names stay when a server leaves");
    }

    #[test]
    fn the_cookie_is_as_the_table_says() {
        let config = StickyConfig {
            cookie: Some("srv_id".to_owned().into()),
            path: Some("/shop/".to_owned().into()),
            max_age: Some(Time::seconds(3600)),
            same_site: SameSite::None,
        };
        let sticky = built(&upstream(Short::Table(config), &[Some("a")])).unwrap().unwrap();
        let expected = "srv_id=a; Path=/shop/; Max-Age=3600; HttpOnly; SameSite=None; Secure";
        assert_eq!(sticky.set_cookie(0, false).unwrap(), expected);
        assert!(built(&upstream(Short::Short(false), &[None])).unwrap().is_none());
    }

    #[test]
    fn names_that_no_cookie_can_have_are_refused() {
        for (config, ids, words) in [
            (StickyConfig::default(), &[Some("a b")][..], "is not a name"),
            (StickyConfig::default(), &[Some("a"), Some("a")], "the id of two servers"),
            (StickyConfig { cookie: Some("a;b".to_owned().into()), ..StickyConfig::default() }, &[None], "of a cookie"),
            (StickyConfig { path: Some("/;x".to_owned().into()), ..StickyConfig::default() }, &[None], "is not a path"),
        ] {
            let refused = built(&upstream(Short::Table(config), ids)).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
