//! nginx configurations as people have them: converted, accepted, and every directive without a counterpart named.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use support::{PROGRAM, tool};

/// A configuration of tests/data/nginx with the files it names.
struct Nginx {
    directory: tempfile::TempDir,
    left: &'static str,
}

impl Nginx {
    fn new(name: &str, left: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let nginx = Self { directory, left };
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nginx").join(name);
        let text = fs::read_to_string(&data).expect("the configuration is there");
        nginx.write("nginx.conf", text.replace("@DIR@", &nginx.path().display().to_string()));
        nginx.write("mime.types", "types { text/html html htm; text/x-made-up madeup; }");
        let pki = Pki::ecdsa();
        for (from, to) in
            [(pki.certificate_file(), "cert.pem"), (pki.key_file(), "key.pem"), (pki.certificate_file(), "ca.pem")]
        {
            nginx.write(to, fs::read(from).expect("it was made"));
        }
        nginx.write("htpasswd", "lion:$2y$05$abcdefghijklmnopqrstuuZ0Zf5QnWcOQYpGQ0X8lE0gY3mDkQ5jm\n");
        for page in ["index.html", "404.html", "50x.html", "files/7.zip"] {
            nginx.write(&format!("www/{page}"), page);
        }
        nginx.write("media/film.txt", "film");
        nginx.write("static/x.css", "x");
        nginx
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        fs::write(path, content).expect("it is written");
    }

    fn import(&self) -> (PathBuf, Output) {
        let file = self.path().join("sealion.toml");
        let output = Command::new(PROGRAM)
            .arg("import-nginx")
            .arg(self.path().join("nginx.conf"))
            .arg("--output")
            .arg(&file)
            .output()
            .expect("the program starts");
        (file, output)
    }

    /// Converts, compares what is named, and has the result checked.
    #[track_caller]
    fn converts(&self) -> toml::Table {
        let (file, output) = self.import();
        let said = String::from_utf8(output.stderr).expect("text").replace(&format!("{}/", self.path().display()), "");
        let named: Vec<&str> = said.lines().filter(|line| !line.starts_with("sealion: ")).collect();
        let expected: Vec<&str> = self.left.lines().collect();
        assert_eq!(named.len(), expected.len(), "{said}");
        for (named, expected) in named.iter().zip(expected) {
            assert!(named.starts_with(expected), "{named}\nis not: {expected}");
        }
        assert_eq!(output.status.code(), Some(if named.is_empty() { 0 } else { 3 }), "{said}");
        let text = fs::read_to_string(&file).expect("it was written");
        for line in said.lines().filter(|line| !line.starts_with("sealion: ")) {
            let place = line.split(": ").next().expect("a place");
            assert!(text.contains(place), "what is named stands in the file too: {place}");
        }
        let checked =
            Command::new(PROGRAM).args(["check", "--config"]).arg(&file).output().expect("the program starts");
        assert!(checked.status.success(), "{text}\n{}", String::from_utf8_lossy(&checked.stderr));
        text.parse().expect("TOML")
    }
}

macro_rules! nginx {
    ($name:literal) => {
        Nginx::new(concat!($name, ".conf"), include_str!(concat!("../data/nginx/", $name, ".left")))
    };
}

