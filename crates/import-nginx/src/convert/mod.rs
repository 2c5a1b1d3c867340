//! The whole configuration: process-wide directives, then each server of `http`.
//!
//! ```text
//! servers ─► site ─► route (a location) ─► action, proxy: what it does
//!                      │                └─► guards, settings, limits: what it sets
//!                      └─► asked, condition, variables, tables: `if`, `set`, `map`
//! ```

mod action;
mod asked;
mod auth_request;
mod condition;
mod context;
mod error_pages;
mod guards;
mod level;
mod limits;
mod listeners;
mod log;
mod path;
mod pcre;
mod process;
mod proxy;
mod real_ip;
mod rewrite_phase;
mod rewrites;
mod route;
mod settings;
mod site;
mod tables;
mod tls;
mod values;
mod variables;

use std::path::Path;

use context::Context;
use listeners::Listeners;

use crate::Conversion;
use crate::report::{Loss, Unconverted};
use crate::syntax;

/// Converts the main configuration file of nginx.
pub(super) fn convert(file: &Path, is_reserved: fn(&str) -> bool) -> Result<Conversion, String> {
    let configuration = syntax::read(file)?;
    let mut context = Context::new(file, is_reserved);
    for missing in &configuration.missing {
        context.unconverted.push(Unconverted {
            place: missing.place.clone(),
            directive: "include".to_owned(),
            remedy: format!(
                "{}: run the conversion where the file is readable, as it may restrict access",
                missing.what
            ),
            loss: if missing.is_known() { Loss::Cosmetic } else { Loss::Unguarded },
            site: None,
        });
    }
    guards::walk(&configuration.directives, &mut |directive| {
        context.takes_proxy_protocol |= directive.name == "real_ip_header" && directive.first() == "proxy_protocol";
        if directive.name == "limit_req" {
            context.zones.note_use(directive);
        }
    });
    let mut http = Vec::new();
    for directive in &configuration.directives {
        match directive.name.as_str() {
            "http" => http.extend(directive.children()),
            "events" => directive.children().iter().for_each(|inner| context.process(inner)),
            // A file from conf.d, converted on its own.
            "server" => http.push(directive),
            _ => context.process(directive),
        }
    }
    let (servers, shared): (Vec<_>, Vec<_>) = http.into_iter().partition(|directive| directive.name == "server");
    for directive in &shared {
        context.shared(directive);
    }
    let mut listeners = Listeners::of(&servers);
    let mut sites = Vec::new();
    let mut converted = Vec::new();
    let mut names = Vec::new();
    for (number, server) in servers.into_iter().enumerate() {
        let made = site::convert(&mut context, &mut listeners, (number, server), &shared);
        if !made.is_empty() {
            listeners.bind(server);
            converted.push(server);
        }
        for (site, part) in made {
            names.push(context.site.clone());
            sites.push((site, part, server));
        }
    }
    context.site = None;
    let converted = listeners.read_client_addresses(&converted, &shared);
    real_ip::report(&mut context, &shared, &converted);
    if sites.is_empty() {
        context.root.comment("No server was found, so there is no site.");
    }
    for (site, part, server) in &mut sites {
        listeners.place(site, part);
        if !listeners.can_be_https(&part.listen) && site.remove("hsts") {
            let remedy = "Strict-Transport-Security is not sent without TLS: name the proxy in front by client_address and trusted_proxies of the listener, and set hsts";
            context.note(server, remedy);
        }
    }
    listeners.write(&mut context.root);
    for (site, ..) in sites {
        context.root.push("site", site);
    }
    let Context { root, mut unconverted, .. } = context;
    unconverted.sort_by(|a, b| a.place.cmp(&b.place));
    unconverted.dedup();
    let names = names.into_iter().flatten().collect();
    Ok(Conversion::new(root, unconverted, names))
}

#[cfg(test)]
mod guard_tests;
#[cfg(test)]
mod tests;
