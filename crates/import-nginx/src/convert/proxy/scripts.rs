//! Locations that pass requests to a server of FastCGI, as rules with `fastcgi`: the script is found by the rule, and has to be a file.

use sealion_http::cgi;
use toml::Value;

use super::upstreams::{self, Options};
use super::{Draft, Kind, added, fields, others};
use crate::convert::location::Scope;
use crate::convert::{Context, extensions, path_rules, site::Settings, targets, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Variables that the rule makes itself, or never passes on, beside those of CGI.
const OF_FIELDS: [&str; 3] = ["HTTP_HOST", "HTTP_PROXY", "REMOTE_USER"];

/// The front script of a `try_files`, such as `/index.php?$args` or `/index.php$is_args$args`.
pub(super) fn front_of(try_files: &Directive) -> Option<&str> {
    let last = try_files.arguments.last()?;
    let path = last.split('?').next().unwrap_or(last);
    let path = path.split("$is_args").next().unwrap_or(path);
    let is_script = path.starts_with('/') && path.ends_with(".php") && !path.contains('$') && !path.contains("/.");
    is_script.then_some(path)
}

/// Whether a directive says how scripts are run.
pub(super) fn is_about(name: &str) -> bool {
    matches!(
        name,
        "fastcgi_pass"
            | "fastcgi_param"
            | "fastcgi_index"
            | "fastcgi_split_path_info"
            | "fastcgi_read_timeout"
            | "fastcgi_connect_timeout"
            | "fastcgi_send_timeout"
            | "fastcgi_intercept_errors"
            | "fastcgi_hide_header"
            | "fastcgi_pass_header"
            | "fastcgi_buffers"
            | "fastcgi_buffer_size"
            | "fastcgi_busy_buffers_size"
            | "fastcgi_buffering"
            | "fastcgi_request_buffering"
            | "fastcgi_keep_conn"
            | "fastcgi_temp_file_write_size"
            | "fastcgi_max_temp_file_size"
    )
}

/// The directory of the scripts of a location. An error says why it is not known.
pub(super) fn root(settings: &Settings<'_>, block: &Directive) -> Result<String, String> {
    let own: Vec<_> = block.children().iter().filter(|inner| inner.name == "fastcgi_param").collect();
    let params = if own.is_empty() { settings.all("fastcgi_param") } else { own };
    let of_file =
        params.iter().rfind(|param| param.first() == "SCRIPT_FILENAME").and_then(|param| param.arguments.get(1));
    let Some(of_file) = of_file else {
        return Err("it has no fastcgi_param SCRIPT_FILENAME, by which PHP knows what to run".to_owned());
    };
    let plain = of_file.replace("${", "$").replace('}', "");
    let own = block.children().iter().find(|inner| inner.name == "root").map(Directive::first);
    let root = match plain.as_str() {
        "$document_root$fastcgi_script_name"
        | "$document_root/$fastcgi_script_name"
        | "$request_filename"
        | "$realpath_root$fastcgi_script_name" => own.or(settings.root()),
        other => other.strip_suffix("$fastcgi_script_name").filter(|root| !root.contains('$')),
    };
    let Some(root) = root.filter(|root| root.starts_with('/') && !root.contains('$')) else {
        return Err(format!(
            "the directory of its scripts is not known from SCRIPT_FILENAME {of_file}: set root of the rule's fastcgi"
        ));
    };
    Ok(root.to_owned())
}

/// The rule's `fastcgi`. An error says why there is none.
pub(super) fn table<'a>(
    context: &mut Context,
    settings: &Settings<'_>,
    front: Option<&str>,
    block: &Directive,
    all: &impl Fn(&str) -> Vec<&'a Directive>,
) -> Result<Value, String> {
    let mut table = toml::Table::new();
    let params = all("fastcgi_param");
    let root = root(settings, block)?;
    if settings.root() != Some(root.as_str()) {
        table.insert("root".to_owned(), root.into());
    }
    if let Some(front) = front {
        table.insert("front".to_owned(), front.into());
    }
    if let Some(index) = all("fastcgi_index").pop().filter(|index| index.first() != "index.php") {
        match index.first().ends_with(".php") && !index.first().contains(['/', '$']) {
            true => drop(table.insert("index".to_owned(), index.first().into())),
            false => context.report_with(index, "name a script: set index of the rule's fastcgi"),
        }
    }
    if let Some(split) = all("fastcgi_split_path_info").pop().filter(|split| !split.first().contains("\\.php)")) {
        context.report_with(split, "a script ends with the first name that ends in .php, and the rest is PATH_INFO");
    }
    let mut variables = toml::Table::new();
    for param in params {
        let [name, value, ..] = param.arguments.as_slice() else { continue };
        if cgi::VARIABLES.iter().chain(&OF_FIELDS).any(|made| *made == name.as_str()) {
            continue;
        }
        if value.contains('$') || name.starts_with("HTTP_") {
            if !context.is_reported(param) {
                context.report_with(param, "variables are not supported in params, nor fields of clients");
            }
            continue;
        }
        variables.insert(name.clone(), value.as_str().into());
    }
    if !variables.is_empty() {
        table.insert("params".to_owned(), variables.into());
    }
    Ok(Value::Table(table))
}

