use std::path::Path;

use super::*;

#[test]
fn port_443_has_http3_by_default() {
    let listen = |keys: &str| toml::from_str::<ListenConfig>(keys).expect("keys").http3(None);
    for (keys, expected) in [
        ("address = '0.0.0.0:443'", Http3Use::IfPossible),
        ("address = '[::]:443'", Http3Use::IfPossible),
        ("address = '0.0.0.0:8443'", Http3Use::Never),
        ("address = '0.0.0.0:8443'\nhttp3 = true", Http3Use::Required),
        ("address = '0.0.0.0:443'\nhttp3 = false", Http3Use::Never),
        ("address = '0.0.0.0:443'\ntls = false", Http3Use::Never),
        ("address = '0.0.0.0:443'\nproxy_protocol = true", Http3Use::Never),
        ("address = 'unix:/run/s'", Http3Use::Never),
    ] {
        assert_eq!(listen(keys), expected, "{keys}");
    }
    let other: ListenConfig = toml::from_str("address = '0.0.0.0:8443'").expect("keys");
    assert_eq!([Some(true), Some(false)].map(|enabled| other.http3(enabled)), [Http3Use::IfPossible, Http3Use::Never]);
}

#[test]
fn localhost_is_both_families() {
    let listen: Listen = "localhost:8443".parse().unwrap();
    assert_eq!(listen, Listen::development());
    let addresses: Vec<String> = listen.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["127.0.0.1:8443", "[::1]:8443"]);
}

#[test]
fn a_port_alone_is_all_addresses_of_both_families() {
    for name in ["8443", ":8443", "*:8443"] {
        let listen: Listen = name.parse().unwrap();
        let addresses: Vec<String> = listen.addresses.iter().map(ToString::to_string).collect();
        assert_eq!((listen.name.as_str(), addresses), (name, vec!["0.0.0.0:8443".into(), "[::]:8443".into()]));
    }
    for name in ["70000", "-1", ":", "*"] {
        assert!(name.parse::<Listen>().is_err(), "{name}");
    }
}

#[test]
fn bad_addresses_say_what_to_write() {
    for listen in ["localhost", "localhost:99999", "localhost:", "", "127.0.0.1", "::1:443", "ip6-localhost:443"] {
        assert!(listen.parse::<Listen>().unwrap_err().contains("HOST:PORT"), "{listen}");
    }
    let error = "www.example.org:443".parse::<Listen>().unwrap_err();
    assert!(error.starts_with("\"www.example.org\" is not an address of this machine"), "{error}");
}

#[test]
fn proxies_are_networks_or_addresses() {
    let listen = |proxies: &str| {
        let text = format!("address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = [{proxies}]");
        toml::from_str::<ListenConfig>(&text)
    };
    let listening = listen("'10.0.0.0/8', '192.0.2.7', '2001:db8::1'").unwrap();
    for (proxy, trusted) in
        [("10.2.3.4", true), ("192.0.2.7", true), ("192.0.2.8", false), ("2001:db8::1", true), ("2001:db8::2", false)]
    {
        assert_eq!(listening.trusts(proxy.parse().unwrap()), trusted, "{proxy}");
    }
    assert!(listen("'here'").unwrap_err().to_string().contains("\"here\" is not a network: write for instance"));
    let text = "address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = ['10.0.0.5/8']";
    let mut problems = Problems::of_file(Path::new("f"), text);
    check(&[toml::from_str(text).unwrap()], None, &mut problems);
    assert_eq!(
        problems.to_string(),
        "f:3: listen.trusted_proxies: 10.0.0.5/8 has bits beyond its prefix length: write 10.0.0.0/8 or 10.0.0.5"
    );
}

