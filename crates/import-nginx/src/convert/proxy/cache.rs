//! `proxy_cache`, `fastcgi_cache`, `uwsgi_cache` and their directives, as `[cache]` and the `cache` of a rule.
//!
//! A response that nginx did not store, or that it stored under a finer key, may be for one user only. Where the key or a condition cannot be
//! written, the location is forwarded without a cache.

use toml::Value;

use crate::convert::context::Context;
use crate::convert::{tables, values};
use crate::syntax::Directive;

/// The `proxy_cache_path`, `fastcgi_cache_path` and `uwsgi_cache_path` of `http`, and whether a rule uses it.
#[derive(Debug, Default)]
pub(in crate::convert) struct CacheZones(Vec<(Directive, bool)>);

impl CacheZones {
    pub(in crate::convert) fn take(&mut self, directive: &Directive) {
        self.0.push((directive.clone(), false));
    }
}

/// Why nothing is stored: the directive at fault, and the reason.
type Refused<'a> = (&'a Directive, String);

/// The `cache` of a rule. `all`: its directives by the names that they have for HTTP. `None`: nothing is stored.
pub(super) fn of_rule<'a>(context: &mut Context, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Option<Value> {
    let switch = all("proxy_cache").pop().filter(|switch| switch.first() != "off")?;
    match rule(context, switch, all) {
        Ok(rule) => Some(Value::Table(rule)),
        Err((directive, why)) => {
            let remedy = format!("{why}: nothing is stored here; add cache = {{ … }} to the rule in its place");
            context.note(directive, remedy);
            None
        }
    }
}

fn rule<'a>(
    context: &mut Context,
    switch: &'a Directive,
    all: &impl Fn(&str) -> Vec<&'a Directive>,
) -> Result<toml::Table, Refused<'a>> {
    let last = |name: &str| all(name).pop();
    let mut key = Key::default();
    if let Some(off) = last("proxy_buffering").filter(|buffering| buffering.first() == "off") {
        return Err((off, "without buffering, nginx stores no response".to_owned()));
    }
    if let Some(directive) = last("proxy_cache_key") {
        key.read(context, directive)?;
    }
    let mut conditions = Conditions::default();
    for directive in all("proxy_cache_bypass").into_iter().chain(all("proxy_no_cache")) {
        conditions.read(context, &mut key, directive)?;
    }
    use_zone(context, switch)?;
    let mut rule = toml::Table::new();
    let mut set = |name: &str, value: Value| drop(rule.insert(name.to_owned(), value));
    let ttl = ttl(context, &all("proxy_cache_valid"));
    if !ttl.is_empty() {
        set("ttl", Value::Table(ttl));
    }
    // nginx guesses no lifetime from Last-Modified.
    set("heuristic", false.into());
    if !conditions.honour_clients {
        set("ignore_request", true.into());
    }
    for (name, list) in [
        ("key_headers", key.headers),
        ("key_cookies", key.cookies),
        ("key_values", key.values),
        ("bypass_cookies", conditions.cookies),
        ("ignore", ignored(context, all, conditions.need_set_cookie)),
    ] {
        if !list.is_empty() {
            set(name, list.into());
        }
    }
    if let Some(uses) = last("proxy_cache_min_uses") {
        match uses.first().parse::<i64>() {
            Ok(1) => {}
            Ok(number @ 2..=100) => set("min_uses", number.into()),
            _ => context.note(uses, "set min_uses of the rule's cache from 1 to 100"),
        }
    }
    if let Some(slice) = last("slice") {
        match values::size(slice.first()) {
            Some(values::Size(0)) => {}
            Some(size) => set("slice", values::Size(size.0.clamp(LEAST_SLICE, MOST_SLICE)).to_string().into()),
            None => context.note(slice, "set slice of the rule's cache"),
        }
    }
    if let Some(methods) = last("proxy_cache_methods")
        && methods.arguments.iter().any(|method| !matches!(method.as_str(), "GET" | "HEAD"))
    {
        context.note(methods, "responses to GET alone are stored, which answer HEAD too");
    }
    if let Some(stale) = last("proxy_cache_use_stale") {
        let has = |case: &str| stale.arguments.iter().any(|argument| argument == case);
        if ["error", "timeout", "invalid_header", "http_500", "http_502", "http_503", "http_504"].into_iter().any(has) {
            set("stale_if_error", STALE.into());
        }
        if has("updating") && last("proxy_cache_background_update").is_some_and(|update| update.first() == "on") {
            set("stale_while_revalidate", STALE.into());
        }
        if ["http_403", "http_404", "http_429"].into_iter().any(has) {
            let remedy = "a stale response is sent where the servers fail or answer 500, 502, 503 or 504: other answers replace it";
            context.note(stale, remedy);
        }
    }
    Ok(rule)
}

