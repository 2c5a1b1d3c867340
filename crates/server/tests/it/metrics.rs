//! `/metrics`: the format, the numbers of a known sequence of requests, and that documents and dashboards name what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sealion_testkit::server::Signal;
use sealion_testkit::{Suite, http};

use crate::support::http2::Http2;
use crate::support::upstream::{Upstream, ok};
use crate::support::watch::{Scrape, Watched};
use crate::support::{LARGE, Site, begin, exchange, wait_for_message, wait_until};

#[test]
fn a_known_sequence_of_requests_is_counted() {
    let site = Site::new();
    site.add("f", "content");
    let watched = Watched::serve(&site, &["--workers", "2"]);
    // The listener answers before the last worker has begun.
    wait_until("both workers are there", || watched.scrape().get("sealion_workers") == 2.0);
    let before = watched.scrape();
    assert_eq!(before.sum("sealion_http_responses_total"), 0.0);
    // An alert sees the first one rise from it.
    assert_eq!(before.get("sealion_http_responses_total{code=\"500\"}"), 0.0);

    let connector = site.connector(Suite::TLS13);
    for _ in 0..2 {
        let mut client = connector.connect(watched.server.address());
        for _ in 0..3 {
            http::get(&mut client, "/f").expect("an answer");
        }
        http::request(&mut client, "GET", "/f", &[("Range", "bytes=0-1")]).expect("an answer");
        http::get(&mut client, "/none").expect("an answer");
        client.close_notify().expect("it is sent");
        client.read_to_end().expect("the server closes").assert_orderly();
    }
    exchange(&mut site.connect(&watched.server), b"nonsense\r\n\r\n").assert_orderly();

    // The last connection is counted as over a moment after its client has seen that.
    let over =
        |scrape: &Scrape| scrape.get("sealion_tls_alerts_total{direction=\"sent\",alert=\"close_notify\"}") == 3.0;
    wait_until("all connections are over", || over(&watched.scrape()));
    let scrape = watched.scrape();
    for (series, value) in [
        ("sealion_http_responses_total{code=\"200\"}", 6.0),
        ("sealion_http_responses_total{code=\"206\"}", 2.0),
        ("sealion_http_responses_total{code=\"404\"}", 2.0),
        ("sealion_http_responses_total{code=\"400\"}", 1.0),
        ("sealion_responses_total{path=\"user\",reason=\"never\"}", 11.0),
        ("sealion_connections_accepted_total", 3.0),
        ("sealion_connections{state=\"idle\"}", 0.0),
        ("sealion_connections{state=\"active\"}", 0.0),
        ("sealion_http_request_duration_seconds_count", 11.0),
        ("sealion_tls_handshake_duration_seconds_count", 3.0),
        ("sealion_tls_alerts_total{direction=\"received\",alert=\"close_notify\"}", 2.0),
        ("sealion_access_log_lines_total{result=\"written\"}", 0.0),
    ] {
        assert_eq!(scrape.get(series), value, "{series}");
    }
    let handshakes = |resumed: &str| {
        scrape.get(&format!(
            "sealion_tls_handshakes_total{{version=\"1.3\",suite=\"TLS_AES_128_GCM_SHA256\",resumed=\"{resumed}\"}}"
        ))
    };
    assert_eq!((handshakes("no"), handshakes("yes")), (2.0, 1.0));
    let sent = scrape.get("sealion_sent_bytes_total{path=\"user\"}");
    assert!(sent > 11.0 * 150.0, "{sent}");
    assert_eq!(scrape.sum("sealion_response_bytes_total"), sent);
    assert!(scrape.get("sealion_file_cache_hits_total") > 0.0);
    assert!(scrape.get("sealion_file_cache_misses_total") > 0.0);
    assert_eq!(scrape.get("sealion_file_cache_bytes") > 0.0, scrape.get("sealion_file_cache_entries") > 0.0);
}

