//! Builds the action of a route.

use super::Route;
use super::action::{Action, Last, Redirect, Respond, Rewrite, Try};
use super::build::SiteContext;
use super::config::RouteConfig;
use super::forward::Forward;
use super::path::RoutePath;
use crate::placeholders::Known;
use crate::site::SiteConfig;
use crate::site::proxy::{ProxyConfig, RuleContext};
use crate::values::Problems;

impl RouteConfig {
    /// The keys of the route's action.
    fn actions(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("files", self.files),
            ("proxy", self.proxy.is_some()),
            ("fastcgi", self.fastcgi.is_some()),
            ("respond", self.respond.is_some()),
            ("redirect", self.redirect.is_some()),
            ("rewrite", self.rewrite.is_some()),
            ("try", !self.r#try.is_empty()),
            ("deny", self.deny == Some(true)),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    pub(super) fn has_action(&self) -> bool {
        self.actions().next().is_some()
    }

    /// The action of the route. `None`: it inherits the action, or there are problems.
    pub(super) fn action(
        &self,
        path: &RoutePath,
        route: &Route,
        settings: &SiteConfig,
        (key, context): (&str, &mut SiteContext<'_>),
        problems: &mut Problems,
    ) -> Option<Action> {
        let names: Vec<_> = self.actions().collect();
        if let [one, other, ..] = names[..] {
            let span = self.path.as_ref().or(self.name.as_ref()).map_or(0..0, |text| text.span.clone());
            problems.add(
                &span,
                key,
                format_args!("has {one} and {other}: keep one of them, and give the other a route of its own"),
            );
            return None;
        }
        let known = Known::of_request(Some(&route.groups), &context.tables);
        let key = |name: &str| format!("{key}.{name}");
        if self.files {
            return Some(Action::Files);
        }
        if let Some(config) = &self.respond {
            return Respond::build(config, known, &key("respond"), problems).map(Action::Respond);
        }
        if let Some(config) = &self.redirect {
            return Redirect::build(config, known, &key("redirect"), problems).map(Action::Redirect);
        }
        if let Some(config) = &self.rewrite {
            return Rewrite::build(config, known, &key("rewrite"), problems).map(Action::Rewrite);
        }
        if !self.r#try.is_empty() {
            let built = Try::build(&self.r#try, known, &key("try"), problems)?;
            if built.paths.is_empty() && matches!(built.last, Last::Path(_)) {
                let what = "has only the last resort: write a path before it, for instance \"{path}\"";
                problems.add(&self.r#try[0].span, &key("try"), what);
            }
            return Some(Action::Try(built));
        }
        let (config, name) = match (&self.proxy, &self.fastcgi) {
            (Some(proxy), _) => (proxy.value.clone(), "proxy"),
            (None, Some(fastcgi)) => (ProxyConfig::of_scripts(fastcgi), "fastcgi"),
            (None, None) => return None,
        };
        let mut rules = RuleContext {
            root: settings.root.as_ref(),
            upstreams: context.upstreams,
            store: context.store,
            groups: &route.groups,
            tables: &context.tables,
            directory: path.directory(),
            listeners: &context.listeners,
        };
        Forward::build(&config, known, &key(name), &mut rules, problems).map(Action::Forward)
    }
}
