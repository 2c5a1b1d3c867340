use super::super::scripts::WITHOUT_SCRIPTS;
use super::*;

const FILE: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;";

#[test]
fn scripts_are_run_where_it_is_known_which() {
    let pass = "fastcgi_pass unix:/run/php.sock;";
    // A server, its rules, and the starts of what is named.
    for (body, expected, starts) in [
        (
            format!("location ~ \\.php$ {{ {pass} {FILE} fastcgi_index index.php; fastcgi_param APP_ENV test; }}"),
            &["regex php.sock params = { APP_ENV = \"test\" }"][..],
            &[][..],
        ),
        (
            format!(
                "location / {{ try_files $uri $uri/ /index.php?$args; }} location ~ \\.php$ {{ {pass} {FILE} try_files $uri =404; }}"
            ),
            &["regex php.sock ", "path php.sock front = \"/index.php\" files_first"],
            &[],
        ),
        (
            format!("index index.php; location ~ \\.php$ {{ {pass} {FILE} }}"),
            &["regex php.sock ", "regex php.sock index = \"index.php\" files_first"],
            &[],
        ),
        (
            format!("location ~ \\.php$ {{ {pass} fastcgi_param SCRIPT_FILENAME /app$fastcgi_script_name; }}"),
            &["regex php.sock root = \"/app\""],
            &[],
        ),
        (
            format!(
                "location ~ \\.php$ {{ {pass} {FILE} fastcgi_param GEO $geo; fastcgi_hide_header X-A; fastcgi_read_timeout 5m; }}"
            ),
            &["regex php.sock "],
            &["fastcgi_param GEO"],
        ),
        (format!("location ~ \\.php$ {{ {pass} }}"), &[], &["fastcgi_pass"]),
        (format!("location ~ \\.php$ {{ {pass} fastcgi_param SCRIPT_FILENAME $other; }}"), &[], &["fastcgi_pass"]),
        (format!("location ~ \\.php$ {{ fastcgi_pass $php; {FILE} }}"), &[], &["fastcgi_pass"]),
    ] {
        let (site, named) = site(&body);
        let shown: Vec<_> = rules(&site)
            .iter()
            .map(|rule| {
                let key = if rule.contains_key("regex") { "regex" } else { "path" };
                let table = rule["fastcgi"].as_table().unwrap();
                let table: Vec<_> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                let first = if rule.contains_key("files_first") { " files_first" } else { "" };
                format!("{key} {} {}{first}", rule["upstream"].as_str().unwrap(), table.join(", "))
            })
            .collect();
        assert_eq!(shown, expected, "{body}");
        assert_eq!(named.len(), starts.len(), "{body}: {named:#?}");
        for (line, start) in named.iter().zip(starts) {
            assert!(line.contains(&format!(": {start}")), "{body}: {line}");
        }
        // What is not run is not sent either.
        let is_closed = site.get("access").is_some();
        assert_eq!(is_closed, expected.is_empty(), "{body}: {site}");
    }
}

#[test]
fn the_index_of_a_directory_is_run_where_no_script_is_named() {
    let regex = regex::bytes::Regex::new(&format!("(?s-u){WITHOUT_SCRIPTS}")).unwrap();
    for (path, expected) in [
        ("/", true),
        ("/a/", true),
        ("/php/", true),
        ("/xphp/b.ph/.p/", true),
        ("/p/hp/aphp/", true),
        ("/x.php/", false),
        ("/x.php/a/", false),
        ("/a/.php/", false),
        ("/a/x.php/b/", false),
        ("/a", false),
        ("/x.php", false),
    ] {
        assert_eq!(regex.is_match(path.as_bytes()), expected, "{path}");
    }
}

/// The front script of a framework, which refuses all others.
const FRONT: &str = "location / { try_files $uri /index.php$is_args$args; }
    location ~ ^/index\\.php(/|$) { fastcgi_pass unix:/run/php.sock; fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name; internal; }
    location ~ \\.php$ { return 404; }";

#[test]
fn a_front_script_that_refuses_all_others_runs_alone() {
    let (converted, named) = site(FRONT);
    assert_eq!(named.len(), 1, "{named:#?}");
    assert!(named[0].contains(": internal"), "{named:#?}");
    assert!(converted.get("access").is_none(), "{converted}");
    let front = rules(&converted).pop().unwrap();
    assert_eq!(front["path"].as_str(), Some("/"));
    assert_eq!(front["files_first"].as_bool(), Some(true));
    assert_eq!(front["fastcgi"]["front"].as_str(), Some("/index.php"));
    assert_eq!(front["fastcgi"]["only_front"].as_bool(), Some(true));
    // It looks for no index.
    assert_eq!(converted["index"].as_array().unwrap(), &[Value::from("index.php")]);

    // Where it is not sure that it runs alone, the others stay closed, and so does the part that they share with it.
    for (from, to) in [
        // Another script, which nginx runs.
        (
            "internal;",
            "} location ~ ^/other\\.php$ { fastcgi_pass unix:/run/php.sock; fastcgi_param SCRIPT_FILENAME /srv$fastcgi_script_name;",
        ),
        // Other names begin with it.
        ("(/|$)", ""),
        // More than scripts is refused.
        ("~ \\.php$", "~ \\.php"),
        // Not all scripts are refused.
        ("~ \\.php$", "~ ^/lib/.*\\.php$"),
        // Some clients may reach them.
        ("return 404;", "allow 10.0.0.1; deny all;"),
    ] {
        let body = FRONT.replace(from, to);
        assert_ne!(body, FRONT);
        let (converted, named) = site(&body);
        assert!(
            rules(&converted).iter().all(|rule| rule["fastcgi"].get("only_front").is_none()),
            "{body}: {converted}"
        );
        assert!(converted.get("access").is_some(), "{body}: {named:#?}");
    }
}

#[test]
fn indexes_stay_in_their_order() {
    let run = format!("location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; {FILE} }}");
    let front = format!("location / {{ try_files $uri $uri/ /index.php; }} {run}");
    for (body, expected) in [
        (format!("index index.php index.html; {run}"), Some(&["index.php", "index.html"][..])),
        (format!("index index.html index.php; {run}"), Some(&["index.html", "index.php"])),
        (format!("index index.php; {run}"), Some(&["index.php"])),
        (format!("index index.html app.php; {run}"), Some(&["index.html", "app.php"])),
        (format!("index index.htm index.html; {run}"), Some(&["index.htm", "index.html"])),
        (run.clone(), None),
        (format!("index index.php index.html; {front}"), Some(&["index.php", "index.html"])),
        (front.clone(), None),
        // No index is looked for.
        (front.replace("$uri/ ", ""), Some(&["index.php"])),
        // What no rule runs is never an index.
        ("index index.php index.html;".to_owned(), Some(&["index.html"])),
    ] {
        let (converted, named) = site(&body);
        let names = converted.get("index").and_then(Value::as_array);
        let names = names.map(|names| names.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>());
        assert_eq!(names.as_deref(), expected, "{body}: {named:#?}");
    }
}
