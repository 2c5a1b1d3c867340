//! The action of a location: `return`, `try_files`, `alias`, `proxy_pass` and its kin, or files.

use toml::Value;

use super::condition::Condition;
use super::context::Context;
use super::guards;
use super::level::Level;
use super::path::Path;
use super::proxy::{self, ItsPath, NotPassed, Place, without_query};
use super::variables::Variables;
use super::{route, settings};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// The picture of one transparent pixel that nginx has.
const EMPTY_GIF: &str = "R0lGODlhAQABAIABAAAAAP///yH5BAEAAAEALAAAAAABAAEAAAICTAEAOw==";

/// Whether a block does something else than to send files.
pub(super) fn is_action(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "return" | "try_files" | "empty_gif") || guards::passes_to_program(directive)
}

/// Writes the action of the innermost block of a place. `false`: it has none, so that it sends files.
pub(super) fn write(context: &mut Context, table: &mut Table, place: Place<'_, '_>) -> Result<bool, NotPassed> {
    let own = place.level.own();
    let find = |name: &str| own.iter().copied().find(|inner| inner.name == name);
    if let Some(returns) = find("return") {
        self::returns(context, table, place, returns)?;
        // Conditions before it may ask for files.
        if place.level.sets(&["if"]) {
            files_of(context, table, place);
        }
        return Ok(true);
    }
    if let Some(pass) = own.iter().copied().find(|inner| guards::passes_to_program(inner)) {
        if !proxy::is_pass(pass) {
            return Err(format!("{} has no counterpart: {}", pass.name, instead_of(&pass.name)).into());
        }
        proxy::write(context, table, place, pass)?;
        if let Some(tries) = find("try_files") {
            tries_before(context, table, place, (tries, pass))?;
        }
        // Locations within may send files.
        let root = find("root").filter(|_| place.level.sets(&["location"]));
        if let Some(root) = root.and_then(|root| settings::directory(context, root, place.variables).ok()) {
            table.set("root", root);
        }
        return Ok(true);
    }
    if find("empty_gif").is_some() {
        table.set("respond", inline_table([("type", "image/gif".into()), ("base64", EMPTY_GIF.into())]));
        return Ok(true);
    }
    if let Some(alias) = find("alias") {
        self::alias(context, table, place, alias)?;
        let acts = |key: &str| table.get(key).is_some();
        if ["rewrite", "respond", "try"].into_iter().any(acts) {
            return Ok(true);
        }
    } else if let Some(root) = find("root") {
        let directory = settings::directory(context, root, place.variables)?;
        match beneath(&directory, place) {
            Some(alias) => table.set("alias", alias),
            None => table.set("root", directory),
        }
    }
    if let Some(tries) = find("try_files") {
        self::try_files(context, table, place, tries)?;
        return Ok(true);
    }
    Ok(false)
}

/// Writes where the files of a location are, which does not send them.
fn files_of(context: &mut Context, table: &mut Table, place: Place<'_, '_>) {
    let own = |name: &str| place.level.own().iter().copied().find(|inner| inner.name == name);
    if let Some(alias) = own("alias") {
        let to = place.variables.template(context, alias.first()).unwrap_or_default();
        let is_whole =
            to.ends_with('/') && !to.contains('{') && place.path.prefix().is_some_and(|text| text.ends_with('/'));
        match is_whole {
            true => table.set("alias", to),
            false => context.report_unguarded(
                alias,
                "conditions ask for files of the root: end the path and its directory with a slash",
            ),
        }
    } else if let Some(root) = own("root")
        && let Ok(directory) = settings::directory(context, root, place.variables)
    {
        table.set("root", directory);
    }
}

/// The remedy for a handler without counterpart.
fn instead_of(handler: &str) -> &'static str {
    match handler {
        "stub_status" | "api" => "the numbers are at the address of [metrics]: set metrics.listen",
        _ => "let the program listen for HTTP, FastCGI or uwsgi",
    }
}

