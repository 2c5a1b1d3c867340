//! Certificates that are ordered when a client first asks for a name.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::support::upstream::Upstream;

/// The service that tells which names may have a certificate.
struct Service {
    allowed: Arc<Mutex<HashSet<String>>>,
    server: Upstream,
}

impl Service {
    fn start() -> Self {
        let allowed = Arc::new(Mutex::new(HashSet::new()));
        let lines: Arc<Mutex<HashSet<String>>> = Arc::clone(&allowed);
        let server = Upstream::answering(move |request| {
            let status = if lines.lock().unwrap().contains(request.line()) { "204 Yes" } else { "403 No" };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
        Self { allowed, server }
    }

    fn url(&self) -> String {
        format!("{}/allowed?key=1", self.server.url())
    }

    fn allow(&self, name: &str) {
        self.allowed.lock().unwrap().insert(question(name));
    }

    fn forbid(&self, name: &str) {
        self.allowed.lock().unwrap().remove(&question(name));
    }

    /// The times that this name was asked about.
    fn asked(&self, name: &str) -> usize {
        self.server.requests().iter().filter(|request| request.line() == question(name)).count()
    }
}

/// The line of the request about a name.
fn question(name: &str) -> String {
    format!("GET /allowed?key=1&domain={name}")
}

/// The outcome of a handshake for this name, from s_client: issuer and names of the certificate, or the failure.
fn shake_hands(port: u16, name: &str) -> String {
    shake_hands_from("127.0.0.1", port, name)
}

/// The same from this address.
fn shake_hands_from(address: &str, port: u16, name: &str) -> String {
    let name = if name.is_empty() { "-noservername".to_owned() } else { format!("-servername {name}") };
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{port} -bind {address}:0 {name} </dev/null >out.$$ 2>&1; openssl x509 -noout -issuer -serial -ext subjectAltName <out.$$ 2>/dev/null || cat out.$$; rm out.$$"
    );
    tool("sh", ["-c", &format!("cd \"$(mktemp -d)\" && {script}")])
}

/// The alert for a name that may have a certificate later.
const COME_AGAIN: &str = "alert internal error";

struct OnDemand {
    pki: Pki,
    sites: Sites,
    service: Service,
    port: u16,
    pebble: Pebble,
    ask: String,
}

impl OnDemand {
    fn start() -> Self {
        let (pki, sites, service, port) = (Pki::ecdsa(), Sites::new(), Service::start(), free_port());
        let dns = format!("127.0.0.1:{}", serve_zone(sites.path("zone")));
        let pebble = Pebble::start_with(&sites, &pki, [port, free_port()], &["-dnsserver", &dns], "");
        let ask = service.url();
        Self { pki, sites, service, port, pebble, ask }
    }

