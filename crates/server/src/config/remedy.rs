//! Remedies for entries of the wrong form: the parser's message, and what to write instead.

use sealion_http::extra_fields::is_name;

use super::reference::{self, Key, Table};
use crate::values::NOT_ENOUGH;

/// The parser's message for the value of `key`, with a remedy if it lacks one.
pub(super) fn explain(message: &str, key: &str) -> String {
    if let Some(name) = quoted(message, "unknown field") {
        return unknown_key(message, name, key);
    }
    if message.starts_with("invalid type: map, expected a sequence") {
        return match (key, table_of(&reference::tables(), key)) {
            ("site" | "listen", _) => format!("is a list: write [[{key}]] with two brackets, once for each"),
            (_, Some(table)) => format!("{message}: {}", list_of_tables(key, table)),
            _ => format!("{message}: write a list of tables, [{{ … }}], or [[{key}]] with two brackets"),
        };
    }
    if let Some(number) = quoted(message, "invalid type: integer").filter(|_| message.contains("a time with its unit"))
    {
        return format!("{message}: write \"{number}s\" for seconds");
    }
    if message == "wanted string or table" {
        return match words(key) {
            words if words.is_empty() => "is a text: write it in quotes".to_owned(),
            words => format!("is a word in quotes: write {words}"),
        };
    }
    if message == NOT_ENOUGH {
        return not_enough(key);
    }
    if message.starts_with("invalid type: ") && key.ends_with("cache.ttl") {
        return format!("{message}: write the time of each status, for instance {{ 200 = \"5m\", 404 = \"10s\" }}");
    }
    match message {
        "invalid socket address syntax" => {
            format!("is not an address and a port: write for instance {}", "\"127.0.0.1:9443\" or \"[::1]:9443\"")
        }
        _ if message.starts_with("missing field") => format!("{message}: add it"),
        _ if message.starts_with("unknown variant") => unknown_word(message),
        _ => wrong_type(message, key).unwrap_or_else(|| message.to_owned()),
    }
}

/// The message for a text that is no TOML.
pub(super) fn explain_syntax(message: &str) -> String {
    let remedy = match message {
        "duplicate key" => "stands above already: keep one of them, or write both tables as one",
        _ if message.starts_with("string values must be quoted") => {
            "is neither a number nor a text: write a text in quotes, and true or false for a choice"
        }
        _ if message.starts_with("invalid basic string") || message.starts_with("invalid literal string") => {
            return format!("{message}: close the text with quotes on the same line");
        }
        _ if message.starts_with("missing escaped value") => {
            "a backslash in double quotes begins an escape: write the text in single quotes, for instance '~ \\.php$'"
        }
        _ if message.starts_with("key with no value") => return format!("{message}: write KEY = VALUE"),
        _ if message.starts_with("unclosed") => return format!("{message}: add it"),
        _ => return message.to_owned(),
    };
    remedy.to_owned()
}

/// The word in backquotes after `words`.
pub(super) fn quoted<'m>(message: &'m str, words: &str) -> Option<&'m str> {
    message.strip_prefix(words)?.trim_start().strip_prefix('`')?.split('`').next()
}

/// The message for a value whose type is not the type of `key`.
fn wrong_type(message: &str, key: &str) -> Option<String> {
    let (found, expected) = message.strip_prefix("invalid type: ")?.split_once(", expected ")?;
    let name = key.rsplit('.').next().unwrap_or(key);
    let value = found.split_once(' ').map(|(_, value)| value.trim_matches('`')).unwrap_or_default();
    let tables = reference::tables();
    let table = table_of(&tables, key);
    let remedy = match (expected, table) {
        // The schema of a list of tables has two brackets, whatever the parser saw of it.
        (_, Some(table)) if table.name.starts_with("[[") => list_of_tables(key, table),
        ("a boolean", Some(table)) if found.starts_with("string ") && target(table).is_some() => {
            table_with_keys(found, value, name, table)
        }
        ("a boolean", Some(table)) => {
            format!("write {name} = true or false, or a table with keys of [{}]: {}", plain(table), keys(table))
        }
        ("a boolean", None) => "write true or false, without quotes".to_owned(),
        (_, Some(table)) => table_with_keys(found, value, name, table),
        ("a string", _) if !value.is_empty() => format!("write it in quotes, \"{value}\""),
        ("u8" | "u16" | "u32" | "u64" | "usize", _) => {
            let text = value.trim_matches('"');
            match text.parse::<u64>() {
                Ok(number) => format!("write it without quotes, {number}"),
                Err(_) => "write a number".to_owned(),
            }
        }
        ("a sequence", _) if found.starts_with("string ") => format!("write a list, [{value}]"),
        ("a sequence", _) => "write a list in brackets".to_owned(),
        ("struct", None) => format!("write {name} = {{ … }}, or [{key}] above its keys"),
        _ => return None,
    };
    let wanted = match expected {
        _ if expected.starts_with("struct") => "a table",
        "a boolean" if remedy.contains("{ ") => "a table",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a number",
        _ => expected,
    };
    Some(format!("invalid type: {found}, expected {wanted}: {remedy}"))
}

