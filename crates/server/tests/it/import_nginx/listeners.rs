//! Where the sites of converted servers answer.

use super::{import, marked};

#[test]
fn a_site_answers_at_the_addresses_of_its_server() {
    // The `listen`s of servers, and the `listen`s of their sites; empty: all.
    for (servers, expected) in [
        (&["listen 443 ssl;", "listen 443 ssl;"][..], &[&[][..], &[]][..]),
        (&["listen 443 ssl; listen [::]:443 ssl;", "listen 443 ssl; listen [::]:443 ssl;"], &[&[], &[]]),
        (&["listen 443 ssl;", "listen 443 ssl; listen [::]:443 ssl;"], &[&["0.0.0.0:443"], &[]]),
        (&["listen 127.0.0.1:443 ssl;"], &[&[]]),
        (&["listen 443 ssl;", "listen 127.0.0.1:443 ssl;"], &[&["0.0.0.0:443"], &["127.0.0.1:443"]]),
        (
            &["listen 443 ssl;", "listen 10.0.0.1:443 ssl;", "listen 10.0.0.2:443 ssl;"],
            &[&["0.0.0.0:443"], &["10.0.0.1:443"], &["10.0.0.2:443"]],
        ),
        (&["listen 443 ssl;", "listen 8443 ssl;"], &[&["0.0.0.0:443"], &["0.0.0.0:8443"]]),
        (&["listen 443 ssl; listen 8443 ssl;", "listen 443 ssl;"], &[&[], &["0.0.0.0:443"]]),
        (&["listen 443 ssl;", "listen unix:/run/x.sock ssl;"], &[&["0.0.0.0:443"], &["unix:/run/x.sock"]]),
        (&["listen 127.0.0.1:443 ssl;", "listen 443 ssl; return 444;"], &[&["127.0.0.1:443"], &["0.0.0.0:443"]]),
        (&["listen 443 ssl; listen 80;"], &[&[]]),
        (
            &["listen 10.0.0.1:443 ssl;", "listen 443 ssl; listen 80;"],
            &[&["10.0.0.1:443"], &["0.0.0.0:443", "0.0.0.0:80"]],
        ),
        (
            &["listen 443 ssl;", "listen 80; return 301 https://$host$request_uri;"],
            &[&["0.0.0.0:443"], &["0.0.0.0:80"]],
        ),
        // A name that an earlier server has at one of two addresses.
        (
            &["listen 80;", "listen 80; listen 443 ssl; server_name s0.example;"],
            &[&["0.0.0.0:80"], &["0.0.0.0:80"], &["0.0.0.0:443"]],
        ),
    ] {
        let blocks = servers
            .iter()
            .enumerate()
            .map(|(n, listens)| format!("server {{ server_name s{n}.example; {listens} }}\n"));
        let (config, named, _) = import(&blocks.collect::<String>());
        assert!(marked(&named).is_empty(), "{servers:?}: {named:#?}");
        let listens = |site: &toml::Value| -> Vec<String> {
            let names = site.get("listen").and_then(toml::Value::as_array).into_iter().flatten();
            names.map(|name| name.as_str().expect("text").to_owned()).collect()
        };
        let sites = config["site"].as_array().expect("sites");
        assert_eq!(sites.iter().map(listens).collect::<Vec<_>>(), expected, "{servers:?}");
    }
}

