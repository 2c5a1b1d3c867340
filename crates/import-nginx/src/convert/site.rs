//! Converts a `server` to a site.

use toml::Value;

use super::Context;
use super::listeners::Listeners;
use super::location::Scope;
use super::plain;
use super::targets::Targets;
use super::{auth_request, guards, limits, location, log, path_rules, proxy, tls, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Directives of `http` that servers without their own inherit.
const INHERITED: &[&str] = &[
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "autoindex",
    "brotli",
    "brotli_min_length",
    "brotli_static",
    "brotli_types",
    "client_max_body_size",
    "deny",
    "error_page",
    "expires",
    "fastcgi_connect_timeout",
    "fastcgi_hide_header",
    "fastcgi_index",
    "fastcgi_intercept_errors",
    "fastcgi_param",
    "fastcgi_read_timeout",
    "fastcgi_split_path_info",
    "grpc_connect_timeout",
    "grpc_hide_header",
    "grpc_intercept_errors",
    "grpc_next_upstream",
    "grpc_next_upstream_tries",
    "grpc_read_timeout",
    "grpc_send_timeout",
    "grpc_set_header",
    "grpc_ssl_certificate",
    "grpc_ssl_certificate_key",
    "grpc_ssl_name",
    "grpc_ssl_trusted_certificate",
    "grpc_ssl_verify",
    "gzip",
    "gzip_min_length",
    "gzip_static",
    "gzip_types",
    "index",
    "limit_conn",
    "limit_rate",
    "limit_req",
    "proxy_buffering",
    "proxy_cache",
    "proxy_cache_background_update",
    "proxy_cache_bypass",
    "proxy_cache_convert_head",
    "proxy_cache_key",
    "proxy_cache_lock",
    "proxy_cache_lock_age",
    "proxy_cache_lock_timeout",
    "proxy_cache_max_range_offset",
    "proxy_cache_methods",
    "proxy_cache_min_uses",
    "proxy_cache_revalidate",
    "proxy_cache_use_stale",
    "proxy_cache_valid",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_flags",
    "proxy_cookie_path",
    "proxy_hide_header",
    "proxy_ignore_headers",
    "proxy_intercept_errors",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_no_cache",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_send_timeout",
    "proxy_set_header",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_verify",
    "root",
    "slice",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_trusted_certificate",
    "ssl_verify_client",
    "types",
    "zstd",
    "zstd_min_length",
    "zstd_static",
    "zstd_types",
];

/// Whether servers inherit a directive from `http`.
pub(super) fn inherits(name: &str) -> bool {
    INHERITED.contains(&name)
}

/// Whether a directive concerns only requests that are forwarded.
pub(super) fn is_of_proxies(name: &str) -> bool {
    let has_start = || ["proxy_", "fastcgi_", "grpc_"].iter().any(|start| name.starts_with(start));
    inherits(name) && (has_start() || matches!(name, "client_max_body_size" | "slice"))
}

/// The effective directives of a server: its own, and those inherited from `http`.
pub(super) struct Settings<'a>(Vec<&'a Directive>);

