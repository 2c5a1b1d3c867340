//! Routes: a site is a tree of them. Each is built once, at start, from its own keys and its inherited keys, so that a request reads one value.
//!
//! ```text
//! [[site]] ──► root route ◄── settings ── [[site.route]] ◄── settings ── [[site.route.route]]      config.rs, build.rs
//!                                               │
//! request ─► path, conditions ─► choice.rs, condition.rs ─► Route ─► action.rs
//! ```
//!
//! Invariant: conditions decide which route is chosen; guards (networks, passwords, a route that withholds) belong to the route. A path whose other
//! readings lead to a route with other guards is refused, and the file that is sent passes the guards of the route of its own name.

mod action;
mod build;
mod build_action;
mod checks;
mod choice;
mod condition;
mod condition_text;
mod config;
mod directory;
mod expressions;
mod forward;
mod path;
mod texts;
mod unclear;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderName;
use sealion_http::path::{SitePath, is_hidden};
use sealion_http::{Request, Status};

use super::basic_auth::BasicAuth;
use super::features::Features;
use super::forward_auth::ForwardAuth;
use super::listing_pages::Pages;
use super::pages::{ErrorPage, Whereto};
use super::pattern::original_of;
use super::proxy::InterimRequests;
use super::{FileOptions, proxy};
use crate::files::cache::Files;
use crate::limits::SiteLimits;
use crate::placeholders::{Asked, Form, Groups, Led, Template};
use crate::values::Problems;

pub(super) use action::{Action, Last, Try, path_template, url_template};
pub(crate) use action::{RedirectTable, RewriteTable};
pub(super) use build::Around;
pub(crate) use build::SiteContext;
pub(crate) use config::{RouteConfig, SiteConfig};
pub(crate) use directory::literally;
pub(super) use directory::{FileLocation, has_placeholders};

pub(super) use choice::RouteNumber;

use choice::Choice;
pub(super) use condition::{ColdPath, Disk};

use condition::{Condition, Holds};
use forward::Forward;
pub(in crate::site) use forward::NoServer;

/// A part of a site: it answers the requests for some paths.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its number among the routes of the site; `None`: the root.
    pub(super) number: Option<RouteNumber>,
    /// The route that it lies within; `None`: the root.
    pub(super) around: Option<RouteNumber>,
    /// Its path or name, for messages.
    pub(super) label: Box<str>,
    /// Its name, else its path, for the log.
    pub(super) shown: Box<str>,
    pub(super) files: Arc<Files>,
    /// The directory of `alias`, whose path is no part of the names of files, without slashes at its ends.
    pub(super) alias: Box<[u8]>,
    /// The directory beneath the root of `files` that a request names. `None`: the root itself.
    directory: Option<Arc<Template>>,
    /// Where error pages are.
    pub(super) error_files: Arc<Files>,
    /// Where the fallback is.
    pub(super) fallback_files: Arc<Files>,
    /// The listings that are being sent.
    pub(super) pages: Arc<Pages>,
    pub(super) options: FileOptions,
    /// Limits on the use by clients.
    pub(super) limits: Option<Arc<SiteLimits>>,
    /// Everything configured besides the files.
    pub(super) features: Features,
    pub(super) action: Arc<Action>,
    pub(super) groups: Arc<Groups>,
    conditions: Option<Condition>,
    /// Whether clients get 404.
    pub(super) is_internal: bool,
    /// Whether no other route leads here.
    is_once: bool,
    /// Whether no rewrite leads here.
    is_unless_rewritten: bool,
    /// Whether its path is exact or an expression: it says each path, with and without a slash at the end.
    pub(super) names_ends: bool,
    /// The folder of `/a/*`, without slashes at its ends.
    excluded_folder: Option<Box<[u8]>>,
    /// Whether only its name leads to it.
    is_named: bool,
    /// Equal for routes with the same guards.
    guards: usize,
}

