//! Refuses routes that cannot answer any request.

use super::action::Action;
use super::build::KEY;
use super::config::{RouteConfig, SiteConfig};
use super::{Route, Routes};
use crate::site::locate::path_of;
use crate::values::{At, Problems, Short};

impl SiteConfig {
    /// Warnings about settings of routes that hold for more than their route.
    pub(crate) fn notes(&self) -> Vec<String> {
        let differs =
            |own: &&RouteConfig| own.hsts.as_ref().is_some_and(|hsts| hsts.max_age.is_some() && *hsts != self.hsts);
        let label = |own: &RouteConfig| own.path.as_ref().or(own.name.as_ref()).map(|text| text.value.clone());
        let note = |own: &RouteConfig| {
            format!(
                "{}: hsts of route {}: browsers keep it for the whole host, whichever path sent it: set hsts of the site",
                self.label(),
                label(own).unwrap_or_default()
            )
        };
        self.all_routes().filter(differs).map(note).collect()
    }

    /// Refuses redirects to the address that was asked for, where clients come by TLS and to the default port.
    pub(crate) fn refuse_redirects_to_itself(&self, problems: &mut Problems) {
        let own = self.root_route();
        let routes = self
            .route
            .iter()
            .filter(|route| route.conditions.is_none() && route.name.is_none() && !route.internal)
            .map(|route| (route, KEY));
        for (route, key) in routes.chain([(&own, "site")]) {
            let Some(redirect) = &route.redirect else { continue };
            let same = [
                "https://{host}{uri}",
                "https://{authority}{uri}",
                "{scheme}://{host}{uri}",
                "{scheme}://{authority}{uri}",
            ];
            let to = match &redirect.value {
                Short::Short(to) => to,
                Short::Table(table) => &table.to,
            };
            if same.contains(&to.reveal()) {
                let what = "is a redirect loop for clients with TLS: name another host, add match = { scheme = \"http\" }, or set https_only = true in place of it";
                problems.add(&redirect.span, &format!("{key}.redirect"), what);
            }
        }
    }

    /// Refuses settings without effect in a site without further routes.
    pub(super) fn check_root(&self, own: &RouteConfig, problems: &mut Problems) {
        let Some(fallback) = self.fallback.as_ref().filter(|_| self.route.is_empty()) else { return };
        let sends_files = own.proxy.as_ref().is_none_or(|proxy| proxy.files_first || proxy.fastcgi.is_some());
        if self.deny || own.respond.is_some() || own.redirect.is_some() || !sends_files {
            let what = "is never reached: the action of the site answers every request: remove it, give the action a route of its own, or set files_first = true";
            problems.add(&fallback.span, "site.fallback", what);
        }
    }
}

/// Refuses a Cache-Control for what servers answer where no server is asked. `own`: the route, or the root route of `within`. `key`: of the setting.
pub(super) fn refuse_without_server(
    setting: Option<&At<String>>,
    own: &RouteConfig,
    (action, within): (&Action, &[RouteConfig]),
    key: &str,
    problems: &mut Problems,
) {
    let asks = |route: &RouteConfig| route.proxy.is_some() || route.fastcgi.is_some();
    let has_server =
        matches!(action, Action::Forward(_)) || asks(own) || within.iter().flat_map(RouteConfig::all).any(asks);
    if let Some(value) = setting.filter(|value| !value.is_empty() && !has_server) {
        let what = "has no effect: neither this route nor one within it has proxy or fastcgi: remove it, or set cache_control for files";
        problems.add(&value.span, &format!("{key}.forwarded_cache_control"), what);
    }
}

