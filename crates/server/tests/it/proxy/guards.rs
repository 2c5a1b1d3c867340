//! A guard holds for whatever spelling an application takes for its path.

use sealion_testkit::http;

use crate::support::Site;
use crate::support::upstream::{Upstream, ok};

#[test]
fn no_spelling_of_a_guarded_path_reaches_the_server() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "proxy = [{{ path = '/', upstream = '{}' }}]\naccess = [{{ path = '/admin/', deny = ['127.0.0.1'] }}, {{ regex = '\\.key$', deny = ['127.0.0.1'] }}]",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in [
        "/admin",
        "/admin/",
        "/admin/x",
        "//admin/x",
        "/%61dmin/x",
        "/%2561dmin/x",
        "/admin%2Fx",
        "/%2Fadmin%2fx",
        "/admin%252Fx",
        "/admin;a=b/x",
        "/admin%3Ba/x",
        "/;a/admin/x",
        "\\admin\\x",
        "/%5Cadmin%5Cx",
        "/\\admin",
        "/x/..;/admin/x",
        "/x/%2e%2e;/admin",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/x%2F..%2Fadmin",
        "/x/..%5Cadmin",
        "/a.key",
        "/a.key;x",
        "/a%2Ekey",
        "/a.ke%2579",
        "/admin?x",
        "/admin%00",
        "/admin%3Fx",
        "/admin%23x/y",
        "/%61dmin%253Fx",
        "/a.key%3F.txt",
        "/x/..%3F",
        "/a.key;%3F/x",
        "/a.key;b%2523/x",
        "/admin;%3F",
    ] {
        let response = http::get(&mut client, target);
        let status = response.map(|response| {
            if response.field("connection") == Some("close") {
                client = site.connect(&server);
            }
            response.status
        });
        assert!(matches!(status, Ok(403 | 400 | 404)), "{target}: {status:?}");
    }
    for target in
        ["/administrator", "/a;b/c%2Fd", "/x//y", "/.well/.env", "/%25", "/a.keys", "/x\\y", "/what%3F", "/a%23/b%3F?c"]
    {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(response.body, format!("GET {target}").into_bytes());
    }
    let forwarded = upstream.requests();
    assert!(forwarded.iter().all(|request| !request.line().contains("admin/") && !request.line().ends_with("admin")));
}

#[test]
fn files_are_not_reached_by_spellings_that_only_an_application_has() {
    let site = Site::new();
    site.add("dir/file", "a file");
    site.add(".hidden", "hidden");
    let upstream = Upstream::answering(|_| ok(b"of the server"));
    let keys = format!("proxy = [{{ upstream = '{}', files_first = true }}]", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, body) in [
        ("/dir/file", "a file"),
        ("/dir%2Ffile", "of the server"),
        ("/.hidden", "of the server"),
        ("/none", "of the server"),
    ] {
        assert_eq!(http::get(&mut client, target).expect("a response").body, body.as_bytes(), "{target}");
    }
}