impl<'a> Settings<'a> {
    fn of(server: &'a Directive, shared: &[&'a Directive]) -> Self {
        let own = server.children();
        // `allow` and `deny` form one list.
        let group = |name: &'a str| if name == "deny" { "allow" } else { name };
        let from_http = shared.iter().copied().filter(|directive| {
            inherits(&directive.name) && !own.iter().any(|inner| group(&inner.name) == group(&directive.name))
        });
        Settings(own.iter().chain(from_http).collect())
    }

    /// The directives of a name, in order.
    pub(super) fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.0.iter().copied().filter(|directive| directive.name == name).collect()
    }

    /// The last directive of a name.
    pub(super) fn last(&self, name: &str) -> Option<&'a Directive> {
        self.all(name).pop()
    }

    /// `allow` and `deny`, in order.
    pub(super) fn access(&self) -> Vec<&'a Directive> {
        self.0.iter().copied().filter(|directive| guards::is_access(directive)).collect()
    }

    /// Whether a switch is on.
    fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|directive| matches!(directive.first(), "on" | "always"))
    }

    /// Whether any of its locations passes requests to a server.
    pub(super) fn forwards(&self) -> bool {
        let is_pass = |inner: &Directive| matches!(inner.name.as_str(), "proxy_pass" | "fastcgi_pass" | "grpc_pass");
        self.all("location").into_iter().any(|location| location.children().iter().any(is_pass))
    }

    /// Whether any of its locations passes requests to scripts.
    pub(super) fn runs_scripts(&self) -> bool {
        let is_pass = |inner: &Directive| inner.name == "fastcgi_pass";
        self.all("location").into_iter().any(|location| location.children().iter().any(is_pass))
    }

    /// The root directory.
    pub(super) fn root(&self) -> Option<&'a str> {
        // The root of `location /` covers more paths than the server's own.
        let everything = self.0.iter().find(|inner| inner.name == "location" && inner.arguments == ["/"]);
        let root = everything.and_then(|inner| inner.children().iter().find(|inner| inner.name == "root"));
        root.or(self.last("root")).map(Directive::first)
    }
}