/// The table that the value of `key` is. Routes have the tables of their site.
fn table_of<'t>(tables: &'t [Table], key: &str) -> Option<&'t Table> {
    let of_site = key.replace("site.route.", "site.").replace("route.", "");
    tables.iter().find(|table| plain(table) == key || plain(table) == of_site)
}

/// The remedy for a value of `key` in place of a list of tables.
fn list_of_tables(key: &str, table: &Table) -> String {
    let name = key.rsplit('.').next().unwrap_or(key);
    // A list without a default is empty.
    let required = table.keys.iter().filter(|key| key.default.is_none() && !key.kind.starts_with("list"));
    let required: Vec<_> = required.take(2).map(|key| format!("{} = …", key.name)).collect();
    format!("write a list of tables, {name} = [{{ {} }}], or [[{key}]] above its keys", required.join(", "))
}

/// The remedy for a value in place of a table.
fn table_with_keys(found: &str, value: &str, name: &str, table: &Table) -> String {
    match target(table) {
        Some(target) if found.starts_with("string ") => {
            format!("write {name} = {{ {} = {} }}", target.name, url(value))
        }
        Some(target) => format!("write {name} = {{ {} = … }}", target.name),
        None => format!("write {name} = {{ … }} with keys of [{}]: {}", plain(table), keys(table)),
    }
}

/// The key without which a table says nothing.
fn target(table: &Table) -> Option<&Key> {
    table.keys.iter().find(|key| matches!(&*key.name, "to" | "url" | "users"))
}

/// The remedy for `true` in place of a table.
fn not_enough(key: &str) -> String {
    let name = key.rsplit('.').next().unwrap_or(key);
    let tables = reference::tables();
    let target = table_of(&tables, key).and_then(target).map_or("…", |target| &*target.name);
    format!("{NOT_ENOUGH}: write {name} = {{ {target} = \"…\" }}, or false")
}

/// The words that a key takes. Empty: it takes others.
fn words(key: &str) -> String {
    let Some((table, name)) = key.rsplit_once('.') else { return String::new() };
    let tables = reference::tables();
    let own = table_of(&tables, table).and_then(|table| table.keys.iter().find(|own| own.name == name));
    let words = own.map(|own| own.kind.replace('`', "")).filter(|kind| kind.starts_with('"'));
    words.unwrap_or_default()
}

/// The text in quotes, with a scheme if it has none.
fn url(value: &str) -> String {
    let text = value.trim_matches('"');
    let has_scheme = text.contains("://") || text.starts_with("unix:") || !text.contains(':');
    format!("\"{}{text}\"", if has_scheme { "" } else { "http://" })
}

fn plain(table: &Table) -> &str {
    table.name.trim_matches(['[', ']'])
}

/// The keys of a table, for a message.
fn keys(table: &Table) -> String {
    let mut names: Vec<&str> = table.keys.iter().map(|key| &*key.name).collect();
    if names.len() > MAX_KEYS {
        names.truncate(MAX_KEYS);
        names.push("…");
    }
    names.join(", ")
}

/// The maximum number of keys that a message lists.
const MAX_KEYS: usize = 8;

