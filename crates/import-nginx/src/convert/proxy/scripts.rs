//! Locations that pass requests to a server of FastCGI, as the action `proxy` with `fastcgi`: the script is found by the route, and has to be a file.

use super::gateway::{self, Made};
use super::upstreams::{self, Options};
use super::{NotPassed, Place, cache, fields, keys_of_all, max_body, settings, values};
use crate::convert::context::Context;
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

const MADE: Made = Made { always: &["HTTP_HOST", "HTTP_PROXY", "REMOTE_USER"], otherwise: &[] };

/// Bytes of a content for a script that wait in memory.
const MAX_IN_MEMORY: u64 = 1 << 20;

/// Writes the action of a location whose requests scripts answer.
pub(super) fn write(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    pass: &Directive,
) -> Result<(), NotPassed> {
    let level = place.level;
    let to = place.variables.template(context, pass.first())?;
    if to.contains('{') {
        return Err("its server depends on the request: name an [[upstream]]".into());
    }
    let (root, front) = directory(context, place)?;
    let mut scripts = toml::Table::new();
    let known = match level.last("root") {
        Some(own) => settings::directory(context, own, place.variables).ok(),
        None => None,
    };
    if known.as_ref() != Some(&root) {
        scripts.insert("root".to_owned(), root.into());
    }
    if let Some(script) = front {
        scripts.insert("front".to_owned(), script.into());
        scripts.insert("only_front".to_owned(), true.into());
    }
    if let Some(index) = level.last("fastcgi_index").filter(|index| index.first() != "index.php") {
        match index.first().ends_with(".php") && !index.first().contains(['/', '$']) {
            true => drop(scripts.insert("index".to_owned(), index.first().into())),
            false => context.note(index, "name a script: set index of fastcgi"),
        }
    }
    let params = params(context, place);
    if !params.is_empty() {
        scripts.insert("params".to_owned(), params.into());
    }
    let options = options(context, place);
    let target = upstreams::target(context, &to, options)?;
    let proxy = table.table("proxy");
    proxy.set("to", target.name);
    proxy.set("fastcgi", scripts);
    let all = |name: &str| level.all(&name.replacen("proxy_", "fastcgi_", 1));
    let (cache, hidden) = (cache::of_rule(context, &all), fields::of_responses(context, &all("proxy_hide_header")));
    keys_of_all(context, proxy, place, &all, (hidden, cache));
    let max = max_body(context, place);
    // nginx keeps contents in files, too, until they are whole.
    if max.is_none_or(|max| max.0 > MAX_IN_MEMORY) {
        let disk = values::Size(max.map_or(10 << 30, |max| max.0.saturating_mul(10))).to_string();
        proxy.set("buffer_request", inline_table([("disk", disk.into()), ("directory", "/var/tmp".into())]));
    }
    Ok(())
}

/// The directory of the scripts of a location, and the one script that it runs if that is constant.
fn directory(context: &mut Context, place: Place<'_, '_>) -> Result<(String, Option<String>), NotPassed> {
    let param = |name: &str| {
        let params = place.level.all("fastcgi_param");
        params.into_iter().rfind(|param| param.first() == name).and_then(|param| param.arguments.get(1)).cloned()
    };
    // Without it, PHP takes the document root.
    let of_file = param("SCRIPT_FILENAME").unwrap_or_else(|| "$document_root$fastcgi_script_name".to_owned());
    let plain = of_file.replace("${", "$").replace('}', "");
    if let Some(alias) = place.level.last("alias") {
        let own = place.path.prefix().map(|own| own.trim_end_matches('/'));
        let parent = own.and_then(|own| alias.first().trim_end_matches('/').strip_suffix(own));
        return match parent.filter(|parent| parent.starts_with('/')) {
            Some(parent) => Ok((parent.to_owned(), None)),
            None => Err(
                "its scripts lie beneath an alias: write root = \"…\" of fastcgi, so that root and path are the script"
                    .into(),
            ),
        };
    }
    let with_root = ["$document_root", "$realpath_root"].into_iter().find_map(|start| plain.strip_prefix(start));
    let root = |context: &mut Context| match place.level.last("root") {
        Some(root) => Ok(settings::directory(context, root, place.variables)?),
        None => Err(NotPassed::Other("its scripts have no root: set root of fastcgi".to_owned())),
    };
    let is_name = |rest: &str| rest.trim_start_matches('/') == "$fastcgi_script_name";
    match with_root {
        _ if plain == "$request_filename" => Ok((root(context)?, None)),
        Some(rest) if is_name(rest) => Ok((root(context)?, None)),
        Some(script) if !script.contains('$') && script.ends_with(".php") => {
            Ok((root(context)?, Some(format!("/{}", script.trim_start_matches('/')))))
        }
        _ => {
            let whole = place.variables.template(context, &plain.replace("$fastcgi_script_name", "\u{1}"))?;
            let is_constant = whole.starts_with('/') && !whole.contains('{');
            match (whole.strip_suffix('\u{1}'), whole.rsplit_once('/')) {
                (Some(root), _) if is_constant => Ok((root.to_owned(), None)),
                (None, Some((root, script))) if is_constant && script.ends_with(".php") => {
                    Ok((root.to_owned(), Some(format!("/{script}"))))
                }
                _ => Err(format!(
                    "the directory of its scripts is not known from SCRIPT_FILENAME {of_file}: set root of fastcgi"
                )
                .into()),
            }
        }
    }
}

/// Further variables of scripts.
fn params(context: &mut Context, place: Place<'_, '_>) -> toml::Table {
    let mut params = toml::Table::new();
    for param in place.level.all("fastcgi_param") {
        gateway::add_param(context, place, &mut params, param, &MADE);
    }
    params
}

/// Times of the upstream.
fn options(context: &mut Context, place: Place<'_, '_>) -> Options {
    Options { scheme: "fastcgi", keys: gateway::options(context, place, "fastcgi"), ..Options::default() }
}
