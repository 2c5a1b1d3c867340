use sealion_http::request::Conditions;
use sealion_http::{FieldSection, Method};

use super::*;
use crate::values::{At, Problems};

fn at(text: &str) -> At<String> {
    At { value: text.to_owned(), span: 0..1 }
}

fn tables(text: &str) -> (Tables, Problems) {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct File {
        map: Vec<MapConfig>,
        split: Vec<SplitConfig>,
    }
    let file: File = toml::from_str(text).unwrap();
    let mut problems = Problems::of_file("f".as_ref(), text);
    (Tables::build(&file.map, &file.split, &mut problems), problems)
}

const TABLES: &str = r#"
[[map]]
name = "tenant"
from = "{header.x-tenant}"
default = "none"
entries = { "a" = "pool-a", "^~ b-" = "pool-b", "~* ^C\\d" = "pool-{method}", "bad" = "x y", "away" = "https://other.example/a" }

[[map]]
name = "twice"
from = "{map.tenant}"
entries = { "pool-a" = "first" }

[[map]]
name = "folded"
from = "{header.x-case}"
ignore_case = true
entries = { "Text" = "text", "^~ BEGIN" = "beginning", "~ ^Exp" = "expression" }

[[map]]
name = "id"
from = "x"
default = "{header.x-id}"

[[map]]
name = "suffix"
from = "x"
default = ".org"

[[split]]
name = "canary"
from = "{client}"
shares = { new = "100%", old = "*" }
"#;

/// A request over TLS without further facts.
fn asked<'a>(request: &'a Request<'a>, path: &'a SitePath<'a>, tables: &'a Tables) -> Asked<'a> {
    Asked::new(request, path, None, false, tables)
}

/// The text for one request.
fn rendered(text: &str, lines: &[u8], url: bool) -> Result<String, Unfit> {
    let (tables, problems) = tables(TABLES);
    assert!(problems.is_empty(), "{problems}");
    let groups = Groups {
        path: Some(Regex::new("^/(?<first>[^/]+)/(.*)$").unwrap()),
        hosts: vec![Regex::new(r"^(?<user>\w+)\.example$").unwrap()],
        ..Groups::default()
    };
    let mut problems = Problems::of_arguments();
    let known = Known::of_request(Some(&groups), &tables);
    let template = Template::parse(&at(text), known, "key", &mut problems);
    let template = template.unwrap_or_else(|| panic!("{problems}"));
    let target = "/a%20b/c//d;e?x=1%262&y&x=3";
    let request = Request {
        method: Method::Get,
        target: Target::from_origin_form(target).unwrap(),
        raw_target: target,
        authority: Some("Ada.Example:8443"),
        conditions: Conditions::default(),
        fields: FieldSection::from_lines(lines),
    };
    let path = SitePath::parse("/a%20b/c//d;e", false).unwrap();
    let asked = Asked {
        query: Some("x=1%262&y&x=3"),
        client: "::ffff:192.0.2.1".parse().ok(),
        remote: "2001:db8::1".parse().ok(),
        groups: Some(&groups),
        ..asked(&request, &path, &tables)
    };
    match url {
        true => template.render_url(&asked),
        false => Ok(String::from_utf8(template.render(&asked, Form::Plain)?.into_owned()).unwrap()),
    }
}

#[test]
fn each_placeholder_has_its_value() {
    let lines = b"X-Id: 7\r\nX-Id: 8\r\nCookie: a=1; v=x=y\r\nX-Tenant: a\r\n";
    for (text, expected) in [
        ("plain {{x}} {\"a\": 1} {", "plain {x} {\"a\": 1} {"),
        ("{host}|{scheme}|{method}|{client}|{port}", "ada.example|https|GET|192.0.2.1|8443"),
        ("{remote}|{uri.encoded}", "2001:db8::1|%2Fa%2520b%2Fc%2F%2Fd%3Be%3Fx%3D1%25262%26y%26x%3D3"),
        ("{path}|{query}|{uri}", "/a%20b/c/d;e|x=1%262&y&x=3|/a%20b/c//d;e?x=1%262&y&x=3"),
        ("{query.x}|{query.y}|{query.z}", "1&2||"),
        ("{raw_query.X}|{raw_query.y}|{raw_query.z}", "1%262||"),
        ("{header.x-id}|{header.X-None}|{cookie.v}|{cookie.none}", "7, 8||x=y|"),
        ("{1}|{2}|{first}|{user}", "a b|c/d;e|a b|ada"),
        ("{map.tenant}|{map.twice}|{split.canary}", "pool-a|first|new"),
    ] {
        assert_eq!(rendered(text, lines, false).unwrap(), expected, "{text}");
    }
    for (tenant, expected) in [("b-1", "pool-b"), ("c1", "pool-GET"), ("x", "none"), ("", "none")] {
        let line = format!("X-Tenant: {tenant}\r\n");
        assert_eq!(rendered("{map.tenant}", line.as_bytes(), false).unwrap(), expected, "{tenant}");
    }
}

