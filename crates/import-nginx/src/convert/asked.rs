//! The condition of an `if`.

use super::condition::Condition;
use super::context::Context;
use super::level::Level;
use super::path;
use super::values;
use super::variables::Variables;
use crate::syntax::Directive;

/// The placeholders for the groups of an expression, and the names of those that have one.
pub(super) type Groups = (Vec<String>, Vec<String>);

/// The condition of an `if`.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) condition: Condition,
    /// An expression that the path must match too, in the notation of a route.
    pub(super) path: Option<String>,
    /// Whether that is the path that the client asked for, wherever a route led since.
    pub(super) is_of_client: bool,
    pub(super) groups: Option<Groups>,
}

impl Asked {
    fn holds(condition: Condition) -> Self {
        Asked { condition, path: None, is_of_client: false, groups: None }
    }

    /// The condition, and the expression for the path.
    pub(super) fn whole(&self) -> Condition {
        match &self.path {
            None => self.condition.clone(),
            Some(path) => Condition::wanted("{path}", path.as_str()).and(self.condition.clone()),
        }
    }

    pub(super) fn and(self, other: &Condition) -> Self {
        Asked { condition: self.condition.and(other.clone()), ..self }
    }
}

/// Reads the condition of an `if`. `locals`: the `valid_referers` that apply. An error says why it has no counterpart.
pub(super) fn read(
    context: &mut Context,
    block: &Directive,
    variables: &Variables,
    referers: &[&Directive],
) -> Result<Asked, String> {
    let words = words(block);
    let holds = |condition| Ok(Asked::holds(condition));
    match words.as_slice() {
        [variable] if variable.starts_with('$') => {
            let name = variable.trim_start_matches(['$', '{']).trim_end_matches('}');
            if name == "invalid_referer" {
                return holds(referer(referers, &variables.server_names)?.not());
            }
            if name == "https" && variables.scheme == Some("http") {
                return holds(constant(false));
            }
            if name == "https" {
                return holds(Condition::key("scheme", "https"));
            }
            if let Some(cases) = variables.cases(name) {
                let is_set = |value: &str| !value.is_empty() && value != "0";
                return holds(of_cases(cases, is_set)?);
            }
            let template = template(context, variables, variable)?;
            holds(match template.contains('{') {
                true => Condition::is_set(&template),
                false => constant(!template.is_empty() && template != "0"),
            })
        }
        [variable, operator, text] if matches!(operator.as_str(), "=" | "!=" | "==") => {
            let name = variable.trim_start_matches(['$', '{']).trim_end_matches('}');
            let text = template(context, variables, text)?;
            if text.contains('{') {
                return Err("it compares two values of the request".to_owned());
            }
            let condition = match (variables.cases(name), template_of(context, variables, variable)) {
                (Some(cases), _) => of_cases(cases, |value| value == text)?,
                (None, Some(own)) if own.contains('{') => Condition::equals(&own, &text),
                (None, Some(own)) => constant(own == text),
                (None, None) => return Err(format!("{variable} has no placeholder")),
            };
            holds(if operator == "!=" { condition.not() } else { condition })
        }
        [variable, operator, expression] if operator.trim_start_matches('!').starts_with('~') => {
            matches(context, variables, block, (variable, operator, expression))
        }
        [operator, file] if operator.trim_start_matches('!').starts_with('-') => {
            let kind = match operator.trim_start_matches('!') {
                "-f" => "file",
                "-d" => "directory",
                "-e" => "any",
                _ => return Err(format!("{operator} has no counterpart")),
            };
            let path = match (file.as_str(), &variables.file) {
                ("$request_filename", Some(own)) => own.clone(),
                ("$request_filename" | "$document_root$fastcgi_script_name", _) => {
                    template(context, variables, "$uri")?
                }
                (file, _) => {
                    let path = beneath_root(file, variables);
                    let path = path.ok_or_else(|| format!("whether {file} is there has no counterpart"))?;
                    template(context, variables, path)?
                }
            };
            let condition = Condition::exists(kind, &path);
            holds(if operator.starts_with('!') { condition.not() } else { condition })
        }
        _ => Err("its condition is unknown".to_owned()),
    }
}

/// The path of a file beneath the root of the request.
fn beneath_root<'f>(file: &'f str, variables: &Variables) -> Option<&'f str> {
    let starts = ["$document_root", "$realpath_root", "${document_root}", "${realpath_root}"];
    let root = variables.root.as_deref().map(|root| root.trim_end_matches('/')).filter(|root| !root.is_empty());
    let path = starts.into_iter().chain(root).find_map(|start| file.strip_prefix(start))?;
    (path.starts_with('/') || path.starts_with("$uri")).then_some(path)
}

