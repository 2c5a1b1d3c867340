//! Guards of a path that is forwarded, in every reading of an application.

use sealion_http::path::SitePath;
use sealion_http::{Status, Target};

use super::Answering;
use crate::response::Response;
use crate::site::forwarded_path::ForwardedPath;
use crate::site::route::Route;
use crate::site::{Site, proxy, readings};

impl Answering<'_> {
    /// The path of the request as it arrived.
    pub(super) fn raw_path(&self) -> &str {
        match self.request.target {
            Target::Path { path, .. } => path,
            Target::Asterisk => "",
        }
    }

    /// Whether guards that permit a path permit it in every reading.
    pub(super) fn is_read_alike(&self, path: ForwardedPath<'_>) -> bool {
        readings::are_alike(path) && !self.has_other_end(path.decoded())
    }

    /// Whether an expression may tell a path from the same without its last slash, which applications drop.
    fn has_other_end(&self, path: &SitePath<'_>) -> bool {
        if path.as_bytes().is_empty() {
            return false;
        }
        self.site.routes.as_ref().is_some_and(|routes| routes.guards_differ())
    }

    /// Whether networks and methods permit every reading of the requested path. `rule`: the rule for the path.
    pub(super) fn permits_readings(&self, rule: &proxy::Rule, path: &SitePath<'_>) -> bool {
        let requested = ForwardedPath::requested(self.raw_path(), path);
        self.is_read_alike(requested)
            || readings_for(rule, requested).is_ok_and(|readings| {
                let mut all = readings.iter().chain([path]);
                all.all(|reading| self.is_permitted(reading) && self.is_guarded_alike(path, reading))
            })
    }

    /// Whether networks and methods permit a path.
    fn is_permitted(&self, path: &SitePath<'_>) -> bool {
        let is_allowed = self.method_refusal(path).is_none() && self.is_allowed(path);
        is_allowed && self.without_last_slash(path).is_none_or(|path| self.is_allowed(&path))
    }

    /// Whether a reading of `path` leads to a route with the same guards, with and without its last slash.
    fn is_guarded_alike(&self, path: &SitePath<'_>, reading: &SitePath<'_>) -> bool {
        if !self.site.routes.as_ref().is_some_and(|routes| routes.guards_differ()) {
            return true;
        }
        let Ok(own) = self.route_of(path) else { return false };
        let is_alike = |other: &SitePath<'_>, but_for_slash| {
            self.route_of(other).is_ok_and(|other| other.is_guarded_as(own, but_for_slash))
        };
        let name = reading.as_bytes();
        if !is_alike(reading, false) {
            return false;
        }
        match reading.names_directory() {
            _ if name.is_empty() || own.leaves_out(reading) => true,
            true => SitePath::of_octets(name).is_ok_and(|other| is_alike(&other, true)),
            // `= /a/login` opens only that path, beneath `/a/` with a password: its author means no slash.
            false if own.names_ends => true,
            false => SitePath::of_octets(&[name, b"/"].concat()).is_ok_and(|other| is_alike(&other, true)),
        }
    }

    /// The readings of a path beside the path itself, if all of them are permitted. An error is the refusal.
    pub(super) async fn guard_readings(
        &self,
        rule: &proxy::Rule,
        path: ForwardedPath<'_>,
        user: &mut Option<Box<str>>,
    ) -> Result<Vec<SitePath<'static>>, Box<Response>> {
        let refused = |status| Box::new(Response::plain(status));
        // The path may be the result of a rewrite.
        if readings::hides_slash(path.raw()) {
            self.note_refusal(Status::BAD_REQUEST, || "a parameter of the path hides a slash".to_owned());
            return Err(refused(Status::BAD_REQUEST));
        }
        let readings = readings_for(rule, path).map_err(|status| {
            self.note_refusal(status, || "an application may read another directory in the path".to_owned());
            refused(status)
        })?;
        let path = path.decoded();
        if let Some(other) = readings.iter().chain([path]).find(|reading| !self.is_guarded_alike(path, reading)) {
            self.note_refusal(Status::BAD_REQUEST, || {
                let shown = String::from_utf8_lossy(other.full());
                format!("an application may read the path as {shown}, with or without a slash at its end, under other guards")
            });
            return Err(refused(Status::BAD_REQUEST));
        }
        for reading in readings.iter().chain([path]) {
            if let Some(refusal) = self.guard_forwarded(reading, user).await {
                return Err(refusal);
            }
        }
        Ok(readings)
    }

    /// The refusal if a path is not permitted that the application of `script` may take from `path`: see [`proxy::Rule::behind_script`]. `readings`: see
    /// [`Self::guard_readings`].
    pub(super) async fn guard_path_info(
        &self,
        rule: &proxy::Rule,
        script: &[u8],
        path: &SitePath<'_>,
        readings: &[SitePath<'_>],
        user: &mut Option<Box<str>>,
    ) -> Option<Box<Response>> {
        let all = readings.iter().chain([path]);
        let mut found: Vec<_> = all.flat_map(|reading| rule.behind_script(reading, script)).collect();
        found.sort_unstable();
        found.dedup();
        for meant in found {
            let Ok(meant) = SitePath::of_octets(&meant) else { return Some(Response::plain(Status::NOT_FOUND).into()) };
            if let Some(refusal) = self.guard_in_all_readings(&meant, user).await {
                return Some(refusal);
            }
        }
        None
    }

    /// The refusal if a path that an application gets decoded is not permitted in one of its readings.
    pub(super) async fn guard_in_all_readings(
        &self,
        path: &SitePath<'_>,
        user: &mut Option<Box<str>>,
    ) -> Option<Box<Response>> {
        let readings = match readings::of_decoded(path) {
            Ok(readings) => readings,
            Err(status) => {
                self.note_refusal(status, || "an application may read another directory in the path".to_owned());
                return Some(Response::plain(status).into());
            }
        };
        for reading in readings.iter().chain([path]) {
            if let Some(refusal) = self.guard_forwarded(reading, user).await {
                return Some(refusal);
            }
        }
        None
    }

    /// The refusal if the rule of `path` does not forward the method, or the request may not access `path`, with or without its last slash.
    async fn guard_forwarded(&self, path: &SitePath<'_>, user: &mut Option<Box<str>>) -> Option<Box<Response>> {
        if let Some(refusal) = self.method_refusal(path) {
            return Some(refusal);
        }
        if let Some(refusal) = self.guard(path, user).await {
            return Some(refusal);
        }
        let path = self.without_last_slash(path)?;
        self.guard(&path, user).await
    }

    fn method_refusal(&self, path: &SitePath<'_>) -> Option<Box<Response>> {
        self.route_of(path).ok()?.rule()?.refusal(self.request).map(Box::new)
    }

    fn without_last_slash(&self, path: &SitePath<'_>) -> Option<SitePath<'static>> {
        let is_left_out = || self.route_of(path).is_ok_and(|route| route.leaves_out(path));
        // It has no dot segments.
        SitePath::of_octets(path.as_bytes()).ok().filter(|_| self.has_other_end(path) && !is_left_out())
    }

    /// Whether a file can have the path.
    pub(super) fn may_be_file(&self, path: ForwardedPath<'_>) -> bool {
        let raw = path.raw();
        // The server that is asked sees the slashes of an application, and the file has one spelling.
        let differs = !path.is_rewritten() && proxy::with_one_slash(raw).contains("//");
        let is_asked_otherwise = differs && self.site.asks() && self.needs_more(path.decoded(), None);
        !is_asked_otherwise && SitePath::parse(raw, self.route.options.show_dotfiles).is_ok()
    }
}

/// The readings of a path beside the path itself, of an application that gets it as `rule` forwards it.
fn readings_for(rule: &proxy::Rule, path: ForwardedPath<'_>) -> Result<Vec<SitePath<'static>>, Status> {
    let mut readings = readings::of_forwarded(path)?;
    if let Some((prefix, rest)) = rule.stripped(path) {
        readings.extend(readings::beneath(prefix, &rest)?);
    }
    Ok(readings)
}

impl Site {
    /// The path of a request, encoded, as a server is asked about it: with the slashes of the path that is forwarded, or of the file that is sent.
    pub(in crate::site) fn path_asked(&self, raw: &str, route: &Route) -> Option<String> {
        let path = SitePath::parse(raw, true).or_else(|_| SitePath::parse_forwarded(raw)).ok()?;
        Some(match route.rule() {
            Some(rule) => rule.as_asked(ForwardedPath::requested(raw, &path)).into_owned(),
            // Where the route leads, a server may get the path as it is.
            None if route.may_forward() => proxy::with_one_slash(raw).into_owned(),
            None if path.names_directory() => path.with_slash(None),
            None => path.without_slash(None),
        })
    }
}
