//! Builds a [`Generation`] from a configuration.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use sealion_http::path::is_hidden;

use super::memory::CacheMemory;
use crate::certificates::{self, AcmeUse, CertifiedSite, TlsListener, TlsProcess};
use crate::config::{Config, Seccomp};
use crate::exchange::Generation;
use crate::files::cache::{CacheLimits, FileCache};
use crate::limits::Zones;
use crate::listen::{self, Http3Use, ListenConfig};
use crate::monitor;
use crate::observe::access_log::SiteLogs;
use crate::placeholders::Tables;
use crate::site::{Hosts, SiteConfig, SiteContext, Sites};
use crate::store::{CacheConfig, MOST_OPEN, Store};
use crate::upstream::Upstreams;
use crate::values::{At, Problems, Size};

/// Builds everything that the configuration asks for. Opens roots; reads certificates, users and pages. Binds nothing, changes nothing.
/// `before`: the configuration in use.
///
/// # Errors
/// All problems of the configuration.
pub(crate) fn build(
    config: &Config,
    mut problems: Problems,
    process: &TlsProcess,
    kernel_rekeys: bool,
    before: Option<&Generation>,
) -> Result<Generation, Problems> {
    let memory = CacheMemory::of(config);
    let cache = FileCache::new(cache_limits(config, memory.files));
    if config.site.is_empty() {
        problems.add(&(0..0), "site", "no site is configured: add a [[site]] with a root");
    }
    listen::check(&config.listen, config.metrics.listen, &mut problems);
    config.site.iter().for_each(|site| check_listeners(config, site, &mut problems));
    config.http3.check(&mut problems);
    config.access_log.check("access_log", &mut problems);
    let _ = monitor::Settings::new(&config.otlp, &mut problems);
    let logs = SiteLogs::new(&config.access_log, config.site_logs(), &mut problems);
    let is_confined = config.privileges.landlock || config.privileges.seccomp != Seccomp::Off;
    for hook in config.tls.all_acme().filter_map(|account| account.dns_hook.as_ref()).filter(|_| is_confined) {
        let what = "the program would be confined as the server is, and could not do its work: set privileges.landlock = false and seccomp = \"off\", or obtain the certificate by another program";
        problems.add(&hook.span, "tls.acme.dns_hook", what);
    }
    refuse_secrets_in_roots(config, &mut problems);
    let has_tls_listener = config.listen.iter().any(|listen| *listen.tls);
    let needs_https = config.site.iter().any(|site| site.listen.is_none());
    if needs_https && !config.listen.iter().any(ListenConfig::serves) {
        let what = "no listener has TLS, so redirects to HTTPS lead nowhere: add a listener with tls = true, or name this one in site.listen to serve the site without TLS";
        problems.add(&config.listen[0].tls.span, "listen.tls", what);
    }
    let mut notes = check_plain(config, &mut problems);
    let buffered = before.map(|before| Arc::clone(&before.buffered)).unwrap_or_default();
    let mut upstreams = Upstreams::build(
        &config.upstream,
        before.map(|before| before.upstreams.clone()).unwrap_or_default(),
        &mut problems,
    )
    .with_limits(&config.limits, &buffered);
    let store = Store::build(
        &CacheConfig { memory: Size(memory.responses), ..config.cache.clone() },
        store_files(config),
        before.and_then(|before| before.store.as_ref()),
        &mut problems,
    );
    let mut sites = Vec::new();
    let mut context = SiteContext {
        cache: &cache,
        upstreams: &mut upstreams,
        store: store.as_ref(),
        max_ranges: config.limits.max_ranges.usize(),
        plain: false,
        tables: Arc::new(Tables::build(&config.map, &config.split, &mut problems)),
        listeners: String::new(),
        zones: Zones::default(),
    };
    for site in &config.site {
        let own = || config.listen.iter().filter(|listen| site.answers_on(&listen.address.name));
        context.plain = own().next().is_some() && !own().any(ListenConfig::may_be_https);
        let named: Vec<&str> = site.listen.iter().flatten().map(|name| name.as_str()).collect();
        context.listeners = named.join(" ").escape_default().to_string();
        if let Some(mut built) = site.build(&mut context, &mut problems) {
            built.log = site.log(&logs, &mut problems);
            // A redirect must not lead to a handshake that is refused.
            let has_https = !*site.reject_handshake && own().any(|listen| *listen.tls);
            built.https = has_https.then(|| listen::https_port(own()));
            if built.https == Some(443) {
                site.refuse_redirects_to_itself(&mut problems);
            }
            notes.extend(built.missing_pages());
            sites.push((site, built));
        }
    }
    let configs: Vec<&SiteConfig> = sites.iter().map(|(config, _)| *config).collect();
    let hosts = Hosts::of_listeners(&configs, &listen::names(&config.listen), &mut problems);
    let certified: Vec<CertifiedSite<'_>> = sites.iter().map(|(config, site)| config.certified(site)).collect();
    let has_plain_listener = config.listen.iter().any(|listen| !*listen.tls);
    let bounds = config.limits.tls(kernel_rekeys);
    // Sites that failed to build count too: with any certificate configured, no development certificate is made.
    let any_certificate = config.site.iter().any(|site| !site.certificates.is_empty() || *site.acme != AcmeUse::No);
    let tls = certificates::build(
        &config.tls,
        &certified,
        certificates::Others {
            http2: config.http2.enabled,
            listeners: &tls_listeners(config, &hosts),
            any_certificate,
            has_plain_listener,
            // Listeners stay as they were at the start, whatever a reload says of them.
            has_tls_listener: has_tls_listener || before.is_some_and(|before| before.tls.has_tls()),
        },
        bounds,
        process,
        &mut problems,
    );
    let asks_for_http3 =
        |listen: &&ListenConfig| *listen.tls && listen.http3(config.http3.enabled) == Http3Use::Required;
    if let Some(listen) = config.listen.iter().find(asks_for_http3)
        && tls.as_ref().is_some_and(|(tls, _)| !tls.has_quic())
    {
        let what = "HTTP/3 needs a suite of TLS 1.3: add TLS_AES_128_GCM_SHA256 to tls.suites, or remove http3";
        let span = listen.http3.as_ref().map(|asked| asked.span.clone()).unwrap_or_default();
        problems.add(&span, "listen.http3", what);
    }
    let permits_websocket = sites.iter().any(|(config, site)| config.http2 && site.permits_websocket());
    let has_proxies = sites.iter().any(|(_, site)| site.has_proxies());
    let sites = Sites::new(sites.into_iter().map(|(_, site)| site).collect(), hosts);
    match tls {
        Some((tls, mut certificates)) if problems.is_empty() => {
            certificates.notes.extend(notes);
            Ok(Generation {
                sites,
                upstreams: upstreams.into_all(),
                store,
                files: cache,
                tls,
                certificates: Arc::new(certificates),
                limits: config.limits.clone(),
                buffered,
                head_limits: config.limits.head(),
                http2: config.http2.limits(&config.limits.head(), has_proxies, permits_websocket),
                http3: config.http3.limits(&config.limits, &config.limits.head(), permits_websocket),
                ktls: config.server.ktls,
            })
        }
        _ => Err(problems),
    }
}

