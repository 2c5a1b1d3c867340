//! Refuses routes that cannot answer any request.

use super::action::Action;
use super::build::KEY;
use super::config::{RouteConfig, SiteConfig};
use super::{Route, Routes};
use crate::site::locate::path_of;
use crate::values::Problems;

impl SiteConfig {
    /// Refuses settings without effect in a site without further routes.
    pub(super) fn check_root(&self, own: &RouteConfig, problems: &mut Problems) {
        let Some(fallback) = self.fallback.as_ref().filter(|_| self.route.is_empty()) else { return };
        let sends_files = own.proxy.as_ref().is_none_or(|proxy| proxy.files_first || proxy.fastcgi.is_some());
        if self.deny || own.respond.is_some() || own.redirect.is_some() || !sends_files {
            let what = "is never reached: the action of the site answers every request: remove it, give the action a route of its own, or set files_first = true";
            problems.add(&fallback.span, "site.fallback", what);
        }
    }
}

/// Refuses redirects to fixed paths that lead back to them.
pub(super) fn refuse_loops(site: &SiteConfig, routes: &Routes, problems: &mut Problems) {
    let own = |route: &Route| match &*route.action {
        Action::Redirect(redirect) => redirect.path().map(str::to_owned),
        _ => None,
    };
    for (config, route) in site.all_routes().zip(&routes.all) {
        let (Some(redirect), Some(mut to)) = (&config.redirect, own(route)) else { continue };
        for _ in 0..=routes.all.len() {
            let Ok((path, _)) = path_of(&to) else { break };
            let Some(next) = routes.by_path(&path).filter(|next| next.conditions.is_none()) else { break };
            if next.number == route.number {
                let what = "is a redirect loop: this route or another one redirects the target again";
                problems.add(&redirect.span, &format!("{KEY}.redirect"), what);
                break;
            }
            match own(next) {
                Some(next) => to = next,
                None => break,
            }
        }
    }
}