#[test]
fn the_memory_of_the_file_cache_is_bounded() {
    let site = Site::new();
    for n in 0..64 {
        site.add(&format!("f{n}"), "x".repeat(10 << 10));
    }
    for (bound, bytes) in [("0B", 0.0..=0.0), ("100KiB", 50e3..=102_400.0), ("64MiB", 655_360.0..=720_000.0)] {
        let watched = Watched::serve(&site, &["--workers", "1", "--file-cache-memory", bound]);
        let mut client = site.connect(&watched.server);
        let kept = || watched.scrape().get("sealion_file_cache_bytes");
        // A file that has just changed is not cached.
        wait_until("the cache is as full as it gets", || {
            for n in 0..64 {
                http::get(&mut client, &format!("/f{n}")).expect("an answer");
            }
            bytes.contains(&kept())
        });
        assert!(bytes.contains(&kept()), "{bound}: {}", kept());
    }
}

#[test]
fn what_goes_wrong_is_counted_by_kind() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let watched = Watched::serve(&site, &["--handshake-timeout", "200ms", "--idle-timeout", "200ms"]);
    let address = watched.server.address();
    let mut reset = site.connect_slow_reader(&watched.server);
    begin(&mut reset, "/large");
    assert_eq!(watched.scrape().get("sealion_connections{state=\"active\"}"), 1.0);
    // A response under way is counted before it ends, but a moment after a client may have it.
    wait_until("bytes are counted", || watched.scrape().get("sealion_sent_bytes_total{path=\"user\"}") > 1000.0);
    reset.reset().expect("the connection is reset");
    let silent = std::net::TcpStream::connect(address).expect("it listens");
    let mut plain = std::net::TcpStream::connect(address).expect("it listens");
    std::io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").expect("it is sent");
    // Its end is waited for, and must not count as a handshake that takes too long.
    plain.shutdown(std::net::Shutdown::Write).expect("it is shut down");
    let _idle = site.connect(&watched.server);
    for series in [
        "sealion_connection_errors_total{kind=\"reset\"}",
        "sealion_tls_handshake_failures_total{reason=\"timeout\"}",
        "sealion_tls_handshake_failures_total{reason=\"plain-http\"}",
        "sealion_timeouts_total{kind=\"handshake\"}",
        "sealion_timeouts_total{kind=\"idle\"}",
    ] {
        wait_until(series, || watched.scrape().get(series) == 1.0);
    }
    drop(silent);
}

#[test]
fn reloads_are_counted_and_told_apart() {
    let site = Site::new();
    let config = |keys| site.config(keys).table("[metrics]\nlisten = '127.0.0.1:0'");
    let watched = Watched::of(config("").serve_from_user_space());
    config("nonsense = 1").write();
    watched.server.signal(Signal::HUP);
    wait_for_message(&watched.server, "was not reloaded");
    wait_until("the refusal is counted", || watched.scrape().get("sealion_config_reloads_refused_total") == 1.0);
    assert_eq!(watched.scrape().get("sealion_config_last_reload_success"), 0.0);
    config("").write();
    watched.server.signal(Signal::HUP);
    wait_until("the reload is counted", || watched.scrape().get("sealion_config_last_reload_success") == 1.0);
    assert_eq!(watched.scrape().get("sealion_config_generation"), 1.0);
}

