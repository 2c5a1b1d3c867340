use std::time::{Duration, UNIX_EPOCH};

use super::super::checksums::Algorithm;
use super::super::listing::displayable;
use super::*;

fn entry(name: &[u8], len: Option<u64>) -> Entry {
    Entry { name: name.to_vec(), len, modified: UNIX_EPOCH + Duration::from_secs(784_111_777), checksums: Vec::new() }
}

fn all(entries: &[Entry]) -> Entries {
    let directories = entries.iter().filter(|entry| entry.len.is_none()).count();
    let files = entries.len() - directories;
    Entries { entries: entries.to_vec(), page: 0, pages: 1, directories, files, cut_at: None }
}

fn page(name: &str, entries: &[Entry], as_json: bool) -> (String, Fields) {
    let found = all(entries);
    let text = match as_json {
        true => json(name.as_bytes(), &found),
        false => html(name.as_bytes(), &found, &View::default(), &Frame::default()),
    };
    let room = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
    let page = Arc::new(SharedBytes { bytes: text.clone().into_bytes().into(), _room: room });
    (text, response(page, as_json, &policy(false)).fields)
}

#[test]
fn names_are_escaped_and_links_are_relative() {
    for (name, link, shown) in [
        (&b"a.txt"[..], "./a.txt", "<bdi>a.txt</bdi>"),
        (
            b"\"><script>alert(1)</script>",
            "./%22%3E%3Cscript%3Ealert%281%29%3C",
            "&quot;&gt;&lt;script&gt;alert(1)&lt;",
        ),
        (b"javascript:alert(1)", "./javascript%3Aalert%281%29", "javascript:alert(1)"),
        (b"100% ?#&'", "./100%25%20%3F%23%26%27", "<bdi>100% ?#&amp;&#39;</bdi>"),
        ("tür".as_bytes(), "./t%C3%BCr", "<bdi>tür</bdi>"),
        ("\u{202e}gpj.exe".as_bytes(), "./%E2%80%AEgpj.exe", "<bdi><i>\\u{202e}</i>gpj.exe</bdi>"),
        (b"a\r\nb\x1b[2J", "./a%0D%0Ab%1B%5B2J", "<bdi>a<i>\\u{d}</i><i>\\u{a}</i>b<i>\\u{1b}</i>[2J</bdi>"),
        (b"\xffx", "./%FFx", "<bdi><i>\\xff</i>x</bdi>"),
        ("👩‍💻".as_bytes(), "./%F0%9F%91%A9%E2%80%8D%F0%9F%92%BB", "<bdi>👩‍💻</bdi>"),
    ] {
        let (html, _) = page("", &[entry(name, Some(1))], false);
        assert!(html.contains(&format!("<a href=\"{link}")), "{html}");
        assert!(html.contains(shown), "{shown}: {html}");
        assert!(!html.contains("<script"));
    }
}

#[test]
fn breadcrumbs_are_escaped_too() {
    let (html, fields) = page("a b/\u{202e}<x>", &[entry(b"d", None)], false);
    assert!(html.contains("<title>/a b/\\u{202e}&lt;x&gt;</title>"), "{html}");
    assert!(html.contains("<a href=\"/\" aria-label=\"root\">/</a><a href=\"/a%20b/\"><bdi>a b</bdi></a>"), "{html}");
    assert!(html.contains("<a href=\"/a%20b/%E2%80%AE%3Cx%3E/\" aria-current=\"page\">"), "{html}");
    assert!(html.contains("<a href=\"../\">") && html.contains("1 directory, 0 files"), "{html}");
    assert!(html.contains("<a href=\"./d/\"><bdi>d</bdi>/</a>"), "{html}");
    assert!(fields.extra.has("content-security-policy"));
    assert!(!page("", &[], false).0.contains("../"));
}

#[test]
fn json_listing() {
    let checksum = Checksum { algorithm: Algorithm::Sha256, file: b"SHA256SUMS".to_vec() };
    let summed = Entry { checksums: vec![checksum], ..entry(b"a\"b", Some(3)) };
    let (json, fields) = page("p", &[entry(b"\xff", None), summed], true);
    assert_eq!(
        json,
        "{\"path\":\"/p/\",\"more\":false,\"page\":1,\"pages\":1,\"total\":2,\"entries\":[\
         {\"name\":\"\u{fffd}\",\"href\":\"./%FF/\",\"type\":\"directory\",\"modified\":\"1994-11-06T08:49:37Z\"},\
         {\"name\":\"a\\\"b\",\"href\":\"./a%22b\",\"type\":\"file\",\"size\":3,\"modified\":\"1994-11-06T08:49:37Z\",\
         \"checksums\":[{\"algorithm\":\"sha-256\",\"href\":\"./SHA256SUMS\"}]}]}\n"
    );
    assert_eq!(fields.content_type, Some(ContentType::Plain("application/json")));
    assert!(fields.extra.iter().any(|field| field == ("Vary", &b"Accept"[..])));
}

