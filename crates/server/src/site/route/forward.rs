//! The action `proxy`: to servers that the configuration names, or to servers that a value of the request chooses among these.

use std::collections::HashMap;
use std::io;

use sealion_http::Status;

use crate::placeholders::{Asked, Form, Known, Tables, Template};
use crate::response::Response;
use crate::site::proxy::{ProxyConfig, Rule, RuleContext};
use crate::values::{At, Problems, SecretUrl};

/// The rule that forwards, or one for each target that a text with placeholders can become. No request makes a target of its own.
#[derive(Debug)]
pub(in crate::site) enum Forward {
    Fixed(Box<Rule>),
    Chosen {
        to: Template,
        by_target: HashMap<Box<str>, Rule>,
        /// A target; the rules differ only in the server.
        any: Box<str>,
    },
}

impl Forward {
    pub(super) fn build(
        config: &ProxyConfig,
        known: Known<'_>,
        key: &str,
        context: &mut RuleContext<'_>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let to = &config.upstream;
        if !to.reveal().contains('{') {
            return Some(Forward::Fixed(Box::new(config.build(key, context, problems)?)));
        }
        let to_key = format!("{key}.to");
        let template = Template::parse_text(to.reveal(), &to.span, known, &to_key, problems)?;
        let with_target = |text: &str| {
            let mut own = config.clone();
            own.upstream = At { value: SecretUrl::from(text.to_owned()), span: to.span.clone() };
            // The same text is the same value.
            if let Some(host) = own.host.as_mut().filter(|host| host.as_str() == to.reveal()) {
                host.value = text.to_owned();
            }
            own
        };
        let mut by_target: HashMap<Box<str>, Rule> = HashMap::new();
        match template.all_texts(known.tables) {
            Some(texts) => {
                for text in texts {
                    let rule = with_target(&text).build(key, context, problems)?;
                    by_target.insert(text.into(), rule);
                }
            }
            // A URL that is not known at start names no [[upstream]].
            None if to.reveal().contains("://") => {}
            None => {
                for name in context.upstreams.names(config.fastcgi.is_some()) {
                    // An upstream that the rule does not fit is no target.
                    let mut others = problems.emptied();
                    let rule = with_target(&name).build(key, context, &mut others);
                    by_target.extend(rule.map(|rule| (name, rule)));
                }
            }
        }
        let Some(any) = by_target.keys().min().cloned() else {
            let what =
                "names no server that is known at start: add an [[upstream]] for each, or a map whose values are URLs";
            problems.add(&to.span, &to_key, what);
            return None;
        };
        if let Some(first) = by_target.remove(&any) {
            by_target.values_mut().for_each(|rule| rule.share_bounds(&first));
            by_target.insert(any.clone(), first);
        }
        Some(Forward::Chosen { to: template, by_target, any })
    }

    /// A rule for the properties that all of them share.
    pub(in crate::site) fn any(&self) -> &Rule {
        match self {
            Forward::Fixed(rule) => rule,
            Forward::Chosen { by_target, any, .. } => &by_target[any],
        }
    }

    /// Whether the choice may ask for the client's address.
    pub(in crate::site) fn asks_for_client(&self, tables: &Tables) -> bool {
        matches!(self, Forward::Chosen { to, .. } if to.names_client(tables))
    }

    /// All of them.
    pub(in crate::site) fn all(&self) -> impl Iterator<Item = &Rule> {
        let (fixed, chosen) = match self {
            Forward::Fixed(rule) => (Some(&**rule), None),
            Forward::Chosen { by_target, .. } => (None, Some(by_target.values())),
        };
        fixed.into_iter().chain(chosen.into_iter().flatten())
    }

    /// The rule for a request.
    ///
    /// # Errors
    /// The request's values name no server.
    pub(in crate::site) fn choose(&self, asked: &Asked<'_>) -> Result<&Rule, NoServer> {
        let (to, by_target) = match self {
            Forward::Fixed(rule) => return Ok(rule),
            Forward::Chosen { to, by_target, .. } => (to, by_target),
        };
        let target = to.render(asked, Form::Plain).map_err(|_| NoServer::Unfit)?;
        let target = std::str::from_utf8(&target).map_err(|_| NoServer::Unfit)?;
        by_target.get(target).ok_or_else(|| NoServer::Unknown(target.to_owned()))
    }
}

/// Why a request has no server.
#[derive(Debug)]
pub(in crate::site) enum NoServer {
    /// A value cannot stand in `to`.
    Unfit,
    /// The text of `to` is no server of the configuration.
    Unknown(String),
}

impl NoServer {
    pub(in crate::site) fn status(&self) -> Status {
        match self {
            Self::Unfit => Status::BAD_REQUEST,
            Self::Unknown(_) => Status::BAD_GATEWAY,
        }
    }

    pub(in crate::site) fn response(self) -> Response {
        let response = Response::plain(self.status());
        match self {
            Self::Unfit => response,
            Self::Unknown(target) => {
                let what = format!(
                    "the request leads to {target:?}, which is no server of the configuration: add an [[upstream]] of this name"
                );
                response.because(Some(io::Error::other(what)))
            }
        }
    }
}
