//! Builds the routes of a site from its configuration.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::action::Action;
use super::checks::{refuse_loops, refuse_without_server};
use super::choice::{Candidate, Choice};
use super::config::RouteConfig;
use super::directory::{self, opened};
use super::path::RoutePath;
use super::{Route, Routes, no_such_name};
use crate::files::cache::{FileCache, Files};
use crate::files::coding::Coder;
use crate::files::coding::config::Encoding;
use crate::files::media_types::MediaTypes;
use crate::files::resolve::Root;
use crate::limits::Zones;
use crate::placeholders::{Groups, Known, Tables};
use crate::site::features::inherited;
use crate::site::listing_pages::Pages;
use crate::site::pattern::build_regex;
use crate::site::proxy::Rule;
use crate::site::{FileOptions, SiteConfig};
use crate::store::Store;
use crate::upstream::Upstreams;
use crate::values::{At, Problems};

/// The parts that all sites of a configuration share while they are built.
pub(crate) struct SiteContext<'a> {
    pub(crate) cache: &'a Arc<FileCache>,
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) store: Option<&'a Arc<Store>>,
    /// Most ranges in one request.
    pub(crate) max_ranges: usize,
    /// Whether sites are reachable only without TLS.
    pub(crate) plain: bool,
    pub(crate) tables: Arc<Tables>,
    /// The listeners that the site names, in one text; empty: none.
    pub(crate) listeners: String,
    /// The counts that limits of several sites share.
    pub(crate) zones: Zones,
}

impl<'a> SiteContext<'a> {
    /// For sites with TLS, without stored responses and tables.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn new(cache: &'a Arc<FileCache>, upstreams: &'a mut Upstreams) -> Self {
        SiteContext {
            cache,
            upstreams,
            store: None,
            max_ranges: 16,
            plain: false,
            tables: Arc::default(),
            listeners: String::new(),
            zones: Zones::default(),
        }
    }
}

/// A route that others lie within, with all its settings.
#[derive(Clone, Copy)]
pub(in crate::site) struct Around<'a> {
    pub(in crate::site) settings: &'a SiteConfig,
    pub(in crate::site) route: &'a Route,
    /// Its action, without `deny`.
    action: &'a Arc<Action>,
}

/// Ends of the names of scripts, which no route sends as files.
fn scripts_of(site: &SiteConfig) -> Arc<[Box<str>]> {
    site.scripts().flat_map(|fastcgi| fastcgi.extensions.iter().map(|end| end.as_str().into())).collect()
}

/// Opens a root.
fn open(path: &At<PathBuf>, key: &str, problems: &mut Problems) -> Option<Root> {
    Root::open(&problems.resolve(&opened(path))).map_err(|error| problems.add(&path.span, key, error)).ok()
}