/// The directory beneath a root that has only the files of a location. `None`: the location needs the whole root.
fn beneath(root: &str, place: Place<'_, '_>) -> Option<String> {
    let Path::Prefix { text, .. } = place.path else { return None };
    let is_alone =
        text != "/" && text.ends_with('/') && !place.level.sets(&["location", "try_files", "error_page", "index"]);
    let own = format!("{}{text}", root.trim_end_matches('/'));
    (is_alone && std::path::Path::new(&own).is_dir()).then_some(own)
}

/// `return`
pub(super) fn returns(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    directive: &Directive,
) -> Result<(), NotPassed> {
    let (status, text) = match directive.arguments.as_slice() {
        [url] if url.starts_with("http") || url.starts_with('$') => (302, Some(url)),
        [status] => (status.parse::<u16>().unwrap_or_default(), None),
        [status, text] => (status.parse::<u16>().unwrap_or_default(), Some(text)),
        _ => return Err("its arguments are unknown".into()),
    };
    match (status, text) {
        (444, _) => table.set("respond", "close"),
        // Routes within inherit `deny`, and rewrites before a `return` lead away from it.
        (403, None) if !place.level.sets(&["if", "rewrite", "location"]) => table.set("deny", true),
        (301 | 302 | 303 | 307 | 308, Some(to)) => redirect(context, table, place.variables, to, status)?,
        // nginx has no page for it.
        (402..=599, None) if WITHOUT_PAGE.contains(&status) && !has_error_page(place.level, status) => {
            table.set("respond", inline_table([("status", i64::from(status).into()), ("text", "".into())]));
        }
        (200..=599, None) => table.set("respond", i64::from(status)),
        (200..=599, Some(text)) => {
            let text = place.variables.template(context, text)?;
            let mut respond = inline_table([("status", i64::from(status).into()), ("text", text.into())]);
            let default = place.level.last("default_type").map(Directive::first);
            let media_type = default.unwrap_or("text/plain");
            let own = place
                .level
                .all("add_header")
                .into_iter()
                .find(|field| field.first().eq_ignore_ascii_case("content-type"));
            let media_type = own.and_then(|field| field.arguments.get(1)).map_or(media_type, String::as_str);
            let may_tell = !matches!(place.path, Path::Exact(text) if !text.contains('.'));
            if own.is_none() && may_tell {
                respond.insert("type".to_owned(), "by-name".into());
                // The type of names that tell none, as compiled into nginx.
                if default.is_none() && place.level.all("types").is_empty() {
                    table.set("media_types", inline_table([("*", "text/plain".into())]));
                }
            } else if media_type.contains('/') && !media_type.contains('$') {
                respond.insert("type".to_owned(), media_type.into());
            }
            table.set("respond", respond);
        }
        _ => return Err(format!("{status} is no status of a response").into()),
    }
    Ok(())
}

/// Statuses that nginx answers without a content, unless `return` has one.
const WITHOUT_PAGE: [u16; 10] = [407, 417, 418, 422, 423, 424, 425, 426, 428, 451];

fn has_error_page(level: &Level<'_>, status: u16) -> bool {
    let status = status.to_string();
    level.all("error_page").iter().any(|page| page.arguments.contains(&status))
}

/// Writes a redirect, whose query the target decides.
pub(super) fn redirect(
    context: &mut Context,
    table: &mut Table,
    variables: &Variables,
    to: &str,
    status: u16,
) -> Result<(), NotPassed> {
    let is_kept = ["$is_args$args", "?$args", "?$query_string", "$is_args$query_string"]
        .into_iter()
        .find(|end| to.ends_with(end));
    let is_kept = is_kept.filter(|_| !variables.has_other_query());
    let without = is_kept.map_or(to, |end| to.strip_suffix(end).unwrap_or(to));
    let target = variables.template(context, without)?.replace("{{", "%7B").replace("}}", "%7D");
    let begins =
        target.starts_with('/') && !target.starts_with("//") || target.starts_with("http") || target.starts_with('{');
    if !begins || target.contains(['\\', '"', '<', '>', ' ']) || !target.is_ascii() {
        return Err(format!("{to} is no target of a redirect: write a path or a URL").into());
    }
    let keeps = is_kept.is_some() || target.contains("{uri}");
    let mut redirect = inline_table([("to", target.into()), ("status", i64::from(status).into())]);
    if !keeps {
        redirect.insert("query".to_owned(), "drop".into());
    } else if is_kept.is_some() && without.contains('?') {
        redirect.insert("query".to_owned(), "append".into());
    }
    table.set("redirect", redirect);
    Ok(())
}