    /// `site`: keys of the site beside the certificate keys.
    fn config(&self, site: &str) -> Config {
        let Self { pki, sites, port, pebble, ask, .. } = self;
        let acme = format!(
            "[tls.acme]\ndirectory = '{}'\nagree_to_terms = true\nstate = 'acme'\nroot = {:?}\n",
            pebble.directory,
            pki.certificate_file()
        );
        let config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
        let keys = format!("{site}\nacme = true\nacme_on_demand = {{ ask = '{ask}' }}");
        config.site("root", &[], &keys).table(&confined(sites, pki)).table(&acme)
    }
}

#[test]
fn a_name_gets_a_certificate_when_a_client_asks_for_it() {
    let on_demand = OnDemand::start();
    let (port, service) = (on_demand.port, &on_demand.service);
    let config = on_demand.config("default = true");
    let server = config.serve_from_user_space();
    assert!(shake_hands(port, "").contains("DNS:on-demand.invalid"));

    // The first client waits for the order, and those that come meanwhile for the same one.
    service.allow("shop.test");
    let clients = [(); 4].map(|()| std::thread::spawn(move || shake_hands(port, "Shop.test")));
    for client in clients {
        let shown = client.join().expect("it ends");
        assert!(shown.contains("Pebble Intermediate CA") && shown.contains("DNS:shop.test"), "{shown}");
    }
    assert_eq!((service.asked("shop.test"), messages(&server, "certificate obtained for shop.test")), (1, 1));

    let refused = shake_hands(port, "other.test");
    assert!(refused.contains("unrecognized name"), "{refused}");
    let line = wait_for_message(&server, "refused: there is no certificate for other.test");
    assert!(line.contains("127.0.0.1"), "{line}");
    for name in ["_.test", "a_b.test"] {
        assert!(shake_hands(port, name).contains("unrecognized name"));
        assert_eq!(service.asked(name), 0);
    }
    // Not asked about again at once, and each name has its own order.
    shake_hands(port, "other.test");
    assert_eq!(service.asked("other.test"), 1);
    service.allow("second.test");
    assert!(shake_hands(port, "second.test").contains("DNS:second.test"));
    // A reload asks again.
    service.allow("other.test");
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert!(shake_hands(port, "other.test").contains("DNS:other.test"));
}

#[test]
fn a_certificate_on_demand_is_renewed_while_it_is_used_and_kept_for_the_next_process() {
    let on_demand = OnDemand::start();
    let (port, service) = (on_demand.port, &on_demand.service);
    service.allow("a.shops.test");
    let config = on_demand.config("names = ['*.shops.test']");
    let server = config.serve_from_user_space();
    let first = shake_hands(port, "a.shops.test");
    assert!(first.contains("DNS:a.shops.test"), "{first}");
    // Of no site, though it is the first's listener.
    assert!(shake_hands(port, "a.other.test").contains("unrecognized name"));
    assert_eq!(service.asked("a.other.test"), 0);
    drop(server);

    let server = config.serve_from_user_space();
    // On a busy machine it may be due by now.
    if shake_hands(port, "a.shops.test") == first {
        assert_eq!(messages(&server, "certificate obtained"), 0);
    } else {
        assert!(service.asked("a.shops.test") > 1, "it was not kept");
    }
    // It is due after two thirds of its seconds, and shown meanwhile.
    wait_until("it is renewed", || {
        let shown = shake_hands(port, "a.shops.test");
        assert!(shown.contains("DNS:a.shops.test"), "{shown}");
        shown != first
    });
    assert!(service.asked("a.shops.test") >= 2);
    // One that may no longer have one keeps it to its end.
    service.forbid("a.shops.test");
    wait_until("it has expired", || shake_hands(port, "a.shops.test").contains("unrecognized name"));
    assert_eq!(messages(&server, "ACME: no certificate for"), 0);
}

#[test]
fn without_an_answer_or_after_a_failed_order_the_client_is_refused_and_the_log_says_why() {
    let mut on_demand = OnDemand::start();
    let port = on_demand.port;
    // It validates at a port without a listener.
    on_demand.pebble = Pebble::start(&on_demand.sites, &on_demand.pki, free_port(), free_port());
    on_demand.service.allow("a.test");
    let server = on_demand.config("default = true").serve_from_user_space();
    assert!(shake_hands(port, "a.test").contains(COME_AGAIN));
    let line = wait_for_message(&server, "ACME: no certificate for a.test");
    assert!(line.contains("Next try at") && line.contains("clients that ask for it are refused"), "{line}");
    // The pause is kept, and no more is asked in it.
    drop(server);
    let server = on_demand.config("default = true").serve_from_user_space();
    assert!(shake_hands(port, "a.test").contains(COME_AGAIN));
    wait_for_message(&server, "refused: no certificate for a.test can be obtained now");
    assert_eq!(on_demand.service.asked("a.test"), 1);
    drop(server);

    on_demand.ask = format!("http://127.0.0.1:{}/", free_port());
    let server = on_demand.config("default = true").serve_from_user_space();
    for _ in 0..2 {
        assert!(shake_hands(port, "b.test").contains(COME_AGAIN));
    }
    let line = wait_for_message(&server, "ACME on demand: b.test");
    assert!(line.contains("does not respond: ") && line.contains("Connection refused"), "{line}");
    assert!(shake_hands(port, "").contains("on-demand.invalid"));
}

#[test]
fn a_client_that_waits_for_an_order_holds_up_no_other() {
    let mut on_demand = OnDemand::start();
    let port = on_demand.port;
    on_demand.pebble.directory = format!("https://127.0.0.1:{}/dir", silent_authority());
    on_demand.service.allow("slow.test");
    let config = on_demand.config("default = true").table("[limits]\nhandshake_timeout = '2s'\n");
    let mut server = config.serve_from_user_space();
    let waits = std::thread::spawn(move || shake_hands(port, "slow.test"));
    wait_until("it is asked about", || on_demand.service.asked("slow.test") == 1);
    assert!(shake_hands(port, "").contains("on-demand.invalid"));
    assert!(!waits.join().expect("it ends").contains("BEGIN CERTIFICATE"));
    // The unanswered order takes minutes until it is given up. The end of the process does not wait for it.
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}

#[test]
fn a_client_that_waits_when_the_server_stops_is_told_to_come_again() {
    let mut on_demand = OnDemand::start();
    let silent = Upstream::start(|accepted| while accepted.request().is_some() {});
    on_demand.ask = silent.url();
    let port = on_demand.port;
    let mut server = on_demand.config("default = true").serve_from_user_space();
    let waits = std::thread::spawn(move || shake_hands(port, "a.test"));
    wait_until("it is asked about", || !silent.requests().is_empty());
    server.signal(Signal::TERM);
    let shown = waits.join().expect("it ends");
    assert!(shown.contains(COME_AGAIN), "{shown}");
    assert!(server.wait().success());
}

/// Sends a ClientHello for this name.
fn say_hello(port: u16, name: String) -> TcpStream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let name = name.try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut io = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    client.write_tls(&mut io).expect("it leaves");
    io
}