impl SiteConfig {
    /// Builds the root route and the routes beneath it. `None`: the errors are in `problems`.
    pub(in crate::site) fn routes(
        &self,
        context: &mut SiteContext<'_>,
        problems: &mut Problems,
    ) -> Option<(Route, Option<Box<Routes>>)> {
        let scripts = scripts_of(self);
        let files = self.open_files(&scripts, context, problems)?;
        let mut root = self.build_route(files, None, ("site", Arc::new(self.host_groups())), context, problems);
        root.directory = self.root.as_ref().and_then(|path| {
            let known = Known::of_request(Some(&root.groups), &context.tables);
            directory::template(path, known, "site.root", problems).map(Arc::new)
        });
        let everything = RoutePath::everything();
        let own = self.root_route();
        let action = own.action(&everything, &root, self, ("site", context), problems);
        let action = Arc::new(action.unwrap_or(Action::Files));
        let denied = Arc::new(Action::Deny);
        root.action = Arc::clone(if self.deny { &denied } else { &action });
        self.check_root(&own, problems);
        let setting = Some(&self.forwarded_cache_control);
        refuse_without_server(setting, &own, (&action, &self.route), "site", problems);
        if self.route.is_empty() {
            if let Some(last) = own.r#try.last().filter(|last| last.starts_with('@')) {
                problems.add(&last.span, "site.try", no_such_name(last));
            }
            if let (Some(redirect), Action::Redirect(own)) = (&own.redirect, &*action)
                && own.path().is_some()
            {
                let what = "is a redirect loop: the site redirects the target again";
                problems.add(&redirect.span, "site.redirect", what);
            }
            let targets = root.features.error_pages.iter().flat_map(|pages| pages.targets());
            for (code, target) in targets.filter(|(_, target)| !target.is_url() && !target.chooses_route()) {
                let what =
                    target.no_file.clone().unwrap_or_else(|| "leads to a route, but the site has no routes".to_owned());
                problems.add(&target.text.span, &format!("site.error_pages.{code}"), what);
            }
            return Some((root, None));
        }
        let mut tree = Tree {
            site: self,
            scripts,
            all: Vec::new(),
            candidates: Vec::new(),
            named: HashMap::new(),
            taken: HashSet::new(),
            guards: Vec::new(),
            denied,
        };
        let root = Route { guards: tree.number_of_guards(&root), ..root };
        for own in &self.route {
            tree.add(own, &everything, Around { settings: self, route: &root, action: &action }, context, problems);
        }
        let routes = tree.finish((&own, &root), problems)?;
        Some((root, Some(Box::new(routes))))
    }

    /// The files beneath the root; an empty one for a site that needs none.
    fn open_files(
        &self,
        scripts: &Arc<[Box<str>]>,
        context: &SiteContext<'_>,
        problems: &mut Problems,
    ) -> Option<Arc<Files>> {
        let root = match &self.root {
            Some(path) => open(path, "site.root", problems)?,
            // An action or routes may answer every request; others get 404.
            None if self.deny || *self.reject_handshake || self.root_route().has_action() || !self.route.is_empty() => {
                Root::empty().map_err(|error| problems.add(&(0..0), "site.root", error)).ok()?
            }
            None => {
                let what = format_args!(
                    "is missing for site {}: name the directory to serve, or answer its requests with an action, for instance proxy, or [[site.route]]",
                    self.label()
                );
                problems.add(&(0..0), "site.root", what);
                return None;
            }
        };
        Some(Arc::new(self.files(root, scripts, "site", context.cache, problems)))
    }

    /// The files beneath `root` with these settings. `scripts`: ends of the names of files that are not sent.
    pub(in crate::site) fn files(
        &self,
        root: Root,
        scripts: &Arc<[Box<str>]>,
        key: &str,
        cache: &Arc<FileCache>,
        problems: &mut Problems,
    ) -> Files {
        let media_types = MediaTypes::build(&self.media_types, &format!("{key}.media_types"), problems).map(Arc::new);
        let index = self.index.first().map(|index| index.value.clone()).unwrap_or_default();
        let coder = Encoding::build(&self.precompressed, self.compress.clone().into_table().as_ref(), key, problems)
            .map(|encoding| Arc::new(Coder::new(&encoding)));
        let root = root.hiding(Arc::clone(scripts)).with_media_types(media_types).with_entity_tags(self.etag);
        Files::new(root, index, cache).with_codings(coder)
    }

    /// Whether both settings have the same files.
    pub(in crate::site) fn has_files_of(&self, other: &SiteConfig) -> bool {
        let own = (&self.root, self.index.first(), self.etag, &self.media_types, &self.precompressed, &self.compress);
        own == (&other.root, other.index.first(), other.etag, &other.media_types, &other.precompressed, &other.compress)
    }

    /// The route with these settings, and the action of the route around it.
    fn build_route(
        &self,
        files: Arc<Files>,
        around: Option<Around<'_>>,
        (key, groups): (&str, Arc<Groups>),
        context: &mut SiteContext<'_>,
        problems: &mut Problems,
    ) -> Route {
        let features = self.features(&files, around, (key, &groups), context, problems);
        let sets_error_pages = around.is_none_or(|around| {
            self.error_pages != around.settings.error_pages || self.maintenance != around.settings.maintenance
        });
        let sets_fallback = around.is_none_or(|around| self.fallback != around.settings.fallback);
        let of_around = |sets: bool, of: fn(&Route) -> &Arc<Files>| match around {
            Some(around) if !sets => Arc::clone(of(around.route)),
            _ => Arc::clone(&files),
        };
        let limits = around.map(|around| (&around.settings.limits, &around.route.limits));
        let known = Known::of_request(None, &context.tables);
        let limits = inherited(&self.limits, limits, |limits| {
            limits.build(known, &format!("{key}.limits"), &mut context.zones, problems)
        });
        Route {
            number: None,
            around: around.and_then(|around| around.route.number),
            label: self.label().into(),
            shown: Box::default(),
            error_files: of_around(sets_error_pages, |route| &route.error_files),
            fallback_files: of_around(sets_fallback, |route| &route.fallback_files),
            alias: around.map_or_else(Box::default, |around| around.route.alias.clone()),
            directory: around.and_then(|around| around.route.directory.clone()),
            pages: around.map_or_else(|| Arc::new(Pages::default()), |around| Arc::clone(&around.route.pages)),
            options: FileOptions { max_ranges: context.max_ranges, show_dotfiles: self.show_dotfiles },
            limits,
            features,
            action: around.map_or_else(|| Arc::new(Action::Files), |around| Arc::clone(around.action)),
            groups,
            conditions: None,
            is_internal: around.is_some_and(|around| around.route.is_internal),
            names_ends: false,
            excluded_folder: None,
            is_named: false,
            is_once: around.is_some_and(|around| around.route.is_once),
            is_unless_rewritten: around.is_some_and(|around| around.route.is_unless_rewritten),
            guards: 0,
            files,
        }
    }
}