/// The path of a rewrite or of `try_files`, as a template.
pub(super) fn target(context: &mut Context, variables: &Variables, text: &str) -> Result<String, NotPassed> {
    let ends = ["$is_args$args", "?$args", "?$query_string", "$is_args$query_string", "?"];
    let text = ends.iter().find_map(|end| text.strip_suffix(end)).unwrap_or(text);
    let template = without_query(&variables.template(context, text)?)
        .replace("{is_args}", "?")
        .replace("{{", "%7B")
        .replace("}}", "%7D");
    let begins = template.starts_with('/') && !template.starts_with("//")
        || template.starts_with("{path}")
        || template.starts_with("{uri}");
    let template = if begins || !template.starts_with('{') { template } else { format!("/{template}") };
    if !template.starts_with(['/', '{']) || template.contains(['#', ' ', '\\', '"', '<', '>']) || !template.is_ascii() {
        return Err(format!("{text} is no path").into());
    }
    Ok(template)
}

/// `try_files`
fn try_files(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    directive: &Directive,
) -> Result<(), NotPassed> {
    let Some((last, tried)) = directive.arguments.split_last() else {
        return Err("it names no path".into());
    };
    let mut paths: Vec<Value> = Vec::new();
    for tried in tried {
        // A name that no file has: only the last one is meant.
        let is_nothing = tried.is_empty()
            || ["/nonexist", "/non-exist", "/dev/null", "/none", "/@"].iter().any(|start| tried.starts_with(start));
        // A path with a slash at its end is no file.
        let is_directory = matches!(place.path, Path::Exact(own) if own.ends_with('/')) && tried.ends_with("$uri");
        match target(context, place.variables, tried) {
            _ if is_nothing || is_directory => {}
            Ok(path) => paths.push(path.into()),
            Err(NotPassed::Other(_)) if !tried.contains('/') && !tried.contains('.') => {}
            Err(why) => return Err(why),
        }
    }
    let tries_directory = tried.iter().any(|tried| tried == "$uri/");
    let end = match last.as_str() {
        // nginx would look for it again and again.
        "$uri" | "$uri/" | "$uri/index.html" => {
            paths.push(target(context, place.variables, last)?.into());
            "=404".to_owned()
        }
        last => last_of(context, place, last)?,
    };
    // The last resort stands by itself only if it is a route.
    if paths.is_empty() {
        last_resort(table, &end);
        return Ok(());
    }
    let tries_files = tried.iter().any(|tried| tried == "$uri");
    let group = place.path.last_group();
    let ends_with_path = |path: &Value| path.as_str().is_some_and(|path| group.iter().any(|own| path.ends_with(own)));
    if !tries_directory && (tries_files || paths.iter().any(ends_with_path)) {
        let others = paths.iter().filter(|path| path.as_str() != Some("{path}") && !ends_with_path(path)).cloned();
        directories(table, place.path, others.collect(), &end);
    }
    if let Some(folder) = tried.iter().find(|tried| tried.ends_with('/') && *tried != "$uri/") {
        let remedy = format!("nginx redirects to the folder of {folder}, whose index is sent here: name a file of it");
        context.report_with(directive, remedy);
    }
    if tries_directory && !tries_files {
        context.report_with(directive, "nginx looks for the index of a folder by the same entries, and none of them names a file: write `$uri` before `$uri/`");
    }
    if tries_directory {
        // `$uri/` finds it.
        last_index(context, table, place);
    }
    paths.push(end.into());
    table.set("try", paths);
    Ok(())
}