/// The listeners with TLS, or the default listener if there is no `[[listen]]`, by their places.
fn tls_listeners(config: &Config, hosts: &[Arc<Hosts>]) -> Vec<Option<TlsListener>> {
    let listener = |(place, own): (usize, &Arc<Hosts>)| {
        let (has_tls, http2, http3) = match config.listen.get(place) {
            None => (true, true, false),
            Some(listen) => (*listen.tls, listen.http2(), listen.http3(config.http3.enabled) != Http3Use::Never),
        };
        let table = hosts.iter().position(|other| Arc::ptr_eq(other, own)).unwrap_or(place);
        has_tls.then(|| own.for_handshakes()).map(|(sites, names)| TlsListener { table, sites, names, http2, http3 })
    };
    hosts.iter().enumerate().map(listener).collect()
}

/// Refuses listeners of a site that there are not, and keys of a site that need another kind of listener.
fn check_listeners(config: &Config, site: &SiteConfig, problems: &mut Problems) {
    if *site.reject_handshake && (!site.certificates.is_empty() || *site.acme != AcmeUse::No) {
        let what = "and certificates exclude each other: no client of the site sees one";
        problems.add(&site.reject_handshake.span, "site.reject_handshake", what);
    }
    check_default(config, site, problems);
    let Some(named) = &site.listen else { return };
    listen::check_names(&config.listen, named, "site.listen", problems);
    if !is_without_tls(config, site) {
        return;
    }
    let pair = site.certificates.first().map(|pair| &pair.cert.span);
    let keys = [
        ("site.certificates", pair),
        ("site.acme", named.first().map(|name| &name.span).filter(|_| *site.acme != AcmeUse::No)),
        ("site.reject_handshake", Some(&site.reject_handshake.span).filter(|_| *site.reject_handshake)),
    ];
    for (key, span) in keys.into_iter().filter_map(|(key, span)| Some((key, span?))) {
        let what = "has no effect, as no listener of the site has TLS: name one in site.listen, or remove the key";
        problems.add(span, key, what);
    }
}

