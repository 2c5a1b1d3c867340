//! Where the sites of converted servers answer.

use super::{import, marked};

#[test]
fn a_site_answers_at_the_addresses_of_its_server() {
    // The `listen`s of servers, and those of their sites; empty: all.
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
        // Redirects over plain HTTP.
        (&["listen 443 ssl; listen 80;"], &[&[]]),
        (
            &["listen 10.0.0.1:443 ssl;", "listen 443 ssl; listen 80;"],
            &[&["10.0.0.1:443"], &["0.0.0.0:443", "0.0.0.0:80"]],
        ),
        (
            &[
                "listen 10.0.0.1:443 ssl;",
                "listen 443 ssl; listen 80; } server { listen 10.0.0.1:80; server_name s0.example; return 301 https://$host$request_uri;",
            ],
            &[&["10.0.0.1:443", "10.0.0.1:80"], &["0.0.0.0:443", "0.0.0.0:80"]],
        ),
        (
            &[
                "listen 10.0.0.1:443 ssl;",
                "listen 443 ssl; } server { listen 80; server_name *.other; return 301 https://$host$request_uri;",
            ],
            &[&["10.0.0.1:443"], &["0.0.0.0:443"], &["0.0.0.0:80"]],
        ),
        (
            &[
                "listen 10.0.0.1:443 ssl;",
                "listen 443 ssl; } server { listen 80; server_name .example; return 301 https://$host$request_uri;",
            ],
            &[&["10.0.0.1:443", "0.0.0.0:80"], &["0.0.0.0:443", "0.0.0.0:80"]],
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
fn the_default_site_is_a_default_server() {
    // The servers, and the name of the default site.
    for (servers, default, marks) in [
        ("server { listen 443 ssl; server_name a; } server { listen 443 ssl; server_name b; }", Some("a"), 0),
        (
            "server { listen 443 ssl; server_name a; } server { listen 443 ssl default_server; server_name b; }",
            Some("b"),
            0,
        ),
        // Nothing else reaches a server without names.
        ("server { listen 443 ssl; server_name a; } server { listen 8443 ssl; }", None, 0),
        ("server { listen 443 ssl default_server; server_name a; } server { listen 443 ssl; }", Some("a"), 0),
        // At its own address, the closed one is not replaced by the open one.
        (
            "server { listen 443 ssl default_server; server_name a; } server { listen 8443 ssl default_server; server_name b; return 444; }",
            Some("a"),
            0,
        ),
        (
            "server { listen 443 ssl default_server; listen 8443 ssl; server_name a; } server { listen 8443 ssl default_server; server_name b; return 444; }",
            Some("a"),
            1,
        ),
        (
            "server { listen 443 ssl default_server; listen 8443 ssl; server_name a; } server { listen 8443 ssl default_server; server_name b; location /x { deny all; } }",
            Some("a"),
            1,
        ),
    ] {
        let (config, named, _) = import(servers);
        let sites = config["site"].as_array().expect("sites");
        let mut defaults = sites.iter().filter(|site| site.get("default").is_some());
        let site = defaults.next().unwrap_or_else(|| panic!("{servers}: no default"));
        let name = site.get("names").and_then(|names| names[0].as_str());
        assert_eq!((name, defaults.count()), (default, 0), "{servers}");
        assert_eq!(marked(&named).len(), marks, "{servers}: {named:#?}");
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
        // Without networks, nginx believes nobody.
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
        // Connections of clients behind proxies are not counted.
        (
            format!("limit_conn_zone $binary_remote_addr zone=z:1m; limit_conn z 3; {FORWARDED} {server}"),
            Some("x-forwarded-for"),
            Some(1),
            1,
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
fn an_address_is_served_or_redirects() {
    const TLS: &str = "server { listen 443 ssl; server_name a.example; root /srv/a; }";
    const CONTENT: &str = "server { listen 80; server_name b.example; root /srv/b; }";
    const REDIRECT: &str = "server { listen 80; server_name a.example; return 301 https://$host$request_uri; }";
    let plain = |servers: &[&str]| {
        let (made, named, _) = import(&servers.join("\n"));
        let listeners = made["listen"].as_array().expect("listeners").clone();
        let listener = listeners.into_iter().find(|listener| listener["address"].as_str() == Some("0.0.0.0:80"));
        let sites = made["site"].as_array().expect("sites").clone();
        (listener.expect("it is there").get("plain").is_some(), sites, named)
    };
    let (is_served, sites, _) = plain(&[TLS, REDIRECT]);
    assert!(!is_served && sites.len() == 1);
    let https_only = |site: &toml::Value| site.get("https_only").is_some();
    let addresses = |site: &toml::Value| -> Vec<String> {
        let names = site.get("listen").and_then(toml::Value::as_array).into_iter().flatten();
        names.map(|name| name.as_str().expect("text").to_owned()).collect()
    };
    assert!(!https_only(&sites[0]));
    // Beside content, the site itself redirects.
    for redirect in [REDIRECT, "server { listen 80 default_server; return 301 https://$host$request_uri; }"] {
        for servers in [[TLS, redirect, CONTENT], [CONTENT, redirect, TLS]] {
            let (is_served, sites, named) = plain(&servers);
            assert!(is_served && sites.len() == 2);
            for site in sites {
                let is_content = site["names"][0].as_str() == Some("b.example");
                assert_eq!(https_only(&site), !is_content);
                assert_eq!(addresses(&site), if is_content { &["0.0.0.0:80"][..] } else { &[] }, "{servers:?}");
                assert_eq!(site.get("default").is_some(), !is_content, "{servers:?}");
            }
            assert!(!named.iter().any(|line| line.contains("421")), "{named:?}");
        }
    }
    // One that has content without TLS elsewhere would redirect there, too.
    let both = "server { listen 443 ssl; listen 8080; server_name a.example; root /srv/a; }";
    const OTHER: &str = "server { listen 8080; server_name c.example; root /srv/c; }";
    let (_, sites, named) = plain(&[both, REDIRECT, CONTENT, OTHER]);
    assert!(!https_only(&sites[0]));
    assert!(named.iter().any(|line| line.contains("requests get 421 there")), "{named:?}");
    // Without TLS nobody shows a certificate.
    let verifying = "server { listen 443 ssl; listen 80; server_name a.example; root /srv/a; ssl_client_certificate ca.pem; ssl_verify_client on; }";
    let (is_served, sites, _) = plain(&[verifying, CONTENT]);
    assert!(is_served);
    assert_eq!(sites[0]["listen"].as_array().map(|all| all.len()), Some(1));
    assert_eq!(sites[0]["listen"][0].as_str(), Some("0.0.0.0:443"));
}