/// Refuses redirects to fixed paths that lead back to them.
pub(super) fn refuse_loops(
    site: &SiteConfig,
    (own_root, root): (&RouteConfig, &Route),
    routes: &Routes,
    problems: &mut Problems,
) {
    let own = |route: &Route| match &*route.action {
        Action::Redirect(redirect) => redirect.path().map(str::to_owned),
        _ => None,
    };
    let all = site.all_routes().zip(&routes.all).map(|(config, route)| (config, route, KEY));
    for (config, route, key) in all.chain([(own_root, root, "site")]) {
        let (Some(redirect), Some(mut to)) = (&config.redirect, own(route)) else { continue };
        for _ in 0..=routes.all.len() {
            let Ok((path, _)) = path_of(&to) else { break };
            let next = routes.by_path(&path).unwrap_or(root);
            if next.conditions.is_some() {
                break;
            }
            if std::ptr::eq(next, route) {
                let what = "is a redirect loop: this route or another one redirects the target again";
                problems.add(&redirect.span, &format!("{key}.redirect"), what);
                break;
            }
            match own(next) {
                Some(next) => to = next,
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::config::Config;
    use crate::files::cache::{CacheLimits, FileCache};
    use crate::site::SiteContext;
    use crate::upstream::Upstreams;

    /// The problems and the warnings of a site, which is reachable only over plain HTTP or not.
    fn build(keys: &str, plain: bool) -> (String, Vec<String>) {
        let text = format!("[[site]]\nroot = '/'\n{keys}");
        let (config, mut problems) = Config::parse(Path::new("x.toml"), &text).unwrap();
        let (cache, mut upstreams): (Arc<FileCache>, _) =
            (FileCache::new(CacheLimits::default()), Upstreams::default());
        let mut context = SiteContext { plain, ..SiteContext::new(&cache, &mut upstreams) };
        config.site[0].build(&mut context, &mut problems);
        (problems.to_string(), config.site[0].notes())
    }

    #[test]
    fn a_cache_control_for_servers_needs_a_server() {
        const REFUSED: &str = "forwarded_cache_control: has no effect";
        const SERVER: &str = "proxy = { to = 'http://127.0.0.1:1' }\n";
        const ROUTE: &str = "[[site.route]]\npath = '/a/'\n";
        const WITHIN: &str = "[[site.route.route]]\npath = '/a/b/'\n";
        const KEY: &str = "forwarded_cache_control = 'no-store'\n";
        for keys in [
            format!("{KEY}{SERVER}"),
            format!("{KEY}{ROUTE}{SERVER}"),
            format!("{SERVER}{ROUTE}{KEY}"),
            format!("{ROUTE}{KEY}{WITHIN}{SERVER}"),
            format!("{SERVER}{ROUTE}forwarded_cache_control = ''\nrespond = 204\n"),
        ] {
            assert_eq!(build(&keys, false).0, "", "{keys}");
        }
        for (keys, line) in [
            (KEY.to_owned(), "x.toml:3: site."),
            (format!("{ROUTE}{KEY}"), "x.toml:5: site.route."),
            (format!("{SERVER}{ROUTE}{KEY}files = true\n"), "x.toml:6: site.route."),
            (format!("{ROUTE}{KEY}{WITHIN}respond = 204\n"), "x.toml:5: site.route."),
        ] {
            assert!(
                build(&keys, false).0.starts_with(&format!("{line}{REFUSED}")),
                "{keys}: {}",
                build(&keys, false).0
            );
        }
    }

    #[test]
    fn the_site_itself_is_checked_as_its_routes_are() {
        const ROUTE: &str = "[[site.route]]\npath = '/a/'\nredirect = '/b'\n";
        for (keys, line) in [
            (format!("try = ['{{path}}', '@app']\n{ROUTE}"), "x.toml:3: site.try: @app is the name of no route"),
            (format!("redirect = '/b'\n{ROUTE}"), "x.toml:3: site.redirect: is a redirect loop"),
            (format!("redirect = '/a/'\n{ROUTE}"), "x.toml:3: site.redirect: is a redirect loop"),
            ("redirect = '/b'".to_owned(), "x.toml:3: site.redirect: is a redirect loop"),
            ("try = ['{path}', '@app']".to_owned(), "x.toml:3: site.try: @app is the name of no route"),
        ] {
            assert!(build(&keys, false).0.starts_with(line), "{keys}: {}", build(&keys, false).0);
        }
        for keys in [ROUTE.to_owned(), format!("redirect = '/c'\n{ROUTE}[[site.route]]\npath = '/c'\nrespond = 204")] {
            assert_eq!(build(&keys, false).0, "", "{keys}");
        }
    }

    #[test]
    fn dictionaries_need_tls() {
        for (keys, line) in [
            ("dictionary_compressed = true", "x.toml:3: site.dictionary_compressed: has no effect without TLS"),
            ("use_as_dictionary = { match = '/a' }", "x.toml:3: site.use_as_dictionary: has no effect without TLS"),
            (
                "[[site.route]]\npath = '/a'\ndictionary_compressed = true",
                "x.toml:5: site.route.dictionary_compressed: has no effect without TLS",
            ),
        ] {
            assert!(build(keys, true).0.starts_with(line), "{}", build(keys, true).0);
            assert_eq!(build(keys, false).0, "", "{keys}");
        }
        let inherited = "dictionary_compressed = true\n[[site.route]]\npath = '/a'\nrespond = 204";
        assert_eq!(build(inherited, true).0.lines().count(), 1);
    }

    #[test]
    fn hsts_of_a_route_is_said_to_hold_for_the_host() {
        const ROUTE: &str = "[[site.route]]\npath = '/a/'\nhsts = ";
        const YEAR: &str = "{ max_age = '365d' }";
        for (keys, expected) in [
            (format!("{ROUTE}{YEAR}"), 1),
            (format!("hsts = {YEAR}\n{ROUTE}{{ max_age = '5m' }}"), 1),
            (format!("hsts = {YEAR}\n{ROUTE}{YEAR}"), 0),
            (format!("hsts = {YEAR}\n{ROUTE}{{}}"), 0),
        ] {
            let (problems, notes) = build(&keys, false);
            assert_eq!((problems.as_str(), notes.len()), ("", expected), "{keys}: {notes:?}");
            assert!(
                notes.iter().all(|note| note.starts_with("default: hsts of route /a/: browsers keep it")),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn a_redirect_to_the_address_that_was_asked_for_is_refused() {
        const REFUSED: &str = "is a redirect loop for clients with TLS";
        for (keys, is_refused) in [
            ("redirect = 'https://{host}{uri}'", true),
            ("[[site.route]]\npath = '/'\nredirect = { to = '{scheme}://{host}{uri}', status = 302 }", true),
            ("[[site.route]]\npath = '/'\nmatch = { scheme = 'http' }\nredirect = 'https://{host}{uri}'", false),
            ("redirect = 'https://www.{host}{uri}'", false),
            ("redirect = '{uri}'", false),
        ] {
            let text = format!("[[site]]\nroot = '/'\n{keys}");
            let (config, mut problems) = Config::parse(Path::new("x.toml"), &text).unwrap();
            config.site[0].refuse_redirects_to_itself(&mut problems);
            assert_eq!(problems.to_string().contains(REFUSED), is_refused, "{keys}: {problems}");
        }
    }
}
