//! `sealion check --explain`: the way of a request through the routes of its site, in words.

use std::fmt::Write;
use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::{Request, Target};

use super::answer::Client;
use super::forwarded_path::ForwardedPath;
use super::route::{Action, Disk, Last, Route};
use super::{Site, readings};
use crate::placeholders::Template;

/// Routes that are followed.
const MAX_TURNS: usize = 10;

impl Site {
    /// The way of a request, a line for each step.
    pub(crate) fn explain(&self, request: &Request<'_>, client: Client) -> String {
        let mut lines = format!("site {}\n", self.name);
        let Target::Path { path: raw, query } = request.target else { return lines };
        let (route, path) = self.locate(request, client, Disk::Waits);
        let path = match path {
            Ok(path) => path,
            Err(status) => {
                let _ = writeln!(lines, "  {raw} in route {}: answered {status}", route.label);
                return lines;
            }
        };
        self.explain_readings(raw, &path, &mut lines);
        let mut step = Step { route, raw: raw.to_owned(), query: query.map(str::to_owned) };
        for _ in 0..=MAX_TURNS {
            match self.explain_step(&step, request, client, &mut lines) {
                Some(next) => step = next,
                None => return lines,
            }
        }
        lines.push_str("  the routes lead in a circle: answered 500\n");
        lines
    }

    fn explain_readings(&self, raw: &str, path: &SitePath<'_>, lines: &mut String) {
        let readings = match readings::of_forwarded(ForwardedPath::requested(raw, path)) {
            Ok(readings) => readings,
            Err(status) => {
                let _ =
                    writeln!(lines, "  the path can be read in ways that are refused where it is forwarded: {status}");
                return;
            }
        };
        for reading in readings {
            let shown = String::from_utf8_lossy(reading.full()).into_owned();
            let _ = writeln!(lines, "  an application may read it as {shown}");
        }
    }

    fn explain_step<'a>(
        &'a self,
        step: &Step<'a>,
        request: &Request<'_>,
        client: Client,
        lines: &mut String,
    ) -> Option<Step<'a>> {
        let Step { route, raw, query } = step;
        let parsed = SitePath::parse(raw, true).or_else(|_| SitePath::parse_forwarded(raw)).ok()?;
        let asked = self.asked(request, &parsed, query.as_deref(), client);
        let shown = String::from_utf8_lossy(parsed.full()).into_owned();
        let _ = writeln!(lines, "  {shown}: route {}", route.label);
        if let Some(routes) = &self.routes {
            for (label, holds) in routes.conditions(&asked).into_iter().filter(|_| !route.is_named()) {
                let _ = writeln!(lines, "    conditions of {label}: {holds}");
            }
        }
        for (what, from) in self.explain_settings(route) {
            let _ = writeln!(lines, "    {what}, of {from}");
        }
        let asked = crate::placeholders::Asked { groups: Some(&route.groups), ..asked };
        let url = |template: &Template| {
            template.render_url(&asked).unwrap_or_else(|_| "a value that no path can have: answered 400".to_owned())
        };
        let follow = |url: String| {
            let (raw, own) = url.split_once('?').map_or((url.as_str(), None), |(raw, query)| (raw, Some(query)));
            let path = SitePath::parse(raw, true).or_else(|_| SitePath::parse_forwarded(raw)).ok()?;
            let query = own.map(str::to_owned).or_else(|| query.clone());
            let asked = self.asked(request, &path, query.as_deref(), client);
            let route = self.choose(&asked, Disk::Waits).ok()?;
            Some(Step { route, raw: raw.to_owned(), query })
        };
        match &*route.action {
            Action::Files => lines.push_str("    sends a file\n"),
            Action::Forward(forward) => match forward.choose(&asked) {
                Ok(rule) => {
                    let _ = writeln!(lines, "    forwards to {}", rule.upstream_name());
                    if let Some((share, name)) = rule.mirrors() {
                        let _ = writeln!(lines, "    copies {share}% of the requests to {name}");
                    }
                }
                Err(status) => {
                    let _ = writeln!(lines, "    its values name no server: answered {status}");
                }
            },
            Action::Respond(respond) if respond.is_withheld() => lines.push_str("    closes the connection\n"),
            Action::Respond(respond) => {
                let _ = writeln!(lines, "    answers {}", respond.status);
            }
            Action::Redirect(redirect) => {
                let location = redirect.response(&asked).ok().and_then(|response| response.fields.location);
                let location = location.unwrap_or_else(|| "a value that no URL can have: answered 400".to_owned());
                let _ = writeln!(lines, "    redirects to {location}");
            }
            Action::Deny => lines.push_str("    answers 403\n"),
            Action::Rewrite(rewrite) => {
                let to = url(&rewrite.to);
                let _ = writeln!(lines, "    goes on with {to}{}", if rewrite.stays { " in this route" } else { "" });
                return follow(to).filter(|_| !rewrite.stays);
            }
            Action::Try(tries) => {
                for path in &tries.paths {
                    let _ = writeln!(lines, "    sends the file {}, if there is one", url(path));
                }
                match &tries.last {
                    Last::Status(status) => {
                        let _ = writeln!(lines, "    else answers {status}");
                    }
                    Last::Path(template) => {
                        let to = url(template);
                        let _ = writeln!(lines, "    else goes on with {to}");
                        return follow(to);
                    }
                    Last::Named(name) => {
                        let _ = writeln!(lines, "    else goes on in {name}");
                        let own = self.asked(request, &parsed, query.as_deref(), client);
                        let route = self.routes.as_ref()?.named(name, &own)?.ok()?;
                        return Some(Step { route, raw: raw.clone(), query: query.clone() });
                    }
                }
            }
        }
        None
    }

    /// The settings of a route that matter to every request, each with the route that it is inherited from.
    fn explain_settings(&self, route: &Route) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let mut add = |what: &str, address: fn(&Route) -> usize| {
            if address(route) != 0 {
                settings.push((what.to_owned(), self.origin(route, address)));
            }
        };
        add("files", |route| Arc::as_ptr(&route.files).addr());
        add("networks", |route| address(route.features.access.as_ref()));
        add("password", |route| address(route.features.basic_auth.as_ref()));
        add("another server's consent", |route| address(route.features.forward_auth.as_ref()));
        add("limits", |route| address(route.limits.as_ref()));
        add("maintenance", |route| address(route.features.maintenance.as_ref()));
        add("CORS", |route| address(route.features.cors.as_ref()));
        add("error pages", |route| address(route.features.error_pages.as_ref()));
        add("header fields", |route| address(route.features.headers.as_ref()));
        add("action", |route| Arc::as_ptr(&route.action).addr());
        settings
    }

    /// The outermost route with the same value.
    fn origin(&self, route: &Route, address: fn(&Route) -> usize) -> String {
        let mut origin = route;
        while let Some(around) =
            origin.number.map(|_| self.route(origin.around)).filter(|around| address(around) == address(origin))
        {
            origin = around;
        }
        match origin.number {
            None => "the site".to_owned(),
            Some(_) => format!("route {}", origin.label),
        }
    }
}

/// A route on the way, with the path that led there.
struct Step<'a> {
    route: &'a Route,
    raw: String,
    query: Option<String>,
}

fn address<T>(value: Option<&Arc<T>>) -> usize {
    value.map_or(0, |value| Arc::as_ptr(value).addr())
}
