//! `$uri.html` in `try_files`: the extensions that URLs may omit.

use toml::Value;

use super::location::Scope;
use super::{Context, targets};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The extension of an argument such as `$uri.html`. `None`: another argument, or the name of a program, whose source would be sent.
pub(super) fn of_argument(tried: &str) -> Option<&str> {
    let name = tried.strip_prefix("$uri.").or_else(|| tried.strip_prefix("${uri}."))?;
    let is_name = !name.starts_with('.') && !name.contains(['/', '$', '?', '#', '%']) && !name.is_empty();
    (is_name && !targets::is_program(tried)).then_some(name)
}

/// Converts the extensions that a `try_files` tries to `extensions` of its site.
pub(super) fn convert(context: &mut Context, site: &mut Table, scope: &Scope, try_files: &Directive) {
    let arguments = &try_files.arguments;
    let extensions: Vec<&str> = arguments.iter().filter_map(|tried| of_argument(tried)).collect();
    if extensions.is_empty() {
        return;
    }
    let key = format!("extensions = {extensions:?}");
    if *scope != Scope::Everything {
        let remedy = format!("files without their extension are found on a whole site: set {key} in the [[site]]");
        return context.report_with(try_files, remedy);
    }
    let mut all = site.get("extensions").and_then(Value::as_array).cloned().unwrap_or_default();
    for extension in extensions {
        let extension = Value::from(extension);
        if !all.contains(&extension) {
            all.push(extension);
        }
    }
    site.set("extensions", all);
    // The order here: the file at the path itself, those with an extension, the directory.
    let ranks = arguments.iter().filter_map(|tried| match tried.as_str() {
        "$uri" => Some(0),
        "$uri/" | "$uri/index.html" => Some(2),
        tried => of_argument(tried).map(|_| 1),
    });
    if !ranks.is_sorted() {
        let remedy = format!(
            "{key} tries the file at the path itself, then those with an extension, then the directory: another of them is sent than by nginx \
             where a path has more than one"
        );
        context.report_with(try_files, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::site;

    #[test]
    fn extensions_that_try_files_tries_are_those_of_the_site() {
        // The extensions, the fallback, and what is named, by a part of it.
        for (body, extensions, fallback, named) in [
            ("location / { try_files $uri $uri.html $uri/ =404; }", "html", None, None),
            ("try_files $uri ${uri}.html $uri.htm =404;", "html htm", None, None),
            ("location / { try_files $uri $uri.html /index.html; }", "html", Some("/index.html"), None),
            ("location / { try_files $uri $uri.html; }", "html", None, None),
            ("location / { try_files $uri $uri/ $uri.html =404; }", "html", None, Some("then the directory")),
            ("location / { try_files $uri.html $uri $uri/ =404; }", "html", None, Some("then the directory")),
            ("location / { try_files $uri.html $uri/ =404; }", "html", None, Some("UNGUARDED")),
            (
                "location /docs/ { try_files $uri $uri.html =404; }",
                "",
                None,
                Some("set extensions = [\"html\"] in the [[site]]"),
            ),
            ("location / { try_files $uri $uri.php =404; }", "", None, Some("write [[site.rewrites]]")),
            ("location / { try_files $uri /x$uri.html =404; }", "", None, Some("write [[site.rewrites]]")),
        ] {
            let (site, found) = site(body);
            let all = site.get("extensions").and_then(toml::Value::as_array).cloned().unwrap_or_default();
            let all: Vec<_> = all.iter().filter_map(toml::Value::as_str).collect();
            assert_eq!(all.join(" "), extensions, "{body}");
            assert_eq!(site.get("fallback").and_then(toml::Value::as_str), fallback, "{body}");
            assert_eq!(found.len(), usize::from(named.is_some()), "{body}: {found:#?}");
            assert!(named.is_none_or(|named| found[0].contains(named)), "{body}: {found:#?}");
        }
    }
}
