//! An operator's first steps before a connection: errors in one line, the banner, the kept certificate.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{ktls, pattern, write_program};

use crate::support::{PROGRAM, Site, curl, tool, wait_for_message, wait_until};

/// Runs the program where it must refuse, with no place to keep anything in.
#[track_caller]
fn run(arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("HOME").env_remove("XDG_DATA_HOME");
    let output = command.output().expect("the program starts");
    assert!(!output.status.success(), "{arguments:?} is refused");
    assert!(output.stdout.is_empty(), "{arguments:?}: errors go to standard error");
    output
}

/// Asserts that `serve` with these arguments is refused by one line with all of `words` in it.
#[track_caller]
fn refused(arguments: &[impl AsRef<OsStr>], words: &[&str]) {
    let arguments: Vec<&OsStr> = [OsStr::new("serve")].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(text.lines().count(), 1, "one line for {arguments:?}: {text}");
    assert!(text.starts_with("sealion: "), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// The same for values that the command line itself refuses: the usage follows the line.
#[track_caller]
fn bad_usage(arguments: &[&str], words: &[&str]) {
    let arguments: Vec<&OsStr> = ["serve"].iter().chain(arguments).map(OsStr::new).collect();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.starts_with("error: "), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_with_what_to_write() {
    bad_usage(&["--listen", "84430"], &["--listen", "84430", "HOST:PORT"]);
    bad_usage(&["--listen", "no-such-host.invalid:1"], &["--listen", "no-such-host.invalid", "names are not resolved"]);
    bad_usage(&["--workers", "0"], &["--workers", "1..=1024"]);
    bad_usage(&["--ktls", "sometimes"], &["--ktls", "auto, always, never"]);
    bad_usage(&["--log", "loud"], &["--log", "info"]);
    bad_usage(&["--access-log", ""], &["--access-log", "stdout"]);
    bad_usage(&["--max-connections", "0"], &["--max-connections"]);
    for time in ["handshake-timeout", "request-timeout", "idle-timeout", "stall-timeout", "linger-timeout", "grace"] {
        let option = format!("--{time}");
        bad_usage(&[&option, "10"], &[&option, "10s"]);
        bad_usage(&[&option, "0s"], &[&option, "longer than zero"]);
    }
    bad_usage(&["--max-requests", "0"], &["--max-requests"]);
    bad_usage(&["--max-request-line", "10"], &["--max-request-line", "from 256 to 1048576"]);
    bad_usage(&["--max-head", "1g"], &["--max-head", "from 256 to 1048576"]);
    bad_usage(&["--max-fields", "257"], &["--max-fields", "1..=256"]);
    bad_usage(&["--max-discarded-body", "-1"], &["-1"]);
    bad_usage(&["--max-ranges", "many"], &["--max-ranges"]);
    bad_usage(&["--max-records-per-key", "63"], &["--max-records-per-key", "64..="]);
    bad_usage(&["--no-such-option"], &["--no-such-option"]);
    bad_usage(&["--address", "127.0.0.1:1"], &["--address", "a similar argument exists: '--listen'"]);
    bad_usage(&["a", "b"], &["'b'"]);
}

#[test]
fn a_certificate_without_its_key_and_the_reverse_are_bad_usage() {
    bad_usage(&["--cert", "c.pem"], &["--key <FILE>"]);
    bad_usage(&["--key", "k.pem"], &["--cert <FILE>"]);
}

#[test]
fn a_root_that_cannot_be_served_is_named() {
    refused(&["/no/such/root"], &["/no/such/root", "create it"]);
}

/// Arguments with the named files for certificate and key.
fn with_pair<'a>(site: &Site, cert: &'a Path, key: &'a Path) -> Vec<std::ffi::OsString> {
    let mut arguments = vec![site.root().into_os_string()];
    for (option, path) in [("--cert", cert), ("--key", key)] {
        arguments.push(option.into());
        arguments.push(path.into());
    }
    arguments.extend(["--listen", "127.0.0.1:0"].map(Into::into));
    arguments
}

#[test]
fn certificates_and_keys_that_do_not_do_are_named() {
    let site = Site::new();
    let (cert, key) = (site.pki.certificate_file(), site.pki.key_file());
    let directory = site.pki.directory();
    let missing = directory.join("missing.pem");
    let garbage = directory.join("garbage.pem");
    std::fs::write(&garbage, "no PEM").expect("the file is written");
    refused(&with_pair(&site, &missing, &key), &["missing.pem"]);
    refused(&with_pair(&site, &cert, &missing), &["missing.pem"]);
    refused(&with_pair(&site, &cert, directory), &[&directory.display().to_string()]);
    refused(&with_pair(&site, &garbage, &key), &["garbage.pem", "certificate"]);
    refused(&with_pair(&site, &cert, &garbage), &["garbage.pem", "key"]);
    // The two files exchanged, a common mistake.
    refused(&with_pair(&site, &key, &cert), &["key.pem", "certificate"]);
    let other = Pki::ecdsa();
    let of_another = other.key_file();
    refused(
        &with_pair(&site, &cert, &of_another),
        &[&of_another.display().to_string(), &cert.display().to_string(), "give the pair"],
    );
}

#[test]
fn a_key_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let key = site.pki.key_file();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o000)).expect("the mode is set");
    if std::fs::read(&key).is_ok() {
        // The superuser reads everything: then there is nothing to refuse, and it has to start.
        site.serve(&[]);
        return;
    }
    refused(&with_pair(&site, &site.pki.certificate_file(), &key), &["key.pem", "Permission denied"]);
}

