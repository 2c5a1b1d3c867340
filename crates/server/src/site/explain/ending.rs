//! The last line of an explanation: the answer that the server's own steps give, in the words of the way there.

use std::time::SystemTime;

use sealion_http::{HttpTime, Status};

use super::Way;
use crate::site::answer::{Networks, Rehearsed, rehearse};

/// The beginning of the words for a server's response.
pub(super) const RESPONSE_OF: &str = "the response of ";

/// The words for a connection that ends without a response.
pub(super) const NO_RESPONSE: &str = "none: the connection is closed";

impl Way<'_> {
    /// The answer to the request. `words`: the answer that the way leads to, if no guard of another path refuses it.
    pub(super) fn ending(&self, words: String) -> String {
        let rehearsed = match self.rehearsed() {
            Ok(rehearsed) => rehearsed,
            Err(error) => return format!("{words}, if no guard refuses it: {error}"),
        };
        let Rehearsed { notes, .. } = &rehearsed;
        let answer = if rehearsed.agrees(&words) { words } else { rehearsed.instead_of(&words) };
        let mut conditions = Vec::new();
        match notes.networks {
            Networks::Unasked => {}
            Networks::OrElse => conditions.push("the networks let the client pass or it authenticates".to_owned()),
            Networks::Required => conditions.push("the networks let the client pass".to_owned()),
        }
        conditions.extend(notes.consents.iter().map(|url| format!("{url} consents")));
        match conditions.is_empty() {
            true => answer,
            false => format!("{answer}, if {}", conditions.join(" and ")),
        }
    }

    fn rehearsed(&self) -> Result<Rehearsed, String> {
        let now = HttpTime::new(SystemTime::now()).ok_or("the clock shows a year that no date of HTTP has")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the steps of the server cannot be taken: {error}"))?;
        Ok(runtime.block_on(Box::pin(rehearse(self.site, self.request, self.client, now))))
    }
}

impl Rehearsed {
    /// Whether words say this answer.
    fn agrees(&self, words: &str) -> bool {
        match &self.notes.upstream {
            _ if self.is_withheld => words == NO_RESPONSE,
            Some(_) => words.starts_with(RESPONSE_OF),
            None => status_of(words) == Some(self.status.code()),
        }
    }

    /// This answer, where words say another one.
    fn instead_of(&self, words: &str) -> String {
        let answer = match (&self.notes.upstream, &self.notes.refusal) {
            _ if self.is_withheld => NO_RESPONSE.to_owned(),
            (Some(upstream), _) => format!("{RESPONSE_OF}{upstream}"),
            (None, Some((status, why))) if *status == self.status => return format!("{status}: {why}"),
            (None, _) => self.status.to_string(),
        };
        match &self.notes.refusal {
            Some((status, why)) => format!("{answer}, in place of {status}: {why}"),
            None => format!("{answer}, in place of {words}"),
        }
    }
}

/// The status that words begin with.
fn status_of(words: &str) -> Option<u16> {
    words.split_once(':')?.0.parse().ok().filter(|code| Status::new(*code).is_some())
}
