//! The settings of a block beside guards and its action: files, fields of responses, compression, listings, error pages, the log.

use toml::Value;

use super::context::Context;
use super::level::Level;
use super::variables::Variables;
use super::{error_pages, guards, log, proxy, tables, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Writes the settings that the innermost block of a level sets.
pub(super) fn write(context: &mut Context, table: &mut Table, level: &Level<'_>, variables: &Variables) {
    index(context, table, level);
    if level.sets(&["autoindex"]) {
        table.set("listing", level.is_on("autoindex"));
    }
    compression(context, table, level);
    media_types(table, level);
    fields(context, table, level, variables);
    error_pages::write(context, table, level, variables);
    for directive in level.own().iter().filter(|inner| inner.name == "access_log") {
        log::of_block(context, table, directive);
    }
}

/// The directory of a `root`. An error says why it has none.
pub(super) fn directory(context: &mut Context, directive: &Directive, variables: &Variables) -> Result<String, String> {
    let root = variables.value_of(context, directive.first()).map_err(|lost| lost.to_string())?;
    let root = beneath_one(context, &root).unwrap_or(root);
    let opened = root.split('{').next().unwrap_or_default();
    match opened.rfind('/') {
        _ if !root.contains('{') => {}
        Some(1..) => {}
        _ => {
            return Err(
                "all of its path depends on the request: write the directory that all have in common before it"
                    .to_owned(),
            );
        }
    }
    // Relative to the prefix of Debian's package.
    Ok(if root.starts_with('/') { root } else { format!("/usr/share/nginx/{root}") })
}

/// A root by a table of directories, behind the directory that all have in common. `None`: it is no such root.
fn beneath_one(context: &mut Context, root: &str) -> Option<String> {
    let name = root.strip_prefix("{map.")?.strip_suffix('}')?;
    let all = tables::values(context, root)?;
    let first = all.first()?;
    let mut common = &first[..=first.rfind('/')?];
    while !all.iter().all(|value| value.starts_with(common)) {
        common = &common[..=common.trim_end_matches('/').rfind('/')?];
    }
    let common = common.to_owned();
    if common == "/" || !common.starts_with('/') {
        return None;
    }
    let rest = tables::changed(context, &format!("${name}"), |value| {
        value.strip_prefix(&common).unwrap_or(value).trim_matches('/').to_owned()
    })?;
    Some(format!("{common}{rest}"))
}

fn index(context: &mut Context, table: &mut Table, level: &Level<'_>) {
    if !level.sets(&["index"]) {
        return;
    }
    let mut names: Vec<Value> = Vec::new();
    for directive in level.all("index") {
        for name in &directive.arguments {
            match name.as_str() {
                name if name.contains('$') && !name.starts_with('/') => {
                    context.report_with(directive, "an index is a constant name: write its names")
                }
                // `action::last_index` has it.
                name if name.starts_with('/') => {}
                name if name.contains('/') || name.starts_with('.') => context
                    .report_with(directive, "an index is a name in its directory: write a route for the directory"),
                name if names.iter().any(|known| known.as_str() == Some(name)) => {}
                name => names.push(name.into()),
            }
        }
    }
    if !names.is_empty() {
        table.set("index", names);
    }
}

fn compression(context: &mut Context, table: &mut Table, level: &Level<'_>) {
    let modules = CODINGS.map(|(module, coding, _)| (module, coding));
    let own = |end: &str| modules.iter().any(|(module, _)| level.sets(&[&format!("{module}{end}")]));
    if own("_static") {
        let on = modules.iter().filter(|(module, _)| level.is_on(&format!("{module}_static")));
        table.set("precompressed", on.map(|(_, coding)| Value::from(*coding)).collect::<Vec<_>>());
    }
    if !["", "_types", "_min_length", "_comp_level"].into_iter().any(&own) {
        return;
    }
    let mut codings = Vec::new();
    let mut types: Vec<String> = Vec::new();
    let mut min = None;
    for (module, coding) in modules {
        if level.is_on(module) {
            codings.push(Value::from(coding));
            let own = level.last(&format!("{module}_types"));
            types.extend(own.into_iter().flat_map(|directive| directive.arguments.iter().cloned()));
            min = min.or(level.last(&format!("{module}_min_length")).and_then(|size| values::size(size.first())));
        }
    }
    if codings.is_empty() {
        return if own("") {
            table.set("compress", false)
        };
    }
    let mut compress = toml::Table::new();
    compress.insert("codings".to_owned(), codings.into());
    if let Some(min) = min {
        compress.insert("min".to_owned(), min.to_string().into());
    }
    if types.iter().any(|media_type| media_type == "*") {
        types = vec!["text/*".to_owned(), "application/*".to_owned(), "image/svg+xml".to_owned()];
    }
    let is_type = |text: &String| text.split_once('/').is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty());
    types.retain(is_type);
    if !types.is_empty() {
        // nginx always compresses HTML.
        types.insert(0, "text/html".to_owned());
        let mut known = std::collections::HashSet::new();
        types.retain(|media_type| known.insert(media_type.clone()));
        compress.insert("types".to_owned(), types.into());
    }
    let levels = compression_levels(context, level);
    if !levels.is_empty() {
        compress.insert("levels".to_owned(), levels.into());
    }
    table.set("compress", compress);
}