#[test]
fn a_port_in_use_and_an_address_of_another_machine_are_named() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut arguments = with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file());
    *arguments.last_mut().expect("the address") = address.clone().into();
    refused(&arguments, &[&address, "another process has it", "--listen"]);
    // Another server of ours counts as another process too.
    let running = site.serve(&[]);
    let address = running.address().to_string();
    *arguments.last_mut().expect("the address") = address.clone().into();
    refused(&arguments, &[&address, "another process has it", "--listen"]);
    *arguments.last_mut().expect("the address") = "192.0.2.1:8443".into();
    refused(&arguments, &["192.0.2.1:8443", "this machine does not have that address"]);
}

#[test]
fn more_connections_than_open_files_are_refused() {
    let site = Site::new();
    let mut arguments = with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file());
    arguments.extend(["--max-connections", "4294967295"].map(Into::into));
    refused(&arguments, &["limits.max_connections = 4294967295", "ulimit -Hn", "lower the number to"]);
}

#[test]
fn an_access_log_that_cannot_be_written_is_named() {
    let site = Site::new();
    let mut arguments = with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file());
    arguments.extend(["--access-log", "/no/such/directory/log"].map(Into::into));
    refused(&arguments, &["/no/such/directory/log", "name a file that can be written"]);
}

#[test]
fn nowhere_to_keep_a_certificate_is_explained() {
    let site = Site::new();
    refused(&[site.root()], &["HOME", "--cert and --key"]);
    let mut command = Command::new(PROGRAM);
    command.arg("serve").arg(site.root()).env("XDG_DATA_HOME", "/proc/no-such");
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("/proc/no-such/sealion") && text.contains("--cert and --key"), "{text}");
}

/// Refused where the kernel has none, granted where it has: `/proc/net/tls_stat` is the kernel's own word on that.
#[test]
fn always_kernel_tls_is_refused_without_it() {
    let site = Site::new();
    let offered = sealion_ktls::probe::probe().any_tx();
    assert!(offered || !ktls::required(), "kernel TLS is promised here");
    if offered {
        site.serve(&["--ktls", "always"]);
        return;
    }
    let mut arguments = with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file());
    arguments.extend(["--ktls", "always"].map(Into::into));
    refused(&arguments, &["--ktls always", "no kernel TLS"]);
}

/// Only the option turns it on, with a warning; a file that a client could fetch is refused.
#[test]
fn secrets_are_logged_where_the_command_line_says_so() {
    let site = Site::new();
    site.add("f", "content");
    let path = site.outside().join("keys.log");
    let server = site.serve(&["--tls-key-log", path.to_str().expect("a path in UTF-8")]);
    let line = wait_for_message(&server, "ALL CONNECTIONS CAN BE READ");
    assert!(line.contains("WARN"), "{line}");
    sealion_testkit::http::get(&mut site.connect(&server), "/f").expect("a response");
    let text = std::fs::read_to_string(&path).expect("it was made");
    assert!(text.contains("SERVER_TRAFFIC_SECRET_0 "), "{text}");
    let within = site.root().join("keys.log");
    let mut arguments = with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file());
    arguments.extend(["--tls-key-log".into(), within.into_os_string()]);
    refused(&arguments, &["keys.log lies beneath the root of a site"]);
    assert!(!site.root().join("keys.log").exists(), "it was not made");
    // No key and no variable of the environment has it.
    let mut command = Command::new(PROGRAM);
    let config = site.config("").table("[tls]\nkey_log = 'keys'").write();
    let output = command.args(["check", "--config"]).arg(config).output().expect("the program starts");
    assert!(!output.status.success(), "{output:?}");
}