/// The words between the parentheses.
fn words(block: &Directive) -> Vec<String> {
    let mut words: Vec<String> = block.arguments.clone();
    if let Some(first) = words.first_mut() {
        *first = first.strip_prefix('(').unwrap_or(first).to_owned();
    }
    if let Some(last) = words.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last).to_owned();
    }
    // `( $a = b )`, and `($a = "")`, whose empty word is one.
    if words.first().is_some_and(String::is_empty) {
        words.remove(0);
    }
    if words.last().is_some_and(String::is_empty) && block.arguments.last().is_some_and(|last| last == ")") {
        words.pop();
    }
    words
}

fn template(context: &mut Context, variables: &Variables, text: &str) -> Result<String, String> {
    variables.template(context, text).map_err(|lost| lost.to_string())
}

fn template_of(context: &mut Context, variables: &Variables, text: &str) -> Option<String> {
    variables.template(context, text).ok()
}

fn constant(holds: bool) -> Condition {
    if holds { Condition::Always } else { Condition::Always.not() }
}

/// Whether a variable has one of its values.
fn of_cases(cases: &[(Condition, String)], is_it: impl Fn(&str) -> bool) -> Result<Condition, String> {
    if cases.iter().any(|(_, value)| value.contains('{')) {
        return Err("its variable has a value of the request in some case".to_owned());
    }
    let found = cases.iter().filter(|(_, value)| is_it(value)).map(|(case, _)| case.clone()).collect();
    Ok(Condition::any(found).unwrap_or(Condition::Always.not()))
}

/// `$name ~ expression`
fn matches(
    context: &mut Context,
    variables: &Variables,
    block: &Directive,
    (variable, operator, expression): (&str, &str, &str),
) -> Result<Asked, String> {
    let is_not = operator.starts_with('!');
    let sign = operator.trim_start_matches('!');
    let unsupported = || format!("the expression {expression} is not supported");
    let Some(own) = path::expression(expression) else {
        let own = values::look_around(expression).filter(|own| !uses_groups(block, own)).ok_or_else(unsupported)?;
        let template = template(context, variables, variable)?;
        let condition = Condition::wanted(&template, format!("~~ {}{own}", if sign == "~*" { "(?i)" } else { "" }));
        return match template.contains('{') {
            true => Ok(Asked::holds(if is_not { condition.not() } else { condition })),
            false => Err(unsupported()),
        };
    };
    let name = variable.trim_start_matches(['$', '{']).trim_end_matches('}');
    let built = || {
        let flags = if sign == "~*" { "(?i)" } else { "" };
        regex::Regex::new(&format!("{flags}{own}")).map_err(|error| error.to_string())
    };
    if let Some(cases) = variables.cases(name) {
        let built = built()?;
        let condition = of_cases(cases, |value| built.is_match(value))?;
        return Ok(Asked::holds(if is_not { condition.not() } else { condition }));
    }
    let template = match variables.is_file_name(name, &own) {
        true => "{path}".to_owned(),
        false => template(context, variables, variable)?,
    };
    if !template.contains('{') {
        return Ok(Asked::holds(constant(built()?.is_match(&template) != is_not)));
    }
    // The query goes with the path where nothing but the last group may have it.
    let is_of_client = template == "{uri}"
        && own.trim_end_matches('$').ends_with("(.*)")
        && !own.contains("\\?")
        && uses_groups(block, &own);
    if (template == "{path}" || is_of_client) && !is_not {
        let mut groups = path::groups(&own);
        if let Some(last) = groups.0.last_mut().filter(|_| is_of_client) {
            last.push_str("{is_args}{query}");
        }
        let path = Some(format!("~ {}{own}", path::flag_of_case(sign == "~*")));
        return Ok(Asked { condition: Condition::Always, path, is_of_client, groups: Some(groups) });
    }
    if template == "{method}"
        && sign == "~"
        && !is_not
        && let Some(methods) = methods(&own)
    {
        return Ok(Asked::holds(Condition::wanted("{method}", methods)));
    }
    if is_not {
        let condition = Condition::wanted(&template, format!("{sign} {own}")).not();
        return Ok(Asked { groups: Some(Groups::default()), ..Asked::holds(condition) });
    }
    if !uses_groups(block, &own) {
        return Ok(Asked::holds(Condition::wanted(&template, format!("{sign} {own}"))));
    }
    let (own, groups) = values::with_named_groups(&own, &"group".repeat(variables.led.len() + 1));
    let wanted = format!("{sign} {own}");
    // Hosts and values have groups.
    let condition = match template.as_str() {
        "{host}" => Condition::wanted("{host}", wanted),
        template => Condition::of_value(template, wanted),
    };
    Ok(Asked { groups: Some(groups), ..Asked::holds(condition) })
}

