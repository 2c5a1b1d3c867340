//! Answers that wait for nothing: a cached file, a route that needs neither file nor server, a stored response.

use sealion_http::path::SitePath;
use sealion_http::{HttpTime, Method, Request};

use super::{Action, Answering, Client, FileLocation, Route, Site, proxy};
use crate::response::{Response, of_file};

/// Answers without waiting: with a cached file, by a route that needs neither file nor server or, where a proxy rule has a cache, with a stored response
/// of this worker. `None`: [`super::answer`] has to, in a box: every request would pay for the memory of its future.
pub(crate) fn answer_at_once(site: &Site, request: &Request<'_>, client: Client, now: HttpTime) -> Option<Response> {
    let (answering, path) = Answering::at_hand(site, request, client, now).ok()?;
    answering.answer_at_once(&path.ok()?)
}

impl Answering<'_> {
    /// The response with a cached file, of a route by itself ([`Self::answer_by_itself`]), or with a stored response ([`Self::answer_from_store`]). `None`:
    /// [`Self::answer`] makes the response, because a step before it may wait, or there is another response.
    fn answer_at_once(&self, path: &SitePath<'_>) -> Option<Response> {
        let features = &self.route.features;
        if self.site.has_proxies() {
            if let Some(rule) = self.rule(path) {
                return self.answer_from_store(rule.ok()?, path);
            }
            // Content may be on its way to a rule that covers the path in another reading.
            self.client.arrival?;
        }
        match &*self.route.action {
            Action::Files if matches!(self.request.method, Method::Get | Method::Head) => {}
            Action::Files => return None,
            Action::Respond(_) | Action::Redirect(_) => return self.answer_by_itself(path),
            Action::Deny | Action::Forward(_) | Action::Rewrite(_) | Action::Try(_) => return None,
        }
        let shows_name = || features.headers.as_ref().is_some_and(|headers| headers.have_placeholders());
        let name_decides =
            path.names_directory() && (self.removes_slash_of(path) || self.is_index_elsewhere(path) || shows_name());
        if features.authenticates()
            || name_decides
            || self.wants_digest()
            || self.refuse_or_redirect(path).is_some()
            || self.is_guarded_elsewhere(path)
        {
            return None;
        }
        let FileLocation { files, path: beneath, is_alias } = self.locate(path)?;
        if is_alias {
            return None;
        }
        if self.has_dictionary() {
            return None;
        }
        let file = files.find_cached(&beneath, &self.request.conditions.accept_encoding)?;
        if self.may_withhold(&file) || self.image(path).is_some() {
            return None;
        }
        let content_type = self.route.features.dictionary_compressed.then(|| file.content_type.clone());
        // In its place in the result from the start, so that it is not moved there.
        let mut answer = Some(of_file(self.request, file, self.route.options.max_ranges, self.now));
        if let Some(response) = &mut answer {
            if let Some(content_type) = content_type {
                self.add_vary_of_dictionary(response, &content_type, path);
            }
            // An error takes every step: its page, and the fields of that.
            if response.status.code() >= 400 {
                return None;
            }
            self.add_fields(response, path.as_bytes());
            self.sign(response, self);
        }
        answer
    }

    /// The response of a route that needs neither file nor server for it. `None`: [`Self::answer`] makes the response, because a guard may wait, or an
    /// error page may replace it.
    fn answer_by_itself(&self, path: &SitePath<'_>) -> Option<Response> {
        let reads = matches!(self.request.method, Method::Get | Method::Head);
        if !reads
            || self.route.features.authenticates()
            || self.is_guarded_elsewhere(path)
            || self.refuse_or_redirect(path).is_some()
        {
            return None;
        }
        let (mut response, is_final) = self.own_response(path)?;
        if response.status.code() >= 400 && !is_final {
            return None;
        }
        self.dress(&mut response, self, path.as_bytes());
        Some(response)
    }

    /// The response of an upstream that is stored. `None`: [`Self::answer`] makes the response.
    fn answer_from_store(&self, rule: &proxy::Rule, path: &SitePath<'_>) -> Option<Response> {
        if self.route.features.authenticates() || self.refuse_or_redirect(path).is_some() {
            return None;
        }
        if !rule.answers_from_cache() || !self.permits_readings(rule, path) || self.hides_range() {
            return None;
        }
        let mut response = rule.answer_at_once(
            self.request,
            self.client.arrival?,
            self.now,
            self.route.features.compression.is_some(),
        )?;
        if rule.intercept_errors && self.route.error_page(response.status).is_some() {
            return None;
        }
        if let Some(accel) = &self.route.features.accel {
            // Responses that lead elsewhere are not stored.
            let _ = accel.take(&mut response);
        }
        self.add_fields(&mut response, path.as_bytes());
        self.compress(&mut response);
        self.sign(&mut response, self);
        Some(response)
    }

    /// Whether an index of a directory is of another route, whose rules it follows.
    pub(super) fn is_index_elsewhere(&self, path: &SitePath<'_>) -> bool {
        let elsewhere = |route: &Route| route.number != self.route.number;
        let mut indexes = self.route.indexes();
        self.site.routes.is_some() && indexes.any(|index| self.route_of(&path.child(index)).map_or(true, elsewhere))
    }
}