/// The check of a configuration refuses what the server refuses at its start, in the same words.
#[test]
fn more_connections_than_open_files_are_refused_by_the_check_too() {
    let site = Site::new();
    let refusal = |command: &str, connections: &str| {
        let mut limited = Command::new("prlimit");
        limited.args(["--nofile=2000:2000", PROGRAM, command]).arg(site.root());
        limited.args(["--listen", "127.0.0.1:0", "--max-connections", connections, "--workers", "1", "--cert"]);
        limited.arg(site.pki.certificate_file()).arg("--key").arg(site.pki.key_file());
        let output = limited.output().expect("the program starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, text) = refusal("check", "5000");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("limits.max_connections = 5000 needs") && text.contains("at most 2000 are allowed"),
        "{text}"
    );
    assert_eq!(refusal("serve", "5000"), (code, text));
    assert_eq!(refusal("check", "100").0, Some(0));
}

#[test]
fn the_version_lists_the_features_of_the_program() {
    let text = tool(PROGRAM, ["--version"]);
    let (version, features) = text.trim().split_once('\n').expect("two lines");
    assert!(version.starts_with("sealion 0.1.0"), "{version}");
    for (name, present) in [
        ("acme", cfg!(feature = "acme")),
        ("import-nginx", cfg!(feature = "import-nginx")),
        ("otlp", cfg!(feature = "otlp")),
        ("top", cfg!(feature = "top")),
    ] {
        assert_eq!(
            features.trim_start_matches("features: ").split(", ").any(|listed| listed == name),
            present,
            "{text}"
        );
    }
    assert_eq!(tool(PROGRAM, ["-V"]).trim(), version, "one line for -V");
}

#[test]
fn help_names_every_limit_with_its_default() {
    let help = tool(PROGRAM, ["serve", "--help"]);
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    let limits = &help[help.find("Limits:").expect("a heading")..];
    for (option, default) in [
        ("--max-connections <N>", "[default: 10000, or what the limit on open files allows]"),
        (
            "--max-connections-per-address <N>",
            "[default: a quarter of max_connections, at least 64; unlimited for loopback addresses]",
        ),
        ("--handshake-timeout <TIME>", "[default: 10s]"),
        ("--request-timeout <TIME>", "[default: 10s]"),
        ("--idle-timeout <TIME>", "[default: 65s]"),
        ("--stall-timeout <TIME>", "[default: 60s]"),
        ("--min-receive-rate <BYTES>", "[default: 240]"),
        ("--min-send-rate <BYTES>", "[default: 240]"),
        ("--min-send-rate-window <TIME>", "[default: 300s]"),
        ("--linger-timeout <TIME>", "[default: 5s]"),
        ("--grace <TIME>", "[default: 30s]"),
        ("--max-requests <N>", "[default: unlimited]"),
        ("--max-request-line <BYTES>", "[default: 8192]"),
        ("--max-head <BYTES>", "[default: 32768]"),
        ("--max-fields <N>", "[default: 100]"),
        ("--max-discarded-body <SIZE>", "[default: 64KiB]"),
        ("--max-buffered <SIZE>", "[default: 256MiB]"),
        (
            "--max-buffered-per-address <SIZE>",
            "[default: a quarter of max_buffered, at least 1MiB; unlimited for loopback addresses]",
        ),
        ("--max-ranges <N>", "[default: 16]"),
        ("--max-records-per-key <N>", "[default: the suite's limit]"),
    ] {
        let at = limits.find(option).unwrap_or_else(|| panic!("no {option} in {limits}"));
        let entry = &limits[at + option.len()..];
        let entry = &entry[..entry.find(" --").unwrap_or(entry.len())];
        assert!(entry.contains(default), "{option}: {entry}");
    }
    for (option, default) in
        [("--listen <HOST:PORT>", "localhost:8443"), ("--ktls <KTLS>", "auto"), ("--access-log <WHERE>", "stdout")]
    {
        assert!(help.contains(option) && help.contains(&format!("[default: {default}]")), "{option} in {help}");
    }
}

#[test]
fn a_development_certificate_is_made_once_and_the_banner_says_where_and_what() {
    let site = Site::new();
    site.add_pattern("f", 70_001);
    let kept = tempfile::tempdir().expect("a directory");
    let start = || {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(site.root()).args(["--listen", "localhost:0"]).env("XDG_DATA_HOME", kept.path());
        Server::spawn(command)
    };
    let first = start();
    let line = first.wait_for("the certificate", |line| line.text.contains("certificate ")).text;
    let file = kept.path().join("sealion/localhost.crt");
    let printed = tool(
        "openssl",
        [OsStr::new("x509"), OsStr::new("-in"), file.as_os_str()]
            .into_iter()
            .chain(["-noout", "-fingerprint", "-sha256"].map(OsStr::new)),
    );
    let fingerprint = printed.trim().split_once('=').expect("name=value").1;
    assert!(line.contains("made now, for localhost only"), "{line}");
    assert!(line.contains(&file.display().to_string()), "{line}");
    assert!(line.ends_with(&format!("SHA-256 {fingerprint}")), "{line} is not {fingerprint}");

    // Both families, on one port.
    let port = first.address().port();
    assert_eq!(first.address().ip().to_string(), "127.0.0.1");
    let root = site.root().display().to_string();
    first.wait_for("IPv4", |line| {
        line.text == format!("sealion: serving {root} on https://localhost:{port} (127.0.0.1)")
    });
    first.wait_for("IPv6, or that there is none", |line| {
        line.text == format!("sealion: serving {root} on https://localhost:{port} (::1)")
            || line.text == format!("sealion: not on [::1]:{port}: this machine does not have that address")
    });
    let kernel = first.wait_for("the kernel's offer", |line| line.text.contains("kernel TLS")).text;
    let offered = sealion_ktls::probe::probe().any_tx();
    assert_eq!(kernel.contains("kernel TLS is available"), offered, "{kernel}");

    // Any client that trusts the file can connect, by name and by both addresses.
    let has_ipv6 = first.lines().iter().any(|line| line.text.ends_with("(::1)"));
    let hosts = ["localhost", "127.0.0.1", "[::1]"];
    for host in &hosts[..if has_ipv6 { 3 } else { 2 }] {
        let mut client = Command::new("curl");
        client.args(["-sS", "--cacert"]).arg(&file).arg(format!("https://{host}:{port}/f"));
        let output = client.output().expect("curl is needed");
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
        pattern::assert_equal(&output.stdout, 0..70_001);
    }
    drop(first);

    let second = start();
    let line = second.wait_for("the certificate", |line| line.text.contains("certificate ")).text;
    assert!(line.contains("kept, for localhost only") && line.ends_with(fingerprint), "{line}");
}

#[test]
fn several_addresses_are_all_served() {
    let site = Site::new();
    site.add("f", "x");
    let server = site.serve(&["--listen", "127.0.0.2:0"]);
    let lines = server.wait_for_lines(2, "address", |line| line.text.contains("https://"));
    let ports: Vec<u16> = lines
        .iter()
        .map(|line| {
            let port = line.text.split("localhost:").nth(1).and_then(|rest| rest.split(' ').next());
            port.expect("a port").parse().expect("a number")
        })
        .collect();
    // The certificate is for 127.0.0.1 and localhost.
    assert_eq!(curl::get(&site.pki, ([127, 0, 0, 1], ports[0]).into(), "/f", &[]).body, b"x");
    let to = format!("127.0.0.1:{0}:127.0.0.2:{0}", ports[1]);
    assert_eq!(curl::get(&site.pki, ([127, 0, 0, 1], ports[1]).into(), "/f", &["--connect-to", &to]).body, b"x");
}

#[test]
fn never_is_said_in_the_banner() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    server.wait_for("that kernel TLS is not used", |line| line.text.contains("kernel TLS is not used (--ktls never)"));
}