fn check_default(config: &Config, site: &SiteConfig, problems: &mut Problems) {
    let Some(named) = site.default.table() else { return };
    listen::check_names(&config.listen, named, "site.default", problems);
    for name in named.iter().filter(|name| !site.answers_on(name)) {
        let what = format_args!("the site is not served on {}: name it in site.listen too", name.value);
        problems.add(&name.span, "site.default", what);
    }
}

/// Whether a site names its listeners, and none of them has TLS.
fn is_without_tls(config: &Config, site: &SiteConfig) -> bool {
    let mut own = config.listen.iter().filter(|listen| site.answers_on(&listen.address.name));
    site.listen.is_some() && !own.any(|listen| *listen.tls)
}

/// Refuses settings that sites cannot have on their listeners without TLS. Returns warnings of settings that they should not have.
fn check_plain(config: &Config, problems: &mut Problems) -> Vec<String> {
    let mut notes = Vec::new();
    let plain = || config.listen.iter().filter(|listen| listen.serves_plain());
    for listen in plain().filter(|listen| listen.http2() && !config.http2.enabled) {
        let what =
            format_args!("{} asks for HTTP/2, and http2.enabled is false: remove one of the two", listen.address.name);
        problems.add(&listen.plain.span, "listen.http2", what);
    }
    for site in &config.site {
        notes.extend(site.notes());
        let named = |listen: &&ListenConfig| site.answers_on(&listen.address.name);
        let is_served =
            |listen: &&ListenConfig| named(listen) && !*listen.tls && (listen.serves() || is_without_tls(config, site));
        let plain = || config.listen.iter().filter(is_served);
        if let (Some(auth), Some(listen)) = (&site.client_auth, plain().next()) {
            let what = format_args!(
                "the site answers on {} too, which has no TLS and hence no certificates of clients: name its listeners with TLS in site.listen",
                listen.address.name
            );
            problems.add(&auth.roots.span, "site.client_auth", what);
        }
        if *site.https_only && !config.listen.iter().filter(named).any(ListenConfig::may_be_https) {
            let what = "no listener of the site has HTTPS, so every request would be redirected and none served: add a listener with tls = true, let the proxy at which TLS ends name the scheme (client_address and trusted_proxies), or remove https_only";
            problems.add(&site.https_only.span, "site.https_only", what);
        }
        if site.users().next().is_some()
            && !*site.https_only
            && let Some(listen) = plain().find(|listen| listen.is_exposed())
        {
            notes.push(format!(
                "{}: passwords of basic_auth cross the network readable to {}, which has no TLS: let a proxy at which TLS ends name the clients (client_address and trusted_proxies), or listen on a loopback address",
                site.label(),
                listen.address.name
            ));
        }
    }
    notes
}

/// Files that each worker may keep open for the cache of responses, which takes at most as many as the file cache.
pub(crate) fn store_files(config: &Config) -> usize {
    if config.cache.directories.is_empty() { 0 } else { MOST_OPEN.min(open_share(config)) }
}

/// A worker's share of an eighth of all descriptors.
fn open_share(config: &Config) -> usize {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    usize::try_from(allowed / 8).unwrap_or(usize::MAX) / config.server.worker_count()
}

