//! Forwarding to an application, where a rule of the route says so.

use http::header;
use sealion_http::path::SitePath;
use sealion_http::request::{Conditions, Singleton};
use sealion_http::{Method, Request, Status};

use super::{Answer, Answering, FileLocation, ForwardedPath, Turn, proxy};
use crate::files::resolve::Found;
use crate::in_box::in_box;
use crate::response::Response;
use crate::upstream::Inbound;

impl Answering<'_> {
    /// Forwards the request where a rule says so, and answers with a file otherwise.
    pub(super) async fn serve_or_forward(&self, turn: Turn<'_>) -> Answer {
        let Turn { path: forwarded, asked, user, inbound } = turn;
        let path = forwarded.decoded();
        let rule = match self.rule(path) {
            None => return self.serve(path, asked, user).await,
            Some(Ok(rule)) => rule,
            Some(Err(missing)) => return missing.response().into(),
        };
        if let Some(refusal) = rule.refusal(self.request) {
            return refusal.into();
        }
        let takes_file = matches!(self.request.method, Method::Get | Method::Head) && !inbound.upgrade;
        let takes_file = takes_file && rule.files_first && self.may_be_file(forwarded);
        if takes_file && !Box::pin(self.index_is_script(rule, path)).await {
            let answer = Box::pin(self.serve(path, asked, user)).await;
            if answer.response.status != Status::NOT_FOUND {
                return answer;
            }
        }
        let readings = match self.is_read_alike(forwarded) {
            true => Vec::new(),
            false => match Box::pin(self.guard_readings(rule, forwarded, user)).await {
                Ok(readings) => readings,
                Err(refusal) => return refusal.into(),
            },
        };
        if let Some(auth) = self.auth {
            // Scripts get the path that was requested, as REQUEST_URI.
            if forwarded.is_rewritten() && !rule.runs_scripts() {
                let as_asked = rule.as_asked(forwarded);
                if let Some(refusal) = Box::pin(auth.refusal_of_forwarded(&as_asked, self.query())).await {
                    return refusal.into();
                }
            }
            auth.prepare(inbound);
        }
        if rule.runs_scripts() {
            let asked = Some(asked).filter(|_| forwarded.is_rewritten());
            if let Err(refusal) = Box::pin(self.add_script(rule, path, &readings, asked, user, inbound)).await {
                return refusal.into();
            }
        }
        if let Some(rehearsal) = self.rehearsal {
            return rehearsal.forward(rule.upstream_name()).into();
        }
        inbound.is_compressed = self.route.features.compression.is_some();
        let mut sent = inbound.take_for_server();
        sent.user.clone_from(user);
        let mut response = match self.hides_range() {
            false => in_box(|| rule.forward(self.request, forwarded, sent, inbound)).await,
            true => Box::pin(self.forward_whole(rule, forwarded, sent, inbound)).await,
        };
        if let Some(auth) = self.auth {
            auth.resume(inbound);
        }
        if rule.intercept_errors && self.route.error_page(response.status).is_some() {
            return Response { upstream: response.upstream, ..Response::plain(response.status) }.into();
        }
        if rule.files_first && self.route.features.fallback.is_some() {
            // A navigation to the same URL gets the fallback.
            response.fields.extra.add("Vary", "Accept");
        }
        if let Some(accel) = self.route.features.accel.as_ref().filter(|_| response.fields.forwarded)
            && let Some(redirect) = accel.take(&mut response)
        {
            let turn = Turn { path: forwarded, asked, user, inbound };
            return Box::pin(self.follow_accel(redirect, response, turn)).await;
        }
        response.into()
    }

    /// Forwards the request without the range that it asks for.
    async fn forward_whole(
        &self,
        rule: &proxy::Rule,
        path: ForwardedPath<'_>,
        mut inbound: Inbound,
        rest: &mut Inbound,
    ) -> Box<Response> {
        let absent = Singleton::default();
        let conditions = Conditions { range: absent, if_range: absent, ..self.request.conditions.clone() };
        let request = Request { conditions, ..self.request.clone() };
        inbound.fields.extend([(header::RANGE, None), (header::IF_RANGE, None)]);
        rule.forward(&request, path, inbound, rest).await
    }

    /// Finds the script that answers, if it is permitted. `asked`: the path before it was rewritten. An error is the refusal.
    async fn add_script(
        &self,
        rule: &proxy::Rule,
        path: &SitePath<'_>,
        readings: &[SitePath<'_>],
        asked: Option<&SitePath<'_>>,
        user: &mut Option<Box<str>>,
        inbound: &mut Inbound,
    ) -> Result<(), Box<Response>> {
        let plain = |status| Box::new(Response::plain(status));
        let script = match rule.script(path).await {
            None => return Ok(()),
            Some(found) => found.map_err(|status| {
                self.note_refusal(status, || "there is no script for the path".to_owned());
                plain(status)
            })?,
        };
        // The script must be permitted under its own name too.
        let name = SitePath::of_octets(&script.name).map_err(|_| plain(Status::NOT_FOUND))?;
        if let Some(refusal) = self.guard_in_all_readings(&name, user).await {
            return Err(refusal);
        }
        if let Some(refusal) = self.guard_path_info(rule, &script.name, path, readings, user).await {
            return Err(refusal);
        }
        // REQUEST_URI is the requested path, whatever it was rewritten to.
        if let Some(asked) = asked {
            let requested = ForwardedPath::requested(self.raw_path(), asked);
            let of_client = Answering { led: None, ..*self };
            let readings = of_client.guard_readings(rule, requested, user).await?;
            if let Some(refusal) = of_client.guard_path_info(rule, &script.name, asked, &readings, user).await {
                return Err(refusal);
            }
        }
        rule.add_script(script, self.request, inbound);
        Ok(())
    }

    /// Whether the index of a directory is a script that goes before the files that are named after it in the site's `index`.
    async fn index_is_script(&self, rule: &proxy::Rule, path: &SitePath<'_>) -> bool {
        let Some(script) = rule.index_script().filter(|_| path.names_directory()) else { return false };
        let names: Vec<&str> = self.route.indexes().collect();
        // Only files, or no action after it: a script runs where there is no file.
        if names.iter().position(|name| *name == script).is_none_or(|at| at + 1 == names.len()) {
            return false;
        }
        let Some(FileLocation { files, path: beneath, .. }) = self.locate(path) else { return false };
        for name in names {
            if name == script {
                let own = path.child(script);
                return rule
                    .script(path)
                    .await
                    .is_some_and(|found| found.is_ok_and(|found| found.name == own.as_bytes()));
            }
            if let Ok(Found::File(_)) = self.find(files, &beneath.child(name)).await {
                return false;
            }
        }
        false
    }
}