/// As `sealion reference | head` does.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let site = Site::new();
    let root = site.root().display().to_string();
    let commands = [
        &["reference"][..],
        &["completions", "bash"],
        &["import-nginx", "--table"],
        &["compress", &root],
        &["ticket-key", &root],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(PROGRAM).args(arguments).stdout(writer).output();
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_directory_with_secrets_is_refused() {
    let site = Site::new();
    let root = site.root().to_owned();
    std::fs::write(root.join("sealion.toml"), "").expect("a file");
    let file = root.join("sealion.toml");
    refused(
        &with_pair(&site, &site.pki.certificate_file(), &site.pki.key_file()),
        &["holds sealion.toml", &format!("sealion serve --config {}", file.display())],
    );
    std::fs::remove_file(file).expect("it was there");
    let key = root.join("key.pem");
    std::fs::copy(site.pki.key_file(), &key).expect("a copy");
    let words = [&*key.display().to_string(), "every client could read it", "move it"];
    refused(&with_pair(&site, &site.pki.certificate_file(), &key), &words);
}

#[test]
fn one_file_is_served_alone() {
    let site = Site::new();
    site.add("a $file.txt", "content");
    site.add("other", "secret");
    let mut arguments = site.arguments(&["--ktls", "never"]);
    let root = arguments.iter_mut().find(|argument| Path::new(argument).is_dir()).expect("the root");
    *root = Path::new(&*root).join("a $file.txt").into();
    let server = Server::start(Path::new(PROGRAM), arguments);
    let get = |target: &str| curl::get(&site.pki, server.address(), target, &[]);
    let start = get("/");
    assert_eq!((start.status, start.field("location")), (307, Some("/a%20$file.txt")));
    for target in ["/a%20%24file.txt", "/a%20$file.txt", "/other", "/x/y"] {
        let got = get(target);
        assert_eq!((got.status, &*got.body), (200, &b"content"[..]), "{target}");
        assert_eq!(got.field("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[test]
fn short_options_list_directories_and_serve_an_application() {
    let site = Site::new();
    site.add("index.html", "application");
    site.add("empty/file", "content");
    let server = site.serve_from_user_space(&["-l", "--spa"]);
    let get = |target: &str| curl::get(&site.pki, server.address(), target, &["-H", "Accept: text/html"]);
    assert!(String::from_utf8_lossy(&get("/empty/").body).contains("file"));
    assert_eq!((get("/route").status, &*get("/route").body), (200, &b"application"[..]));
    bad_usage(&["-p", "8443", "--listen", "127.0.0.1:0"], &["--port", "--listen"]);
    bad_usage(&["-l", "--config", "sealion.toml"], &["--listing", "--config"]);
}

#[test]
fn passwords_are_hashed_for_the_users_file() {
    use std::io::Write;
    let passwd = |user: &str, line: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["passwd", user]).stdin(std::process::Stdio::piped());
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        // A name that is refused ends it before it reads.
        let _ = child.stdin.take().expect("it is piped").write_all(line.as_bytes());
        let output = child.wait_with_output().expect("it ends");
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).expect("text"))
    };
    let (made, line) = passwd("ada", "sea lion\n");
    let hash = line.trim_end().strip_prefix("ada:").expect("a line");
    assert!(made && bcrypt::verify("sea lion", hash).expect("a hash"), "{line}");
    for (user, password, words) in
        [("a:b", "x", "without colon"), ("ada", "\n", "is empty"), ("ada", &*"x".repeat(73), "more than 72 bytes")]
    {
        let (made, text) = passwd(user, password);
        assert!(!made && text.contains(words), "{text}");
    }
}

/// Starts the server with `xdg-open` from this directory alone.
fn serve_with_opener(site: &Site, directory: &Path, more: &[&str]) -> Server {
    let mut command = Command::new(PROGRAM);
    command.args(site.arguments(more)).env("PATH", directory);
    Server::spawn(command)
}

#[test]
fn a_browser_is_opened_or_a_line_has_the_url() {
    let site = Site::new();
    let bin = site.outside().join("bin");
    std::fs::create_dir(&bin).expect("made");
    let server = serve_with_opener(&site, &bin, &["--open"]);
    let url = format!("https://localhost:{}/", server.address().port());
    let line = wait_for_message(&server, "cannot open a browser");
    assert!(line.contains("xdg-open: ") && line.contains(&format!("open {url} yourself")), "{line}");
    drop(server);
    let (script, seen) = (bin.join("xdg-open"), site.outside().join("seen"));
    write_program(&script, &format!("#!/bin/sh\necho \"$@\" > {0}.new; /bin/mv {0}.new {0}\n", seen.display()));
    let server = serve_with_opener(&site, &bin, &["--open"]);
    wait_until("the program is called", || seen.exists());
    let url = format!("https://localhost:{}/\n", server.address().port());
    assert_eq!(std::fs::read_to_string(&seen).expect("text"), url);
}

#[test]
fn the_url_is_drawn_as_a_qr_code() {
    let site = Site::new();
    let server = site.serve_from_user_space(&["--qr"]);
    let url =
        format!("the QR code is https://localhost:{}/, which other devices cannot reach", server.address().port());
    wait_for_message(&server, &url);
    let drawn = server.lines().iter().filter(|line| line.stderr && line.text.starts_with("████")).count();
    assert!(drawn > 14, "{drawn} lines");
    let arguments = site.arguments(&["--qr", "--log-format", "json"]);
    let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(1) && text.contains("--qr draws on standard error"), "{text}");
}