/// Converts a server. `None`: it does not become a site.
pub(super) fn convert(
    context: &mut Context,
    listeners: &mut Listeners,
    server: &Directive,
    shared: &[&Directive],
) -> Option<Table> {
    let listens = listeners.take(context, server, shared);
    if !listens.tls && (plain::leads_to_https(server) || !listeners.serve(server)) {
        plain::redirect(context, listeners, server);
        return None;
    }
    if listens.tls && listens.plain && !listeners.serve(server) {
        context.report_with(
            server,
            "over plain HTTP, its clients are redirected to HTTPS: plain = \"serve\" of the listener serves them",
        );
    }
    if !listens.tls {
        let remedy =
            "is served without TLS, as by nginx: TLS has to end at a proxy in front, or the server needs a certificate";
        context.report_with(server, remedy);
    }
    let settings = Settings::of(server, shared);
    context.targets = Targets::of(server);
    let mut site = Table::default();
    site.comment(&server.place);
    let names = names(context, server, listeners.is_default(server));
    if !names.is_empty() {
        site.set("names", names.clone());
    }
    if listeners.is_default(server) {
        if listens.default || names.is_empty() {
            site.set("default", true);
        }
    } else if names.is_empty() {
        let remedy = "no request reaches it here, as it has no name of its own and another server is the default: give it a name";
        // Without a name, it answers requests without Host.
        let answers = !has_placeholder(server) && guards::refuses_any(server);
        match answers {
            true => context.report_unguarded(
                server,
                format!("{remedy}. Requests without Host, which it refused, get the default site"),
            ),
            false => context.report_with(server, remedy),
        }
        return None;
    }
    // What is forwarded or redirected alone needs no files.
    if settings.root().is_some() || !(settings.forwards() || guards::returns(server)) {
        site.set("root", root(context, server, &settings));
    }
    if let Some(other) = settings.last("root").filter(|other| settings.root() != Some(other.first())) {
        let has_root = |inner: &Directive| matches!(inner.name.as_str(), "root" | "alias");
        let others = settings.all("location").into_iter().filter(|location| location.arguments != ["/"]);
        let remedy = "the site uses the root of location /: add mounts for the other locations";
        match others.into_iter().any(|location| !location.children().iter().any(has_root)) {
            true => context
                .report_unguarded(other, format!("{remedy}, beneath which files of that root are sent until then")),
            false => context.report_with(other, remedy),
        }
    }
    tls::certificates(context, &mut site, &settings.all("ssl_certificate"), &settings.all("ssl_certificate_key"));
    let roots = settings.last("ssl_client_certificate").or(settings.last("ssl_trusted_certificate"));
    tls::client_auth(context, &mut site, roots, settings.last("ssl_verify_client"), settings.last("ssl_crl"));
    if let Some(index) = settings.last("index") {
        location::index(context, &mut site, &settings, index);
    }
    if let Some(autoindex) = settings.last("autoindex").filter(|autoindex| autoindex.first() == "on") {
        location::listing(context, &mut site, &Scope::Everything, autoindex);
    }
    compression(&mut site, &settings);
    media_types(&mut site, &settings);
    for page in settings.all("error_page") {
        path_rules::error_page(context, &mut site, page);
    }
    path_rules::fields(context, &mut site, "**", true, &settings.all("add_header"), &settings.all("expires"), &[]);
    guards::access(context, &mut site, &Scope::Everything, &settings.access());
    if let Some(realm) = settings.last("auth_basic").filter(|realm| realm.first() != "off") {
        guards::basic_auth(context, &mut site, &Scope::Everything, realm, settings.last("auth_basic_user_file"));
    }
    auth_request::of_server(context, &mut site, &settings);
    limits::convert(context, &mut site, &settings);
    let first_name = names.first().cloned();
    let constants = (first_name.as_deref(), only_port(server));
    for inner in server.children() {
        match inner.name.as_str() {
            "listen" | "server_name" => {}
            "location" if proxy::is_left_to_front(&settings, inner) => {}
            "location" if proxy::convert(context, &mut site, &settings, constants, inner) => {}
            "location" => location::convert(context, &mut site, &settings, first_name.as_deref(), inner),
            "return" => path_rules::answer(context, &mut site, &Scope::Everything, first_name.as_deref(), inner),
            "rewrite" => path_rules::rewrite(context, &mut site, &Scope::Everything, inner),
            "try_files" if proxy::convert_server(context, &mut site, &settings, constants, inner) => {}
            "try_files" => location::try_files(context, &mut site, &Scope::Everything, inner),
            "ssl_reject_handshake" if inner.first() == "on" => {
                context.report(inner);
                guards::close(context, &mut site, &Scope::Everything, inner);
            }
            "auth_request" | "auth_request_set" => {}
            "access_log" => log::of_server(context, &mut site, inner),
            name if inherits(name) => {}
            _ => context.shared(inner),
        }
    }
    proxy::write(context, &mut site, &settings);
    let has_answers = ["proxy", "redirects"].into_iter().any(|rules| site.list(rules).next().is_some());
    if !has_answers && site.get("root").is_none() {
        site.set("root", root(context, server, &settings));
    }
    guards::report_rewrites_to_refused(context, &site, server);
    location::report_listed(context, &mut site, &settings);
    Some(site)
}

/// Whether a server has a name that no request has, or one that is not supported.
fn has_placeholder(server: &Directive) -> bool {
    let names = server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| &inner.arguments);
    names.into_iter().any(|name| !name.is_empty())
}

/// The supported names of a server; others are reported.
fn names(context: &mut Context, server: &Directive, is_default: bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let refuses = !is_default && guards::refuses_any(server);
    // Requests for such a name get the default site.
    let unsupported = |context: &mut Context, directive: &Directive, remedy: String| match refuses {
        true => context.report_unguarded(
            directive,
            format!("{remedy}. Until then the default site answers, where this server refused"),
        ),
        false => context.report_with(directive, remedy),
    };
    for directive in server.children().iter().filter(|inner| inner.name == "server_name") {
        for name in &directive.arguments {
            let name = name.to_ascii_lowercase();
            let converted = match name.as_str() {
                "_" | "" => vec![],
                name if name.starts_with('~') || name.contains('$') => {
                    unsupported(context, directive, format!("{name}: list the names that it matches"));
                    vec![]
                }
                name if name.trim_start_matches("*.").contains('*') => {
                    unsupported(context, directive, format!("{name}: a wildcard must be the first label"));
                    vec![]
                }
                name => match name.strip_prefix('.') {
                    Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
                    None => vec![name.to_owned()],
                },
            };
            for name in converted {
                if !context.take_name(&name) {
                    context.report_with(
                        directive,
                        format!("{name} belongs to an earlier server, which gets its requests"),
                    );
                } else {
                    names.push(name);
                }
            }
        }
    }
    names
}