/// `try_files` beside a server, which gets the paths with a file: the last entry answers the rest.
fn tries_before(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    (tries, pass): (&Directive, &Directive),
) -> Result<(), NotPassed> {
    let Some((last, tried)) = tries.arguments.split_last() else { return Ok(()) };
    if is_try_of_script(tries, pass) {
        return Ok(());
    }
    let mut found = Vec::new();
    for tried in tried {
        let path = match tried.as_str() {
            "$fastcgi_script_name" => "{path}".to_owned(),
            tried => target(context, place.variables, tried)?,
        };
        let kind = if tried.ends_with('/') { "directory" } else { "file" };
        found.push(Condition::exists(kind, &path));
    }
    let mut inner = Table::default();
    inner.set("match", Condition::any(found).unwrap_or(Condition::Always).not().into_table());
    last_resort(&mut inner, &last_of(context, place, last)?);
    table.push("route", inner);
    Ok(())
}

/// Whether `try_files` answers 404 where a script is missing, as FastCGI does anyway. `$uri` has the path behind the script too.
pub(super) fn is_try_of_script(tries: &Directive, pass: &Directive) -> bool {
    let Some((last, tried)) = tries.arguments.split_last() else { return false };
    let is_it = tries.name == "try_files" && pass.name == "fastcgi_pass" && last == "=404";
    is_it && tried.iter().all(|tried| tried == "$fastcgi_script_name")
}

/// `try_files` behind `rewrite … break`: the rewritten path is tried, and a server gets it too.
pub(super) fn try_rewritten(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    (tries, to): (&Directive, &str),
) -> Result<(), String> {
    let Some((last, tried)) = tries.arguments.split_last() else { return Ok(()) };
    let variables = place.variables.in_case("uri", to);
    let own = Place { variables: &variables, ..place };
    let mut paths = Vec::new();
    for tried in tried {
        paths.push(Value::from(target(context, &variables, tried).map_err(NotPassed::into_reason)?));
    }
    let named = place.locations.iter().copied().find(|location| location.arguments == [last.as_str()]);
    let pass = named.and_then(|named| named.children().iter().find(|inner| proxy::is_pass(inner)));
    let last = match (named, pass) {
        (Some(named), Some(_)) if named.children().iter().any(has_conditions) => {
            return Err(format!("{last} gets the rewritten path, and its conditions do not follow"));
        }
        (Some(named), Some(pass)) => {
            let level = place.level.of_server().within(named);
            let own = Place { level: &level, path: &Path::Inherited, ..place };
            format!("{}{to}", proxy::elsewhere(context, own, pass, ItsPath::Rewritten).map_err(NotPassed::into_reason)?)
        }
        (Some(_), None) => return Err(format!("{last} gets the rewritten path")),
        (None, _) => last_of(context, own, last).map_err(NotPassed::into_reason)?,
    };
    // A directory is no file without a slash in the text.
    let (of_path, others): (Vec<Value>, _) = paths.clone().into_iter().partition(|path| path.as_str() == Some(to));
    if !of_path.is_empty() && to.ends_with('}') && !tried.iter().any(|tried| tried.ends_with('/')) {
        let around = Path::Expression { text: String::new(), ignores_case: false };
        directories(table, &around, others, &last);
    }
    paths.push(last.into());
    table.set("try", paths);
    Ok(())
}

/// Whether a directive makes further routes for its location.
pub(super) fn has_conditions(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "if" | "limit_except" | "location" | "rewrite" | "return" | "set" | "break")
}