/// The message for an unknown key: the probably intended key, or the tables that have such a key.
fn unknown_key(message: &str, name: &str, key: &str) -> String {
    if matches!(name, "path" | "file") && expected_words(message).any(|word| word == "format") {
        return format!(
            "unknown field `{name}`: the file of a log is `to`: write to = \"/var/log/sealion/access.log\""
        );
    }
    if let Some((_, remedy)) = MISTAKEN.iter().find(|(own, _)| key == *own || key.ends_with(&format!(".{own}"))) {
        return format!("unknown field `{name}`: {remedy}");
    }
    if let Some(meant) = nearest(name, message) {
        return format!("unknown field `{name}`: did you mean `{meant}`? Correct or remove the key");
    }
    if let Some(remedy) = field_outside_set(message, name, key) {
        return remedy;
    }
    if let Some((_, own)) = OF_NGINX.iter().find(|(other, _)| *other == name) {
        return format!(
            "unknown field `{name}`, which is nginx' name: write {own}, or convert the file by sealion import-nginx"
        );
    }
    let tables = reference::tables();
    if tables.iter().any(|table| table.name == format!("[{name}]")) {
        return format!("unknown field `{name}`: it is a table of its own: write [{name}]");
    }
    let mut elsewhere: Vec<_> =
        tables.iter().filter(|table| table.keys.iter().any(|key| key.name == name)).map(|table| &*table.name).collect();
    elsewhere.dedup();
    if elsewhere.len() > MAX_TABLES {
        elsewhere.retain(|table| !table.contains('.'));
    }
    let here: Vec<&str> = expected_words(message).collect();
    match elsewhere[..] {
        [] => format!("{message}: correct or remove the key"),
        // Few keys are read at a glance, and a key of another table rarely stands in such a one by mistake.
        _ if here.len() <= MAX_TABLES => {
            format!("unknown field `{name}`: the keys here are {}. {} has a {name} too", here.join(", "), elsewhere[0])
        }
        _ => format!("unknown field `{name}`: it belongs in {}: move it there", elsewhere.join(" or ")),
    }
}

/// Keys that are looked for in a table, by their last two names, and what to write instead.
const MISTAKEN: [(&str, &str); 2] = [
    ("limits.max_body", "write max_body = \"1MiB\" in proxy, which bounds the content that an application gets"),
    (
        "proxy.headers",
        "write request_headers = [{ name = \"X-A\", value = \"1\" }] for fields of the request, and headers = { set = { X-A = \"1\" } } of the site or route for \
         fields of the response",
    ),
];

/// Directives of nginx, and what stands for them.
const OF_NGINX: [(&str, &str); 14] = [
    ("add_header", "headers = { set = { … } }"),
    ("auth_basic", "basic_auth"),
    ("auth_request", "forward_auth"),
    ("autoindex", "listing"),
    ("client_max_body_size", "max_body of proxy"),
    ("error_page", "error_pages"),
    ("expires", "cache_control"),
    ("fastcgi_pass", "fastcgi = { to = … }"),
    ("location", "[[site.route]] with a path"),
    ("proxy_pass", "proxy = { to = … }"),
    ("return", "respond or redirect"),
    ("server_name", "names"),
    ("ssl_certificate", "certificates"),
    ("try_files", "try"),
];

/// The message for a field of responses beside the table `set`, in which it belongs.
fn field_outside_set(message: &str, name: &str, key: &str) -> Option<String> {
    if !expected_words(message).eq(["set", "set_without_errors", "unset"]) || !is_name(name) {
        return None;
    }
    let headers = key.strip_suffix(name)?.strip_suffix('.')?;
    Some(format!(
        "unknown field `{name}`: fields of responses stand in the table `set`: \
         write set = {{ {name} = \"…\" }}, or [{headers}.set] above it"
    ))
}

/// The maximum number of tables that an error lists; beyond, it names only the outermost.
const MAX_TABLES: usize = 3;

/// The message for a word that is not among the expected ones, with the probably intended word.
fn unknown_word(message: &str) -> String {
    let meant = quoted(message, "unknown variant").and_then(|name| nearest(name, message));
    match meant {
        Some(meant) => format!("{message}: did you mean `{meant}`?"),
        None => format!("{message}: write one of these words"),
    }
}

/// The expected words of the parser's message.
fn expected_words(message: &str) -> impl Iterator<Item = &str> {
    let expected = message.split_once("expected").map_or("", |(_, expected)| expected);
    expected.split('`').skip(1).step_by(2)
}