#[test]
fn names_of_listeners_are_checked() {
    let listen = |text: &str| toml::from_str::<ListenConfig>(text).unwrap();
    let all = [
        listen("address = '127.0.0.1:443'"),
        listen("address = '[::1]:443'"),
        listen("address = '127.0.0.1:80'\ntls = false"),
        listen("address = '127.0.0.1:444'"),
        listen("address = '127.0.0.1:81'\ntls = false\nhttps_port = 444"),
        listen("address = '127.0.0.1:82'\ntls = false\nplain = 'serve'"),
    ];
    for (names, words) in [
        (&["127.0.0.1:443"][..], ""),
        (&["127.0.0.1:80", "[::1]:443"], ""),
        (&["127.0.0.1:8443"], "no [[listen]] has the address \"127.0.0.1:8443\": use one of 127.0.0.1:443, [::1]:443"),
        (&["127.0.0.1:443", "x"], "no [[listen]] has the address \"x\""),
        (&["127.0.0.1:80"], ""),
        (&["127.0.0.1:82"], ""),
        (&["127.0.0.1:82", "127.0.0.1:444"], ""),
        (&[], "is empty, so no request can reach the site"),
    ] {
        let names: Vec<At<String>> = names.iter().map(|name| (*name).to_owned().into()).collect();
        let mut problems = Problems::of_arguments();
        check_names(&all, &names, "site.listen", &mut problems);
        assert!(problems.to_string().starts_with(words), "{problems}");
        assert_eq!(problems.is_empty(), words.is_empty(), "{problems}");
    }
}

#[test]
fn the_clients_address_has_one_source_that_is_trusted() {
    for (keys, words) in [
        ("client_address = 'x-forwarded-for'\ntrusted_proxies = ['10.0.0.0/8']\nmax_proxies = 1", ""),
        ("client_address = 'x-forwarded-for'", "without trusted_proxies any client could claim any address"),
        ("client_address = 'a b'\ntrusted_proxies = ['10.0.0.0/8']", "is not the name of a field"),
        ("client_address = 'Host'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no address"),
        ("client_address = 'x-forwarded-proto'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no"),
        ("client_address = 'user-agent'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no"),
        ("client_address = 'true-client-ip'\ntrusted_proxies = ['10.0.0.0/8']", ""),
        ("client_address = 'x-a'\nproxy_protocol = true\ntrusted_proxies = ['10.0.0.0/8']", "and proxy_protocol both"),
        ("client_address = 'x-a'\ntls = false\ntrusted_proxies = ['10.0.0.0/8']", "has no effect without TLS"),
        ("client_address = 'x-a'\ntls = false\nplain = 'serve'\ntrusted_proxies = ['10.0.0.0/8']", ""),
        ("max_proxies = 1", "has no effect without client_address"),
        (
            "trusted_proxies = ['10.0.0.0/8']",
            "trusted_proxies has no effect without proxy_protocol = true or client_address",
        ),
    ] {
        let mut problems = Problems::of_arguments();
        check(&[toml::from_str(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap()], None, &mut problems);
        assert!(problems.to_string().starts_with(words), "{keys}: {problems}");
        assert_eq!(problems.is_empty(), words.is_empty(), "{keys}: {problems}");
    }
}

#[test]
fn keys_of_another_kind_of_listener_are_refused() {
    for (keys, words) in [
        ("tls = false\nplain = 'serve'\nscheme = 'https'\nhttp2 = true", ""),
        ("tls = false\nplain = 'redirect'\nhttps_port = 444", ""),
        ("tls = false\nhttp2 = false", ""),
        ("plain = 'serve'", "has no effect with TLS: add tls = false"),
        ("scheme = 'https'", "has effect only where sites are served without TLS"),
        ("tls = false\nscheme = 'https'", "has effect only where sites are served without TLS"),
        ("tls = false\nplain = 'serve'\nhttps_port = 444", "is the port of redirects"),
        ("tls = false\nhttp2 = true", "has no effect where every request is redirected"),
    ] {
        let mut problems = Problems::of_arguments();
        check(&[toml::from_str(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap()], None, &mut problems);
        assert!(problems.to_string().starts_with(words), "{keys}: {problems}");
        assert_eq!(problems.is_empty(), words.is_empty(), "{keys}: {problems}");
    }
    let listen = |keys: &str| toml::from_str::<ListenConfig>(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap();
    assert!(listen("").http2() && !listen("http2 = false").http2());
    assert!(!listen("tls = false\nplain = 'serve'").http2());
    assert!(listen("tls = false\nplain = 'serve'\nhttp2 = true").http2());
}

#[test]
fn modes_are_octal() {
    let listen = |mode: &str| toml::from_str::<ListenConfig>(&format!("address = 'unix:/run/s'\nmode = '{mode}'"));
    assert_eq!(listen("0666").unwrap().mode, Mode(0o666));
    for bad in ["888", "rw", "1777", ""] {
        assert!(listen(bad).unwrap_err().to_string().contains("0660"), "{bad}");
    }
}