/// The routes of a site beneath its root.
#[derive(Debug)]
pub(super) struct Routes {
    all: Vec<Route>,
    choice: Choice,
    named: HashMap<Box<str>, RouteNumber>,
    /// Whether a route has guards.
    has_guards: bool,
    /// Whether there are routes with different guards.
    guards_differ: bool,
    /// The guards of the root.
    root_guards: usize,
    has_conditions: bool,
    has_limits: bool,
    may_forward: bool,
    /// Interim responses of the rule that passes most of them on. `None`: no route forwards.
    interim: Option<InterimRequests>,
    /// Whether a server learns the ends of a client's connection.
    names_endpoints: bool,
    /// Whether a route has `forward_auth`.
    asks: bool,
    has_early_hints: bool,
    /// Fields that servers of `forward_auth` set.
    copied: Vec<HeaderName>,
}

impl Route {
    /// The rule that forwards, whichever server a request chooses.
    pub(super) fn rule(&self) -> Option<&proxy::Rule> {
        self.forward().map(Forward::any)
    }

    fn forward(&self) -> Option<&Forward> {
        match &*self.action {
            Action::Forward(forward) => Some(forward),
            Action::Files
            | Action::Respond(_)
            | Action::Redirect(_)
            | Action::Rewrite(_)
            | Action::Try(_)
            | Action::Deny => None,
        }
    }

    /// The names of index files, in order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.files.index()).chain(self.features.more_indexes.iter().map(String::as_str))
    }

    /// Whether a request may be forwarded, here or where the route leads.
    pub(super) fn may_forward(&self) -> bool {
        let pages = self.features.error_pages.as_ref();
        match &*self.action {
            Action::Forward(_) | Action::Rewrite(_) | Action::Try(_) => true,
            Action::Files => pages.is_some_and(|pages| pages.targets().next().is_some()),
            Action::Respond(_) | Action::Redirect(_) | Action::Deny => {
                self.action.withholds().is_some_and(|status| self.leads_elsewhere(status))
            }
        }
    }

    /// Whether the error page of a status is the response of another route.
    fn leads_elsewhere(&self, status: Status) -> bool {
        let pages = self.features.error_pages.as_ref();
        pages.is_some_and(|pages| matches!(pages.get(status), Some(ErrorPage::Elsewhere(_))))
    }

    /// Whether requests name the directory of its files.
    pub(super) fn has_named_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// Its number, for the log.
    pub(super) fn shown_number(&self) -> Option<u32> {
        u32::try_from(self.number?).ok()
    }

    /// Whether it only sends files.
    pub(super) fn is_of_files(&self) -> bool {
        matches!(&*self.action, Action::Files)
    }

    /// Whether files of a path are shown, whose names may begin with a dot.
    pub(super) fn shows(&self, path: &SitePath<'_>) -> bool {
        self.options.show_dotfiles || !path.as_bytes().split(|byte| *byte == b'/').any(is_hidden)
    }

    /// Whether a server learns the ends of a client's connection.
    pub(super) fn names_endpoints(&self) -> bool {
        self.rules().any(proxy::Rule::names_endpoints)
            || self.features.forward_auth.as_ref().is_some_and(|auth| auth.names_endpoints())
    }

    /// All rules that it forwards by.
    pub(super) fn rules(&self) -> impl Iterator<Item = &proxy::Rule> {
        self.forward().into_iter().flat_map(Forward::all)
    }

    /// The status of every request that comes here from outside.
    pub(super) fn withholds(&self) -> Option<Status> {
        if self.is_internal { Some(Status::NOT_FOUND) } else { self.action_withholds() }
    }

    /// The status of every request, if its action serves nothing. An error page elsewhere is a turn on the way, unless the status is the status of a closed
    /// path.
    fn action_withholds(&self) -> Option<Status> {
        const CLOSED: [u16; 5] = [401, 403, 404, 410, 451];
        let status = self.action.withholds()?;
        (!self.leads_elsewhere(status) || CLOSED.contains(&status.code())).then_some(status)
    }

    /// Whether a feature may refuse a file by its name.
    pub(super) fn has_guards(&self) -> bool {
        self.features.has_guards() || self.withholds().is_some()
    }

    /// Whether a path without a slash at its end is the directory that the route is.
    pub(super) fn is_directory(&self, path: &SitePath<'_>) -> bool {
        let label = self.label.trim_start_matches("^~ ");
        let directory = label.strip_prefix('/').and_then(|label| label.strip_suffix('/'));
        directory.is_some_and(|directory| directory.as_bytes() == path.as_bytes())
    }

    /// Whether it has the path of a folder and leaves out the same path without the slash at its end: the author of `/a/*` tells them apart.
    pub(super) fn leaves_out(&self, path: &SitePath<'_>) -> bool {
        path.names_directory() && self.excluded_folder.as_deref() == Some(path.as_bytes())
    }

    /// Whether a password or another server's consent stands for the network of the client.
    pub(super) fn may_authenticate_instead(&self) -> bool {
        let features = &self.features;
        // Without `access`, every client would pass without a password.
        let has_both = features.access.is_some() && (features.basic_auth.is_some() || features.forward_auth.is_some());
        features.satisfies_any && has_both
    }

    /// Whether a request that passed the guards of this route needs no password and no consent for the other.
    pub(super) fn authenticates_for(&self, other: &Route) -> bool {
        if self.guards == other.guards {
            return true;
        }
        // The network of the client may have stood for the password.
        if self.may_authenticate_instead() {
            return false;
        }
        let (own, other) = (&self.features, &other.features);
        let has_password = |auth: &Arc<BasicAuth>| own.basic_auth.as_ref().is_some_and(|own| own.has_users_of(auth));
        let has_consent = |auth: &Arc<ForwardAuth>| own.forward_auth.as_ref().is_some_and(|own| Arc::ptr_eq(own, auth));
        other.basic_auth.as_ref().is_none_or(has_password) && other.forward_auth.as_ref().is_none_or(has_consent)
    }

    /// Whether it redirects every request.
    pub(super) fn redirects(&self) -> bool {
        matches!(&*self.action, Action::Redirect(_))
    }

    /// Whether it answers by itself: a response, a redirect or a refusal.
    pub(super) fn has_own_answer(&self) -> bool {
        matches!(&*self.action, Action::Respond(_) | Action::Redirect(_) | Action::Deny)
    }

    /// Whether the route accepts a path that is reached this way.
    fn may_be_led_to(&self, led: Option<Led>) -> bool {
        match led {
            None => true,
            Some(Led::Rewrite | Led::Stay) => !self.is_once && !self.is_unless_rewritten,
            Some(Led::InternalRedirect) => !self.is_once,
        }
    }

    /// The value of a key that its limits count requests by. `None`: the request has no such value.
    pub(super) fn limit_value(&self, key: &Template, asked: &Asked<'_>) -> Option<Vec<u8>> {
        Some(key.render(&Asked { groups: Some(&self.groups), ..*asked }, Form::Plain).ok()?.into_owned())
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether the request meets the conditions of the route, whose groups they may name. `None`: it has none.
    fn holds(&self, asked: &Asked<'_>, disk: Disk<'_>) -> Option<Holds> {
        Some(self.conditions.as_ref()?.holds(&Asked { groups: Some(&self.groups), ..*asked }, self, disk))
    }

    /// Whether both have the same guards. `but_for_slash`: the paths differ only in their last slash, which a redirect usually adds.
    pub(super) fn is_guarded_as(&self, other: &Route, but_for_slash: bool) -> bool {
        let redirects = |route: &Route| matches!(&*route.action, Action::Redirect(_));
        self.guards == other.guards || but_for_slash && (redirects(self) || redirects(other))
    }
}

