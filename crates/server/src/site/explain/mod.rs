//! `sealion check --explain`: the way of a request through the routes of its site, in words.
//!
//! ```text
//! site ─► for each route on the way: conditions, guards, action ─► files, as they are on the disk ─► words ─┬─► the answer
//!                                    guards.rs                      files.rs                               │
//!      └─► all steps of the server, without other servers: answer/rehearsal.rs ─► status ─► ending.rs ─────┘
//! ```
//!
//! The words tell the reader how the answer comes about. The server's own steps decide which answer it is.

mod ending;
mod files;
mod guards;

use std::fmt::Write;
use std::net::IpAddr;

use sealion_http::path::SitePath;
use sealion_http::{Request, Target};

use self::ending::Ending;
use super::answer::{Client, query_behind};
use super::forwarded_path::ForwardedPath;
use super::pages::{ErrorPage, Page};
use super::route::{Action, Disk, Last, Route, Try};
use super::{Site, readings};
use crate::placeholders::{Asked, Led};

/// Routes that are followed.
const MAX_TURNS: usize = 10;

impl Site {
    /// The way of a request, a line for each step, and how it is answered.
    pub(crate) fn explain(&self, request: &Request<'_>, client: Client) -> String {
        let way = Way { site: self, request, client, lines: String::new() };
        way.explain()
    }
}

/// The way of a request, as far as it was followed.
struct Way<'a> {
    site: &'a Site,
    request: &'a Request<'a>,
    client: Client,
    lines: String,
}

/// A route on the way, with the path that led there.
struct Step<'a> {
    route: &'a Route,
    raw: String,
    query: Option<String>,
    /// How another route led there.
    led: Option<Led>,
}

/// Where a step leads.
enum Next<'a> {
    Step(Step<'a>),
    /// How the request is answered.
    Answer(Ending),
}

impl<'a> Way<'a> {
    fn explain(mut self) -> String {
        let ending = self.follow();
        let answer = self.ending(ending);
        self.say(1, format_args!("answer: {answer}"));
        self.lines
    }

    /// Adds a line.
    fn say(&mut self, depth: usize, what: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{:indent$}{what}", "", indent = 2 * depth);
    }

    fn follow(&mut self) -> Ending {
        let Target::Path { path: raw, query } = self.request.target else {
            return Ending::status(405, "it names no path");
        };
        let (route, path) = self.site.locate(self.request, self.client, Disk::Waits);
        let path = match path {
            Ok(path) => path,
            Err(status) => {
                self.say(1, format_args!("{raw}: {}", self.site.named_in_words(route)));
                return match status.code() {
                    404 if SitePath::parse(raw, true).is_ok() => self.with_page(route, 404, files::HIDDEN),
                    404 => Ending::status(404, "no file can have this path"),
                    code => Ending::status(code, "the path or a condition can be read in several ways"),
                };
            }
        };
        self.explain_readings(raw, &path);
        let mut step = Step { route, raw: raw.to_owned(), query: query.map(str::to_owned), led: None };
        let mut seen = Vec::new();
        loop {
            let next = match self.explain_step(&step) {
                Next::Step(next) => next,
                Next::Answer(answer) => return answer,
            };
            seen.push((step.route.number, step.raw, step.query));
            step = next;
            let is_again = seen
                .iter()
                .any(|(route, raw, query)| (*route, raw, query) == (step.route.number, &step.raw, &step.query));
            if is_again || seen.len() > MAX_TURNS {
                return Ending::status(500, "the routes lead in a circle");
            }
        }
    }

    fn explain_readings(&mut self, raw: &str, path: &SitePath<'_>) {
        let readings = match readings::of_forwarded(ForwardedPath::requested(raw, path)) {
            Ok(readings) => readings,
            Err(status) => {
                let what = "the path can be read in ways that are refused where it is forwarded";
                return self.say(1, format_args!("{what}: {status}"));
            }
        };
        for reading in readings {
            let shown = String::from_utf8_lossy(reading.full()).into_owned();
            self.say(1, format_args!("an application may read it as {shown}"));
        }
    }

    fn explain_step(&mut self, step: &Step<'a>) -> Next<'a> {
        let Step { route, raw, query, led } = step;
        let parsed = SitePath::parse(raw, true).or_else(|_| SitePath::parse_forwarded(raw));
        let Ok(parsed) = parsed else { return Next::Answer(Ending::status(404, format_args!("no path is {raw}"))) };
        let asked = Asked { led: *led, ..self.site.asked(self.request, &parsed, query.as_deref(), self.client) };
        let shown = String::from_utf8_lossy(parsed.full()).into_owned();
        self.say(1, format_args!("{shown}: {}", self.site.named_in_words(route)));
        if let Some(routes) = &self.site.routes {
            for (label, holds, asks_for_client) in routes.conditions(&asked).into_iter().filter(|_| !route.is_named()) {
                let hint = self.hint_of_client(asks_for_client);
                self.say(2, format_args!("conditions of {label}: {holds}{hint}"));
            }
        }
        self.explain_settings(route);
        let asked = Asked { groups: Some(&route.groups), ..asked };
        self.explain_action(step, &parsed, &asked)
    }

    /// The words behind what depends on a client's address, where none is given.
    fn hint_of_client(&self, asks_for_client: bool) -> &'static str {
        match asks_for_client && self.client.address.is_none() {
            true => ", without a client's address: add --client ADDRESS",
            false => "",
        }
    }