#[test]
fn urls_have_values_encoded_and_no_host_of_the_client() {
    let lines = b"X-Id: a/b?c&d\xe9\r\nX-Tenant: away\r\nX-Host: evil.example/\r\nX-Slash: //evil.example\r\nX-Dot: .evil\r\nX-Url: https://evil.example/\r\n";
    for (text, expected) in [
        ("/new/{1}/{2}", Ok("/new/a%20b/c/d;e")),
        ("/new?id={header.x-id}&p={query.x}", Ok("/new?id=a/b%3Fc%26d%E9&p=1%262")),
        ("/new?p={raw_query.x}", Ok("/new?p=1%262")),
        ("https://{raw_query.x}.example/", Err(Unfit)),
        ("{raw_query.x}", Err(Unfit)),
        ("/new?id={map.id}", Ok("/new?id=a/b%3Fc%26d%E9")),
        ("/new/{map.id}", Ok("/new/a/b%3Fc&d%E9")),
        ("https://{host}{uri}", Ok("https://ada.example/a%20b/c//d;e?x=1%262&y&x=3")),
        ("https://{user}.example.org/", Ok("https://ada.example.org/")),
        // A value right behind a host ends it.
        ("https://a.example{path}", Ok("https://a.example/a%20b/c/d;e")),
        ("https://a.example{header.x-slash}", Ok("https://a.example//evil.example")),
        ("https://a.example{is_args}{query}", Ok("https://a.example?x=1%262&y&x=3")),
        ("https://a.example{header.x-none}/b", Ok("https://a.example/b")),
        ("https://a.example{map.suffix}/b", Ok("https://a.example.org/b")),
        ("https://a.example{2}", Err(Unfit)),
        ("https://a.example{query.x}", Err(Unfit)),
        ("https://a.example{header.x-host}", Err(Unfit)),
        ("https://a.example{header.x-dot}", Err(Unfit)),
        ("https://a{header.x-dot}.example", Ok("https://a.evil.example")),
        ("https://a{header.x-slash}.example", Err(Unfit)),
        ("https://{header.x-host}x", Err(Unfit)),
        ("https://{header.x-none}/", Err(Unfit)),
        ("https://{uri}", Err(Unfit)),
        ("/{header.x-slash}", Ok("/evil.example")),
        ("{header.x-slash}", Ok("/evil.example")),
        ("{header.x-host}", Err(Unfit)),
        ("{header.x-url}", Err(Unfit)),
        ("{header.x-none}{header.x-url}/x", Err(Unfit)),
        ("/to?{header.x-url}", Ok("/to?https://evil.example/")),
        ("{scheme}://{host}/x", Ok("https://ada.example/x")),
        ("{map.tenant}", Ok("https://other.example/a")),
    ] {
        assert_eq!(rendered(text, lines, true).as_deref(), expected.as_ref().map(|text| *text), "{text}");
    }
    assert_eq!(rendered("{map.tenant}", b"X-Tenant: bad\r\n", true), Err(Unfit));
}

#[test]
fn no_value_breaks_a_line() {
    for lines in [&b"X-A: a\rb\r\n"[..], b"X-A: a\0b\r\n"] {
        assert_eq!(rendered("v={header.x-a}", lines, false), Err(Unfit), "{}", lines.escape_ascii());
    }
    assert_eq!(rendered("v={header.x-a}", b"X-A: a\tb\r\n", false).unwrap(), "v=a\tb");
}