impl Routes {
    pub(super) fn get(&self, number: RouteNumber) -> &Route {
        &self.all[number]
    }

    pub(super) fn all(&self) -> &[Route] {
        &self.all
    }

    /// The route of a name, or the one within it that the request has. `None`: no route has the name.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub(super) fn named(&self, name: &str, asked: &Asked<'_>) -> Option<Result<&Route, Status>> {
        let own = *self.named.get(name)?;
        let full = asked.path.full();
        let found =
            self.in_each_reading(asked, Disk::Waits, |admits| self.choice.find_within(own, full, admits).map(Some));
        Some(found.map(|number| &self.all[number.unwrap_or(own)]))
    }

    pub(super) fn has_guards(&self) -> bool {
        self.has_guards
    }

    pub(super) fn guards_differ(&self) -> bool {
        self.guards_differ
    }

    pub(super) fn has_conditions(&self) -> bool {
        self.has_conditions
    }

    pub(super) fn has_limits(&self) -> bool {
        self.has_limits
    }

    pub(super) fn may_forward(&self) -> bool {
        self.may_forward
    }

    pub(super) fn passes_interim(&self, request: &Request<'_>) -> bool {
        self.interim.is_some_and(|interim| interim.include(request))
    }

    pub(super) fn names_endpoints(&self) -> bool {
        self.names_endpoints
    }

    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    pub(super) fn has_early_hints(&self) -> bool {
        self.has_early_hints
    }

    pub(super) fn copied(&self) -> &[HeaderName] {
        &self.copied
    }

    /// The route for the path of `asked`. `None`: the root.
    ///
    /// # Errors
    /// 400: the request has several values for a condition that decides about its guards.
    pub(super) fn choose(&self, asked: &Asked<'_>, disk: Disk<'_>) -> Result<Option<&Route>, Status> {
        let found = self.in_each_reading(asked, disk, |admits| self.choice.find(asked.path.full(), admits))?;
        Ok(found.map(|number| &self.all[number]))
    }

    /// The route for the path that a client asks for, where no route has conditions. `None`: the root.
    ///
    /// # Errors
    /// An expression takes too many steps.
    pub(super) fn choose_by_path(&self, path: &SitePath<'_>) -> Result<Option<&Route>, Status> {
        let found = self.choice.find::<Status>(path.full(), &mut |_| Ok(true))?;
        Ok(found.map(|number| &self.all[number]))
    }

    /// Adds the error pages that lead nowhere to `problems`. `root`: the route around all others.
    fn check_error_pages(&self, root: &Route, key: &str, problems: &mut Problems) {
        let mut checked = Vec::new();
        for pages in self.all.iter().chain([root]).filter_map(|route| route.features.error_pages.as_ref()) {
            if checked.contains(&Arc::as_ptr(pages)) {
                continue;
            }
            checked.push(Arc::as_ptr(pages));
            for (code, target) in pages.targets() {
                let has_route =
                    |path: &str| SitePath::parse(path, true).is_ok_and(|path| self.by_path(&path).is_some());
                let path = target.text.split('?').next().unwrap_or_default();
                let what = match &target.to {
                    Whereto::Named(name) if !self.named.contains_key(name.as_str()) => no_such_name(name),
                    Whereto::Path(_) if !target.chooses_route() && !has_route(path) => match &target.no_file {
                        Some(what) => what.clone(),
                        None => continue,
                    },
                    Whereto::Named(_) | Whereto::Path(_) | Whereto::Url(_) => continue,
                };
                problems.add(&target.text.span, &format!("{key}.error_pages.{code}"), what);
            }
        }
    }

    /// The routes that are passed over or taken by their conditions, whether these hold or which fails, and whether they ask for the client's address.
    pub(super) fn conditions(&self, asked: &Asked<'_>) -> Vec<(&str, String, bool)> {
        let mut found = Vec::new();
        let mut admits = |number: RouteNumber| {
            let route = &self.all[number];
            let Some(conditions) = &route.conditions else { return Ok::<_, ()>(true) };
            let own = Asked { groups: Some(&route.groups), ..*asked };
            let holds = conditions.holds(&own, route, Disk::Waits);
            let deciding = || conditions.deciding(&own, route).map(|one| one.to_string()).unwrap_or_default();
            let words = match holds {
                Holds::Yes => "hold".to_owned(),
                Holds::No => format!("fail: {}", deciding()),
                Holds::Unclear => format!("hold for some of several values: {}", deciding()),
            };
            found.push((&*route.label, words, conditions.asks_for_client(asked.tables)));
            Ok(holds != Holds::No)
        };
        let _ = self.choice.find(asked.path.full(), &mut admits);
        found
    }

    /// The route for a path whatever its conditions: the first one.
    pub(super) fn by_path(&self, path: &SitePath<'_>) -> Option<&Route> {
        let found = self.choice.find::<()>(path.full(), &mut |_| Ok(true));
        found.ok().flatten().map(|number| &self.all[number])
    }
}

/// The remedy for a name that no route has.
fn no_such_name(name: &str) -> String {
    format!("{name} is the name of no route: add name = \"{name}\" to one")
}

/// The path of the file whose sibling is at `path`.
pub(super) fn original(path: &SitePath<'_>) -> Option<SitePath<'static>> {
    let original = original_of(path.as_bytes()).filter(|_| !path.names_directory())?;
    SitePath::of_octets(original).ok()
}