/// Bounds of each worker's file cache, which may take so much memory. Its open files take at most an eighth of all descriptors; the rest is for connections.
pub(crate) fn cache_limits(config: &Config, memory: u64) -> CacheLimits {
    let limits = CacheLimits {
        age: config.server.file_cache_age.0,
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        ..CacheLimits::default()
    };
    CacheLimits { open: limits.open.min(open_share(config)), ..limits }
}

/// Refuses private keys, files of passwords, the configuration and other secrets that a site would send.
pub(super) fn refuse_secrets_in_roots(config: &Config, problems: &mut Problems) {
    let roots_of = |site: &SiteConfig| -> Vec<(PathBuf, bool)> {
        let real = |root: PathBuf| Some((problems.resolve(&root).canonicalize().ok()?, site.show_dotfiles));
        site.roots().filter_map(real).collect()
    };
    let roots: Vec<_> = config.site.iter().flat_map(roots_of).collect();
    let files: Vec<PathBuf> = problems.files().filter_map(|file| std::path::absolute(file).ok()).collect();
    let of_configuration = files.iter().map(|file| ("site.root", file.as_path(), &(0..0)));
    let token = config.metrics.token_file.iter().map(|file| ("metrics.token_file", file.as_path(), &(0..0)));
    let key_log = config.tls_key_log.iter().map(|file| ("--tls-key-log", file.as_path(), &(0..0)));
    for (key, file, span) in secrets(config).chain(token).chain(of_configuration).chain(key_log) {
        let Some(path) = real_path(&problems.resolve(file)) else { continue };
        let is_sent = |(root, show_dotfiles): &(PathBuf, bool)| {
            let beneath = path.strip_prefix(root).ok();
            beneath
                .is_some_and(|beneath| *show_dotfiles || !beneath.iter().any(|name| is_hidden(name.as_encoded_bytes())))
        };
        if roots.iter().any(is_sent) {
            let what = format_args!(
                "{} lies beneath the root of a site, so that anybody could fetch it: move it elsewhere",
                path.display()
            );
            problems.add(span, key, what);
        }
    }
}

/// The path without links, though the end of it may not be there yet. `None`: it cannot be known.
fn real_path(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find(|path| path.exists())?;
    let rest = path.strip_prefix(there).ok()?;
    let there = there.canonicalize().ok()?;
    // Nothing, joined, would add a slash.
    Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
}

/// The files and directories that only the server may read, with their keys and places.
fn secrets(config: &Config) -> impl Iterator<Item = (&'static str, &Path, &Range<usize>)> {
    let keys = config.site.iter().flat_map(|site| &site.certificates).map(|pair| ("site.certificates.key", &pair.key));
    let users = config.site.iter().flat_map(SiteConfig::users).map(|users| ("site.basic_auth.users", users));
    let of_clients =
        config.upstream.iter().filter_map(|upstream| Some(("upstream.tls.key", upstream.tls.key.as_ref()?)));
    let has_acme = config.site.iter().any(|site| *site.acme != AcmeUse::No);
    let of_accounts = config.tls.all_acme().filter(move |_| has_acme).flat_map(|account| {
        let update = account.dns_update.as_ref().map(|update| ("tls.acme.dns_update.secret", &update.secret));
        let external = account.external_account.as_ref();
        let external = external.map(|external| ("tls.acme.external_account.hmac_key", &external.hmac_key));
        [Some(("tls.acme.state", &account.state)), update, external].into_iter().flatten()
    });
    let tickets = config.tls.session_tickets.keys.iter().map(|keys| ("tls.session_tickets.keys", keys));
    let stream = config.cache.purge_stream_password.iter().map(|file| ("cache.purge_stream_password", file));
    let all = keys.chain(users).chain(of_clients).chain(of_accounts).chain(tickets).chain(stream);
    // Some responses may be only for clients that a guard lets pass.
    let cache = &config.cache.directories;
    let cache = cache.iter().map(|path| ("cache.directories", path.as_path(), &cache.span));
    all.map(|(key, file): (_, &At<PathBuf>)| (key, file.value.as_path(), &file.span)).chain(cache)
}