#[test]
fn unknown_names_are_refused_with_the_nearest() {
    let (tables, _) = tables(TABLES);
    let groups = Groups { path: Some(Regex::new("^/(?<year>\\d+)").unwrap()), ..Groups::default() };
    for (text, words) in [
        ("{hots}", "f:1: key: {hots} is not a placeholder: the nearest is {host}"),
        ("{map.tenants}", "{map.tenants} names no [[map]]: there is {map.tenant}"),
        ("{yaer}", "the nearest is {year}"),
        ("{remote_addr}", "is not a placeholder: write {client}"),
        ("{cookie.}", "has no name behind the dot: write {cookie.NAME}"),
        ("{headers.x}", "the nearest is {header.x}"),
        ("{2}", "names group 2, which the route's expression does not have"),
        ("{host", "has { without }"),
        ("{env.SEALION_NO_SUCH_VARIABLE}", "has no variable SEALION_NO_SUCH_VARIABLE"),
        ("{upstream.header.x}", "only in fields of the response of a proxy"),
        ("{user}", "only in request_headers of a proxy"),
        ("{remote_user}", "write {user}"),
    ] {
        let mut problems = Problems::of_file("f".as_ref(), "a = 1");
        let known = Known::of_request(Some(&groups), &tables);
        assert!(Template::parse(&at(text), known, "key", &mut problems).is_none(), "{text}");
        assert!(problems.to_string().contains(words), "{text}: {problems}");
    }
}

#[test]
fn tables_are_checked() {
    for (text, words) in [
        ("[[map]]\nname = 'a b'\nfrom = 'x'", "f:2: map.name: write letters"),
        ("[[map]]\nname = 'a'\nfrom = '{map.a}'", "f:3: map.from: {map.a} names no [[map]]: there is none"),
        ("[[map]]\nname = 'a'\nfrom = 'x'\nentries = { '~ (' = 'b' }", "f:4: map.entries: \"~ (\" is not a regular"),
        ("[[map]]\nname = 'a'\nfrom = 'x'\n[[map]]\nname = 'a'\nfrom = 'x'", "f:5: map.name: a is there twice"),
        ("[[split]]\nname = 'a'\nfrom = '{client}'\nshares = { x = '5%' }", "split.shares: do not make up the whole"),
        ("[[split]]\nname = 'a'\nfrom = '{client}'\nshares = { x = '0.005%' }", "f:4: split.shares: write a share"),
    ] {
        let (_, problems) = tables(text);
        assert!(problems.to_string().contains(words), "{text}: {problems}");
    }
}

#[test]
fn shares_are_about_as_large_as_configured() {
    let (tables, problems) =
        tables("[[split]]\nname = 'a'\nfrom = 'x'\nshares = { rest = '*', b = '10%', c = '2.5%' }");
    assert!(problems.is_empty(), "{problems}");
    let count = |result: &str| (0..20_000_u32).filter(|n| tables.share_for_tests(&n.to_string()) == result).count();
    assert!((1800..2200).contains(&count("b")), "{}", count("b"));
    assert!((400..600).contains(&count("c")), "{}", count("c"));
}

#[test]
fn a_map_may_ignore_case() {
    for (value, expected) in
        [("tEXT", "text"), ("begin-x", "beginning"), ("Exp", "expression"), ("exp", ""), ("Texts", "")]
    {
        let lines = format!("x-case: {value}\r\n");
        assert_eq!(rendered("{map.folded}", lines.as_bytes(), false).as_deref(), Ok(expected), "{value}");
    }
    let (_, problems) =
        tables("[[map]]\nname = 'a'\nfrom = '{host}'\nignore_case = true\nentries = { A = '1', a = '2' }");
    assert!(problems.to_string().contains("is there twice in another case"), "{problems}");
}

#[test]
fn the_mark_of_a_query_stands_where_there_is_one() {
    assert_eq!(rendered("/new{is_args}{query}", b"", true).as_deref(), Ok("/new?x=1%262&y&x=3"));
    assert_eq!(rendered("{time}", b"", false).map(|time| (time.len(), time.ends_with('Z'))), Ok((24, true)));
    let seconds = rendered("{time.unix}", b"", false).unwrap();
    assert!(
        seconds.split_once('.').is_some_and(|(whole, part)| whole.parse::<u64>().is_ok() && part.len() == 3),
        "{seconds}"
    );
}

