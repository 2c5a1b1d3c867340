//! Whole bodies from the kernel, with every suite and size, and the kernel's own counter beside the log's word.
//!
//! These tests fail, and never skip, where kernel TLS is missing.

use std::path::PathBuf;
use std::process::Command;

use sealion_testkit::http::{self, Response};
use sealion_testkit::ktls::Counters;
use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Suite};
use sealion_tls::Version;
use sealion_tls::record::Aead;

use crate::support::multipart::{self, Part};
use crate::support::{Site, access_line, access_lines, content, get};

const MIB: u64 = 1 << 20;

/// In the order in which a connection asks for them: small, large, small, large.
const SIZES: [u64; 13] = [0, 1, 1000, 16_383, 16_384, 16_385, 65_535, 65_536, 0, 65_537, 1, MIB + 7, 16_384];

/// The first of them that moves the connection: with its head it has the 64 KiB of [`crate::support::costs`].
const MOVES: usize = 6;

#[track_caller]
fn ask(client: &mut Client, target: &str, fields: &[(&str, &str)]) -> Response {
    http::request(client, "GET", target, fields).unwrap_or_else(|e| panic!("{target} {fields:?}: {e}"))
}

fn site_with_sizes(pki: Pki) -> Site {
    let site = Site::with(pki);
    SIZES.iter().for_each(|len| drop(site.add_large(&len.to_string(), *len)));
    site
}

/// TLS 1.3 is the same with both kinds of key, once the handshake is over.
fn suites_with_keys() -> [(Pki, Vec<Suite>); 2] {
    let tls12 = Suite::all().into_iter().filter(|suite| suite.version == Version::Tls12).collect();
    [(Pki::ecdsa(), Suite::all()), (Pki::rsa(), tls12)]
}

#[test]
fn every_suite_and_size_moves_exactly_when_the_log_says_so() {
    for (pki, suites) in suites_with_keys() {
        let site = site_with_sizes(pki);
        let server = site.serve(&["--ktls", "auto"]);
        let mut lines = 0;
        for suite in suites {
            let counters = Counters::now();
            let mut client = site.connector(suite).connect(server.address());
            for (n, len) in SIZES.into_iter().enumerate() {
                let got = ask(&mut client, &format!("/{len}"), &[]);
                content::assert_equal(&got.body, 0..len);
                lines += 1;
                let line = access_line(&server, lines);
                let expected = match n {
                    ..MOVES => ("user", "small"),
                    MOVES => ("kernel", "moved"),
                    _ => ("kernel", "moved-before"),
                };
                assert_eq!(line.way(), expected, "{suite}: {}", line.text);
                assert_eq!(line.get("bytes"), len.to_string());
                assert_eq!(counters.tx_sw_since(), i64::from(n >= MOVES), "{suite}, {len} bytes");
            }
            if suite.has_explicit_nonce() {
                // Finished, and of each response every full record and the rest.
                let least = 1 + SIZES.iter().map(|len| len / 16_384 + 1).sum::<u64>();
                client.tap().assert_nonces_distinct(least as usize);
            }
        }
    }
}

/// The same with curl, hence OpenSSL: all sizes on one connection.
#[test]
fn curl_gets_the_same_with_every_suite() {
    for (pki, suites) in suites_with_keys() {
        let site = site_with_sizes(pki);
        let server = site.serve(&["--ktls", "auto"]);
        for (n, suite) in suites.into_iter().enumerate() {
            let counters = Counters::now();
            let got = curl_all(&site, &server, suite);
            for (file, len) in got.iter().zip(SIZES) {
                content::assert_equal(&std::fs::read(file).expect("curl wrote it"), 0..len);
            }
            assert_eq!(counters.tx_sw_since(), 1, "{suite}");
            let lines = access_lines(&server, (n + 1) * SIZES.len());
            let moved = lines[n * SIZES.len()..].iter().filter(|line| line.way() == ("kernel", "moved")).count();
            assert_eq!(moved, 1, "{suite}: {lines:#?}");
        }
    }
}

fn curl_all(site: &Site, server: &Server, suite: Suite) -> Vec<PathBuf> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "--http1.1", "--cacert"]).arg(site.pki.certificate_file());
    match suite.version {
        Version::Tls13 => {
            let name = match suite.aead {
                Aead::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
                Aead::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
                Aead::Chacha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
            };
            command.args(["--tlsv1.3", "--tls13-ciphers", name]);
        }
        Version::Tls12 => {
            let name = match suite.aead {
                Aead::Aes128Gcm => "ECDHE+AESGCM+AES128",
                Aead::Aes256Gcm => "ECDHE+AESGCM+AES256",
                Aead::Chacha20Poly1305 => "ECDHE+CHACHA20",
            };
            command.args(["--tls-max", "1.2", "--ciphers", name]);
        }
    }
    let files: Vec<PathBuf> = (0..SIZES.len()).map(|n| site.outside().join(format!("got-{n}"))).collect();
    for (file, len) in files.iter().zip(SIZES) {
        command.arg("-o").arg(file).arg(format!("https://{}/{len}", server.address()));
    }
    let output = command.output().expect("curl is needed");
    assert!(output.status.success(), "{suite}: {}", String::from_utf8_lossy(&output.stderr));
    files
}