/// The port of a server that listens with TLS at one only.
fn only_port(server: &Directive) -> Option<u16> {
    let listens = server.children().iter().filter(|inner| inner.name == "listen");
    let listens = listens.filter(|listen| listen.arguments.iter().any(|argument| argument == "ssl"));
    let mut ports = listens.map(|listen| listen.first().rsplit(':').next().and_then(|port| port.parse::<u16>().ok()));
    let first = ports.next()??;
    ports.all(|port| port == Some(first)).then_some(first)
}

/// nginx's default root.
const DEFAULT_ROOT: &str = "/usr/share/nginx/html";

fn root(context: &mut Context, server: &Directive, settings: &Settings<'_>) -> String {
    match settings.root() {
        Some(root) if root.contains('$') => {
            context.report_with(
                server,
                format!("root {root}: variables are not supported; make a site per directory, with its full path"),
            );
            DEFAULT_ROOT.to_owned()
        }
        Some(root) if root.starts_with('/') => root.to_owned(),
        Some(root) => {
            context.report_with(
                server,
                format!("root {root}: relative to nginx's prefix (nginx -V); write the full path"),
            );
            format!("/usr/share/nginx/{root}")
        }
        None => DEFAULT_ROOT.to_owned(),
    }
}

fn compression(site: &mut Table, settings: &Settings<'_>) {
    let mut precompressed = Vec::new();
    let mut codings = Vec::new();
    let mut types: Vec<String> = Vec::new();
    let mut least = None;
    for (module, coding) in [("brotli", "br"), ("zstd", "zstd"), ("gzip", "gzip")] {
        if settings.is_on(&format!("{module}_static")) {
            precompressed.push(Value::from(coding));
        }
        if settings.is_on(module) {
            codings.push(Value::from(coding));
            let own = settings.last(&format!("{module}_types"));
            types.extend(own.into_iter().flat_map(|directive| directive.arguments.iter().cloned()));
            least =
                least.or(settings.last(&format!("{module}_min_length")).and_then(|size| values::size(size.first())));
        }
    }
    if !precompressed.is_empty() {
        site.set("precompressed", precompressed);
    }
    if !codings.is_empty() {
        let compress = site.table("compress");
        compress.set("codings", codings);
        if let Some(least) = least {
            compress.set("min", least.to_string());
        }
        types.retain(|media_type| media_type != "*");
        if !types.is_empty() {
            // nginx always compresses HTML.
            types.insert(0, "text/html".to_owned());
            types.dedup();
            compress.set("types", types);
        }
    }
}

/// `types` that differ from Sealion's own.
fn media_types(site: &mut Table, settings: &Settings<'_>) {
    let mut differing = Vec::new();
    for types in settings.all("types") {
        for entry in types.children() {
            for extension in &entry.arguments {
                let ours = media_type_of(extension);
                let known = ours.split(';').next().unwrap_or(&ours) == entry.name;
                // Unregistered types, and equivalent ones.
                let same = |a: &str| {
                    a.trim_start_matches("application/").trim_start_matches("text/").trim_start_matches("x-").to_owned()
                };
                if !known && same(&entry.name) != same(ours.split(';').next().unwrap_or(&ours)) {
                    differing.push((extension.clone(), entry.name.clone()));
                }
            }
        }
    }
    for (extension, media_type) in differing {
        site.table("media_types").set(&extension, media_type);
    }
}

fn media_type_of(extension: &str) -> String {
    let mut text = Vec::new();
    sealion_http::ContentType::of_name(format!("x.{extension}").as_bytes()).write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