/// Parts of the key besides scheme, host, path, query and upstream.
#[derive(Debug, Default)]
struct Key {
    headers: Vec<String>,
    cookies: Vec<String>,
    /// Values by tables.
    values: Vec<String>,
}

impl Key {
    fn read<'a>(&mut self, context: &mut Context, directive: &'a Directive) -> Result<(), Refused<'a>> {
        let mut has_query = false;
        for variable in variables(&directive.arguments.join("")) {
            match variable {
                "request_uri" | "request" | "args" | "query_string" => has_query = true,
                "scheme" | "https" | "proxy_host" | "proxy_port" | "host" | "http_host" | "hostname"
                | "server_name" | "server_port" | "ssl_server_name" | "request_method" | "uri" | "document_uri"
                // Slices have keys of their own.
                | "is_args" | "slice_range" => {}
                "remote_user" => add(&mut self.headers, "authorization".to_owned()),
                other => match (other.strip_prefix("http_"), other.strip_prefix("cookie_")) {
                    (Some(name), _) => add(&mut self.headers, name.replace('_', "-")),
                    (_, Some(name)) => add(&mut self.cookies, name.to_owned()),
                    _ if other.starts_with("arg_") => has_query = true,
                    _ => match tables::placeholder(context, other).filter(|_| tables::is_shared(context, other)) {
                        Some(own) => add(&mut self.values, own),
                        None => return Err((directive, format!("${other} cannot be a part of the key"))),
                    },
                },
            }
        }
        if !has_query {
            let remedy = "the query belongs to the key here: set query = \"none\" in the rule's cache if the server needs none, or \
                          name parameters in drop_parameters";
            context.note(directive, remedy);
        }
        Ok(())
    }
}

/// `proxy_cache_bypass` and `proxy_no_cache`.
#[derive(Debug, Default)]
struct Conditions {
    cookies: Vec<String>,
    /// Whether clients may have a response fetched again.
    honour_clients: bool,
    /// Whether responses with Set-Cookie must not be stored.
    need_set_cookie: bool,
}