#[test]
fn sixty_four_mebibytes() {
    const LEN: u64 = 64 * MIB;
    let site = Site::new();
    site.add_large("f", LEN);
    let server = site.serve(&["--ktls", "auto"]);
    for (n, (version, aead)) in Version::ALL
        .into_iter()
        .flat_map(|version| [Aead::Aes128Gcm, Aead::Chacha20Poly1305].map(|aead| (version, aead)))
        .enumerate()
    {
        let suite = Suite { version, aead };
        let counters = Counters::now();
        let mut client = site.connector(suite).connect(server.address());
        client.send(get("/f").as_bytes()).expect("it leaves");
        client.read_until(b"\r\n\r\n").expect("the head comes");
        let mut at = 0;
        while at < LEN {
            let part = client.read((LEN - at).min(MIB) as usize).expect("it goes on");
            content::assert_equal(&part, at..at + part.len() as u64);
            at += part.len() as u64;
        }
        assert_eq!(counters.tx_sw_since(), 1, "{suite}");
        assert_eq!(access_line(&server, n + 1).way(), ("kernel", "moved"), "{suite}");
        if suite.has_explicit_nonce() {
            client.tap().assert_nonces_distinct((LEN / 16_384) as usize);
        }
    }
}

#[test]
fn ranges_at_odd_offsets() {
    const LEN: u64 = MIB + 7;
    let site = Site::new();
    site.add_large("f", LEN);
    let server = site.serve(&["--ktls", "auto"]);
    for suite in [Suite::TLS12, Suite::TLS13] {
        let mut client = site.connector(suite).connect(server.address());
        for (value, range) in [
            ("bytes=7-16390", 7..16_391),
            ("bytes=1-70001", 1..70_002),
            ("bytes=16383-16384", 16_383..16_385),
            ("bytes=4095-", 4095..LEN),
            ("bytes=-65537", LEN - 65_537..LEN),
            ("bytes=-1", LEN - 1..LEN),
            ("bytes=524289-1000001", 524_289..1_000_002),
        ] {
            let got = ask(&mut client, "/f", &[("Range", value)]);
            assert_eq!(got.status, 206, "{value}");
            content::assert_equal(&got.body, range);
        }
        let got = ask(&mut client, "/f", &[("Range", "bytes=3-3,16383-200001,-70001,5-6")]);
        let ranges = [3..4, 16_383..200_002, LEN - 70_001..LEN, 5..7];
        for (Part { content_range, bytes, .. }, range) in multipart::parts(&got).into_iter().zip(ranges) {
            assert_eq!(content_range, format!("bytes {}-{}/{LEN}", range.start, range.end - 1));
            content::assert_equal(&bytes, range);
        }
        // In step after it.
        content::assert_equal(&ask(&mut client, "/f", &[("Range", "bytes=9-9")]).body, 9..10);
    }
    let lines = access_lines(&server, 18);
    let moved: Vec<_> = lines.iter().filter(|line| line.get("why") == "moved").map(|line| line.get("status")).collect();
    assert_eq!(moved, ["206", "206"], "one move for each connection: {lines:#?}");
}

#[test]
fn never_moves_nothing_and_always_moves_at_once() {
    let site = site_with_sizes(Pki::ecdsa());
    for (mode, moved, first, later) in [
        ("never", 0, ("user", "never"), ("user", "never")),
        ("always", 1, ("kernel", "moved"), ("kernel", "moved-before")),
    ] {
        let server = site.serve(&["--ktls", mode]);
        let mut lines = 0;
        for suite in Suite::all() {
            let counters = Counters::now();
            let mut client = site.connector(suite).connect(server.address());
            for (n, len) in [1000, MIB + 7, 0, 65_537].into_iter().enumerate() {
                content::assert_equal(&ask(&mut client, &format!("/{len}"), &[]).body, 0..len);
                lines += 1;
                let line = access_line(&server, lines);
                assert_eq!(line.way(), if n == 0 { first } else { later }, "{suite}: {}", line.text);
                assert_eq!(counters.tx_sw_since(), moved, "{suite}: {}", line.text);
            }
        }
    }
}

/// Small connections never pay for the set-up.
#[test]
fn small_responses_move_nothing() {
    let site = site_with_sizes(Pki::ecdsa());
    let server = site.serve(&["--ktls", "auto"]);
    let counters = Counters::now();
    for suite in Suite::all() {
        let mut client = site.connector(suite).connect(server.address());
        for len in [0, 1000, 16_385] {
            content::assert_equal(&ask(&mut client, &format!("/{len}"), &[]).body, 0..len);
        }
    }
    for line in access_lines(&server, 18) {
        assert_eq!(line.way(), ("user", "small"));
    }
    assert_eq!(counters.tx_sw_since(), 0);
}