#[test]
fn a_truncated_page_says_so() {
    let found = Entries { cut_at: Some(1), ..all(&[entry(b"a", Some(1))]) };
    assert!(html(b"", &found, &View::default(), &Frame::default()).contains("only 1 are listed"));
    assert!(json(b"", &found).contains("\"more\":true"));
}

#[test]
fn pages_and_orders_keep_the_search() {
    let found = Entries { page: 1, pages: 3, ..all(&[entry(b"a", Some(1))]) };
    let view = View::from_query(Some("q=%22%3Cb%3E%26&sort=size&page=2"));
    let page = html(b"", &found, &view, &Frame { archives: true, ..Frame::default() });
    for link in [
        "?q=%22%3Cb%3E%26&amp;sort=size&amp;order=asc\">First",
        "?q=%22%3Cb%3E%26&amp;sort=size&amp;order=asc\" rel=\"prev\">Previous",
        "?q=%22%3Cb%3E%26&amp;sort=size&amp;order=asc&amp;page=3\" rel=\"next\">Next",
        "?q=%22%3Cb%3E%26&amp;sort=size&amp;order=asc&amp;page=3\">Last",
        "?q=%22%3Cb%3E%26&amp;sort=size&amp;order=desc\">Size",
        "?q=%22%3Cb%3E%26&amp;sort=name&amp;order=asc\">Name",
        "value=\"&quot;&lt;b&gt;&amp;\"",
        "?archive=tar.zst\"",
        "Page 2 of 3",
    ] {
        assert!(page.contains(link), "{link}: {page}");
    }
    assert!(json(b"", &found).contains("\"more\":true,\"page\":2,\"pages\":3"));
    let only = html(b"", &all(&[]), &View::default(), &Frame::default());
    assert!(!only.contains("<nav") && !only.contains("archive"), "{only}");
}

#[test]
fn a_checksum_is_a_link_beside_its_file() {
    let checksum = Checksum { algorithm: Algorithm::Sha512, file: b"a b.sha512".to_vec() };
    let summed = Entry { checksums: vec![checksum], ..entry(b"a b", Some(1)) };
    let (page_of_both, _) = page("", &[summed, entry(b"c", Some(1))], false);
    assert!(page_of_both.contains("<td class=\"checksums\"><a href=\"./a%20b.sha512\">SHA-512</a> </td></tr>"));
    assert!(page_of_both.contains("<td class=\"checksums\"></td></tr>"));
    assert!(!page("", &[entry(b"c", Some(1))], false).0.contains("<td class=\"checksums\">"));
}

#[test]
fn sizes() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (10 << 10, "10 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (u64::MAX, "16 EiB"),
    ] {
        assert_eq!(size(bytes), text, "{bytes}");
    }
}

#[test]
fn extreme_file_times_are_clamped() {
    for (seconds, expected) in [(i64::MIN, "1970-01-01T00:00:00Z"), (i64::MAX, "9999-12-31T23:59:59Z")] {
        let entry = Entry { modified: displayable(seconds), ..entry(b"x", None) };
        for json in [false, true] {
            assert!(page("", std::slice::from_ref(&entry), json).0.contains(expected), "{expected}");
        }
    }
}

#[test]
fn notes_stand_around_the_entries_and_the_stylesheet_comes_last() {
    let notes = Notices { above: Some("<pre>up</pre>".to_owned()), below: Some("<b>down</b>".to_owned()) };
    let frame = Frame { stylesheet: Some("/a&b.css"), notes, ..Frame::default() };
    let page = html(b"", &all(&[entry(b"a", Some(1))]), &View::default(), &frame);
    let places = [
        "</style>",
        "<link rel=\"stylesheet\" href=\"/a&amp;b.css\">",
        "<div class=\"note header\">\n<pre>up</pre>\n</div>",
        "<table>",
        "</table>",
        "<div class=\"note readme\">\n<b>down</b>\n</div>",
    ]
    .map(|part| page.find(part).unwrap_or_else(|| panic!("{part} is not in {page}")));
    assert!(places.is_sorted(), "{page}");
    let bare = html(b"", &all(&[]), &View::default(), &Frame::default());
    assert!(!bare.contains("<link") && !bare.contains("class=\"note"), "{bare}");
}

#[test]
fn styles_of_the_site_load_where_a_setting_asks_for_them() {
    assert!(policy(true).contains("' 'self'; img-src 'self'; font-src 'self'; base-uri"), "{}", policy(true));
    assert!(!policy(false).contains("style-src 'sha256-' ") && !policy(false).contains("img-src"), "{}", policy(false));
    assert!([true, false].iter().all(|of_site| policy(*of_site).starts_with("default-src 'none'; ")));
}
