//! `--compare`: nginx and the conversion side by side.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_testkit::pki::Pki;

use crate::nginx_corpus::nginx;
use crate::support::PROGRAM;
use crate::support::port::free_port;

/// Two sites with a page each, one over TLS.
struct Comparison {
    directory: tempfile::TempDir,
    pki: Pki,
}

impl Comparison {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        let comparison = Comparison { directory, pki: Pki::ecdsa() };
        let (certificate, key) = (comparison.pki.certificate_file(), comparison.pki.key_file());
        let root = comparison.path("www");
        fs::create_dir(&root).expect("a directory");
        fs::write(root.join("index.html"), "page").expect("it is written");
        fs::create_dir(comparison.path("sites")).expect("a directory");
        let site = format!("server {{ listen 8080; server_name b.test; root {}; }}\n", root.display());
        fs::write(comparison.path("sites/b.conf"), site).expect("it is written");
        let text = format!(
            "events {{ }}\nhttp {{\ninclude sites/*.conf;\nserver {{\nlisten 443 ssl;\nserver_name a.test;\nroot {};\nssl_certificate {};\n\
             ssl_certificate_key {};\nadd_header X-Site a;\n}}\n}}\n",
            root.display(),
            certificate.display(),
            key.display()
        );
        fs::write(comparison.path("nginx.conf"), text).expect("it is written");
        comparison
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, requests: &str, more: &[&str]) -> Output {
        fs::write(self.path("requests.txt"), requests).expect("it is written");
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.directory.path());
        command.args(["import-nginx", "nginx.conf", "--compare", "requests.txt", "--nginx"]).arg(nginx()).args(more);
        command.output().expect("the program starts")
    }
}

#[track_caller]
fn said(output: &Output, code: i32) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    if code == 1 { err.into_owned() } else { out.into_owned() }
}

#[test]
fn equal_responses_have_exit_code_0() {
    let output = Comparison::new()
        .run("# pages\nGET https://a.test/\nHEAD https://a.test/index.html\nGET http://b.test:8080/none\n", &[]);
    assert_eq!(said(&output, 0), "3 requests: 3 equal, 0 differ\n");
}

#[test]
fn equal_errors_of_a_missing_server_behind_are_doubted() {
    let comparison = Comparison::new();
    let behind = free_port();
    let site = format!(
        "server {{ listen 8080; server_name b.test; location / {{ proxy_pass http://127.0.0.1:{behind}; }} }}\n"
    );
    fs::write(comparison.path("sites/b.conf"), site).expect("it is written");
    let output = comparison.run("GET https://a.test/\nGET http://b.test:8080/x\n", &[]);
    let expected = "GET http://b.test:8080/x\n    both answer 502: nothing behind them was compared: start the server that they forward to\n\
                    2 requests: 2 equal, 0 differ; 1 of the equal ones reached no server behind\n";
    assert_eq!(said(&output, 0), expected);
}

#[test]
fn a_mended_configuration_is_compared_and_its_differences_have_exit_code_5() {
    let comparison = Comparison::new();
    let mended = comparison.path("sealion.toml");
    let output = Command::new(PROGRAM)
        .arg("import-nginx")
        .arg(comparison.path("nginx.conf"))
        .arg("--output")
        .arg(&mended)
        .output()
        .expect("the program starts");
    assert!(mended.exists(), "{output:?}");
    let text = fs::read_to_string(&mended).expect("it was written");
    fs::write(&mended, text.replace("X-Site = \"a\"", "X-Site = \"other\"")).expect("it is written");
    let output = comparison.run("GET https://a.test/\nGET http://b.test:8080/\n", &["--with", "sealion.toml"]);
    let expected = "GET https://a.test/\n    x-site: nginx a, sealion other\n2 requests: 1 equal, 1 differ\n";
    assert_eq!(said(&output, 5), expected);
}

#[test]
fn a_comparison_that_cannot_be_made_says_why() {
    let comparison = Comparison::new();
    let error = said(&comparison.run("GET https://a.test/\nGET /x\n", &[]), 1);
    assert!(error.contains("requests.txt:2: /x: write the whole URL"), "{error}");
    let report = said(&comparison.run("GET http://a.test:81/\nGET https://a.test/\n", &[]), 5);
    assert!(
        report.contains("no server of nginx listens on port 81: write one of its ports into the URL: "),
        "{report}"
    );
    assert!(report.ends_with("2 requests: 1 equal, 1 differ\n"), "{report}");
    let config = comparison.path("nginx.conf");
    let text = fs::read_to_string(&config).expect("it was written");
    fs::write(&config, text.replace("add_header X-Site a;", "add_header;")).expect("it is written");
    let error = said(&comparison.run("GET https://a.test/\n", &[]), 1);
    assert!(error.contains("nginx does not start") && error.contains("add_header"), "{error}");
}

#[test]
fn production_is_left_alone() {
    let comparison = Comparison::new();
    let before = names(comparison.directory.path());
    said(&comparison.run("GET https://a.test/\n", &[]), 0);
    let mut after = names(comparison.directory.path());
    after.retain(|name| name != "requests.txt");
    assert_eq!(after, before, "nothing is written beside the configuration");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