impl Conditions {
    fn read<'a>(&mut self, context: &mut Context, key: &mut Key, directive: &'a Directive) -> Result<(), Refused<'a>> {
        for text in &directive.arguments {
            let names: Vec<_> = variables(text).collect();
            // A condition holds for each value but "" and "0".
            let is_mixed = names.iter().map(|name| name.len() + 1).sum::<usize>() != text.replace(['{', '}'], "").len();
            match names.is_empty() {
                true if matches!(text.as_str(), "" | "0") => continue,
                _ if is_mixed => return Err((directive, "the condition always holds".to_owned())),
                _ => {}
            }
            for name in names {
                match (name, name.strip_prefix("cookie_")) {
                    (_, Some(cookie)) => add(&mut self.cookies, cookie.to_owned()),
                    // Responses to requests with it are stored only where the origin says so.
                    ("http_authorization" | "remote_user", _) => add(&mut key.headers, "authorization".to_owned()),
                    ("http_pragma" | "http_cache_control", _) => self.honour_clients = true,
                    // An upgrade is never answered from the cache.
                    ("http_upgrade", _) => {}
                    ("upstream_http_set_cookie" | "sent_http_set_cookie", _) => self.need_set_cookie = true,
                    _ if name.starts_with("arg_") => {
                        let remedy = "a request with the parameter has a key of its own, and its response is stored: let the \
                                      application answer with Cache-Control: no-store";
                        context.note(directive, remedy);
                    }
                    _ => {
                        let why = format!("${name} decides what is stored, and may protect responses for one user");
                        return Err((directive, why));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Lifetimes by status. The first that names a status counts, as in nginx.
fn ttl(context: &mut Context, directives: &[&Directive]) -> toml::Table {
    let mut ttl = toml::Table::new();
    for directive in directives {
        let Some((time, codes)) = directive.arguments.split_last() else { continue };
        let Some(time) = values::time(time) else {
            context.note(directive, "its time is not supported: set ttl of the rule's cache");
            continue;
        };
        let time = values::Time(time.0.min(LONGEST)).to_string();
        let codes: Vec<&str> = match codes {
            [] => vec!["200", "301", "302"],
            codes => codes.iter().map(String::as_str).collect(),
        };
        for code in codes.iter().flat_map(|code| if *code == "any" { &ANY[..] } else { std::slice::from_ref(code) }) {
            match *code {
                // Parts are made of the whole.
                "206" | "304" => {}
                code if code.parse::<u16>().is_ok_and(|code| (200..600).contains(&code)) => {
                    ttl.entry(code).or_insert(time.as_str().into());
                }
                _ => context.note(directive, format!("{code} is no status from 200 to 599")),
            }
        }
    }
    ttl
}

/// Fields of responses that do not decide about storing.
fn ignored<'a>(context: &mut Context, all: &impl Fn(&str) -> Vec<&'a Directive>, need_set_cookie: bool) -> Vec<String> {
    let mut ignored = Vec::new();
    let Some(directive) = all("proxy_ignore_headers").pop() else { return ignored };
    for name in &directive.arguments {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "set-cookie" if need_set_cookie => {}
            "set-cookie" => {
                if !all("proxy_hide_header").iter().any(|hidden| hidden.first().eq_ignore_ascii_case("set-cookie")) {
                    let remedy =
                        "Set-Cookie is removed from what is stored, so that no client gets the cookie of another";
                    context.note(directive, remedy);
                }
                add(&mut ignored, lower);
            }
            "cache-control" | "expires" | "vary" | "x-accel-expires" => add(&mut ignored, lower),
            // `accel` of the route has the other X-Accel-….
            _ => {}
        }
    }
    ignored
}

/// Adds the directory of a zone to `[cache]`.
fn use_zone<'a>(context: &mut Context, switch: &'a Directive) -> Result<(), Refused<'a>> {
    if switch.first().contains('$') {
        return Err((switch, "its zone has a variable: there is one cache for all rules".to_owned()));
    }
    let is_named = |zone: &str| zone.split(':').next() == Some(switch.first());
    let zones = &mut context.cache_zones.0;
    let Some((zone, is_used)) = zones.iter_mut().find(|(zone, _)| parameter(zone, "keys_zone").is_some_and(is_named))
    else {
        return Err((switch, format!("no {}_path has this zone", switch.name)));
    };
    if std::mem::replace(is_used, true) {
        return Ok(());
    }
    let zone = zone.clone();
    let table = context.root.table("cache");
    table.comment(format!("{}, in a directory that the service may write", zone.place));
    let mut directories = table.get("directories").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_first = directories.is_empty();
    let directory = directory(zone.first(), &directories);
    directories.push(directory.as_str().into());
    table.set("directories", directories);
    let size_of = |name: &str| parameter(&zone, name).and_then(values::size);
    let known = table.get("size").and_then(Value::as_str).map(str::to_owned);
    let size = size_of("max_size").map(|size| size.to_string());
    if let (Some(size), true) = (&size, known.is_none()) {
        table.set("size", size.as_str());
    }
    if let Some(free) = size_of("min_free") {
        table.set("free", free.to_string());
    }
    let path = zone.first().trim_end_matches('/');
    if path.is_empty() || path.starts_with('/') && !path.starts_with("/var/cache/") {
        // nginx removes files from its directory that it does not know.
        let remedy = format!(
            "responses are stored in {directory}, where the service may write: for the disk of nginx, write {path}-sealion in [cache] \
             directories, and ReadWritePaths={path}-sealion in the service (systemctl edit sealion)"
        );
        context.note(&zone, remedy);
    }
    match size {
        None => context.note(&zone, "it has no max_size: set size in [cache], which is 1 GB otherwise"),
        size if !is_first && size != known => {
            let remedy = "size in [cache] is for each directory, and responses are spread over all of them: set one size for all";
            context.note(&zone, remedy);
        }
        _ => {}
    }
    Ok(())
}

/// The directory for a zone of nginx: a directory beneath the one of the service's unit, named by the path in nginx.
fn directory(path: &str, others: &[Value]) -> String {
    let path =
        ["/var/cache/nginx/", "/var/cache/"].into_iter().find_map(|start| path.strip_prefix(start)).unwrap_or(path);
    let name: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let name = if name.is_empty() { "cache".to_owned() } else { name.join("-") };
    let numbered = (2..).map(|number| format!("{DIRECTORY}/{name}-{number}"));
    let mut all = std::iter::once(format!("{DIRECTORY}/{name}")).chain(numbered);
    all.find(|directory| !others.iter().any(|other| other.as_str() == Some(directory))).expect("numbers do not end")
}