/// Each response is counted once for its site and once for its route, each answer for its server.
#[test]
fn times_and_bytes_are_counted_by_site_route_and_server() {
    let site = Site::new();
    site.add("f", "content");
    let app = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = "route = [{ path = '/app/', proxy = { to = 'app' } }, { path = '/files/', rewrite = '/f' }]";
    let tables = format!(
        "[metrics]\nlisten = '127.0.0.1:0'\n[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]",
        app.url()
    );
    let watched = Watched::of(site.config(keys).table(&tables).serve_from_user_space());
    let mut client = site.connect(&watched.server);
    let mut fetch = |target| http::get(&mut client, target).expect("a response");
    assert_eq!(fetch("/app/a").body, b"GET /app/a");
    assert_eq!((fetch("/app/b").status, fetch("/f").status, fetch("/files/x").status), (200, 200, 200));
    assert_eq!(fetch("/none").status, 404);
    let mut http2 = Http2::connect(site.connector(Suite::TLS13), watched.server.address(), &[]);
    assert_eq!(http2.fetch("/f").0, 200);
    let all = |scrape: &Scrape| scrape.get("sealion_http_request_duration_seconds_count") == 6.0;
    wait_until("all responses are counted", || all(&watched.scrape()));
    let scrape = watched.scrape();
    let name = site_label(&scrape);
    let server = app.url();
    for (series, value) in [
        (format!("sealion_site_request_duration_seconds_count{{site=\"{name}\",protocol=\"1.1\",class=\"2xx\"}}"), 4.0),
        (format!("sealion_site_request_duration_seconds_count{{site=\"{name}\",protocol=\"1.1\",class=\"4xx\"}}"), 1.0),
        (format!("sealion_site_request_duration_seconds_count{{site=\"{name}\",protocol=\"2\",class=\"2xx\"}}"), 1.0),
        (format!("sealion_site_responses_total{{site=\"{name}\",class=\"2xx\"}}"), 5.0),
        (format!("sealion_route_responses_total{{site=\"{name}\",route=\"/app/\",class=\"2xx\"}}"), 2.0),
        (format!("sealion_route_responses_total{{site=\"{name}\",route=\"/app/\",class=\"5xx\"}}"), 0.0),
        (format!("sealion_route_request_duration_seconds_count{{site=\"{name}\",route=\"/app/\"}}"), 2.0),
        (format!("sealion_upstream_answer_duration_seconds_count{{upstream=\"app\",server=\"{server}\"}}"), 2.0),
        (format!("sealion_upstream_received_bytes_total{{upstream=\"app\",server=\"{server}\"}}"), 20.0),
    ] {
        assert_eq!(scrape.get(&series), value, "{series}");
    }
    let sent = scrape.get(&format!("sealion_route_response_bytes_total{{site=\"{name}\",route=\"/app/\"}}"));
    assert!(sent > 20.0, "{sent}");
    let output = crate::top::top(&["--once", "--url", &format!("http://{}", watched.address)]);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |topic: &str, words: &str| text.lines().any(|line| line.starts_with(topic) && line.contains(words));
    assert!(line("upstream ", &format!("app {server} up")), "{text}");
    assert!(line("route ", &format!("{name} /app/: ")) && line("route ", "of 2, errors 0/s"), "{text}");
}

/// The label of the site of a configuration without names.
fn site_label(scrape: &Scrape) -> String {
    let labels = ["localhost", "default"];
    let has = |label: &&&str| scrape.has(&format!("sealion_site_response_bytes_total{{site=\"{label}\"}}"));
    labels.iter().find(has).map(|label| (*label).to_owned()).expect("a site")
}

