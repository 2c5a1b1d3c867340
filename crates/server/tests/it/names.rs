//! Which site has a name on each listener, and clients that no site has.

use std::process::{Command, Output};

use sealion_testkit::pki::{Authority, Pki};
use sealion_testkit::server::Server;

use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, Site, access_lines, tool, wait_for_cache};

/// The ports of three listeners: without TLS, and with TLS.
struct Ports {
    plain: u16,
    tls: u16,
    other: u16,
}

impl Ports {
    fn new() -> Self {
        Ports { plain: free_port(), tls: free_port(), other: free_port() }
    }

    /// The key `listen` of a site that is served on these ports.
    fn key(ports: &[u16]) -> String {
        let names: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("listen = {names:?}\n")
    }

    fn listeners(&self, config: Config) -> Config {
        config
            .listen(&format!("address = '127.0.0.1:{}'\ntls = false", self.plain))
            .listen(&format!("address = '127.0.0.1:{}'", self.tls))
            .listen(&format!("address = '127.0.0.1:{}'", self.other))
    }
}

/// The output of curl for a URL, whose host is 127.0.0.1. `pki`: the certificate that it trusts.
fn curl(pki: &Pki, url: &str, options: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "120", "--write-out", "|%{http_code} %{redirect_url}"]);
    command.args(["--connect-to", "::127.0.0.1:", "--http1.1", "--cacert"]).arg(pki.certificate_file());
    command.args(options).arg(url).output().expect("curl is needed")
}