/// `CacheDirectory=` of the service.
const DIRECTORY: &str = "/var/cache/sealion";

fn parameter<'a>(directive: &'a Directive, name: &str) -> Option<&'a str> {
    directive.arguments.iter().skip(1).find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
}

/// The names of the variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

fn add(list: &mut Vec<String>, name: String) {
    if !list.contains(&name) {
        list.push(name);
    }
}

/// Time that stale responses are sent for. nginx has no bound but `inactive`, which begins again with each request.
const STALE: &str = "24h";

/// The smallest slice of sealion.toml.
const LEAST_SLICE: u64 = 64 << 10;

/// Below `max_object`, which is 10 GiB.
const MOST_SLICE: u64 = 1 << 30;

/// The longest time of sealion.toml.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(10 * 365 * 86_400);

/// `any` stands for the statuses that applications answer with, but for those about credentials.
const ANY: [&str; 17] = [
    "200", "203", "204", "300", "301", "302", "303", "307", "308", "400", "404", "405", "410", "500", "502", "503",
    "504",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::tests::{import, marked, rules};

    const ZONE: &str = "proxy_cache_path /var/cache/nginx/app levels=1:2 keys_zone=app:10m max_size=10g inactive=60m;";

    /// The `cache` of the rule for a location with these directives, `[cache]`, and the named directives.
    fn cache(zones: &str, directives: &str) -> (Option<toml::Table>, Option<toml::Table>, Vec<String>) {
        let (config, named) = import(&format!(
            "{zones} server {{ listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; root /srv; \
             location / {{ proxy_pass http://127.0.0.1:3000; {directives} }} }}"
        ));
        let site = config["site"][0].as_table().unwrap();
        let of_rule = rules(site)[0].get("cache").and_then(Value::as_table).cloned();
        (of_rule, config.get("cache").and_then(Value::as_table).cloned(), named)
    }

    #[test]
    fn a_location_with_a_cache() {
        let (rule, cache, named) = cache(
            ZONE,
            "proxy_cache app; proxy_cache_key $scheme$request_method$host$request_uri; proxy_cache_valid 200 301 10m; \
             proxy_cache_valid 404 1m; proxy_cache_valid any 30s; proxy_cache_use_stale error timeout updating http_503; \
             proxy_cache_background_update on; proxy_cache_lock on; proxy_cache_lock_timeout 5s; proxy_cache_lock_age 5s; \
             proxy_cache_min_uses 3; proxy_cache_methods GET HEAD; proxy_cache_bypass $cookie_session $http_pragma; \
             proxy_no_cache $cookie_session; proxy_cache_revalidate on; proxy_ignore_headers Expires Vary X-Accel-Expires; \
             proxy_cache_convert_head on; proxy_cache_max_range_offset 1m;",
        );
        assert!(named.is_empty(), "{named:#?}");
        let cache = cache.unwrap();
        assert_eq!(cache["directories"].to_string(), r#"["/var/cache/sealion/app"]"#);
        assert_eq!(cache["size"].as_str(), Some("10GiB"));
        let rule = rule.unwrap();
        let ttl = rule["ttl"].as_table().unwrap();
        let times = ["200", "301", "404", "500"].map(|code| ttl[code].as_str().unwrap());
        assert_eq!(times, ["600s", "600s", "60s", "30s"]);
        for (key, value) in [
            ("heuristic", "false"),
            ("min_uses", "3"),
            ("bypass_cookies", r#"["session"]"#),
            ("ignore", r#"["expires", "vary", "x-accel-expires"]"#),
            ("stale_if_error", r#""24h""#),
            ("stale_while_revalidate", r#""24h""#),
        ] {
            assert_eq!(rule[key].to_string(), value, "{key}");
        }
        // A client's Pragma has a response fetched again.
        assert!(rule.get("ignore_request").is_none(), "{rule}");
    }

    #[test]
    fn directives_and_what_they_become() {
        for (directives, key, value, names) in [
            ("", "ignore_request", Some("true"), 0),
            ("", "ttl", None, 0),
            ("", "stale_if_error", None, 0),
            ("proxy_cache_valid 1h;", "ttl", Some(r#"{ 200 = "1h", 301 = "1h", 302 = "1h" }"#), 0),
            ("proxy_cache_valid 200 206 0;", "ttl", Some(r#"{ 200 = "0s" }"#), 0),
            ("proxy_cache_valid 200 1h; proxy_cache_valid 200 1m;", "ttl", Some(r#"{ 200 = "1h" }"#), 0),
            ("proxy_cache_key $host$request_uri$cookie_lang;", "key_cookies", Some(r#"["lang"]"#), 0),
            ("proxy_cache_key $uri$is_args$args${http_x_device};", "key_headers", Some(r#"["x-device"]"#), 0),
            ("proxy_cache_key $host$uri;", "query", None, 1),
            ("proxy_cache_bypass $http_authorization;", "key_headers", Some(r#"["authorization"]"#), 0),
            ("proxy_cache_bypass $cookie_a$cookie_b;", "bypass_cookies", Some(r#"["a", "b"]"#), 0),
            ("proxy_cache_bypass $arg_nocache;", "bypass_cookies", None, 1),
            ("proxy_no_cache 0 '';", "bypass_cookies", None, 0),
            ("proxy_cache_bypass $http_upgrade; proxy_no_cache $http_upgrade;", "bypass_cookies", None, 0),
            ("proxy_ignore_headers X-Accel-Buffering X-Accel-Expires;", "ignore", Some(r#"["x-accel-expires"]"#), 0),
            ("proxy_no_cache $upstream_http_set_cookie; proxy_ignore_headers Set-Cookie;", "ignore", None, 0),
            ("proxy_ignore_headers Set-Cookie;", "ignore", Some(r#"["set-cookie"]"#), 1),
            ("proxy_ignore_headers Set-Cookie; proxy_hide_header Set-Cookie;", "ignore", Some(r#"["set-cookie"]"#), 0),
            ("proxy_cache_methods GET HEAD POST;", "min_uses", None, 1),
            ("proxy_cache_use_stale updating;", "stale_while_revalidate", None, 0),
            (
                "slice 1m; proxy_cache_key $host$request_uri$slice_range; proxy_set_header Range $slice_range;",
                "slice",
                Some(r#""1MiB""#),
                0,
            ),
            ("slice 4k;", "slice", Some(r#""64KiB""#), 0),
            ("slice 0;", "slice", None, 0),
            ("slice wide;", "slice", None, 1),
            ("proxy_cache_use_stale http_404;", "stale_if_error", None, 1),
            ("add_header X-Cache-Status $upstream_cache_status;", "status_header", None, 1),
        ] {
            let (rule, _, named) = cache(ZONE, &format!("proxy_cache app; {directives}"));
            let rule = rule.unwrap_or_else(|| panic!("{directives}: {named:#?}"));
            assert_eq!(rule.get(key).map(ToString::to_string).as_deref(), value, "{directives}");
            assert_eq!(named.len(), names, "{directives}: {named:#?}");
        }
    }

    #[test]
    fn what_may_be_for_one_user_is_not_stored() {
        for directives in [
            "proxy_cache app; proxy_cache_key $request_uri$remote_addr;",
            "proxy_cache app; proxy_no_cache $skip;",
            "proxy_cache app; proxy_cache_bypass $skip;",
            "proxy_cache app; proxy_cache_bypass $http_x_requested_with;",
            "proxy_cache app; proxy_no_cache $upstream_http_x_private;",
            "proxy_cache app; proxy_no_cache 1;",
            "proxy_cache app; proxy_no_cache x$cookie_a;",
            "proxy_cache app; proxy_buffering off;",
            "proxy_cache $zone;",
            "proxy_cache other;",
        ] {
            let (rule, cache, named) = cache(ZONE, directives);
            assert!(rule.is_none() && cache.is_none(), "{directives}: {rule:?}");
            assert_eq!((named.len(), marked(&named).len()), (1, 0), "{directives}: {named:#?}");
            assert!(named[0].contains("nothing is stored here"), "{directives}: {named:#?}");
        }
        let (rule, cache, named) = cache(ZONE, "proxy_cache off; proxy_cache_valid 1h;");
        assert!(rule.is_none() && cache.is_none() && named.is_empty(), "{named:#?}");
    }

    #[test]
    fn scripts_have_the_same_cache() {
        let zone = "fastcgi_cache_path /var/cache/nginx/php keys_zone=php:10m max_size=1g;";
        let of_php = |directives: &str| {
            let (config, named) = import(&format!(
                "{zone} server {{ listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; root /srv; \
                 location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; {directives} }} }}"
            ));
            let site = config["site"][0].as_table().unwrap();
            let rule = rules(site)[0].get("cache").and_then(Value::as_table).cloned();
            (rule, config.get("cache").and_then(Value::as_table).cloned(), named)
        };
        let (rule, cache, named) = of_php(
            "fastcgi_cache php; fastcgi_cache_key $scheme$request_method$host$request_uri; fastcgi_cache_valid 200 1h; \
             fastcgi_cache_bypass $cookie_session; fastcgi_no_cache $cookie_session; fastcgi_ignore_headers Expires; \
             fastcgi_cache_use_stale error updating; fastcgi_cache_background_update on; fastcgi_cache_lock on;",
        );
        assert!(named.is_empty(), "{named:#?}");
        assert_eq!(cache.unwrap()["directories"].to_string(), r#"["/var/cache/sealion/php"]"#);
        let rule = rule.unwrap();
        for (key, value) in [
            ("ttl", r#"{ 200 = "1h" }"#),
            ("bypass_cookies", r#"["session"]"#),
            ("ignore", r#"["expires"]"#),
            ("stale_if_error", r#""24h""#),
        ] {
            assert_eq!(rule[key].to_string(), value, "{key}");
        }
        for directives in ["fastcgi_cache php; fastcgi_no_cache $skip_cache;", "fastcgi_cache other;"] {
            let (rule, _, named) = of_php(directives);
            assert!(rule.is_none() && named.len() == 1 && named[0].contains("nothing is stored here"), "{named:#?}");
        }
        assert!(of_php("fastcgi_cache off;").0.is_none());
    }

    #[test]
    fn zones_share_one_cache() {
        let zones = "proxy_cache_path /var/cache/a keys_zone=a:1m max_size=1g min_free=2g; proxy_cache_path cache/b/ keys_zone=b:1m; \
                     proxy_cache_path /c keys_zone=c:1m max_size=1g;";
        let (config, named) = import(&format!(
            "{zones} server {{ listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; proxy_cache a; \
             location / {{ proxy_pass http://x; }} location /b/ {{ proxy_pass http://x; proxy_cache b; }} \
             location /o/ {{ proxy_pass http://x; proxy_cache off; }} }}"
        ));
        assert_eq!(
            config["cache"].to_string(),
            r#"{ directories = ["/var/cache/sealion/a", "/var/cache/sealion/cache-b"], size = "1GiB", free = "2GiB" }"#
        );
        assert_eq!(named.len(), 1, "{named:#?}");
        assert!(named[0].contains("no max_size"), "{named:#?}");
        let site = config["site"][0].as_table().unwrap();
        let cached: Vec<_> = rules(site).iter().map(|rule| rule.get("cache").is_some()).collect();
        assert_eq!(cached, [true, true, false], "{site}");
    }

    #[test]
    fn each_zone_has_a_directory_that_the_service_may_write() {
        let paths = ["/var/cache/nginx/app", "/var/cache/app", "/data/a/b", "/data/a-b/", "/var/cache/nginx", "/"];
        let zones = paths.iter().enumerate();
        let zones = zones.map(|(at, path)| format!("proxy_cache_path {path} keys_zone=z{at}:1m max_size=1g;"));
        let locations =
            (0..paths.len()).map(|at| format!("location /{at}/ {{ proxy_pass http://x; proxy_cache z{at}; }}"));
        let (config, named) = import(&format!(
            "{} server {{ listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; {} }}",
            zones.collect::<String>(),
            locations.collect::<String>()
        ));
        let directories = config["cache"]["directories"].as_array().unwrap();
        let names: Vec<_> = directories
            .iter()
            .map(|path| path.as_str().unwrap().strip_prefix("/var/cache/sealion/").unwrap())
            .collect();
        assert_eq!(names, ["app", "app-2", "data-a-b", "data-a-b-2", "nginx", "cache"]);
        // Elsewhere, another disk may be meant.
        assert_eq!(named.len(), 3, "{named:#?}");
        assert!(named[0].contains("/data/a/b ") && named[0].contains("ReadWritePaths=/data/a/b-sealion"), "{named:#?}");
    }
}