/// The levels of the codings that are on, where they are set.
fn compression_levels(context: &mut Context, level: &Level<'_>) -> toml::Table {
    let mut levels = toml::Table::new();
    for (module, coding, most) in CODINGS.into_iter().filter(|(module, ..)| level.is_on(module)) {
        let Some(directive) = level.last(&format!("{module}_comp_level")) else { continue };
        let Ok(wanted) = directive.first().parse::<i64>() else { continue };
        if wanted > most {
            context.note(directive, format!("{most} is the highest level for responses of applications, and is used"));
        }
        levels.insert(coding.to_owned(), wanted.clamp(1, most).into());
    }
    levels
}

/// The modules that compress, each with its coding and the highest level of `compress.levels`.
const CODINGS: [(&str, &str, i64); 3] = [("brotli", "br", 6), ("zstd", "zstd", 9), ("gzip", "gzip", 9)];

/// `types` that differ from Sealion's own, and `default_type`.
fn media_types(table: &mut Table, level: &Level<'_>) {
    if !level.sets(&["types", "default_type"]) {
        return;
    }
    let mut differing = toml::Table::new();
    let (own, around) = (default_type(level), default_type(&level.around()));
    if own != OTHERS || around != own {
        differing.insert("*".to_owned(), own.into());
    }
    for entry in level.all("types").into_iter().flat_map(Directive::children) {
        for extension in &entry.arguments {
            let ours = media_type_of(extension);
            let ours = ours.split(';').next().unwrap_or(&ours).to_owned();
            // Unregistered types, and equivalent ones.
            let same = |a: &str| {
                a.trim_start_matches("application/").trim_start_matches("text/").trim_start_matches("x-").to_owned()
            };
            if ours != entry.name && same(&entry.name) != same(&ours) {
                differing.insert(extension.clone(), entry.name.as_str().into());
            }
        }
    }
    if level.sets(&["types"]) {
        let types = level.all("types");
        let known: Vec<&String> =
            types.iter().flat_map(|types| types.children()).flat_map(|entry| &entry.arguments).collect();
        for extension in RUN_BY_BROWSERS.into_iter().filter(|own| !known.iter().any(|known| known == own)) {
            differing.insert(extension.to_owned(), default_type(level).into());
        }
    }
    if level.around().last("types").is_some() && level.sets(&["types"]) {
        // They replace all types around them.
        differing.insert("*.*".to_owned(), default_type(level).into());
        for entry in level.all("types").into_iter().flat_map(Directive::children) {
            entry
                .arguments
                .iter()
                .for_each(|extension| drop(differing.insert(extension.clone(), entry.name.as_str().into())));
        }
    }
    if !differing.is_empty() {
        table.set("media_types", differing);
    }
}

/// The type of names that tell none.
fn default_type(level: &Level<'_>) -> String {
    let own = level.last("default_type").map(Directive::first).filter(|own| own.contains('/') && !own.contains('$'));
    // As compiled into nginx. Without types, `http` is in another file, which says both.
    let missing = if level.last("types").is_some() { "text/plain" } else { OTHERS };
    own.unwrap_or(missing).to_owned()
}

