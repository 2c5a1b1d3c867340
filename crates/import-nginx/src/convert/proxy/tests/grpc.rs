use super::*;

#[test]
fn grpc_is_forwarded_over_http2() {
    // What a location passes to, and what the upstream's server is.
    for (pass, server) in [
        ("grpc://app", "http://127.0.0.1:3000"),
        ("app", "http://127.0.0.1:3000"),
        ("grpc://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("grpcs://rpc.example:443", "https://rpc.example:443"),
        ("unix:/run/rpc.sock", "unix:/run/rpc.sock"),
    ] {
        let (config, named) = import(&format!(
            "upstream app {{ server 127.0.0.1:3000; }}\ngrpc_connect_timeout 2s;\nserver {{ listen 443 ssl; server_name a.example; \
             ssl_certificate c; ssl_certificate_key k;\n\
             location /pkg.Service/ {{ grpc_pass {pass}; grpc_set_header X-Tenant a; grpc_read_timeout 5m; grpc_ssl_verify on; }}\n}}"
        ));
        let upstream = &config["upstream"][0];
        assert_eq!(upstream["protocol"].as_str(), Some("http2"), "{pass}");
        assert_eq!(upstream["servers"][0]["url"].as_str(), Some(server), "{pass}");
        assert_eq!(upstream["connect_timeout"].as_str(), Some("2s"), "{pass}");
        assert_eq!(upstream["answer_timeout"].as_str(), Some("300s"), "{pass}");
        let [rule] = rules(config["site"][0].as_table().unwrap())[..] else { panic!("{pass}: {config}") };
        assert_eq!(rule["upstream"], upstream["name"], "{pass}");
        assert_eq!(rule["request_headers"][0]["name"].as_str(), Some("X-Tenant"), "{pass}");
        assert_eq!(rule.get("redirects"), None, "{pass}");
        assert!(named.is_empty(), "{pass}: {named:#?}");
    }
}

#[test]
fn grpc_and_http_of_one_server_are_two_upstreams() {
    let (config, named) = import(
        "upstream app { server 127.0.0.1:3000; }\nserver { listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k;\n\
         location / { proxy_pass http://app; proxy_set_header X-A a; }\n\
         location /pkg.Service/ { grpc_pass grpc://app; }\n}",
    );
    let protocols: Vec<_> =
        config["upstream"].as_array().unwrap().iter().map(|one| one.get("protocol").and_then(Value::as_str)).collect();
    assert_eq!(protocols.iter().filter(|protocol| **protocol == Some("http2")).count(), 1, "{config}");
    assert_eq!(protocols.len(), 2, "{config}");
    let rules = rules(config["site"][0].as_table().unwrap());
    // Each module has fields of its own.
    let fields: Vec<_> = rules.iter().map(|rule| rule.contains_key("request_headers")).collect();
    assert_eq!(fields, [false, true], "{config} {named:#?}");
}

#[test]
fn grpc_to_a_server_that_is_not_known_is_refused() {
    for pass in ["grpc://$backend", "http://127.0.0.1:9000", "127.0.0.1:9000/path"] {
        let (site, named) = site(&format!("location /pkg.Service/ {{ grpc_pass {pass}; }}"));
        assert!(rules(&site).is_empty(), "{pass}: {site}");
        assert!(named.iter().any(|line| line.contains(": grpc_pass")), "{pass}: {named:#?}");
        assert_eq!(destinations(&site, &["/pkg.Service/x"]), ["-"], "{pass}");
    }
}

#[test]
fn without_tls_http2_is_on_where_nginx_has_it() {
    for (server, expected) in [
        ("listen 8080; http2 on;", true),
        ("listen 8080 http2;", true),
        ("listen 8080; http2 off;", false),
        ("listen 8080;", false),
    ] {
        let (config, _) = import(&format!(
            "server {{ {server} server_name a.example; location /pkg.Service/ {{ grpc_pass grpc://127.0.0.1:9000; }} }}"
        ));
        let listener = &config["listen"][0];
        assert_eq!(listener["plain"].as_str(), Some("serve"), "{server}: {config}");
        assert_eq!(listener.get("http2").and_then(Value::as_bool), expected.then_some(true), "{server}: {config}");
    }
}