/// The last entry of a `try_files`.
fn last_of(context: &mut Context, place: Place<'_, '_>, last: &str) -> Result<String, NotPassed> {
    Ok(match last {
        last if last.starts_with('=') => last.to_owned(),
        last if last.starts_with('@') => route::named(context, place, last)?,
        // nginx sends no other query there than the one that stands in it.
        last => {
            let to = target(context, place.variables, last)?;
            let has_query =
                ["?", "$is_args", "${is_args}"].iter().any(|own| last.contains(own)) || to.contains("{uri}");
            match place.variables.own_query()? {
                _ if !has_query || last.ends_with('?') => format!("{to}?"),
                Some(query) if !to.contains('?') => format!("{to}?{query}"),
                _ => to,
            }
        }
    })
}

/// Has a route follow the last entry of a `try_files`.
fn last_resort(table: &mut Table, last: &str) {
    match last.starts_with('/') {
        true => table.set("rewrite", last),
        // `respond` would close paths that an application may read so.
        false => table.set("try", vec![Value::from(last)]),
    }
}

/// Adds a route for directories without an index, where the last index is a path.
pub(super) fn last_index(context: &mut Context, table: &mut Table, place: Place<'_, '_>) {
    let names = place.level.all("index");
    let Some(last) = names.last().and_then(|index| index.arguments.last()).filter(|last| last.starts_with('/')) else {
        return;
    };
    match target(context, place.variables, last) {
        Ok(last) => {
            // nginx looks for names in directories alone, and goes to a path at once.
            let has_names = names.iter().any(|index| index.arguments.iter().any(|name| !name.starts_with('/')));
            let condition = if has_names { Condition::exists("directory", "{path}") } else { Condition::Always };
            let mut inner = of_directories(place.path, condition);
            match has_names {
                true => inner.set("try", vec![Value::from("{path}"), last.into()]),
                false => inner.set("rewrite", last),
            }
            table.push("route", inner);
        }
        Err(why) => {
            let why = why.into_reason();
            names.iter().for_each(|index| context.report_with(index, format!("{why}: write try")));
        }
    }
}

/// Adds a route for paths that end with a slash: `$uri` without `$uri/` finds no file there, so that the other paths are tried.
fn directories(table: &mut Table, around: &Path, mut others: Vec<Value>, end: &str) {
    let mut inner = of_directories(around, Condition::Always);
    match others.is_empty() {
        true => last_resort(&mut inner, end),
        false => {
            others.push(end.into());
            inner.set("try", others);
        }
    }
    table.push("route", inner);
}

/// A route within `around` for paths that end with a slash. Within an expression, whose groups it may name, it has a condition in place of a path.
fn of_directories(around: &Path, condition: Condition) -> Table {
    let mut inner = Table::default();
    let condition = match around.is_expression() {
        true => Condition::wanted("{path}", "~ /$").and(condition),
        false => {
            inner.set("path", "~ /$");
            condition
        }
    };
    if condition != Condition::Always {
        inner.set("match", condition.into_table());
    }
    inner
}

/// The file of an `alias` that names one, as a path beneath the directory of its route. `None`: its files are named by the paths of requests.
pub(super) fn file_of_alias(context: &mut Context, place: Place<'_, '_>, alias: &Directive) -> Option<String> {
    let to = place.variables.template(context, alias.first()).ok()?;
    let is_file = match place.path {
        Path::Exact(_) | Path::Expression { .. } => true,
        Path::Prefix { text, .. } => !to.contains('{') && is_file(&to) && !text.ends_with('/'),
        _ => false,
    };
    is_file.then(|| split(&to).1)
}

/// Whether an `alias` names a file.
fn is_file(to: &str) -> bool {
    let has_ending = || to.rsplit('/').next().is_some_and(|name| name.contains('.'));
    !to.ends_with('/') && (std::path::Path::new(to).is_file() || has_ending())
}

/// The ending of a file's name.
fn ending(path: &str) -> Option<&str> {
    path.rsplit('/').next()?.rsplit_once('.').map(|(_, ending)| ending)
}