/// Whether directives of a block name groups of its expression.
fn uses_groups(block: &Directive, expression: &str) -> bool {
    let is_number = |behind: &str| behind.starts_with(|c: char| c.is_ascii_digit());
    let names_group = |text: &String| text.split('$').skip(1).any(|behind| is_number(behind.trim_start_matches('{')));
    let is_named = |name: &str| block.children().iter().any(|inner| inner.to_string().contains(&format!("${name}")));
    let is_used = block.children().iter().any(|inner| inner.arguments.iter().any(names_group));
    is_used || path::groups(expression).1.iter().any(|name| is_named(name))
}

/// Whether an `if` answers 404 where a script is missing, as FastCGI does anyway.
pub(super) fn is_of_script(block: &Directive, level: &Level<'_>) -> bool {
    let [operator, file] = &words(block)[..] else { return false };
    if !matches!(operator.as_str(), "!-f" | "!-e") {
        return false;
    }
    let is_404 = matches!(block.children(), [only] if only.name == "return" && only.arguments == ["404"]);
    // Elsewhere the path behind a script belongs to the name, which no file has.
    let takes_path = file == "$document_root$fastcgi_script_name" && level.last("fastcgi_split_path_info").is_some();
    is_404 && takes_path && level.sets(&["fastcgi_pass"])
}

/// The methods of `^(GET|HEAD)$`.
fn methods(expression: &str) -> Option<Vec<String>> {
    let inner = expression.strip_prefix("^(")?.strip_suffix(")$")?;
    let is_method = |method: &&str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let all: Vec<&str> = inner.split('|').collect();
    all.iter().all(is_method).then(|| all.into_iter().map(str::to_owned).collect())
}

/// An expression for the referers with a host, and a path that begins so.
fn with_path(name: &str) -> String {
    let (host, path) = name.split_at(name.find('/').unwrap_or(name.len()));
    let literally = values::literally;
    let host = match (host.strip_prefix("*."), host.strip_prefix('.'), host.strip_suffix(".*")) {
        (Some(domain), ..) => format!(r"[^/:]+\.{}", literally(domain)),
        (_, Some(domain), _) => format!(r"(?:[^/:]+\.)?{}", literally(domain)),
        (.., Some(start)) => format!(r"{}\.[^/:]+", literally(start)),
        _ => literally(host),
    };
    format!("~ ^(?i:https?://{host})(?::[^/]*)?{}", literally(path))
}

/// Whether Referer is one of `valid_referers`.
fn referer(directives: &[&Directive], server_names: &[String]) -> Result<Condition, String> {
    let mut hosts = Vec::new();
    let mut with_paths: Vec<toml::Value> = Vec::new();
    for name in directives.iter().flat_map(|directive| &directive.arguments) {
        match name.as_str() {
            "none" | "blocked" => hosts.push(name.clone()),
            "server_names" if server_names.is_empty() => {
                return Err("the server has no names: write the hosts in match.referer".to_owned());
            }
            "server_names" => hosts.extend_from_slice(server_names),
            name if name.starts_with('~') => {
                hosts.push(format!("~* {}", path::expression(&name[1..]).ok_or("its expression is not supported")?))
            }
            name if name.contains('/') => with_paths.push(with_path(name).into()),
            name => match (name.strip_suffix(".*"), name.strip_prefix('.')) {
                (Some(start), _) => hosts.push(format!(r"~* ^{}\.", values::literally(start))),
                (None, Some(domain)) => hosts.extend([domain.to_owned(), format!("*.{domain}")]),
                (None, None) => hosts.push(name.to_owned()),
            },
        }
    }
    let of_hosts = (!hosts.is_empty()).then(|| Condition::key("referer", hosts));
    let of_paths = (!with_paths.is_empty()).then(|| Condition::wanted("{header.referer}", with_paths));
    let all = of_hosts.into_iter().chain(of_paths).collect();
    Condition::any(all).ok_or_else(|| "no valid_referers apply".to_owned())
}