/// Gives files with an ending the type of names that tell none.
pub(super) fn of_default_type(table: &mut Table, level: &Level<'_>, ending: &str) {
    let mut types = table.get("media_types").and_then(Value::as_table).cloned().unwrap_or_default();
    let own = default_type(level);
    if media_type_of(ending).split(';').next() != Some(&own) {
        types.insert(ending.to_owned(), own.into());
        table.set("media_types", types);
    }
}

/// Endings of names whose types here have browsers run scripts in the file. nginx sends them by `default_type`, unless `types` has them.
const RUN_BY_BROWSERS: [&str; 10] = ["html", "htm", "shtml", "xhtml", "xht", "xml", "xsl", "xslt", "aspx", "svg"];

/// The type of files whose names tell none.
const OTHERS: &str = "application/octet-stream";

fn media_type_of(extension: &str) -> String {
    let mut text = Vec::new();
    sealion_http::ContentType::of_name(format!("x.{extension}").as_bytes()).write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// `add_header` and `expires`.
fn fields(context: &mut Context, table: &mut Table, level: &Level<'_>, variables: &Variables) {
    if !level.sets(&["add_header", "expires"]) {
        return;
    }
    let (mut set, mut without_errors) = (toml::Table::new(), toml::Table::new());
    for directive in level.all("add_header").into_iter().filter(|_| level.sets(&["add_header"])) {
        let [name, value, ..] = directive.arguments.as_slice() else {
            context.report(directive);
            continue;
        };
        let lower = name.to_ascii_lowercase();
        let is_value = sealion_http::extra_fields::is_value(value);
        match (lower.as_str(), variables.value_of(context, value)) {
            ("cache-control" | "expires", _) => {}
            // `forward_auth` has them.
            ("set-cookie", Err(_)) if is_of_auth(level, directive) || context.asked.is_cookie(value) => {}
            _ if value == "$upstream_cache_status" => context.note(directive, CACHE_STATUS),
            ("strict-transport-security", value) => {
                // It is only sent over TLS.
                let secure =
                    variables.over_tls().value_of(context, directive.arguments.get(1).map_or("", String::as_str));
                let secure = secure.or(value).unwrap_or_default();
                let secure = tables::over_tls(context, &secure).unwrap_or(secure);
                if !secure.is_empty() {
                    hsts(context, table, directive, &secure);
                }
            }
            _ if (context.is_reserved)(name) => {
                context.note(directive, "the server sets this field itself or by another key");
            }
            (_, Ok(_)) if value.is_empty() => {}
            (_, Ok(value)) if is_value && sealion_http::extra_fields::is_name(name) => {
                let is_always = directive.arguments.get(2).is_some_and(|word| word == "always");
                let (fields, others) =
                    if is_always { (&mut set, &without_errors) } else { (&mut without_errors, &set) };
                if others.keys().any(|known| known.eq_ignore_ascii_case(name)) {
                    context.report_with(directive, "another one of this name has `always`, or not: give both the same");
                }
                match fields.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                    None => {
                        if lower == "set-cookie"
                            && level.own().iter().any(|inner| proxy::is_pass(inner) || proxy::passes(inner))
                        {
                            context.report_with(
                                directive,
                                "it is left out where the application sets a cookie: let that set both",
                            );
                        }
                        fields.insert(name.clone(), value.into());
                    }
                    Some(_) if lower == "set-cookie" => {
                        context.report_with(
                            directive,
                            "a response gets one cookie by a field: let the application set the others",
                        );
                    }
                    // One line with a list means the same (RFC 9110, 5.3).
                    Some((_, known)) => {
                        *known = format!("{}, {value}", known.as_str().unwrap_or_default()).into();
                    }
                }
            }
            (_, Err(lost)) => context.report_with(directive, format!("{lost}: set the field by headers")),
            _ => context.report(directive),
        }
    }
    if level.sets(&["add_header"]) {
        let mut rule = toml::Table::new();
        for (key, fields) in [("set", set), ("set_without_errors", without_errors)] {
            if !fields.is_empty() {
                rule.insert(key.to_owned(), fields.into());
            }
        }
        // The fields of a location replace the fields around it, even if it has none.
        if !rule.is_empty() || !level.around().all("add_header").is_empty() {
            table.set("headers", rule);
        }
        let is_hsts = |field: &&Directive| field.first().eq_ignore_ascii_case("strict-transport-security");
        if table.get("hsts").is_none() && level.around().all("add_header").iter().any(is_hsts) {
            table.set("hsts", toml::Table::new());
        }
    }
    let value = cache_control(context, level, variables);
    let own = level.last("expires").map_or("", Directive::first);
    if level.own().iter().any(|inner| proxy::is_pass(inner) || proxy::passes(inner)) && !own.is_empty() {
        // `off` leaves the application's own, whatever is set around it.
        let forwarded = value.clone().filter(|_| own != "off");
        let is_reset = level.around().last("expires").is_some();
        forwarded
            .or(is_reset.then(String::new))
            .into_iter()
            .for_each(|value| table.set("forwarded_cache_control", value));
    }
    match value {
        Some(value) => table.set("cache_control", value),
        // Its fields replace the fields around it.
        None if cache_control(context, &level.around(), variables).is_some() => table.set("cache_control", ""),
        None => {}
    }
}