#[test]
fn a_static_site_with_kernel_tls() {
    let config = nginx!("ktls").converts();
    assert_eq!(config["server"]["workers"].as_integer(), Some(4));
    assert_eq!(config["server"]["ktls"].as_str(), Some("auto"));
    assert_eq!(config["server"]["log"].as_str(), Some("warn"));
    assert_eq!(config["server"]["file_cache_age"].as_str(), Some("30s"));
    assert_eq!(config["limits"]["max_connections"].as_integer(), Some(4 * 4096));
    assert_eq!(config["limits"]["idle_timeout"].as_str(), Some("30s"));
    assert_eq!(config["limits"]["request_timeout"].as_str(), Some("15s"));
    assert_eq!(config["tls"]["min_version"].as_str(), Some("1.2"));
    let site = &config["site"][0];
    assert_eq!(site["names"].as_array().map(Vec::len), Some(2));
    assert_eq!(site["default"].as_bool(), Some(true));
    assert_eq!(site["precompressed"].to_string(), r#"["br", "gzip"]"#);
    assert_eq!(site["hsts"].to_string(), r#"{ max_age = "730d", include_subdomains = true, preload = true }"#);
    assert_eq!(site["error_pages"].to_string(), r#"{ 404 = "/404.html", 500 = "/50x.html", 503 = "/50x.html" }"#);
    assert_eq!(site["media_types"].to_string(), r#"{ madeup = "text/x-made-up" }"#);
    assert_eq!(site["cache_control"][0]["path"].as_str(), Some("*.{css,js,woff2,woff}"));
    assert_eq!(site["cache_control"][0]["value"].as_str(), Some("max-age=31536000, public, immutable"));
    assert_eq!(site["headers"][0]["set"]["X-Content-Type-Options"].as_str(), Some("nosniff"));
    // The location has a field of its own, and so lost the server's.
    assert_eq!(site["headers"][1]["unset"].to_string(), r#"["X-Content-Type-Options"]"#);
}

#[test]
fn an_application_is_served_as_nginx_served_it() {
    let nginx = nginx!("spa");
    let config = nginx.converts();
    assert_eq!(config["listen"][0]["tls"].as_bool(), Some(false));
    // Port 80 may be taken, or not ours to take.
    let file = nginx.path().join("sealion.toml");
    let text = fs::read_to_string(&file)
        .expect("it was written")
        .replace("0.0.0.0:80", "127.0.0.1:0")
        .replace("[::]:80", "[::1]:0");
    fs::write(&file, text).expect("it is written");
    let server = Server::start(Path::new(PROGRAM), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let head = |path: &str| {
        let url = format!("https://app.example.org:{}{path}", server.address().port());
        let resolve = format!("app.example.org:{}:127.0.0.1", server.address().port());
        tool("curl", ["--silent", "--insecure", "--include", "--resolve", &resolve, &url])
    };
    for (path, words) in [
        ("/some/where", &["200 OK", "index.html", "x-frame-options: deny"][..]),
        ("/old.html", &["301 Moved", "location: /new.html"]),
        ("/blog/2026/x", &["302 Found", "location: https://blog.example.org/blog/2026/x"]),
        ("/download/7", &["301 Moved", "location: /files/7.zip"]),
        ("/office/", &["403 Forbidden"]),
        ("/private/", &["401 Unauthorized", "www-authenticate: basic realm=\"private\""]),
        ("/media/film.txt", &["200 OK", "cache-control: max-age=604800", "film"]),
        ("/media/", &["200 OK", "film.txt"]),
    ] {
        let answer = head(path).to_lowercase();
        for word in words {
            assert!(answer.contains(&word.to_lowercase()), "{path}: {word:?} is not in {answer}");
        }
    }
}

#[test]
fn limits_and_what_is_nginx_own() {
    let config = nginx!("limits").converts();
    assert_eq!(config["access_log"]["to"].as_str(), Some("off"));
    assert_eq!(config["tls"]["min_version"].as_str(), Some("1.3"));
    assert_eq!(config["limits"]["max_connections_per_address"].as_integer(), Some(8));
    assert_eq!(config["listen"][0]["trusted_proxies"].to_string(), r#"["10.0.0.0/8"]"#);
    let site = &config["site"][0];
    assert_eq!(site["names"].to_string(), r#"["example.net", "*.example.net"]"#);
    assert_eq!(site["limits"].to_string(), r#"{ bandwidth = "1MiB", requests_per_second = 10, burst = 20 }"#);
    assert_eq!(site["client_auth"]["mode"].as_str(), Some("request"));
    assert_eq!(site["compress"]["types"].to_string(), r#"["text/html", "text/css", "application/javascript"]"#);
    assert_eq!(site["compress"]["min"].as_str(), Some("1KiB"));
    assert_eq!(site["mounts"][0]["path"].as_str(), Some("/static/"));
    assert_eq!(site["cors"].to_string(), r#"{ origins = ["*"], paths = ["/static/**"] }"#);
}

/// Whatever kept somebody out does so here, or is named.
#[test]
fn nobody_gets_in_who_was_kept_out() {
    let nginx = nginx!("guards");
    for file in [
        "internal/x",
        "closed/x",
        "closedness",
        "gone/x",
        "dump.SQL",
        "a/private/x",
        "config/x",
        "only/x.txt",
        "secret/x",
        "office/x",
        "hosts/x",
        "staff/x",
        "admin/x",
        "app.php5",
        "api/x",
        "files/x",
    ] {
        nginx.write(&format!("www/{file}"), "secret");
    }
    let config = nginx.converts();
    let sites = config["site"].as_array().expect("sites");
    assert_eq!(sites[0]["access"].as_array().map(Vec::len), Some(6), "{}", sites[0]["access"]);
    assert_eq!(sites[1]["access_log"].as_bool(), Some(false));
    assert_eq!(sites[1]["limits"].to_string(), "{ requests_per_second = 1, burst = 1 }");
    let file = nginx.path().join("sealion.toml");
    let server = Server::start(Path::new(PROGRAM), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let get = |host: &str, path: &str| {
        let (port, out) = (server.address().port(), "\n%{http_code}");
        let (url, resolve) = (format!("https://{host}:{port}{path}"), format!("{host}:{port}:127.0.0.1"));
        tool("curl", ["--silent", "--insecure", "--write-out", out, "--resolve", &resolve, &url])
    };
    for (path, answer) in [
        ("/index.html", "index.html\n200"),
        ("/404.html", "403 Forbidden\n\n403"),
        // The page is sent all the same.
        ("/none", "404.html\n404"),
        ("/internal/x", "403 Forbidden\n\n403"),
        ("/closed/x", "404.html\n404"),
        ("/closedness", "404.html\n404"),
        ("/gone/x", "403 Forbidden\n\n403"),
        ("/dump.SQL", "404.html\n404"),
        ("/a/private/x", "404.html\n404"),
        ("/config/x", "404.html\n404"),
        ("/only/x.txt", "404.html\n404"),
        ("/secret/x", "401 Unauthorized\n\n401"),
        ("/office/x", "secret\n200"),
        ("/hosts/x", "403 Forbidden\n\n403"),
        ("/staff/x", "401 Unauthorized\n\n401"),
        ("/admin/x", "401 Unauthorized\n\n401"),
        ("/app.php5", "404.html\n404"),
        ("/api/x", "403 Forbidden\n\n403"),
    ] {
        assert_eq!(get("guarded.example", path), answer, "{path}");
    }
    assert_eq!(get("office.example", "/files/x"), "403 Forbidden\n\n403");
    assert_eq!(get("other.example", "/"), "403 Forbidden\n\n403");
}

#[test]
fn where_servers_differ_the_strictest_version_and_the_first_word_count() {
    let config = nginx!("differing").converts();
    assert_eq!(config["listen"][0].to_string(), "{ address = \"0.0.0.0:80\", tls = false }");
    assert_eq!(config["tls"]["min_version"].as_str(), Some("1.3"));
    assert_eq!(config["limits"]["idle_timeout"].as_str(), Some("30s"));
    let site = &config["site"][0];
    assert!(site["root"].as_str().is_some_and(|root| root.ends_with("/www")), "{site}");
    assert_eq!(site["cors"].to_string(), r#"{ origins = ["https://one.example"], paths = ["/one/**"] }"#);
    assert_eq!(site["redirects"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_certbot_leaves() {
    let config = nginx!("certbot").converts();
    assert_eq!(config["listen"].as_array().map(Vec::len), Some(3));
    assert_eq!(config["site"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_configuration_that_nginx_refuses_is_refused_with_its_line() {
    let nginx = nginx!("spa");
    nginx.write("nginx.conf", "http {\n  server {\n    listen 443 ssl\n  }\n}\n");
    let (file, output) = nginx.import();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nginx.conf:4: listen has no ; before the }"), "{said}");
    assert!(!file.exists(), "nothing is written");
}