/// Times of the upstream.
pub(super) fn options<'a>(context: &mut Context, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Options {
    let mut keys: Vec<(&'static str, Value)> = vec![("protocol", "fastcgi".into())];
    for (name, own) in [
        ("fastcgi_connect_timeout", &["connect_timeout"][..]),
        ("fastcgi_read_timeout", &["answer_timeout", "stall_timeout"]),
    ] {
        let Some(directive) = all(name).pop() else { continue };
        match values::time(directive.first()).filter(|time| !time.0.is_zero()) {
            Some(time) => keys.extend(own.iter().map(|key| (*key, Value::from(time.to_string())))),
            None => context.report_with(directive, "a time is above 0"),
        }
    }
    Options { scheme: "fastcgi", keys, ..Options::default() }
}

/// The location that runs a script, with its directive that says so.
pub(super) fn runs<'a>(settings: &Settings<'a>, script: &str) -> Option<(&'a Directive, &'a Directive)> {
    let has_script = |location: &&'a Directive| match Scope::of(location) {
        Some(Scope::Exact(path)) => path == script,
        Some(Scope::Regex { regex: Some(regex), .. }) => {
            regex::bytes::Regex::new(&format!("(?s-u){regex}")).is_ok_and(|regex| regex.is_match(script.as_bytes()))
        }
        _ => false,
    };
    let pass = |location: &'a Directive| location.children().iter().find(|inner| inner.name == "fastcgi_pass");
    let is_known = |location: &'a Directive| {
        root(settings, location).is_ok() && pass(location).is_some_and(|pass| !pass.first().contains('$'))
    };
    let location = settings.all("location").into_iter().find(|location| has_script(location) && is_known(location))?;
    Some((location, pass(location)?))
}