/// Whether a field has the cookies of a server that is asked for consent.
fn is_of_auth(level: &Level<'_>, field: &Directive) -> bool {
    guards::is_cookie_of_answer(field, &level.all("auth_request_set"))
}

/// The Cache-Control of files, by `expires` and `add_header`. `None`: it is not set.
pub(super) fn cache_control(context: &mut Context, level: &Level<'_>, variables: &Variables) -> Option<String> {
    let expires = level.last("expires").and_then(|directive| match directive.arguments.as_slice() {
        [name] if name.starts_with('$') => {
            let own = tables::changed(context, name, |value| expires_value(value).unwrap_or_default());
            if own.is_none() {
                context.report_with(directive, "its times have no table: set cache_control");
            }
            own
        }
        [time, ..] if time.starts_with('@') => {
            context.report_with(directive, "no response expires at a time of day: set cache_control");
            None
        }
        [value] => expires_value(value),
        _ => None,
    });
    let added =
        level.all("add_header").into_iter().filter(|directive| directive.first().eq_ignore_ascii_case("cache-control"));
    let added = added.filter_map(|directive| {
        let value = variables.value_of(context, directive.arguments.get(1)?);
        value.map_err(|lost| context.report_with(directive, format!("{lost}: set cache_control"))).ok()
    });
    let parts: Vec<String> = expires.into_iter().chain(added).filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The Cache-Control value of `expires`. `None`: no field, or one that depends on the request.
pub(super) fn expires_value(value: &str) -> Option<String> {
    match value {
        "off" => None,
        "epoch" => Some("no-cache".to_owned()),
        // Ten years, as in nginx.
        "max" => Some("max-age=315360000".to_owned()),
        negative if negative.starts_with('-') => Some("no-cache".to_owned()),
        time => Some(format!("max-age={}", values::time(time)?.0.as_secs())),
    }
}

fn hsts(context: &mut Context, table: &mut Table, directive: &Directive, value: &str) {
    let parts: Vec<String> = value.split(';').map(|part| part.trim().to_ascii_lowercase()).collect();
    let age = parts.iter().find_map(|part| part.strip_prefix("max-age=")?.trim_matches('"').parse::<u64>().ok());
    let Some(age) = age else { return context.report(directive) };
    let has = |word: &str| parts.iter().any(|part| part == word);
    let mut hsts = toml::Table::new();
    let age_text = if age % 86_400 == 0 && age > 0 { format!("{}d", age / 86_400) } else { format!("{age}s") };
    hsts.insert("max_age".to_owned(), age_text.into());
    if has("includesubdomains") {
        hsts.insert("include_subdomains".to_owned(), true.into());
    }
    // It requires a year and all subdomains.
    if has("preload") && has("includesubdomains") && age >= 31_536_000 {
        hsts.insert("preload".to_owned(), true.into());
    }
    table.set("hsts", hsts);
}

/// The remedy for a field with the outcome of the cache.
pub(super) const CACHE_STATUS: &str =
    "Cache-Status of each response says what the cache did (RFC 9211): let what reads this field read that one";