    fn explain_action(&mut self, step: &Step<'a>, path: &SitePath<'_>, asked: &Asked<'_>) -> Next<'a> {
        let route = step.route;
        match &*route.action {
            Action::Files => self.explain_files(step, path, asked),
            Action::Forward(forward) => match forward.choose(asked) {
                Ok(rule) => {
                    if rule.files_first
                        && let Some(next) = self.file_first(step, path, asked)
                    {
                        return next;
                    }
                    let name = rule.upstream_name();
                    let hint = self.hint_of_client(forward.asks_for_client(asked.tables));
                    self.say(2, format_args!("forwards to {name}{hint}"));
                    if let Some((share, name)) = rule.mirrors() {
                        self.say(2, format_args!("copies {share}% of the requests to {name}"));
                    }
                    let intercepts = if rule.intercept_errors { ", whose errors get the error pages" } else { "" };
                    Next::Answer(Ending::upstream(format_args!("{name}{intercepts}")))
                }
                Err(missing) => Next::Answer(Ending::status(missing.status().code(), "its values name no server")),
            },
            Action::Respond(respond) if respond.is_withheld() => Next::Answer(Ending::nothing()),
            Action::Respond(respond) => {
                Next::Answer(self.with_page(route, respond.status.code(), "a response of its own"))
            }
            Action::Redirect(redirect) => match redirect.response(asked) {
                Ok(response) => {
                    let location = response.fields.location.unwrap_or_default();
                    self.say(2, format_args!("redirects to {location}"));
                    Next::Answer(Ending::status(response.status.code(), format_args!("a redirect to {location}")))
                }
                Err(_) => Next::Answer(Ending::status(400, "a value of the request fits no URL")),
            },
            Action::Deny => Next::Answer(self.with_page(route, 403, "the route denies every request")),
            Action::Rewrite(rewrite) => {
                let Ok(to) = rewrite.to.render_url(asked) else { return unfit() };
                let stays = if rewrite.stays { " in this route" } else { "" };
                self.say(2, format_args!("goes on with {to}{stays}"));
                match rewrite.stays {
                    true => self.stay(step, &to),
                    false => self.lead_to(step, &to, Led::Rewrite),
                }
            }
            Action::Try(tries) => self.explain_tries(step, tries, path, asked),
        }
    }

    fn explain_tries(&mut self, step: &Step<'a>, tries: &Try, path: &SitePath<'_>, asked: &Asked<'_>) -> Next<'a> {
        for template in &tries.paths {
            let Ok(to) = template.render_url(asked) else { return unfit() };
            let found = self.tried(step, &to, asked);
            self.say(2, format_args!("tries {to}: {}", found.as_ref().map_or("there is none", |_| "it is there")));
            if let Some(next) = found {
                return next;
            }
        }
        match &tries.last {
            Last::Status(status) => {
                Next::Answer(self.with_page(step.route, status.code(), "nothing that was tried is there"))
            }
            Last::Path(template) => match template.render_url(asked) {
                Ok(to) => {
                    self.say(2, format_args!("goes on with {to}"));
                    self.lead_to(step, &to, Led::InternalRedirect)
                }
                Err(_) => unfit(),
            },
            Last::Named(name) => {
                self.say(2, format_args!("goes on in {name}"));
                let own = self.site.asked(self.request, path, step.query.as_deref(), self.client);
                let route = self.site.routes.as_ref().and_then(|routes| routes.named(name, &own));
                match route {
                    Some(Ok(route)) => Next::Step(Step {
                        route,
                        raw: step.raw.clone(),
                        query: step.query.clone(),
                        led: Some(Led::InternalRedirect),
                    }),
                    _ => Next::Answer(Ending::status(404, format_args!("no route has the name {name}"))),
                }
            }
        }
    }

    /// The step to another path.
    fn lead_to(&self, step: &Step<'a>, to: &str, led: Led) -> Next<'a> {
        let (raw, own) = to.split_once('?').map_or((to, None), |(raw, query)| (raw, Some(query)));
        let Ok(path) = SitePath::parse(raw, true).or_else(|_| SitePath::parse_forwarded(raw)) else { return unfit() };
        let query = query_behind(own, step.query.as_deref()).map(str::to_owned);
        let asked = self.site.asked(self.request, &path, query.as_deref(), self.client);
        match self.site.choose(&Asked { led: Some(led), ..asked }, Disk::Waits) {
            Ok(route) => Next::Step(Step { route, raw: raw.to_owned(), query, led: Some(led) }),
            Err(status) => Next::Answer(Ending::status(status.code(), "a condition can be read in several ways")),
        }
    }

    /// A status with its reason, and the error page of a route for it.
    fn with_page(&self, route: &Route, status: u16, why: &str) -> Ending {
        let pages = route.features.error_pages.as_ref();
        let page = sealion_http::Status::new(status).and_then(|status| pages?.get(status));
        let page = match page {
            None => String::new(),
            Some(ErrorPage::File(page, _)) => format!(", with the error page {}", name_of(page)),
            Some(ErrorPage::Elsewhere(target)) => format!(", then error_pages leads to {}", target.text.value),
        };
        Ending::status(status, format_args!("{why}{page}"))
    }
}

fn name_of(page: &Page) -> String {
    page.path().map(|path| String::from_utf8_lossy(path.full()).into_owned()).unwrap_or_default()
}

fn unfit<'a>() -> Next<'a> {
    Next::Answer(Ending::status(400, "a value of the request fits no path"))
}

/// The client's address in words.
pub(super) fn client_in_words(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "a client without an address".to_owned(), |address| address.to_string())
}