/// The rule of a location whose requests scripts answer.
#[expect(clippy::too_many_arguments, reason = "what a location and the one that passes its requests are")]
pub(super) fn draft(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    kind: Kind,
    scope: &Scope,
    location: &Directive,
    block: &Directive,
    pass: &Directive,
) -> Result<Draft, String> {
    let all = |name: &str| {
        let own: Vec<_> = block.children().iter().filter(|inner| inner.name == name).collect();
        if own.is_empty() { settings.all(name) } else { own }
    };
    let last = |name: &str| all(name).pop();
    if pass.first().contains('$') {
        return Err("its server has variables: name an [[upstream]], or write its address".to_owned());
    }
    let is_front = !std::ptr::eq(location, block);
    let try_files = location.children().iter().rfind(|inner| inner.name == "try_files");
    let front = try_files.filter(|_| is_front).and_then(front_of);
    let files_first = is_front && try_files.is_some_and(|tried| tried.arguments.iter().any(|tried| tried == "$uri"));
    if let Some(try_files) = try_files.filter(|_| files_first) {
        extensions::convert(context, site, scope, try_files);
    }
    let mut table = table(context, settings, front, block, &all)?;
    if let (Some(_), Value::Table(table)) = (front.and_then(|_| only_front(settings)), &mut table) {
        table.insert("only_front".to_owned(), true.into());
    }
    let options = options(context, &all);
    let target = upstreams::target(context, pass.first(), options)?;
    let mut keys: Vec<(&'static str, Value)> = vec![("upstream", target.name.into()), ("fastcgi", table)];
    if files_first {
        keys.push(("files_first", true.into()));
    }
    let added = added(context, site, settings, scope, location, block, files_first);
    let of_answers = fields::of_answers(context, &all("fastcgi_hide_header"), &added);
    keys.extend(of_answers.into_value().map(|fields| ("response_headers", fields)));
    if last("fastcgi_intercept_errors").is_some_and(|intercept| intercept.first() == "on") {
        keys.push(("intercept_errors", true.into()));
    }
    match last("client_max_body_size").map_or(Some(values::Size(1 << 20)), |size| values::size(size.first())) {
        Some(values::Size(most)) => {
            // nginx keeps contents in files, too, until they are whole.
            if most == 0 || most > MOST_IN_MEMORY {
                let mut buffer = toml::Table::new();
                let disk = if most == 0 { 10 << 30 } else { most.saturating_mul(10) };
                buffer.insert("disk".to_owned(), values::Size(disk).to_string().into());
                buffer.insert("directory".to_owned(), "/var/tmp".into());
                keys.push(("buffer_request", buffer.into()));
            }
            if most > 0 {
                keys.push(("max_body", values::Size(most).to_string().into()));
            }
        }
        None => context.report_with(pass, "client_max_body_size is no size: set max_body"),
    }
    others(context, site, settings, scope, location, if is_front { location } else { block }, files_first);
    let order = settings.all("location").into_iter().position(|other| other == location).unwrap_or(usize::MAX);
    Ok(Draft { order, location: location.clone(), pass: pass.clone(), kind, scope: scope.clone(), strips: false, keys })
}

/// Paths of directories of which no segment ends in `.php`: these name scripts themselves.
pub(super) const WITHOUT_SCRIPTS: &str = r"^/(?:(?:[^/]{0,3}|[^/]*(?:[^p/]|[^h/]p|[^p/]hp|[^./]php))/)*$";

/// A directory whose index is a script: nginx runs it in the location of the script.
pub(super) fn of_index(site: &mut Table, settings: &Settings<'_>, scripts: &[&Draft], drafts: &[Draft]) {
    let names = settings.last("index").map_or(&[][..], |index| index.arguments.as_slice());
    let index = names.iter().map(String::as_str).find(|name| name.ends_with(".php") && !name.contains(['/', '$']));
    let takes = |draft: &&&Draft, name: &str| match (draft.kind, &draft.scope) {
        (Kind::Regex, Scope::Regex { regex: Some(regex), .. }) => {
            let built = regex::bytes::Regex::new(&format!("(?s-u){regex}"));
            built.is_ok_and(|regex| regex.is_match(format!("/{name}").as_bytes()))
        }
        _ => false,
    };
    if let Some(front) = scripts.iter().find(|draft| draft.scope == Scope::Everything) {
        return order_index(site, settings, index.unwrap_or("index.php"), Some(&front.location));
    }
    let Some(name) = index else { return };
    let Some(draft) = scripts.iter().find(|draft| takes(draft, name)) else { return };
    if drafts.iter().any(|other| other.scope == Scope::Everything) {
        return;
    }
    order_index(site, settings, name, None);
    let mut rule = Table::default();
    rule.comment(&draft.pass.place);
    rule.set("regex", WITHOUT_SCRIPTS);
    rule.set("files_first", true);
    for (key, value) in &draft.keys {
        match (*key, value) {
            ("fastcgi", Value::Table(table)) => {
                let mut table = table.clone();
                table.insert("index".to_owned(), name.into());
                rule.set(key, Value::Table(table));
            }
            _ => rule.set(key, value.clone()),
        }
    }
    site.push("proxy", rule);
}

/// Octets of a content for a script that wait in memory.
const MOST_IN_MEMORY: u64 = 1 << 20;

/// A front script that is the only one to run, as frameworks have it.
pub(super) struct OnlyFront<'a> {
    /// The location that runs it.
    pub(super) runner: &'a Directive,
    /// The location that refuses all others.
    pub(super) refusal: &'a Directive,
}