/// The names in `text` that look like metrics of ours or of the process.
fn named_in(text: &str) -> BTreeSet<String> {
    let pattern = regex::Regex::new(r"\b(?:sealion|process)_[a-z0-9_]*[a-z]\b").expect("a pattern");
    pattern.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// The labels by which a query selects series, and by which it groups them.
fn labels_in(query: &str) -> BTreeSet<String> {
    let grouped =
        regex::Regex::new(r"\b(?:by|on|without|ignoring|group_left|group_right) *\(([^)]*)\)").expect("a pattern");
    let selected = regex::Regex::new(r#"([a-z_]+) *(?:=~|!~|!=|=) *""#).expect("a pattern");
    let lists = grouped.captures_iter(query).flat_map(|found| {
        let names = found.get(1).expect("a group").as_str().split(',');
        names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
    });
    lists.chain(selected.captures_iter(query).map(|found| found[1].to_owned())).collect()
}

/// The labels of each family, without `le`.
fn exposed_labels(scrape: &Scrape) -> BTreeMap<String, BTreeSet<String>> {
    let label = regex::Regex::new(r#"([a-z_]+)=""#).expect("a pattern");
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for series in scrape.samples().keys() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let own = label.captures_iter(labels).map(|found| found[1].to_owned()).filter(|name| name != "le");
        all.entry(scrape.family(name).to_owned()).or_default().extend(own);
    }
    all
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Only where the kernel's module is loaded.
const OF_THE_KERNEL: [&str; 2] = ["sealion_kernel_tls_sockets", "sealion_kernel_tls_events_total"];

#[test]
fn documents_and_dashboards_name_what_there_is_and_nothing_else() {
    let site = Site::new();
    let proxy = "route = [{ path = '/app/', proxy = { to = 'http://127.0.0.1:1', cache = {}, mirror = { to = 'http://127.0.0.1:1' } } }]";
    let cache = site.outside().join("cache");
    let tables = format!(
        "[metrics]\nlisten = '127.0.0.1:0'\n[cache]\ndirectories = ['{}']\npurge_stream = 'redis://127.0.0.1:1/purges'",
        cache.display()
    );
    let config = site.config(proxy).table(&tables);
    let watched = Watched::of(config.serve_from_user_space());
    assert_eq!(http::get(&mut site.connect(&watched.server), "/app/").expect("a response").status, 502);
    let counted = |scrape: &Scrape| scrape.get("sealion_http_request_duration_seconds_count") == 1.0;
    wait_until("the response is counted", || counted(&watched.scrape()));
    let scrape = watched.scrape();
    let kernel = OF_THE_KERNEL.map(str::to_owned);
    let families: BTreeSet<String> = scrape.families.keys().cloned().chain(kernel.clone()).collect();
    let page = repository("docs/metrics.md");
    let described: BTreeMap<String, BTreeSet<String>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| !name.starts_with('/'))
        .map(|name| {
            let (name, labels) = name.trim_end_matches('}').split_once('{').unwrap_or((name, ""));
            (name.to_owned(), labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(
        described.keys().cloned().collect::<BTreeSet<_>>(),
        families,
        "docs/metrics.md, left, and what is exposed"
    );
    for (family, labels) in exposed_labels(&scrape) {
        assert_eq!(described[&family], labels, "{family}: docs/metrics.md, left, and its labels");
    }

    let mut names = scrape.names();
    names.extend(kernel);
    for file in ["packaging/grafana/sealion.json", "packaging/prometheus/alerts.yml"] {
        let text = repository(file);
        let queries: Vec<String> = match file.ends_with(".json") {
            true => expressions(&serde_json::from_str(&text).expect("JSON")),
            false => text.split("- alert:").map(str::to_owned).collect(),
        };
        let used = named_in(&queries.concat());
        assert!(used.len() > 5, "{file}: {used:?}");
        let unknown: Vec<_> = used.difference(&names).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
        for query in &queries {
            let asked = named_in(query);
            let known: BTreeSet<&str> =
                asked.iter().flat_map(|name| &described[scrape.family(name)]).map(String::as_str).collect();
            // Prometheus itself adds two. `severity` is of the alert.
            let is_known = |label: &&String| {
                known.contains(label.as_str()) || ["instance", "job", "le", "severity"].contains(&label.as_str())
            };
            let labels = labels_in(query);
            assert!(labels.iter().all(|label| is_known(&label)), "{file}: {labels:?} of {query}");
        }
    }
}

/// The queries of a dashboard.
fn expressions(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(text) if name == "expr" => vec![text.to_owned()],
                _ => expressions(value),
            })
            .collect(),
        serde_json::Value::Array(values) => values.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}