/// The content, the status and the target of a redirect.
#[track_caller]
fn ask(pki: &Pki, url: &str, options: &[&str]) -> String {
    let output = curl(pki, url, options);
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

/// The exit code of curl, and its message.
fn failure(pki: &Pki, url: &str, options: &[&str]) -> (Option<i32>, String) {
    let output = curl(pki, url, options);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_plain_site_stands_beside_a_site_with_tls_of_the_same_name() {
    let site = Site::with(Pki::for_names(&["a.test", "b.test"]));
    site.add("page", "secure");
    let token = site.outside().join("acme/.well-known/acme-challenge/token");
    std::fs::create_dir_all(token.parent().expect("a directory")).expect("it is made");
    std::fs::write(&token, "answer").expect("it is written");
    let ports = Ports::new();
    let plain = format!(
        "names = ['a.test']\n{}\
         [[site.route]]\npath = '/.well-known/acme-challenge/'\nfiles = true\n\
         [[site.route]]\npath = '/'\nredirect = {{ to = 'https://{{host}}{{uri}}', status = 301 }}",
        Ports::key(&[ports.plain])
    );
    let config = ports.listeners(site.config("names = ['a.test', 'b.test']"));
    let server = config.site("acme", &[], &plain).serve_from_user_space();
    let (http, https) = (format!("a.test:{}", ports.plain), format!("a.test:{}", ports.tls));
    let challenge = "/.well-known/acme-challenge";
    for (url, expected) in [
        (format!("http://{http}{challenge}/token"), "answer|200 ".to_owned()),
        (format!("http://{http}{challenge}/none"), "404 Not Found\n|404 ".to_owned()),
        (format!("http://{http}/page?x"), "301 Moved Permanently\n|301 https://a.test/page?x".to_owned()),
        // A name without a plain site is redirected, to the port of its listener.
        (
            format!("http://b.test:{}/page", ports.plain),
            format!("308 Permanent Redirect\n|308 https://b.test:{}/page", ports.tls),
        ),
        (format!("http://b.test:{}{challenge}/none", ports.plain), "404 Not Found\n|404 ".to_owned()),
        (format!("http://c.test:{}/page", ports.plain), "421 Misdirected Request\n|421 ".to_owned()),
        (format!("https://{https}/page"), "secure|200 ".to_owned()),
        (format!("https://{https}{challenge}/token"), "404 Not Found\n|404 ".to_owned()),
    ] {
        assert_eq!(ask(&site.pki, &url, &[]), expected.trim_end(), "{url}");
    }
    let lines = access_lines(&server, 8);
    let seen: Vec<_> = lines.iter().map(|line| (line.get("status"), line.get("tls") == "-")).collect();
    assert_eq!(seen.iter().filter(|line| **line == ("308", true)).count(), 1, "{seen:?}");
}

#[test]
fn each_listener_has_certificates_and_names_of_its_own() {
    let (one, two) = (Pki::for_names(&["a.test"]), Pki::for_names(&["a.test"]));
    let authority = Authority::new("ours");
    let alice = authority.issue_client("alice");
    let site = Site::new();
    site.add("page", "first");
    let second = site.outside().join("second");
    std::fs::create_dir(&second).expect("a directory");
    std::fs::write(second.join("page"), "second").expect("it is written");
    let ports = Ports::new();
    let roots = authority.pki().certificate_file();
    let keys = |port| format!("names = ['a.test']\n{}", Ports::key(&[port]));
    let config = Config::within(site.outside()).site(site.root(), &[&one], &keys(ports.tls)).site(
        &second,
        &[&two],
        &format!("{}client_auth = {{ roots = {roots:?} }}", keys(ports.other)),
    );
    let _server = ports.listeners(config).serve_from_user_space();
    let url = |port| format!("https://a.test:{port}/page");
    let certificate = [alice.certificate_file(), alice.key_file()].map(|file| file.display().to_string());
    let shown = ["--cert", &certificate[0], "--key", &certificate[1]];
    assert_eq!(ask(&one, &url(ports.tls), &[]), "first|200");
    assert_eq!(ask(&two, &url(ports.other), &shown), "second|200");
    assert_eq!(failure(&two, &url(ports.tls), &[]).0, Some(60), "the certificate is that of the listener");
    assert_eq!(failure(&one, &url(ports.other), &shown).0, Some(60));
    let (_, said) = failure(&two, &url(ports.other), &[]);
    assert!(said.contains("certificate required"), "{said}");
    // Its name is unknown on the listener without TLS, which redirects no request for it.
    assert_eq!(ask(&one, &format!("http://a.test:{}/page", ports.plain), &[]), "421 Misdirected Request\n|421");
}

#[test]
fn handshakes_for_unknown_names_are_refused() {
    let site = Site::with(Pki::for_names(&["a.test"]));
    site.add("page", "page");
    let ports = Ports::new();
    let refusing = format!(
        "\n[[site]]\ndefault = true\nreject_handshake = true\nrespond = 410\n{}",
        Ports::key(&[ports.tls, ports.plain])
    );
    let server = ports.listeners(site.config("names = ['a.test']")).table(&refusing).serve_from_user_space();
    let url = |host: &str, port: u16| format!("https://{host}:{port}/page");
    assert_eq!(ask(&site.pki, &url("a.test", ports.tls), &[]), "page|200");
    // Nor is an address a name.
    for host in ["b.test", "127.0.0.1"] {
        let (code, said) = failure(&site.pki, &url(host, ports.tls), &["--insecure"]);
        assert_eq!(code, Some(35), "{host}: {said}");
        assert!(said.contains("unrecognized name"), "{host}: {said}");
    }
    let hidden = ["--header", "Host: b.test"];
    assert_eq!(ask(&site.pki, &url("a.test", ports.tls), &hidden), "421 Misdirected Request\n|421");
    // Without TLS there is no handshake to refuse, and no HTTPS to lead to.
    let plain = |host: &str| ask(&site.pki, &format!("http://{host}:{}/page", ports.plain), &[]);
    assert_eq!(plain("b.test"), "410\n|410");
    assert_eq!(plain("a.test"), format!("308 Permanent Redirect\n|308 https://a.test:{}/page", ports.tls));
    // The other listener has another default: none.
    assert_eq!(ask(&site.pki, &url("b.test", ports.other), &["--insecure"]), "421 Misdirected Request\n|421");
    drop(server);
}

#[test]
fn a_connection_closes_without_a_response() {
    let site = Site::with(Pki::for_names(&["a.test", "b.test"]));
    site.add("page", "page");
    let ports = Ports::new();
    let silent = format!("\n[[site]]\ndefault = true\nrespond = 'close'\n{}", Ports::key(&[ports.plain, ports.tls]));
    let config = ports.listeners(site.config("names = ['a.test']\nerror_pages = { 444 = '/page' }"));
    let server = config.table(&silent).serve_from_user_space();
    assert_eq!(ask(&site.pki, &format!("https://a.test:{}/page", ports.tls), &[]), "page|200");
    let tls = format!("https://b.test:{}/page", ports.tls);
    // CURLE_GOT_NOTHING: FIN, behind close_notify with TLS, and no byte.
    assert_eq!(failure(&site.pki, &tls, &[]).0, Some(52));
    assert_eq!(failure(&site.pki, &tls, &["--data", "content"]).0, Some(52));
    // CURLE_HTTP2_STREAM: other streams of the connection go on.
    assert_eq!(failure(&site.pki, &tls, &["--http2"]).0, Some(92));
    let lines = access_lines(&server, 4);
    assert!(lines[1..].iter().all(|line| line.get("status") == "444" && line.get("bytes") == "0"));
}

#[test]
fn groups_of_a_name_are_placeholders() {
    let site = Site::new();
    let ports = Ports::new();
    let keys = format!(
        "names = ['~ ^(?<user>[a-z]+)\\.([0-9]+)\\.test$', 'www.*']\n{}respond = {{ text = '{{user}} {{2}} {{host}}' }}\n\
         headers = {{ set = {{ X-User = '{{user}}' }} }}",
        Ports::key(&[ports.plain])
    );
    let config = ports.listeners(site.config("names = ['a.test']")).table(&format!("\n[[site]]\n{keys}"));
    let _server: Server = config.serve_from_user_space();
    let ask = |host: &str| ask(&site.pki, &format!("http://{host}:{}/", ports.plain), &[]);
    assert_eq!(ask("ada.42.test"), "ada 42 ada.42.test|200");
    let head = curl(&site.pki, &format!("http://ada.42.test:{}/", ports.plain), &["--head"]);
    assert!(String::from_utf8_lossy(&head.stdout).contains("\r\nX-User: ada\r\n"), "{head:?}");
    assert_eq!(ask("ADA.42.test"), "ada 42 ada.42.test|200");
    assert_eq!(ask("www.42.test"), "www 42 www.42.test|200");
    assert!(ask("www.example.org").ends_with("www.example.org|200"));
    assert_eq!(ask("ada.x.test"), "421 Misdirected Request\n|421");
}

#[test]
fn keys_without_effect_on_the_listeners_of_a_site_are_refused() {
    let site = Site::new();
    let ports = Ports::new();
    let plain = Ports::key(&[ports.plain]);
    let certificate =
        format!("certificates = [{{ cert = {:?}, key = {:?} }}]", site.pki.certificate_file(), site.pki.key_file());
    for (keys, words) in [
        (format!("names = ['b']\n{plain}"), ""),
        (format!("names = ['a']\n{plain}"), ""),
        (
            format!("names = ['b']\n{plain}{certificate}"),
            "site.certificates: has no effect, as no listener of the site has TLS",
        ),
        (format!("names = ['b']\n{plain}acme = true"), "site.acme: has no effect"),
        (format!("names = ['b']\n{plain}reject_handshake = true"), "site.reject_handshake: has no effect"),
        (format!("names = ['b']\n{plain}hsts = {{ max_age = '1h' }}"), "must not be sent over plain HTTP"),
        (
            format!("names = ['b']\n{plain}client_auth = {{ roots = {:?} }}", site.pki.certificate_file()),
            "the site answers on 127.0.0.1",
        ),
        (format!("names = ['b']\nreject_handshake = true\n{certificate}"), "and certificates exclude each other"),
        (
            format!("names = ['b']\n{plain}default = ['127.0.0.1:{}']", ports.tls),
            "site.default: the site is not served on",
        ),
        ("names = ['b']\ndefault = ['x']".to_owned(), "site.default: no [[listen]] has the address \"x\""),
        ("names = ['a']".to_owned(), "a is listed twice"),
        (format!("names = ['c']\n{plain}\n[[site]]\nroot = 'root'\nnames = ['c']\n{plain}"), "c is listed twice"),
        ("names = ['b']\nrespond = 'shut'".to_owned(), "write a status, for instance 204, or \"close\""),
    ] {
        let config = ports.listeners(site.config("names = ['a']"));
        let problems = config.table(&format!("\n[[site]]\nroot = 'root'\n{keys}")).problems();
        match words.is_empty() {
            true => assert!(problems.is_empty(), "{keys}: {problems}"),
            false => assert!(problems.contains(words), "{keys}: {problems}"),
        }
    }
}

#[test]
fn the_cache_keeps_sites_of_different_listeners_apart() {
    let site = Site::new();
    let origin = Upstream::answering(|request| {
        let body = request.line().to_owned();
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body.as_bytes()].concat()
    });
    let ports = Ports::new();
    let directory = site.outside().join("cache");
    let tables = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = [{directory:?}]",
        origin.url()
    );
    let keys = |port, prefix: &str| {
        let key = Ports::key(&[port]);
        format!("names = ['a.test']\n{key}proxy = {{ to = 'app', to_prefix = '{prefix}', cache = {{}} }}")
    };
    let config = ports.listeners(Config::within(site.outside()));
    let server = config
        .site(site.root(), &[], &keys(ports.plain, "/one"))
        .site(site.root(), &[&site.pki], &keys(ports.tls, "/two"))
        .site(site.root(), &[&site.pki], &keys(ports.other, "/three"))
        .table(&tables)
        .serve_from_user_space();
    wait_for_cache(&server, &directory);
    // One URL for the last two.
    let ask = |scheme: &str, port: u16| {
        ask(&site.pki, &format!("{scheme}://a.test:{port}/x"), &["--insecure", "--header", "Host: a.test"])
    };
    for _ in 0..2 {
        assert_eq!(ask("http", ports.plain), "GET /one/x|200");
        assert_eq!(ask("https", ports.tls), "GET /two/x|200");
        assert_eq!(ask("https", ports.other), "GET /three/x|200");
    }
    assert_eq!(origin.requests().len(), 3, "each is answered from the cache once");
    tool(PROGRAM, ["purge", "--pid", &server.pid().to_string(), "https://a.test/x"]);
    for (scheme, port, path) in
        [("http", ports.plain, "/one/x"), ("https", ports.tls, "/two/x"), ("https", ports.other, "/three/x")]
    {
        assert_eq!(ask(scheme, port), format!("GET {path}|200"));
    }
    assert_eq!(origin.requests().len(), 5, "a purge of the URL reaches both sites");
}