/// The expected word of the parser's message that resembles `name`. Numbers resemble each other without being meant.
fn nearest<'m>(name: &str, message: &'m str) -> Option<&'m str> {
    if name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let near = expected_words(message).map(|word| (strsim::normalized_damerau_levenshtein(name, word), word));
    let best = near.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    // Two thirds of the letters must agree: `timout` finds `timeout`, and a word of three letters needs two of the
    // same.
    (best.0 > 0.6).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    /// The problems of a file with this text.
    fn problems(text: &str) -> String {
        Config::parse(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_value_of_the_wrong_type_is_answered_with_the_form_to_write() {
        for (text, expected) in [
            (
                "[[site]]\nlisting = 'yes'",
                "x.toml:2: site.listing: invalid type: string \"yes\", expected a boolean: write listing = true or false, or a table with keys of [site.listing]: max_entries, ",
            ),
            (
                "[[site]]\n[[site.route]]\nlisting = 1",
                "x.toml:3: site.route.listing: invalid type: integer `1`, expected a boolean: write listing = true or false, or a table",
            ),
            (
                "[[site]]\nrepr_digest = 'yes'",
                "x.toml:2: site.repr_digest: invalid type: string \"yes\", expected a boolean: write true or false, without quotes",
            ),
            (
                "[[site]]\n[[site.route]]\nproxy = 'localhost:3000'",
                "x.toml:3: site.route.proxy: invalid type: string \"localhost:3000\", expected a table: write proxy = { to = \"http://localhost:3000\" }",
            ),
            (
                "[[site]]\n[[site.route]]\nfastcgi = 'unix:/run/php.sock'",
                "expected a table: write fastcgi = { to = \"unix:/run/php.sock\" }",
            ),
            (
                "[[site]]\n[[site.route]]\nhsts = true",
                "expected a table: write hsts = { … } with keys of [site.hsts]: include_subdomains, max_age, preload",
            ),
            ("[[site]]\n[[site.route]]\nproxy = 3000", "expected a table: write proxy = { to = … }"),
            ("[[listen]]\naddress = 443", "expected a string: write it in quotes, \"443\""),
            ("[[site]]\nnames = 'a.org'", "expected a sequence: write a list, [\"a.org\"]"),
            (
                "listen = '127.0.0.1:443'",
                "write a list of tables, listen = [{ address = … }], or [[listen]] above its keys",
            ),
            (
                "[[site]]\n[[site.route]]\nproxy = { to = 'a', request_headers = { X-A = 'b' } }",
                "write a list of tables, request_headers = [{ name = …, value = … }], or [[site.route.proxy.request_headers]] above its keys",
            ),
            ("[[site]]\ncompress = ['gzip']", "write compress = { … } with keys of [site.compress]: "),
            (
                "[[site]]\n[[site.route]]\nmatch = { exists = ['{path}'] }",
                "x.toml:3: site.route.match.exists: invalid type: sequence, expected a table: write exists = { … } with keys of",
            ),
            (
                "[[site]]\n[[site.route]]\n[[site.route.route]]\nmatch = { any = [{ not = { exists = ['{path}'] } }] }",
                "x.toml:4: site.route.route.match.any.not.exists: invalid type: sequence, expected a table: write exists = { … }",
            ),
            ("[[site]]\nhsts = ['365d', true]", "x.toml:2: site.hsts: invalid type: sequence, expected a table"),
            ("limits = ['10s']", "x.toml:1: limits: invalid type: sequence, expected a table"),
            ("[[site]]\nroute = [['/a']]", "x.toml:2: site.route: invalid type: sequence, expected a table"),
            (
                "[[site]]\nerror_pages = { 404 = ['/a', 200] }",
                "x.toml:2: site.error_pages.404: invalid type: sequence, expected a table",
            ),
            ("[[site]]\ncertificates = 'a.pem'", "write a list of tables, certificates = [{ cert = …"),
            (
                "[server]\nktls = true",
                "x.toml:2: server.ktls: is a word in quotes: write \"auto\" or \"always\" or \"never\"",
            ),
            (
                "[[site]]\n[[site.route]]\nredirect = { to = '/', status = '301' }",
                "x.toml:3: site.route.redirect.status: invalid type: string \"301\", expected a number: write it without quotes, 301",
            ),
            (
                "[[site]]\nproxy = { to = 'a', cache = { ttl = 10 } }",
                "expected a map: write the time of each status, for instance { 200 = \"5m\"",
            ),
            ("[[site]]\nforward_auth = 'http://a'", "expected a table: write forward_auth = { to = \"http://a\" }"),
            (
                "[[site]]\n[[site.route]]\nbasic_auth = true",
                "x.toml:3: site.route.basic_auth: is not enough: write basic_auth = { users = \"…\" }, or false",
            ),
            ("[[site]]\nbasic_auth = 'u'", "expected a table: write basic_auth = { users = \"u\" }"),
            (
                "[[site]]\nforward_auth = true",
                "x.toml:2: site.forward_auth: is not enough: write forward_auth = { to = \"…\" }",
            ),
            (
                "[[site]]\nproxy = { to = 'a', headers = { set = { A = 'b' } } }",
                "x.toml:2: site.proxy.headers: unknown field `headers`: write request_headers = [{ name",
            ),
            ("[metrics]\nlisten = '9443'", "is not an address and a port: write for instance \"127.0.0.1:9443\""),
        ] {
            let found = problems(text);
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }

    #[test]
    fn the_limit_of_contents_is_sent_to_its_rule() {
        let found = problems("[limits]\nmax_body = '1MiB'");
        assert!(
            found
                .starts_with("x.toml:2: limits.max_body: unknown field `max_body`: write max_body = \"1MiB\" in proxy"),
            "{found}"
        );
    }

    #[test]
    fn a_version_is_not_taken_for_a_misspelt_one() {
        let found = problems("[tls]\nmin_version = '1.0'");
        assert!(found.ends_with("expected `1.2` or `1.3`: write one of these words"), "{found}");
        let found = problems("[server]\nktls = 'awto'");
        assert!(found.ends_with("did you mean `auto`?"), "{found}");
    }

    #[test]
    fn the_file_of_a_log_is_named() {
        for text in ["[[site]]\nlog = { path = 'x' }", "[access_log]\nfile = 'x'"] {
            let found = problems(text);
            assert!(found.contains("the file of a log is `to`"), "{found}");
        }
    }

    #[test]
    fn a_key_of_a_small_table_is_not_sent_elsewhere() {
        let found = problems("[[site]]\n[[site.route]]\nbasic_auth = { file = 'x' }");
        assert!(found.contains("unknown field `file`: the keys here are realm, users"), "{found}");
    }

    #[test]
    fn a_field_of_responses_is_sent_to_its_table() {
        let found = problems("[[site]]\n[site.headers]\nX-Frame-Options = 'DENY'");
        assert!(found.starts_with("x.toml:3: site.headers.X-Frame-Options: unknown field"), "{found}");
        assert!(found.ends_with("write set = { X-Frame-Options = \"…\" }, or [site.headers.set] above it"), "{found}");
        let found = problems("[[site]]\n[[site.route]]\nheaders = { X-A = 'b' }");
        assert!(found.ends_with("write set = { X-A = \"…\" }, or [site.route.headers.set] above it"), "{found}");
        let found = problems("[[site]]\nheaders = { Unset = ['X-A'] }");
        assert!(found.contains("did you mean `unset`?"), "{found}");
    }

    #[test]
    fn text_that_is_no_toml_is_answered_with_a_remedy() {
        for (text, expected) in [
            ("[limits]\ngrace = '5s'\n[limits]\n", "x.toml:3: limits: stands above already: keep one of them"),
            (
                "[[site]]\nrepr_digest = on\n",
                "x.toml:2: site.repr_digest: is neither a number nor a text: write a text in quotes",
            ),
            (
                "[[site]]\nroot = \"www\nnames = ['a']\n",
                "x.toml:2: site.root: invalid basic string, expected `\"`: close the text",
            ),
            ("[[site]]\nroot: 'www'\n", "key with no value, expected `=`: write KEY = VALUE"),
            (
                "[[site]]\n[[site.route]]\npath = \"~ \\.php$\"\n",
                "x.toml:3: site.route.path: a backslash in double quotes begins an escape: write the text in single quotes",
            ),
            (
                "[[site]]\n[[site.location]]\npath = '/'\n",
                "unknown field `location`, which is nginx' name: write [[site.route]] with a path",
            ),
            ("[[site]\nroot = 'www'\n", "x.toml:1: unclosed array table, expected `]`: add it"),
        ] {
            let found = problems(text);
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }

    #[test]
    fn a_problem_is_told_once() {
        let found = problems("[[site]]\nroot = '.'\n[[route]]\npath = '/'\n");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}
