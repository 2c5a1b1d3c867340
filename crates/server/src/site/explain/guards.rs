//! The guards and settings of a route on the way, each with the route that it is inherited from.

use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::{Method, Target};

use super::super::route::{Action, Route};
use super::{Site, Step, Way, client_of};
use crate::site::plain_http;

/// The name of a setting, and the address of its value in a route; 0: the route has none.
type Setting = (&'static str, fn(&Route) -> usize);

/// The settings of a route that matter to every request.
const SETTINGS: [Setting; 10] = [
    ("files", |route| Arc::as_ptr(&route.files).addr()),
    ("limits", |route| address(route.limits.as_ref())),
    ("maintenance", |route| address(route.features.maintenance.as_ref())),
    ("networks", |route| address(route.features.access.as_ref())),
    ("password", |route| address(route.features.basic_auth.as_ref())),
    ("another server's consent", |route| address(route.features.forward_auth.as_ref())),
    ("satisfy", |route| usize::from(route.may_authenticate_instead())),
    ("CORS", |route| address(route.features.cors.as_ref())),
    ("error pages", |route| address(route.features.error_pages.as_ref())),
    ("header fields", |route| address(route.features.headers.as_ref())),
];

impl<'a> Way<'a> {
    /// Says what a route has, from where, and whether a guard refuses the request.
    pub(super) fn explain_settings(&mut self, step: &Step<'a>, path: &SitePath<'_>) {
        let route = step.route;
        for (name, address) in SETTINGS.into_iter().filter(|(_, address)| address(route) != 0) {
            let from = self.site.origin(route, address);
            let effect = self.effect(name, route);
            self.say(2, format_args!("{name}, of {from}{effect}"));
        }
        self.say(2, format_args!("action, of {}", self.site.origin(route, |route| Arc::as_ptr(&route.action).addr())));
        if self.refusal.is_none() {
            self.refusal = self.refusal_by(step, path);
        }
    }

    /// The effect of a guard on this request, for the line behind the guard's name.
    fn effect(&self, name: &str, route: &Route) -> String {
        let (features, client) = (&route.features, self.client.address);
        match name {
            "networks" => match (client, features.access.as_ref().is_some_and(|access| access.allows(client))) {
                (None, _) => ": the client's address decides: add --client ADDRESS".to_owned(),
                (Some(_), true) => format!(": {} may pass", client_of(client)),
                (Some(_), false) if route.may_authenticate_instead() => {
                    format!(": {} has to authenticate", client_of(client))
                }
                (Some(_), false) => format!(": {} is refused", client_of(client)),
            },
            "maintenance" => {
                match features.maintenance.as_ref().is_some_and(|maintenance| maintenance.admits(client)) {
                    true => format!(": {} sees the site", client_of(client)),
                    false => ": the site answers 503".to_owned(),
                }
            }
            "password" => match self.request.fields.first("authorization") {
                Some(_) => ": the password has to be right".to_owned(),
                None => ": 401 without one".to_owned(),
            },
            "another server's consent" => {
                let url = features.forward_auth.as_ref().map(|auth| auth.url()).unwrap_or_default();
                format!(": {url} decides")
            }
            "satisfy" => ": any: a client of the networks passes, and others have to authenticate".to_owned(),
            _ => String::new(),
        }
    }

    /// The answer of a guard that needs no password and no other server. In the order of [`super::super::answer`].
    fn refusal_by(&self, step: &Step<'a>, path: &SitePath<'_>) -> Option<String> {
        let (route, client) = (step.route, self.client.address);
        let of = |address: fn(&Route) -> usize| self.site.origin(route, address);
        if route.features.maintenance.as_ref().is_some_and(|maintenance| !maintenance.admits(client)) {
            return Some(self.with_page(route, 503, "maintenance"));
        }
        if self.site.https_only && self.client.is_plain {
            let Target::Path { path, query } = self.request.target else { return None };
            let port = self.site.https.unwrap_or(443);
            let to = plain_http::over_https(self.request.authority.unwrap_or_default(), port, path, query);
            return Some(format!("308: https_only redirects to {to}"));
        }
        if route.is_internal && !step.is_led {
            return Some(self.with_page(route, 404, "the route is internal: only other routes lead there"));
        }
        let is_refused =
            client.is_some() && route.features.access.as_ref().is_some_and(|access| !access.allows(client));
        if is_refused && !route.may_authenticate_instead() {
            let from = of(|route| address(route.features.access.as_ref()));
            return Some(self.with_page(route, 403, &format!("networks of {from} refuse {}", client_of(client))));
        }
        let asks_for_password =
            route.features.basic_auth.is_some() && self.request.fields.first("authorization").is_none();
        let is_admitted = route.may_authenticate_instead() && !is_refused;
        if asks_for_password && !is_admitted && !matches!(&*route.action, Action::Deny) {
            let from = of(|route| address(route.features.basic_auth.as_ref()));
            return Some(self.with_page(
                route,
                401,
                &format!("{from} asks for a password: add -H 'Authorization: …' to go on"),
            ));
        }
        let takes_all = !matches!(&*route.action, Action::Files) || self.site.has_other_index(route, path);
        match self.request.method {
            Method::Get | Method::Head => None,
            _ if takes_all => None,
            Method::Other(_) => Some(self.with_page(route, 405, "files answer GET and HEAD alone")),
            Method::Unknown(_) => Some(self.with_page(route, 501, "the method is unknown")),
        }
    }
}

impl Site {
    /// Whether an index of a directory belongs to another route, which may take other methods.
    fn has_other_index(&self, route: &Route, path: &SitePath<'_>) -> bool {
        let Some(routes) = self.routes.as_ref().filter(|_| path.names_directory()) else { return false };
        let mut indexes = route.indexes();
        indexes.any(|index| routes.by_path(&path.child(index)).is_some_and(|other| !other.is_of_files()))
    }

    /// The outermost route with the same value.
    fn origin(&self, route: &Route, address: fn(&Route) -> usize) -> String {
        let mut origin = route;
        while let Some(around) =
            origin.number.map(|_| self.route(origin.around)).filter(|around| address(around) == address(origin))
        {
            origin = around;
        }
        self.named_in_words(origin)
    }

    pub(in crate::site) fn named_in_words(&self, route: &Route) -> String {
        match route.number {
            None => "the site".to_owned(),
            Some(_) => format!("route {}", route.label),
        }
    }
}

fn address<T>(value: Option<&Arc<T>>) -> usize {
    value.map_or(0, |value| Arc::as_ptr(value).addr())
}