#[test]
fn a_default_server_is_the_default_at_its_addresses() {
    const BOTH: &str = "listen 443 ssl; listen 8443 ssl;";
    // The servers, and the key `default` of each site.
    for (servers, expected) in [
        (
            "server { listen 443 ssl; server_name a; } server { listen 443 ssl; server_name b; }".to_owned(),
            &["true", ""][..],
        ),
        (
            "server { listen 443 ssl; server_name a; } server { listen 443 ssl default_server; server_name b; }"
                .to_owned(),
            &["", "true"],
        ),
        ("server { listen 443 ssl; server_name a; } server { listen 8443 ssl; }".to_owned(), &["true", "true"]),
        (format!("server {{ {BOTH} server_name a; }} server {{ {BOTH} server_name b; }}"), &["true", ""]),
        (
            format!("server {{ {BOTH} server_name a; }} server {{ listen 8443 ssl default_server; return 444; }}"),
            &[r#"["0.0.0.0:443"]"#, "true"],
        ),
        // Nothing reaches a server without names where another is the default.
        ("server { listen 443 ssl default_server; server_name a; } server { listen 443 ssl; }".to_owned(), &["true"]),
        (format!("server {{ listen 443 ssl; server_name a; }} server {{ {BOTH} }}"), &["true", "true"]),
    ] {
        let (config, named, _) = import(&servers);
        let sites = config["site"].as_array().expect("sites").iter();
        let defaults = sites.map(|site| site.get("default").map_or_else(String::new, ToString::to_string));
        assert_eq!(defaults.collect::<Vec<_>>(), expected, "{servers}");
        assert!(marked(&named).is_empty(), "{servers}: {named:#?}");
    }
}

#[test]
fn the_client_address_comes_from_where_nginx_has_it() {
    const FORWARDED: &str = "set_real_ip_from 10.0.0.5/8; set_real_ip_from 192.0.2.7; real_ip_header X-Forwarded-For;";
    const RECURSIVE: &str = "real_ip_recursive on;";
    let server = "server { listen 443 ssl; server_name a; deny 192.0.2.1; }";
    // `http`, client_address and max_proxies of the first listener, and how many directives are marked.
    for (http, field, most, marks) in [
        (format!("{FORWARDED} {RECURSIVE} {server}"), Some("x-forwarded-for"), None, 0),
        (format!("{FORWARDED} {server}"), Some("x-forwarded-for"), Some(1), 0),
        (format!("set_real_ip_from 10.0.0.0/8; {server}"), Some("x-real-ip"), Some(1), 0),
        (
            format!("set_real_ip_from 10.0.0.0/8; real_ip_header CF-Connecting-IP; {server}"),
            Some("cf-connecting-ip"),
            Some(1),
            0,
        ),
        // Without networks, nginx trusts no proxy.
        (format!("real_ip_header X-Forwarded-For; {server}"), None, None, 0),
        // No counterpart.
        (format!("set_real_ip_from proxy.example; {server}"), None, None, 1),
        (format!("set_real_ip_from 10.0.0.0/8; real_ip_header Forwarded; {server}"), None, None, 1),
        (format!("set_real_ip_from unix:; {server}"), None, None, 1),
        (
            format!(
                "{FORWARDED} server {{ listen 443 ssl; server_name a; location /x/ {{ set_real_ip_from 192.0.2.9; deny 192.0.2.1; }} }}"
            ),
            None,
            None,
            1,
        ),
        // Servers of one listener that differ.
        (
            format!("{server} server {{ listen 443 ssl; server_name b; {FORWARDED} allow 10.0.0.0/8; deny all; }}"),
            None,
            None,
            1,
        ),
        (
            format!("server {{ listen 8443 ssl; server_name b; {FORWARDED} allow 10.0.0.0/8; deny all; }} {server}"),
            Some("x-forwarded-for"),
            Some(1),
            0,
        ),
        // Requests in progress are counted by the client that the proxy names.
        (
            format!("limit_conn_zone $binary_remote_addr zone=z:1m; limit_conn z 3; {FORWARDED} {server}"),
            Some("x-forwarded-for"),
            Some(1),
            0,
        ),
    ] {
        let (config, named, _) = import(&http);
        let listen = &config["listen"][0];
        assert_eq!(listen.get("client_address").and_then(toml::Value::as_str), field, "{http}: {listen}");
        assert_eq!(listen.get("max_proxies").and_then(toml::Value::as_integer), most, "{http}: {listen}");
        assert_eq!(marked(&named).len(), marks, "{http}: {named:#?}");
        if http.contains(FORWARDED) && field.is_some() {
            assert_eq!(listen["trusted_proxies"].to_string(), r#"["10.0.0.0/8", "192.0.2.7"]"#, "{http}");
        }
    }
}

/// nginx resolves the names of listeners and proxies when it starts; here a listener has an address, and a proxy a network.
#[test]
fn names_of_listeners_and_proxies_are_not_taken_for_addresses() {
    const CERTIFICATE: &str = "ssl_certificate a.pem; ssl_certificate_key a.pem;";
    let server = |listen: &str| {
        format!("server {{ listen {listen}; listen 127.0.0.1:8444 ssl; server_name a; {CERTIFICATE} root r; }}")
    };
    let (config, named, _) = import(&server("www.example.org:8443 ssl"));
    let addresses = |config: &toml::Table| -> Vec<String> {
        let all = config["listen"].as_array().expect("listeners").iter();
        all.map(|listen| listen["address"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(addresses(&config), ["127.0.0.1:8444"]);
    assert!(named.iter().any(|line| line.contains("names are not resolved")), "{named:?}");
    let proxies = "set_real_ip_from proxy.example; set_real_ip_from 10.1.2.3/8; real_ip_header proxy_protocol;";
    let (config, named, _) = import(&format!("{proxies} {}", server("127.0.0.1:8443 ssl proxy_protocol")));
    assert_eq!(config["listen"][0]["trusted_proxies"].to_string(), r#"["10.0.0.0/8"]"#);
    assert!(named.iter().any(|line| line.contains("trusted_proxies has networks")), "{named:?}");
}

#[test]
fn servers_with_content_and_without_tls_are_served_so() {
    let (made, named, _) = import(
        "server { listen 80; server_name a.example; root /srv/a; add_header Strict-Transport-Security max-age=60; }",
    );
    let listener = &made["listen"][0];
    assert_eq!((listener["tls"].as_bool(), listener["plain"].as_str()), (Some(false), Some("serve")));
    assert_eq!(made["site"][0]["names"][0].as_str(), Some("a.example"));
    assert!(made["site"][0].get("hsts").is_none());
    assert!(named.is_empty(), "{named:?}");

    let (made, named, _) = import(
        "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;\n\
         server { listen 80; server_name a.example; root /srv/a; add_header Strict-Transport-Security max-age=60; }",
    );
    assert_eq!(made["listen"][0]["client_address"].as_str(), Some("x-forwarded-for"), "{named:?}");
    assert!(made["site"][0].get("hsts").is_some());
}

#[test]
fn clients_show_certificates_where_they_have_tls() {
    let verifying = "server { listen 443 ssl; listen 80; server_name a.example; root /srv/a; ssl_client_certificate ca.pem; ssl_verify_client on; }";
    let (made, ..) = import(verifying);
    let [secure, plain] = &made["site"].as_array().expect("sites")[..] else { panic!("{made}") };
    assert_eq!(secure["listen"].to_string(), r#"["0.0.0.0:443"]"#);
    assert_eq!(plain["listen"].to_string(), r#"["0.0.0.0:80"]"#);
    assert!(secure.get("client_auth").is_some() && plain.get("client_auth").is_none());
    assert!(secure.get("certificates").is_some() && plain.get("certificates").is_none());
    for key in ["names", "root", "default"] {
        assert_eq!(secure[key], plain[key]);
    }
}

#[test]
fn quic_beside_tls_is_http3() {
    for (listens, has_http3, reports) in [
        ("listen 443 ssl; listen 443 quic reuseport;", Some(true), 0),
        ("listen 443 ssl; listen 443 quic; http3 off;", None, 0),
        ("listen 443 ssl;", None, 0),
        ("listen 443 ssl; listen 8443 quic;", None, 1),
    ] {
        let (made, named, _) = import(&format!("server {{ {listens} server_name a; }}"));
        assert_eq!(made["listen"][0].get("http3").and_then(toml::Value::as_bool), has_http3, "{listens}");
        assert_eq!(made["listen"].as_array().map(Vec::len), Some(1), "{listens}");
        assert_eq!(named.iter().filter(|line| line.contains("HTTP/3")).count(), reports, "{listens}: {named:?}");
    }
}

#[test]
fn a_server_that_refuses_handshakes_has_no_certificate() {
    let refusing =
        "server { listen 443 ssl default_server; listen 80; ssl_reject_handshake on; server_name _; return 404; }";
    let (made, named, _) = import(&format!("{refusing} server {{ listen 443 ssl; server_name a; }}"));
    let site = &made["site"][0];
    assert_eq!(site["reject_handshake"].as_bool(), Some(true), "{named:?}");
    assert!(site.get("certificates").is_none() && site.get("names").is_none());
    assert_eq!(site["route"][0]["respond"].as_integer(), Some(404), "for clients without TLS");
    let (made, ..) =
        import("server { listen 443 ssl; ssl_reject_handshake on; } server { listen 443 ssl; server_name a; }");
    assert!(made["site"][0].get("route").is_none() && made["site"][1].get("certificates").is_some());
}
