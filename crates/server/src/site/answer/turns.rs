//! The action of a route: files, servers, its own response, or another path or route.

use std::io;

use percent_encoding::percent_encode;
use sealion_http::path::{OUTSIDE_PCHAR, SitePath};
use sealion_http::{Method, Request, Status, Target};

use tokio::task::spawn_blocking;

use super::{Answer, Answering, Counted, refused};
use crate::files::cache::Files;
use crate::files::resolve::{Found, NotOpened, Wait};
use crate::placeholders::{Asked, Led, Template, Unfit};
use crate::response::Response;
use crate::site::forwarded_path::ForwardedPath;
use crate::site::locate::path_of;
use crate::site::pages::ErrorPage;
use crate::site::proxy;
use crate::site::route::{Action, FileLocation, Last, NoServer, Route, Try};
use crate::upstream::Inbound;

/// Times that a request goes on with another path or route, as in nginx.
const MAX_TURNS: usize = 10;

/// Another path, which may have a query of its own.
pub(super) struct Place {
    raw: String,
    query: Option<String>,
}

/// The query behind another path: its `own`, or the client's. An empty one takes the client's away.
pub(in crate::site) fn query_behind<'q>(own: Option<&'q str>, clients: Option<&'q str>) -> Option<&'q str> {
    own.map_or(clients, |own| Some(own).filter(|own| !own.is_empty()))
}

impl Place {
    /// `raw`: an encoded path that begins with a slash.
    pub(super) fn new(raw: String, query: Option<String>) -> Self {
        Place { raw, query }
    }

    /// The path that a template makes for the request.
    pub(super) fn of(template: &Template, asked: &Asked<'_>) -> Result<Self, Unfit> {
        let url = template.render_url(asked)?;
        if !url.starts_with('/') {
            return Err(Unfit);
        }
        Ok(match url.split_once('?') {
            Some((raw, query)) => Place { raw: raw.to_owned(), query: Some(query.to_owned()) },
            None => Place { raw: url, query: None },
        })
    }

    fn path(&self) -> Result<SitePath<'_>, Status> {
        path_of(&self.raw).map(|(path, _)| path)
    }
}

/// A request on its way through routes.
pub(super) struct Turn<'t> {
    /// The path that a route acts on.
    pub(super) path: ForwardedPath<'t>,
    /// The path that the client asked for.
    pub(super) asked: &'t SitePath<'t>,
    /// The user whose password was checked.
    pub(super) user: &'t mut Option<Box<str>>,
    pub(super) inbound: &'t mut Inbound,
}

impl Turn<'_> {
    /// The same with another path.
    pub(super) fn to<'s>(&'s mut self, path: ForwardedPath<'s>) -> Turn<'s> {
        Turn { path, asked: self.asked, user: self.user, inbound: self.inbound }
    }
}

fn plain(status: Status) -> Answer {
    Response::plain(status).into()
}