/// The routes of a site while they are built.
struct Tree<'a> {
    site: &'a SiteConfig,
    scripts: Arc<[Box<str>]>,
    /// By number. `None`: it is not built yet, or has problems.
    all: Vec<Option<Route>>,
    candidates: Vec<Candidate>,
    named: HashMap<Box<str>, usize>,
    /// Paths of routes without conditions, by the route that they lie within.
    taken: HashSet<(Option<usize>, RoutePath)>,
    guards: Vec<GuardKey>,
    /// The action of routes that deny.
    denied: Arc<Action>,
}

/// The guards of a route, by their addresses.
type GuardKey = [usize; 6];

fn address<T>(value: Option<&Arc<T>>) -> usize {
    value.map_or(0, |value| Arc::as_ptr(value).addr())
}

pub(super) const KEY: &str = "site.route";

impl Tree<'_> {
    /// Equal for routes whose guards are the same.
    fn number_of_guards(&mut self, route: &Route) -> usize {
        let withholds = route.action_withholds().is_some() || matches!(&*route.action, Action::Redirect(_));
        let key = [
            address(route.features.access.as_ref()),
            address(route.features.basic_auth.as_ref()),
            address(route.features.forward_auth.as_ref()),
            address(Some(&route.action).filter(|_| withholds)),
            usize::from(route.is_internal),
            usize::from(route.features.satisfies_any),
        ];
        self.guards.iter().position(|other| *other == key).unwrap_or_else(|| {
            self.guards.push(key);
            self.guards.len() - 1
        })
    }

    /// Adds a route and the routes within it. `outer`: the paths of the route around it.
    fn add(
        &mut self,
        own: &RouteConfig,
        outer: &RoutePath,
        around: Around<'_>,
        context: &mut SiteContext<'_>,
        problems: &mut Problems,
    ) {
        let number = self.all.len();
        self.all.push(None);
        let path = match &own.path {
            None => Some(outer.clone()),
            Some(text) => RoutePath::parse(text, &format!("{KEY}.path"), problems).inspect(|path| {
                if !outer.may_contain(path) {
                    let what = "lies outside the route around it: write it within that path, or move the route out";
                    problems.add(&text.span, &format!("{KEY}.path"), what);
                }
            }),
        };
        let Some(path) = path else { return };
        let is_named = self.add_candidate(own, &path, number, around.route.number, problems);
        let mut settings = own.settings_over(around.settings);
        let Some(files) = self.files(own, &path, &mut settings, around, (context, problems)) else { return };
        let mut groups = Groups::clone(&around.route.groups);
        if let (RoutePath::Expression { text, ignores_case }, true) = (&path, own.path.is_some()) {
            let flags = if *ignores_case { "(?i)" } else { "" };
            groups.path = build_regex(&format!("{flags}{text}"), &(0..0), KEY, problems);
        }
        let conditions = own.conditions.as_ref();
        let conditions = conditions
            .map(|conditions| conditions.build(&mut groups, &context.tables, &format!("{KEY}.match"), problems));
        let groups = Arc::new(groups);
        let mut route = settings.build_route(files, Some(around), (KEY, Arc::clone(&groups)), context, problems);
        route.conditions = conditions;
        route.number = Some(number);
        route.is_named = is_named;
        route.label = own
            .path
            .as_ref()
            .or(own.name.as_ref())
            .map_or_else(|| around.route.label.clone(), |text| text.as_str().into());
        route.shown = own.name.as_ref().map_or_else(|| route.label.clone(), |name| name.as_str().into());
        route.is_internal |= own.internal;
        route.is_once |= own.once;
        route.is_unless_rewritten |= own.unless_rewritten;
        route.names_ends = !matches!(path, RoutePath::Prefix { .. });
        route.excluded_folder = path.excluded_folder().map(Box::from);
        if own.alias.is_some() {
            route.alias = path.directory().unwrap_or_default().into();
        } else if own.root.is_some() {
            route.alias = Box::default();
        }
        let own_root =
            own.alias.as_ref().map(|alias| (alias, "alias")).or(own.root.as_ref().map(|root| (root, "root")));
        if let Some((root, name)) = own_root {
            let known = Known::of_request(Some(&groups), &context.tables);
            let template = directory::template(root, known, &format!("{KEY}.{name}"), problems);
            route.directory = template.map(Arc::new);
        }
        let action = own.action(&path, &route, &settings, (KEY, context), problems);
        let action = action.map_or_else(|| Arc::clone(around.action), Arc::new);
        let setting = own.forwarded_cache_control.as_ref();
        refuse_without_server(setting, own, (&action, &own.route), KEY, problems);
        route.action = Arc::clone(if settings.deny { &self.denied } else { &action });
        route.guards = self.number_of_guards(&route);
        for within in &own.route {
            self.add(within, &path, Around { settings: &settings, route: &route, action: &action }, context, problems);
        }
        self.all[number] = Some(route);
    }

    /// Lets requests find a route by its path or its name. Returns whether only by its name.
    fn add_candidate(
        &mut self,
        own: &RouteConfig,
        path: &RoutePath,
        number: usize,
        within: Option<usize>,
        problems: &mut Problems,
    ) -> bool {
        if let Some(name) = &own.name {
            self.add_name(name, number, problems);
        }
        if own.name.is_some() && own.path.is_none() {
            return true;
        }
        if own.path.is_none() && own.conditions.is_none() {
            let what = "has neither path, match nor name, so that no request finds it: add one of them";
            problems.add(&(0..0), KEY, what);
        }
        let place = (within, path.clone());
        let is_taken = match own.conditions {
            // Others come to the route behind it by a rewrite.
            None if own.once || own.unless_rewritten => self.taken.contains(&place),
            None => !self.taken.insert(place),
            Some(_) => self.taken.contains(&place),
        };
        let is_taken = is_taken || path.with_folder().is_some_and(|path| self.taken.contains(&(within, path)));
        if let Some(text) = own.path.as_ref().filter(|_| is_taken) {
            let what = "is never reached: a route before it has the same path and no match: remove one of them, or write this one first";
            problems.add(&text.span, &format!("{KEY}.path"), what);
        }
        self.candidates.push(Candidate { route: number, path: path.clone(), within });
        false
    }

    fn add_name(&mut self, name: &At<String>, number: usize, problems: &mut Problems) {
        let key = format!("{KEY}.name");
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        match name.strip_prefix('@') {
            Some(rest) if !rest.is_empty() && is_name(rest) => {
                if self.named.insert(name.as_str().into(), number).is_some() {
                    problems.add(&name.span, &key, format_args!("{} is there twice: rename one", name.value));
                }
            }
            _ => problems.add(
                &name.span,
                &key,
                "is an at sign, then letters, digits, hyphens and underscores: write for instance @app",
            ),
        }
    }

    /// The files of a route. It shares the files of the route around it unless it sets anything about them.
    fn files(
        &self,
        own: &RouteConfig,
        path: &RoutePath,
        settings: &mut SiteConfig,
        around: Around<'_>,
        (context, problems): (&SiteContext<'_>, &mut Problems),
    ) -> Option<Arc<Files>> {
        if let Some(alias) = &own.alias {
            let key = format!("{KEY}.alias");
            if own.root.is_some() {
                problems.add(&alias.span, &key, "stands beside root: remove one of them");
            }
            if path.directory().is_none() {
                problems.add(
                    &alias.span,
                    &key,
                    "needs a path that ends in a slash, for instance /docs/: write root instead",
                );
            }
            settings.root = Some(alias.clone());
        }
        if settings.has_files_of(around.settings) {
            return Some(Arc::clone(&around.route.files));
        }
        let root = match &settings.root {
            Some(root) => {
                open(root, &format!("{KEY}.{}", if own.alias.is_some() { "alias" } else { "root" }), problems)?
            }
            None => Root::empty().map_err(|error| problems.add(&(0..0), KEY, error)).ok()?,
        };
        Some(Arc::new(settings.files(root, &self.scripts, KEY, context.cache, problems)))
    }

    /// The finished routes. `None`: the errors are in `problems`.
    fn finish(self, (own_root, root): (&RouteConfig, &Route), problems: &mut Problems) -> Option<Routes> {
        let choice = Choice::new(&self.candidates)
            .map_err(|error| {
                problems.add(
                    &(0..0),
                    &format!("{KEY}.path"),
                    format_args!("the expressions of a site are too large together: {error}"),
                )
            })
            .ok();
        let all: Vec<Route> = self.all.into_iter().collect::<Option<_>>()?;
        let tries = self.site.all_routes().map(|own| (own, KEY)).chain([(own_root, "site")]);
        for (own, key) in tries {
            if let Some(last) =
                own.r#try.last().filter(|last| last.starts_with('@') && !self.named.contains_key(last.as_str()))
            {
                problems.add(&last.span, &format!("{key}.try"), no_such_name(last));
            }
        }
        let with_root = || all.iter().chain([root]);
        let copied = with_root().filter_map(|route| route.features.forward_auth.as_ref());
        let mut routes = Routes {
            all: Vec::new(),
            choice: choice?,
            named: self.named,
            has_guards: with_root().any(Route::has_guards),
            guards_differ: all.iter().any(|route| route.guards != root.guards),
            root_guards: root.guards,
            has_conditions: all.iter().any(|route| route.conditions.is_some()),
            has_limits: all.iter().any(|route| address(route.limits.as_ref()) != address(root.limits.as_ref())),
            may_forward: with_root().any(|route| route.rule().is_some()),
            interim: with_root().flat_map(Route::rules).map(Rule::interim).max(),
            names_endpoints: with_root().any(Route::names_endpoints),
            asks: with_root().any(|route| route.features.forward_auth.is_some()),
            has_early_hints: with_root().any(|route| route.features.early_hints.is_some()),
            copied: copied.flat_map(|auth| auth.copied().cloned()).collect(),
        };
        routes.all = all;
        refuse_loops(self.site, (own_root, root), &routes, problems);
        routes.check_error_pages(root, "site", problems);
        Some(routes)
    }
}