/// Everything up to the first placeholder, and the rest as a path beneath it.
fn split(to: &str) -> (String, String) {
    let start = to.find('{').unwrap_or(to.len());
    let slash = to[..start].rfind('/').unwrap_or(0);
    (if slash == 0 { "/".to_owned() } else { to[..slash].to_owned() }, to[slash..].to_owned())
}

/// `alias`
fn alias(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    directive: &Directive,
) -> Result<(), NotPassed> {
    let to = place.variables.template(context, directive.first())?;
    if !to.starts_with('/') {
        return Err("write the full path of its directory".into());
    }
    let stay = |table: &mut Table, root: String, to: String| {
        table.set("root", root);
        table.set("rewrite", inline_table([("to", to.into()), ("stay", true.into())]));
    };
    match place.path {
        Path::Prefix { text, is_final } if !to.contains('{') => {
            let is_whole = text.ends_with('/') && to.ends_with('/') && !place.level.sets(&["location"]);
            match to.trim_end_matches('/').strip_suffix(text.trim_end_matches('/')) {
                _ if is_whole => table.set("alias", to),
                // The same as a root.
                Some(root) if to.ends_with('/') == text.ends_with('/') && root.starts_with('/') => {
                    table.set("root", root)
                }
                _ if is_file(&to) && !text.ends_with('/') => {
                    let (root, to) = split(&to);
                    stay(table, root, to);
                }
                _ if text.ends_with('/') && !to.ends_with('/') => {
                    return Err("nginx appends the rest of the path without a slash: end both with one".into());
                }
                _ if text.ends_with('/') => table.set("alias", to),
                // nginx appends the rest: `/docs.gz` is not a file of another root.
                _ if place.level.sets(&["location"]) => {
                    let sign = if *is_final { "^~ " } else { "" };
                    table.set("path", format!("{sign}{text}/"));
                    table.set("alias", to);
                }
                _ => {
                    let mut inner = Table::default();
                    inner.set("path", format!("{text}/"));
                    inner.set("alias", to);
                    let tries = place.level.own().iter().copied().find(|inner| inner.name == "try_files");
                    match tries.and_then(|tries| Some((tries, tries.arguments.last()?))) {
                        Some((tries, last)) => {
                            self::try_files(context, &mut inner, place, tries)?;
                            last_resort(table, &last_of(context, place, last)?);
                        }
                        None => {
                            inner.set("files", true);
                            table.set("respond", 404);
                        }
                    }
                    table.push("route", inner);
                    return Ok(());
                }
            }
        }
        Path::Exact(text) if text.ends_with('/') && to.ends_with('/') && !to.contains('{') => {
            // nginx looks for the location of the index again.
            let names = place.level.all("index");
            let names: Vec<&str> = names.iter().flat_map(|index| &index.arguments).map(String::as_str).collect();
            let names = if names.is_empty() { vec!["index.html"] } else { names };
            for name in names.into_iter().filter(|name| !name.contains(['/', '$', '{', '%', ' '])) {
                let mut inner = Table::default();
                inner.set("match", Condition::exists("file", &format!("/{name}")).into_table());
                inner.set("rewrite", format!("{text}{name}"));
                table.push("route", inner);
            }
            table.set("root", to);
            table.set("respond", 404);
        }
        Path::Expression { text, .. } if to.ends_with('/') && !text.ends_with("/$") => {
            return Err("nginx redirects its paths to the same with a slash: name a file behind the directory".into());
        }
        Path::Exact(_) | Path::Expression { .. } => {
            // nginx goes by the path, and not by the name of the file.
            if let (Path::Exact(text), Some(own)) = (place.path, ending(&to)) {
                match ending(text) {
                    None => settings::of_default_type(table, place.level, own),
                    Some(other) if other != own => {
                        let remedy = "nginx sends it with the media type of the path, not of the file: set media_types";
                        context.report_with(directive, remedy);
                    }
                    Some(_) => {}
                }
            }
            let (root, to) = split(&to);
            stay(table, root, to);
        }
        _ => return Err("its directory depends on the request".into()),
    }
    Ok(())
}