impl<'a> Answering<'a> {
    /// The values for the placeholders of this route.
    pub(super) fn asked<'p>(&'p self, path: &'p SitePath<'p>) -> Asked<'p> {
        Asked {
            groups: Some(&self.route.groups),
            led: self.led,
            ..self.site.asked(self.request, path, self.query(), self.client)
        }
    }

    /// The rule that forwards a request for a path. `None`: none does. An error: the request names no server.
    pub(super) fn rule(&self, path: &SitePath<'_>) -> Option<Result<&'a proxy::Rule, NoServer>> {
        match &*self.route.action {
            Action::Forward(forward) => Some(forward.choose(&self.asked(path))),
            _ => None,
        }
    }

    /// Does the route's action with the path of a turn, whose guards were passed.
    pub(super) async fn act(&self, turn: Turn<'_>) -> Answer {
        let path = turn.path.decoded();
        let answer = match &*self.route.action {
            // As in nginx, an index is for GET, HEAD and POST.
            Action::Files => match self.index_of_read(path).await {
                Some(place) => Box::pin(self.go_on(place, Led::InternalRedirect, turn)).await,
                None => match self.file_refusal(path) {
                    // As in nginx, a file refuses a POST, and a missing one has the page of 404.
                    Some(_) if self.posts_where_page_leads() && Box::pin(self.entry(path)).await == Entry::Missing => {
                        plain(Status::NOT_FOUND)
                    }
                    Some(status) => plain(status),
                    None if self.may_withhold_folder(path) && Box::pin(self.entry(path)).await == Entry::Withheld => {
                        plain(Status::FORBIDDEN)
                    }
                    None => self.serve_or_forward(turn).await,
                },
            },
            Action::Forward(_) => self.serve_or_forward(turn).await,
            Action::Deny => Answer::refused(Response::plain(Status::FORBIDDEN), self.route),
            Action::Respond(_) | Action::Redirect(_) => match self.own_response(path) {
                Some((response, is_final)) => Answer { is_final, ..response.into() },
                None => plain(Status::BAD_REQUEST),
            },
            Action::Rewrite(rewrite) => match Place::of(&rewrite.to, &self.asked(path)) {
                Ok(place) => {
                    let led = if rewrite.stays { Led::Stay } else { Led::Rewrite };
                    Box::pin(self.go_on(place, led, turn)).await
                }
                Err(Unfit) => plain(Status::BAD_REQUEST),
            },
            Action::Try(tries) => Box::pin(self.try_paths(tries, turn)).await,
        };
        Answer {
            route: answer.route.or(Some(self.route.number)),
            turns: answer.turns.max(self.turns),
            is_counted: answer.is_counted || self.counted.is_any,
            ..answer
        }
    }

    /// The response of a route that answers by itself, and whether no error page replaces its content. `None`: its route has another action, or the request
    /// does not fit its placeholders.
    pub(super) fn own_response(&self, path: &SitePath<'_>) -> Option<(Response, bool)> {
        let asked = self.asked(path);
        let response = match &*self.route.action {
            Action::Respond(respond) => {
                let media_type = || self.route.files.root().content_type(path.as_bytes());
                (respond.response(&asked, media_type).ok()?, respond.has_content())
            }
            Action::Redirect(redirect) => (redirect.response(&asked).ok()?, false),
            Action::Files | Action::Forward(_) | Action::Deny | Action::Rewrite(_) | Action::Try(_) => return None,
        };
        Some(response)
    }

    /// Sends the file of the first path that has one, or goes on with the last resort.
    async fn try_paths(&self, tries: &Try, turn: Turn<'_>) -> Answer {
        let path = turn.path.decoded();
        let takes_file = !turn.inbound.upgrade;
        for template in &tries.paths {
            let Ok(place) = Place::of(template, &self.asked(path)) else { return plain(Status::BAD_REQUEST) };
            // A path that no file can have, such as one with an encoded slash, is for the last resort.
            let Ok(tried) = SitePath::parse(&place.raw, self.route.options.show_dotfiles) else { continue };
            // As in nginx, a value at the end makes no directory of a file.
            if tried.names_directory() && !template.may_name_directory() {
                continue;
            }
            // `{path}/` of a directory: it is redirected to its slash, as without `try`, or links of its index would lead elsewhere.
            let is_its_directory =
                tried.names_directory() && !path.names_directory() && tried.as_bytes() == path.as_bytes();
            let elsewhere = Box::pin(self.index_elsewhere(&tried)).await;
            let entry = match (&elsewhere, takes_file) {
                (Some(_), _) => Entry::Shown,
                (None, true) => Box::pin(self.entry(&tried)).await,
                (None, false) => Entry::Missing,
            };
            let is_missing = entry == Entry::Missing || entry == Entry::Withheld && !template.ends_with_slash();
            if is_missing {
                continue;
            }
            if let Some(refusal) = self.guard(&tried, turn.user).await {
                return Answer::refused(refusal, self.route);
            }
            if entry == Entry::Withheld && !is_its_directory && self.reads_or_posts() {
                return plain(Status::FORBIDDEN);
            }
            if let Some(place) = elsewhere.filter(|_| !is_its_directory) {
                return self.go_on(place, Led::InternalRedirect, turn).await;
            }
            // As in nginx, a file takes no other method, whatever the last resort would do.
            if !is_its_directory && let Some(status) = self.file_refusal(&tried) {
                return plain(status);
            }
            let served = if is_its_directory { path } else { &tried };
            let mut answer = Box::pin(self.serve(served, turn.asked, turn.user)).await;
            answer.name.get_or_insert_with(|| tried.as_bytes().to_vec());
            return answer;
        }
        match &tries.last {
            Last::Status(status) => plain(*status),
            Last::Path(template) => match Place::of(template, &self.asked(path)) {
                Ok(place) => self.go_on(place, Led::InternalRedirect, turn).await,
                Err(Unfit) => plain(Status::BAD_REQUEST),
            },
            Last::Named(name) => match self.named(name, path) {
                None => plain(Status::NOT_FOUND),
                Some(Err(status)) => plain(status),
                Some(Ok(route)) => self.turn_by_name(route, turn).await,
            },
        }
    }

    /// Looks for a path in the route: for a file or, if the path ends in a slash, for a directory.
    async fn entry(&self, path: &SitePath<'_>) -> Entry {
        let Some(FileLocation { files, path: beneath, .. }) = self.locate(path) else { return Entry::Missing };
        if matches!(self.find(files, &beneath).await, Ok(Found::File(_))) {
            return Entry::Shown;
        }
        if !path.names_directory() {
            return Entry::Missing;
        }
        for index in &self.route.features.more_indexes {
            if matches!(self.find(files, &beneath.child(index)).await, Ok(Found::File(_))) {
                return Entry::Shown;
            }
        }
        let (root, name) = (files.root(), beneath.as_bytes().to_vec());
        let is_there = spawn_blocking(move || root.open_directory(&name).is_ok()).await.unwrap_or(false);
        match (is_there, &self.route.features.listing) {
            (false, _) => Entry::Missing,
            (true, None) => Entry::Withheld,
            (true, Some(_)) => Entry::Shown,
        }
    }

    /// The path of a directory's index, if another route has it: that route answers, as in nginx. It may run the index as a script.
    async fn index_elsewhere(&self, path: &SitePath<'_>) -> Option<Place> {
        if !path.names_directory() || !self.is_index_elsewhere(path) {
            return None;
        }
        let FileLocation { files, path: beneath, .. } = self.locate(path)?;
        for index in self.route.indexes() {
            let (own, beneath) = (path.child(index), beneath.child(index));
            let is_here = self.route_of(&own).is_ok_and(|route| route.number == self.route.number);
            let is_there = match is_here {
                true => matches!(self.find(files, &beneath).await, Ok(Found::File(_))),
                // No file of a script is found where files are sent.
                false => is_file(files, &beneath).await,
            };
            if is_there {
                let raw = percent_encode(own.full(), OUTSIDE_PCHAR).to_string();
                return (!is_here).then(|| Place::new(raw, None));
            }
        }
        None
    }

    /// Goes on with another path, in its route.
    pub(super) async fn go_on(&self, place: Place, led: Led, mut turn: Turn<'_>) -> Answer {
        let path = match place.path() {
            Ok(path) => path,
            Err(status) => return plain(status),
        };
        let Target::Path { path: raw, query } = self.request.target else { return plain(Status::BAD_REQUEST) };
        let query = query_behind(place.query.as_deref(), query);
        let target = Target::Path { path: raw, query };
        let request = Request { target, ..self.request.clone() };
        // The guards are chosen as the route is.
        let here = Answering { request: &request, led: Some(led), ..*self };
        let found = if led == Led::Stay { Ok(self.route) } else { here.route_of(&path) };
        let route = match found {
            Ok(route) => route,
            Err(status) => return plain(status),
        };
        let counted = match here.count(route, (&path, turn.asked)) {
            Ok(counted) => counted,
            Err(refused) => return *refused,
        };
        let here = Answering { counted, ..here };
        let refusal = match &*route.action {
            // Its response is the refusal.
            Action::Respond(_) if led != Led::Stay => Answering { route, ..here }.guard_named(turn.user).await,
            _ => here.guard(&path, turn.user).await,
        };
        if let Some(refusal) = refusal {
            return Answer { is_counted: counted.is_any, ..Answer::refused(refusal, route) };
        }
        let mut answer = match led {
            Led::Stay => match here.file_refusal(&path) {
                Some(status) => plain(status),
                None => Box::pin(here.serve(&path, turn.asked, turn.user)).await,
            },
            Led::Rewrite | Led::InternalRedirect => {
                Box::pin(here.turn_to(route, turn.to(ForwardedPath::rewritten(&place.raw, &path)))).await
            }
        };
        answer.name.get_or_insert_with(|| path.as_bytes().to_vec());
        answer
    }

    /// The route that a name leads to with a path. `None`: no route has the name.
    pub(super) fn named(&self, name: &str, path: &SitePath<'_>) -> Option<Result<&'a Route, Status>> {
        let asked = self.site.asked(self.request, path, self.query(), self.client);
        self.site.routes.as_ref()?.named(name, &asked)
    }

    /// Goes on in a route that a name leads to, if its guards permit it: no path has asked them.
    pub(super) async fn turn_by_name(&self, route: &Route, turn: Turn<'_>) -> Answer {
        let here = Answering { led: Some(Led::InternalRedirect), ..*self };
        let counted = match here.count(route, (turn.path.decoded(), turn.asked)) {
            Ok(counted) => counted,
            Err(refused) => return *refused,
        };
        if let Some(refusal) = (Answering { route, counted, ..*self }).guard_named(turn.user).await {
            return Answer { is_counted: counted.is_any, ..Answer::refused(refusal, route) };
        }
        (Answering { counted, ..*self }).turn_to(route, turn).await
    }

    /// Goes on in another route.
    async fn turn_to(&self, route: &Route, turn: Turn<'_>) -> Answer {
        if self.turns == MAX_TURNS {
            let what = format!("more than {MAX_TURNS} rewrites: the routes lead in a circle");
            return Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(io::Error::other(what))).into();
        }
        let next = Answering { route, turns: self.turns + 1, ..*self };
        if route.is_of_files()
            && let Some(status) = next.file_refusal(turn.path.decoded())
        {
            return Answer { route: Some(route.number), ..plain(status) };
        }
        Box::pin(next.act(turn)).await
    }

    /// Counts the request for the limits of a route that it goes on in. As in nginx, each rewrite leads to a route that counts it, and behind an internal
    /// redirect only the first one does that counts at all. `path`: in the route; `asked`: of the client. An error is the refusal.
    fn count<'r>(
        &self,
        route: &'r Route,
        (path, asked): (&SitePath<'_>, &SitePath<'_>),
    ) -> Result<Counted<'r>, Box<Answer>>
    where
        'a: 'r,
    {
        let mut before = self.counted_before(asked);
        before.is_settled |= before.is_any && self.led == Some(Led::InternalRedirect);
        let Some(limits) = route.limits.as_deref().filter(|_| self.rehearsal.is_none()) else { return Ok(before) };
        let is_same = before.by.is_some_and(|by| by.counts_as(limits));
        if is_same || before.is_settled {
            return Ok(before);
        }
        let value = limits.key().and_then(|key| route.limit_value(key, &self.asked(path)));
        match limits.count(self.client.address, value.as_deref()) {
            Ok(true) => Ok(Counted { is_any: true, by: Some(limits), is_settled: false }),
            Ok(false) => Ok(before),
            Err(refusal) => Err(Box::new(Answer { is_counted: true, ..Answer::refused(refused(refusal), route) })),
        }
    }

    /// The limits that have counted the request so far. Those of the first route did before it was answered.
    fn counted_before(&self, asked: &SitePath<'_>) -> Counted<'a> {
        let limits = self.route.limits.as_deref().filter(|limits| self.turns == 0 && limits.counts());
        match limits {
            Some(limits) => {
                let value = limits.key().and_then(|key| self.route.limit_value(key, &self.asked(asked)));
                match value.is_none_or(|value| !value.is_empty()) {
                    true => Counted { is_any: true, by: Some(limits), is_settled: false },
                    false => self.counted,
                }
            }
            None => self.counted,
        }
    }

    /// Whether the index of a directory may be a script, which takes other methods than files.
    pub(super) fn may_run_index(&self, path: &SitePath<'_>) -> bool {
        let runs = |index: &str| self.route_of(&path.child(index)).is_ok_and(|route| !route.is_of_files());
        self.site.routes.is_some() && path.names_directory() && self.route.indexes().any(runs)
    }

    /// Whether it is a POST where the page of missing files leads to another route.
    pub(super) fn posts_where_page_leads(&self) -> bool {
        self.request.method.as_str() == "POST" && self.page_of_missing_leads()
    }

    /// Whether the page of missing files leads to another route.
    fn page_of_missing_leads(&self) -> bool {
        matches!(self.route.error_page(Status::NOT_FOUND), Some(ErrorPage::Elsewhere(_)))
    }

    /// As [`Self::index_elsewhere`], which no other method looks for.
    async fn index_of_read(&self, path: &SitePath<'_>) -> Option<Place> {
        let may_have_index = path.names_directory() && self.reads_or_posts();
        if may_have_index { Box::pin(self.index_elsewhere(path)).await } else { None }
    }

    fn reads_or_posts(&self) -> bool {
        matches!(self.request.method, Method::Get | Method::Head) || self.request.method.as_str() == "POST"
    }

    /// Whether a directory without index and listing is refused, as in nginx, and does not count as missing: the page of missing files leads elsewhere.
    fn may_withhold_folder(&self, path: &SitePath<'_>) -> bool {
        path.names_directory() && self.page_of_missing_leads()
    }

    /// The status of a request that no file answers: by its method, or by a hidden name.
    fn file_refusal(&self, path: &SitePath<'_>) -> Option<Status> {
        let status = match self.request.method {
            Method::Get | Method::Head if self.route.shows(path) => return None,
            Method::Get | Method::Head => return Some(Status::NOT_FOUND),
            Method::Other(_) => Status::METHOD_NOT_ALLOWED,
            Method::Unknown(_) => Status::NOT_IMPLEMENTED,
        };
        self.note_method(status);
        Some(status)
    }
}

/// The entry that `try` finds at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Missing,
    /// A file, or a directory with an index or a listing.
    Shown,
    /// A directory without either. As in nginx it ends the search, and is answered 403.
    Withheld,
}

/// Whether a file is there, whatever its name ends with.
async fn is_file(files: &Files, path: &SitePath<'_>) -> bool {
    let (root, name) = (files.root(), path.as_bytes().to_vec());
    match root.is_file(&name, Wait::No) {
        Err(NotOpened::Waits) => {
            let found = spawn_blocking(move || root.is_file(&name, Wait::Yes));
            found.await.is_ok_and(|found| found.unwrap_or(false))
        }
        found => found.unwrap_or(false),
    }
}