/// The front script of a server that refuses all others: `location ~ ^/index\.php(/|$)` before `location ~ \.php$ { return 404; }`.
pub(super) fn only_front<'a>(settings: &Settings<'a>) -> Option<OnlyFront<'a>> {
    let locations = settings.all("location");
    let everything =
        locations.iter().filter(|location| location.arguments == ["/"]).flat_map(|location| location.children());
    let try_files = everything.chain(settings.all("try_files")).filter(|inner| inner.name == "try_files");
    let front = try_files.rev().find_map(front_of)?;
    let (runner, _) = runs(settings, front)?;
    let runs_other = |location: &&Directive| {
        !std::ptr::eq(*location, runner) && location.children().iter().any(|inner| inner.name == "fastcgi_pass")
    };
    if locations.iter().any(runs_other) || !runs_alone(runner, front) {
        return None;
    }
    let refusal = locations.iter().position(|location| refuses_scripts(location))?;
    let is_first = locations.iter().position(|location| std::ptr::eq(*location, runner)).is_some_and(|at| at < refusal);
    (is_first || Kind::of(runner) == Kind::Exact).then(|| OnlyFront { runner, refusal: locations[refusal] })
}

/// Whether a location has the paths of this script alone.
fn runs_alone(location: &Directive, script: &str) -> bool {
    let [modifier, path] = location.arguments.as_slice() else { return false };
    if modifier == "=" {
        return path == script;
    }
    let literal = values::literally(script);
    let rest = path.replace(r"\/", "/");
    let rest = rest.strip_prefix('^').and_then(|rest| rest.strip_prefix(literal.as_str()));
    modifier == "~" && rest.is_some_and(|rest| matches!(rest, "$" | "(/|$)" | "(?:/|$)" | "($|/)"))
}

/// Whether a location refuses all scripts, and nothing else: one without an end refuses `config.php.bak` too, which is no script.
fn refuses_scripts(location: &Directive) -> bool {
    let [modifier, path] = location.arguments.as_slice() else { return false };
    let refuses = |inner: &Directive| path_rules::refuses(inner) || inner.name == "deny" && inner.first() == "all";
    let is_beside = |inner: &Directive| matches!(inner.name.as_str(), "access_log" | "log_not_found");
    matches!(modifier.as_str(), "~" | "~*")
        && matches!(path.as_str(), r"\.php$" | r"\.php(/|$)" | r"\.php(?:/|$)" | r"[^/]\.php(/|$)" | r"^.+\.php$")
        && location.children().iter().any(refuses)
        && location.children().iter().all(|inner| refuses(inner) || is_beside(inner))
}

/// Lets the script be an index in nginx' order: what `index` names before it goes before it, and what it names after it is sent where there is no
/// script. `front`: the location that a front script answers, if one does.
pub(super) fn order_index(site: &mut Table, settings: &Settings<'_>, script: &str, front: Option<&Directive>) {
    // Without `$uri/`, no index is looked for.
    let tried = front.and_then(|front| front.children().iter().rfind(|inner| inner.name == "try_files"));
    if tried.is_some_and(|tried| !tried.arguments.iter().any(|tried| tried == "$uri/")) {
        return site.set("index", vec![Value::from(script)]);
    }
    let own = front.and_then(|front| front.children().iter().rfind(|inner| inner.name == "index"));
    let Some(index) = own.or(settings.last("index")) else { return };
    if !index.arguments.iter().any(|name| name == script) {
        return;
    }
    let is_static = |name: &str| !name.contains(['/', '$']) && !name.starts_with('.') && !targets::is_program(name);
    let names = index.arguments.iter().filter(|name| *name == script || is_static(name));
    site.set("index", names.cloned().map(Value::from).collect::<Vec<_>>());
}
