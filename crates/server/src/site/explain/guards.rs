//! The guards and settings of a route on the way, each with the route that it is inherited from.

use std::sync::Arc;

use super::super::route::Route;
use super::{Site, Way, client_in_words};

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

impl Way<'_> {
    /// Says what a route has, and from where.
    pub(super) fn explain_settings(&mut self, route: &Route) {
        for (name, address) in SETTINGS.into_iter().filter(|(_, address)| address(route) != 0) {
            let from = self.site.origin(route, address);
            let effect = self.effect(name, route);
            self.say(2, format_args!("{name}, of {from}{effect}"));
        }
        self.say(2, format_args!("action, of {}", self.site.origin(route, |route| Arc::as_ptr(&route.action).addr())));
    }

    /// The effect of a guard on this request, for the line behind the guard's name.
    fn effect(&self, name: &str, route: &Route) -> String {
        let (features, client) = (&route.features, self.client.address);
        match name {
            "networks" => match (client, features.access.as_ref().is_some_and(|access| access.allows(client))) {
                (None, _) => ": the client's address decides: add --client ADDRESS".to_owned(),
                (Some(_), true) => format!(": {} may pass", client_in_words(client)),
                (Some(_), false) if route.may_authenticate_instead() => {
                    format!(": {} has to authenticate", client_in_words(client))
                }
                (Some(_), false) => format!(": {} is refused", client_in_words(client)),
            },
            "maintenance" => {
                match features.maintenance.as_ref().is_some_and(|maintenance| maintenance.admits(client)) {
                    true => format!(": {} sees the site", client_in_words(client)),
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
}

impl Site {
    /// The route that networks of another one are inherited from.
    pub(in crate::site) fn origin_of_networks(&self, route: &Route) -> String {
        self.origin(route, |route| address(route.features.access.as_ref()))
    }

    /// The route that a password of another one is inherited from.
    pub(in crate::site) fn origin_of_password(&self, route: &Route) -> String {
        self.origin(route, |route| address(route.features.basic_auth.as_ref()))
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