#[test]
fn a_client_whose_names_hang_leaves_places_to_clients_of_other_networks() {
    let mut on_demand = OnDemand::start();
    let service = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        match request.line().contains("good") {
            true => accepted.write(b"HTTP/1.1 204 Yes\r\nContent-Length: 0\r\n\r\n"),
            false => drop(accepted.read_to_end()),
        }
    });
    on_demand.ask = service.url();
    let port = on_demand.port;
    let config = on_demand.config("default = true").table("[limits]\nmax_connections_per_address = 100000\n");
    let server = config.serve_from_user_space();
    let floods = Arc::new(AtomicBool::new(true));
    let flood = std::thread::spawn({
        let floods = Arc::clone(&floods);
        move || {
            let mut connections = VecDeque::new();
            for n in 0.. {
                if !floods.load(Ordering::Relaxed) {
                    return;
                }
                connections.push_back(say_hello(port, format!("hang{n}.test")));
                if connections.len() > 400 {
                    connections.pop_front();
                }
                // Ports of closed connections are free again after a minute.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    });
    wait_for_message(&server, "wait to be asked about");
    for name in ["good1.test", "good2.test"] {
        let shown = shake_hands_from("127.0.0.2", port, name);
        assert!(shown.contains(&format!("DNS:{name}")), "{shown}");
    }
    floods.store(false, Ordering::Relaxed);
    flood.join().expect("it ends");
}

#[test]
fn what_cannot_be_ordered_on_demand_is_refused_at_the_start() {
    let sites = Sites::new();
    for (keys, words) in [
        (
            "acme_on_demand = { ask = 'http://127.0.0.1:1/' }",
            "site.acme_on_demand: needs an account to order by: set `acme = true`",
        ),
        (
            "acme = true\nacme_on_demand = { ask = 'ftp://127.0.0.1:1/' }",
            "site.acme_on_demand.ask: write the address of a service as http",
        ),
        (
            "acme = true\nacme_on_demand = { ask = 'http://a:b@127.0.0.1:1/' }",
            "site.acme_on_demand.ask: write the address",
        ),
        ("acme = true\nacme_on_demand = {}", "missing field `ask`"),
    ] {
        let table = "[tls.acme]\nagree_to_terms = true\nstate = 'acme'\n";
        let problems = sites.config().site("root", &[], &format!("default = true\n{keys}")).table(table).problems();
        assert!(problems.contains(words), "{keys}: {problems}");
    }
}

#[test]
fn first_orders_side_by_side_make_one_account_and_long_names_are_refused() {
    let on_demand = OnDemand::start();
    let port = on_demand.port;
    let names: Vec<String> = (0..4).map(|n| format!("n{n}.test")).collect();
    names.iter().for_each(|name| on_demand.service.allow(name));
    let server = on_demand.config("default = true").serve_from_user_space();
    let clients: Vec<_> = names.into_iter().map(|name| std::thread::spawn(move || shake_hands(port, &name))).collect();
    for client in clients {
        assert!(client.join().expect("it ends").contains("Pebble Intermediate CA"));
    }
    assert_eq!(messages(&server, "ACME: account created"), 1);
    // The name of its file would be too long.
    let long = format!("{}.test", [&*"a".repeat(60); 4].join("."));
    on_demand.service.allow(&long);
    assert!(shake_hands(port, &long).contains("unrecognized name"));
    assert_eq!(on_demand.service.asked(&long), 0);
}

#[test]
fn a_reload_asks_the_service_that_it_names() {
    let mut on_demand = OnDemand::start();
    let silent = Upstream::start(|accepted| while accepted.request().is_some() {});
    on_demand.ask = silent.url();
    let port = on_demand.port;
    let server = on_demand.config("default = true").serve_from_user_space();
    let waits = std::thread::spawn(move || shake_hands(port, "a.test"));
    let next = Service::start();
    next.allow("a.test");
    on_demand.ask = next.url();
    on_demand.config("default = true").write();
    wait_until("it is asked", || !silent.requests().is_empty());
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert!(shake_hands(port, "a.test").contains("DNS:a.test"));
    assert_eq!(next.asked("a.test"), 1);
    let _ = waits.join();
}

#[test]
fn a_site_without_certificates_is_told_that_those_on_demand_are_of_another() {
    let sites = Sites::new();
    let table = "[tls.acme]\nagree_to_terms = true\nstate = 'acme'\n";
    for (default, is_told) in [("", true), ("default = true\n", false)] {
        let keys = format!(
            "names = ['*.shops.test']\n{default}acme = true\nacme_on_demand = {{ ask = 'http://127.0.0.1:1/' }}"
        );
        let config = sites.config().site("root", &[], &keys).site("root", &[], "names = ['b.test']").table(table);
        let output = config.check();
        let text = String::from_utf8(output.stdout).expect("text");
        let words = "b.test: has no certificate, and the certificates of *.shops.test are ordered for its own names: set `acme`";
        assert!(output.status.success() && text.contains(words) == is_told, "{default}: {text}");
    }
}