#[test]
fn directories_lie_beneath_their_root() {
    let (tables, problems) = tables(
        "[[map]]\nname = 'site'\nfrom = '{host}'\nentries = { 'ada.example' = 'a/b' }\n\
         [[map]]\nname = 'up'\nfrom = 'x'\ndefault = '../b'\n[[map]]\nname = 'own'\nfrom = 'x'\ndefault = '{header.x-own}'",
    );
    assert!(problems.is_empty(), "{problems}");
    let path = SitePath::parse("/x", false).unwrap();
    let rendered = |text: &str, value: &[u8]| {
        let lines = [b"X-Own: ", value, b"\r\n"].concat();
        let request = Request {
            method: Method::Get,
            target: Target::from_origin_form("/x").unwrap(),
            raw_target: "/x",
            authority: Some("ada.example"),
            conditions: Conditions::default(),
            fields: FieldSection::from_lines(&lines),
        };
        let tables = &tables;
        let asked = asked(&request, &path, tables);
        let mut problems = Problems::of_arguments();
        let known = Known::of_request(None, tables);
        let template = Template::parse(&at(text), known, "key", &mut problems).unwrap();
        template.render_directory(&asked).map(|directory| String::from_utf8(directory).unwrap())
    };
    for (text, value, expected) in [
        ("{host}/public", "", Ok("ada.example/public")),
        ("{map.site}", "", Ok("a/b")),
        ("site-{header.x-own}", ".x", Ok("site-.x")),
        (".hidden/{header.x-own}", "x y", Ok(".hidden/x y")),
        ("{map.up}", "", Err(Unfit)),
        ("{header.x-own}", "", Err(Unfit)),
        ("site-{header.x-own}", "", Err(Unfit)),
        ("{header.x-own}", "..", Err(Unfit)),
        ("{header.x-own}", ".", Err(Unfit)),
        ("{header.x-own}", ".git", Err(Unfit)),
        ("a/{header.x-own}", ".git", Err(Unfit)),
        (".{header.x-own}", ".", Err(Unfit)),
        ("{header.x-own}", "a/b", Err(Unfit)),
        ("{map.own}", "a/b", Err(Unfit)),
        ("{map.own}", "..", Err(Unfit)),
        ("{header.x-own}", "a\0b", Err(Unfit)),
    ] {
        assert_eq!(
            rendered(text, value.as_bytes()).as_deref(),
            expected.as_ref().map(|text| *text),
            "{text} {value:?}"
        );
    }
}

#[test]
fn entries_may_name_networks_and_the_groups_of_their_expression() {
    let (tables, problems) = tables(
        "[[map]]\nname = 'place'\nfrom = '{client}'\ndefault = 'elsewhere'\n\
         entries = { 'in 192.0.2.0/24' = 'net', 'in 192.0.2.1' = 'host', 'in 2001:db8::/32' = 'six' }\n\
         [[map]]\nname = 'moved'\nfrom = '{header.x-old}'\nentries = { '~ ^/old/(?<id>\\d+)/(.*)$' = '/items/{id}?{2}' }",
    );
    assert!(problems.is_empty(), "{problems}");
    let path = SitePath::parse("/x", false).unwrap();
    let rendered = |text: &str, client: &str, lines: &[u8]| {
        let request = Request {
            method: Method::Get,
            target: Target::from_origin_form("/x").unwrap(),
            raw_target: "/x",
            authority: None,
            conditions: Conditions::default(),
            fields: FieldSection::from_lines(lines),
        };
        let tables = &tables;
        let asked = Asked { client: client.parse().ok(), ..asked(&request, &path, tables) };
        let known = Known::of_request(None, tables);
        let template = Template::parse(&at(text), known, "key", &mut Problems::of_arguments()).unwrap();
        String::from_utf8(template.render(&asked, Form::Plain).unwrap().into_owned()).unwrap()
    };
    for (client, expected) in [
        ("192.0.2.1", "host"),
        ("::ffff:192.0.2.1", "host"),
        ("192.0.2.2", "net"),
        ("2001:db8::1", "six"),
        ("10.0.0.1", "elsewhere"),
        ("", "elsewhere"),
    ] {
        assert_eq!(rendered("{map.place}", client, b""), expected, "{client}");
    }
    assert_eq!(rendered("{map.moved}", "", b"X-Old: /old/7/b\r\n"), "/items/7?b");
    let (_, problems) = self::tables("[[map]]\nname = 'a'\nfrom = 'x'\nentries = { 'in 10.0.0.0/33' = 'b' }");
    assert!(problems.to_string().contains("is not a network"), "{problems}");
}
