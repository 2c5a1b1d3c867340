//! The last line of an explanation: the answer that the server's own steps give, in the words of the way there.

use std::fmt::Display;
use std::time::SystemTime;

use sealion_http::HttpTime;

use super::Way;
use crate::site::answer::{Networks, Rehearsed, rehearse};

/// How a request is answered, and why.
pub(super) struct Ending {
    outcome: Outcome,
    pub(super) words: String,
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A response of the server itself.
    Status(u16),
    /// The response of an upstream.
    Upstream,
    /// No response.
    Nothing,
}

impl Ending {
    pub(super) fn status(code: u16, why: impl Display) -> Self {
        Ending { outcome: Outcome::Status(code), words: format!("{code}: {why}") }
    }

    /// `name`: of the upstream, and what is done with its response.
    pub(super) fn upstream(name: impl Display) -> Self {
        Ending { outcome: Outcome::Upstream, words: format!("the response of {name}") }
    }

    pub(super) fn nothing() -> Self {
        Ending { outcome: Outcome::Nothing, words: "none: the connection is closed".to_owned() }
    }
}

impl Way<'_> {
    /// The answer to the request. `way`: the ending that the way leads to, if no guard refuses it.
    pub(super) fn ending(&self, way: Ending) -> String {
        let rehearsed = match self.rehearsed() {
            Ok(rehearsed) => rehearsed,
            Err(error) => return format!("{}, if no guard refuses it: {error}", way.words),
        };
        let Rehearsed { notes, .. } = &rehearsed;
        // A guard goes before all that the way leads to.
        let expected = match &notes.refusal {
            Some(refusal) => self.with_page(self.site.route(refusal.route), refusal.status.code(), &refusal.why),
            None => way,
        };
        let found = rehearsed.ending();
        let answer = match found.outcome == expected.outcome {
            true => expected.words,
            false => format!("{}, in place of {}", found.words, expected.words),
        };
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
    /// This answer, without its reason.
    fn ending(&self) -> Ending {
        match &self.notes.upstream {
            _ if self.is_withheld => Ending::nothing(),
            Some(upstream) => Ending::upstream(upstream),
            None => Ending { outcome: Outcome::Status(self.status.code()), words: self.status.to_string() },
        }
    }
}
