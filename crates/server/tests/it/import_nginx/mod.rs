//! nginx configurations as people have them: converted, accepted, and every directive without a counterpart named.

mod compare;
mod listeners;

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
            .arg("--force")
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
        let code = match said.contains("sealion: dead: ") {
            true => 4,
            false if named.is_empty() => 0,
            false => 3,
        };
        assert_eq!(output.status.code(), Some(code), "{said}");
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
        Nginx::new(concat!($name, ".conf"), include_str!(concat!("../../data/nginx/", $name, ".left")))
    };
}

#[test]
fn a_static_site_with_kernel_tls() {
    let config = nginx!("ktls").converts();
    assert_eq!(config["server"]["workers"].as_integer(), Some(4));
    assert_eq!(config["server"]["ktls"].as_str(), Some("auto"));
    assert_eq!(config["server"]["log"].as_str(), Some("warn"));
    assert_eq!(config["server"]["file_cache_age"].as_str(), Some("30s"));
    assert_eq!(config["limits"]["max_connections"].as_integer(), Some(4 * 1024));
    assert_eq!(config["limits"]["idle_timeout"].as_str(), Some("30s"));
    assert_eq!(config["limits"]["request_timeout"].as_str(), Some("15s"));
    assert_eq!(config["tls"]["min_version"].as_str(), Some("1.2"));
    let site = &config["site"][0];
    assert_eq!(site["names"].as_array().map(Vec::len), Some(2));
    assert_eq!(site["default"].as_bool(), Some(true));
    assert_eq!(site["precompressed"].to_string(), r#"["br", "gzip"]"#);
    assert_eq!(site["hsts"].to_string(), r#"{ max_age = "730d", include_subdomains = true, preload = true }"#);
    assert_eq!(
        site["error_pages"].to_string(),
        r#"{ 404 = "/404.html?", 500 = "/50x.html?", 502 = "/50x.html?", 503 = "/50x.html?", 504 = "/50x.html?" }"#
    );
    assert_eq!(site["media_types"]["madeup"].as_str(), Some("text/x-made-up"));
    assert_eq!(site["media_types"]["xht"].as_str(), Some("application/octet-stream"), "types do not know it");
    let assets = &site["route"][1];
    assert_eq!(assets["path"].as_str(), Some(r"~ (?i)\.(?:css|js|woff2?)$"));
    assert_eq!(assets["cache_control"].as_str(), Some("max-age=31536000, public, immutable"));
    assert_eq!(assets["access_log"].as_bool(), Some(false));
}

#[test]
fn an_application_is_served_as_nginx_served_it() {
    let nginx = nginx!("spa");
    let config = nginx.converts();
    assert_eq!(config["listen"][0]["tls"].as_bool(), Some(false));
    // Port 80 may be taken, or not ours to take.
    let file = nginx.path().join("sealion.toml");
    let plain = support::port::free_port();
    let text = fs::read_to_string(&file)
        .expect("it was written")
        .replace("0.0.0.0:80", &format!("127.0.0.1:{plain}"))
        .replace("[::]:80", &format!("[::1]:{plain}"));
    fs::write(&file, text).expect("it is written");
    let server = Server::start(Path::new(PROGRAM), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let secure = server.wait_for("where it serves HTTPS", |line| line.text.contains("sites on https://localhost:"));
    let port = secure.text.split("https://localhost:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
    let head = |path: &str| {
        let url = format!("https://app.example.org:{port}{path}");
        let resolve = format!("app.example.org:{port}:127.0.0.1");
        tool("curl", ["--silent", "--insecure", "--include", "--resolve", &resolve, &url])
    };
    for (path, words) in [
        ("/some/where", &["HTTP/2 200", "index.html", "x-frame-options: deny"][..]),
        ("/old.html", &["HTTP/2 301", "location: /new.html"]),
        ("/blog/2026/x", &["HTTP/2 302", "location: https://blog.example.org/blog/2026/x"]),
        ("/download/7", &["HTTP/2 301", "location: /files/7.zip"]),
        ("/office/", &["HTTP/2 403"]),
        ("/private/", &["HTTP/2 401", "www-authenticate: basic realm=\"private\""]),
        ("/media/film.txt", &["HTTP/2 200", "cache-control: max-age=604800", "film"]),
        ("/media/", &["HTTP/2 200", "film.txt"]),
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
    assert_eq!(config["listen"][0]["trusted_proxies"].to_string(), r#"["10.0.0.0/8"]"#);
    let site = &config["site"][0];
    assert_eq!(site["names"].to_string(), r#"["example.net", "*.example.net", '~ ^(?<sub>.+)\.example\.com$']"#);
    assert_eq!(
        site["limits"].to_string(),
        r#"{ bandwidth = "1MiB", concurrent = [{ requests = 8, zone = "addr" }], zone = "one", requests_per_second = 10, burst = 21 }"#
    );
    assert_eq!(site["client_auth"]["mode"].as_str(), Some("request"));
    assert_eq!(site["compress"]["types"].to_string(), r#"["text/html", "text/css", "application/javascript"]"#);
    assert_eq!(site["compress"]["min"].as_str(), Some("1KiB"));
    assert_eq!(site["compress"]["levels"].to_string(), "{ gzip = 6 }");
    let routes = site["route"][1]["route"].as_array().expect("routes");
    assert_eq!(routes[0]["respond"].as_integer(), Some(501), "a program has no counterpart");
    assert_eq!(routes[1]["proxy"]["to"].as_str(), Some("app"));
    assert_eq!(routes[2]["headers"]["set_without_errors"].to_string(), r#"{ Access-Control-Allow-Origin = "*" }"#);
}

#[test]
fn a_mended_file_is_not_overwritten() {
    let nginx = nginx!("limits");
    let file = nginx.path().join("sealion.toml");
    let import = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("import-nginx").arg(nginx.path().join("nginx.conf")).arg("--output").arg(&file).args(options);
        command.output().expect("it runs")
    };
    let refusal = "exists and differs from the conversion";
    for _ in 0..2 {
        assert!(!String::from_utf8_lossy(&import(&[]).stderr).contains(refusal), "the same text is written again");
    }
    let converted = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, "# mended").expect("it is written");
    let refused = import(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(refusal) && said.contains("--force") && !refused.status.success(), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "# mended");
    import(&["--force"]);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), converted);
}

/// Each guard of nginx keeps the same clients out here, or is named.
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
    assert_eq!(sites[1]["access_log"].as_bool(), Some(false));
    assert_eq!(sites[1]["limits"].to_string(), r#"{ zone = "login", requests_per_minute = 20, burst = 1 }"#);
    let file = nginx.path().join("sealion.toml");
    let server = Server::start(Path::new(PROGRAM), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let get = |host: &str, path: &str| {
        let (port, out) = (server.address().port(), "\n%{http_code}");
        let (url, resolve) = (format!("https://{host}:{port}{path}"), format!("{host}:{port}:127.0.0.1"));
        tool("curl", ["--silent", "--insecure", "--write-out", out, "--resolve", &resolve, &url])
    };
    for (path, answer) in [
        ("/index.html", "index.html\n200"),
        ("/404.html", "404.html\n404"),
        // The page is sent all the same.
        ("/none", "404.html\n404"),
        ("/internal/x", "404.html\n404"),
        ("/closed/x", "403 Forbidden\n\n403"),
        ("/closedness", "403 Forbidden\n\n403"),
        ("/gone/x", "404.html\n404"),
        ("/dump.SQL", "403 Forbidden\n\n403"),
        ("/a/private/x", "403 Forbidden\n\n403"),
        ("/config/x", "403 Forbidden\n\n403"),
        ("/only/x.txt", "403 Forbidden\n\n403"),
        ("/secret/x", "401 Unauthorized\n\n401"),
        ("/office/x", "secret\n200"),
        ("/hosts/x", "403 Forbidden\n\n403"),
        ("/staff/x", "401 Unauthorized\n\n401"),
        ("/admin/x", "401 Unauthorized\n\n401"),
        ("/administrator/x", "401 Unauthorized\n\n401"),
        ("/app.php5", "404.html\n404"),
        // Its server is not there.
        ("/api/x", "502 Bad Gateway\n\n502"),
    ] {
        assert_eq!(get("guarded.example", path), answer, "{path}");
    }
    assert_eq!(get("office.example", "/files/x"), "403 Forbidden\n\n403");
    let url = format!("https://other.example:{}/", server.address().port());
    let resolve = format!("other.example:{}:127.0.0.1", server.address().port());
    let closed =
        Command::new("curl").args(["--silent", "--insecure", "--http1.1", "--resolve", &resolve, &url]).status();
    // CURLE_GOT_NOTHING
    assert_eq!(closed.expect("curl is needed").code(), Some(52));
}

#[test]
fn where_servers_differ_the_strictest_version_and_the_first_word_count() {
    let config = nginx!("differing").converts();
    assert_eq!(config["listen"][0].to_string(), "{ address = \"0.0.0.0:80\", tls = false, plain = \"serve\" }");
    assert_eq!(config["tls"]["min_version"].as_str(), Some("1.3"));
    assert_eq!(config["limits"]["idle_timeout"].as_str(), Some("30s"));
    let site = &config["site"][1];
    assert!(site["route"][0]["root"].as_str().is_some_and(|root| root.ends_with("/www")), "{site}");
    let fields = site["route"][1]["headers"]["set_without_errors"].to_string();
    assert_eq!(fields, r#"{ Access-Control-Allow-Origin = "https://one.example" }"#);
    assert_eq!(site["route"][4]["route"][0]["redirect"].to_string(), r#"{ to = "/{1}", status = 301 }"#);
}

#[test]
fn what_certbot_leaves() {
    let config = nginx!("certbot").converts();
    assert_eq!(config["listen"].as_array().map(Vec::len), Some(3));
    let [secure, plain] = &config["site"].as_array().expect("sites")[..] else { panic!("{config}") };
    assert_eq!(secure["names"], plain["names"]);
    assert_eq!(plain["listen"].to_string(), r#"["0.0.0.0:80"]"#);
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

#[test]
fn a_conversion_that_does_not_start_is_not_said_to_work() {
    let nginx = Nginx::new("guards.conf", "");
    for (lines, word) in [
        ("ssl_certificate gone.pem; ssl_certificate_key gone.pem;", "gone.pem"),
        ("ssl_certificate cert.pem; ssl_certificate_key key.pem; root /gone;", "/gone"),
        ("ssl_certificate cert.pem; ssl_certificate_key key.pem; auth_basic x; auth_basic_user_file gone;", "/gone"),
    ] {
        nginx.write("nginx.conf", format!("http {{ server {{ listen 443 ssl; server_name a.test; {lines} }} }}"));
        let (_, output) = nginx.import();
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("sealion: does not start: "));
        assert!(line.is_some_and(|line| line.contains(word)), "{said}");
        assert_eq!(output.status.code(), Some(4), "{said}");
    }
}

/// Converts `http`, the text of an `http` block, beside the files of every configuration here.
fn import(http: &str) -> (toml::Table, Vec<String>, Option<i32>) {
    let nginx = Nginx::new("guards.conf", "");
    for page in ["index.php", "app.cgi", "shown.html", "hidden/x.html", "x.phtml"] {
        nginx.write(&format!("www/{page}"), "secret");
    }
    let www = nginx.path().join("www").display().to_string();
    let certificate = "ssl_certificate cert.pem; ssl_certificate_key key.pem;";
    nginx.write("nginx.conf", format!("http {{ {certificate} root {www};\n{http}\n}}\n"));
    let (file, output) = nginx.import();
    let said = String::from_utf8(output.stderr).expect("text");
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{http}: {e}: {said}"));
    let named = said.lines().filter_map(|line| line.split_once("nginx.conf:")?.1.split_once(": "));
    let named = named.map(|(_, named)| named.to_owned()).collect();
    (text.parse().expect("TOML"), named, output.status.code())
}

/// Converts a server with this body.
fn import_server(body: &str) -> (toml::Value, Vec<String>) {
    let (config, named, _) = import(&format!("server {{ listen 443 ssl; server_name a.example;\n{body}\n}}"));
    (config["site"][0].clone(), named)
}

/// The directives that are marked UNGUARDED, up to their colon.
fn marked(named: &[String]) -> Vec<&str> {
    named.iter().filter_map(|line| line.split_once(": UNGUARDED: ")).map(|(directive, _)| directive).collect()
}

#[test]
fn an_error_page_chooses_a_route() {
    for (body, page) in [
        ("error_page 404 /404.html;", "/404.html?"),
        ("error_page 404 /404.html; location = /404.html { internal; }", "/404.html?"),
        ("error_page 404 /index.php?e=404;", "/index.php?e=404"),
        ("error_page 404 /errors$uri;", "/errors{path}?"),
        ("error_page 404 https://a.example/lost;", "https://a.example/lost"),
    ] {
        let (site, named) = import_server(body);
        let own = &site["error_pages"]["404"];
        assert_eq!(own.get("to").unwrap_or(own).as_str(), Some(page), "{body}: {named:?}");
    }
    let (site, _) = import_server("error_page 404 =200 /app; location /app { proxy_pass http://127.0.0.1:3000; }");
    assert_eq!(site["error_pages"]["404"].to_string(), r#"{ to = "/app?", status = 200 }"#);
    let (site, named) = import_server("error_page 404 =302 /x.html;");
    assert!(site.get("error_pages").is_none() && named[0].contains("write error_pages"), "{named:?}");
    assert_eq!(import_server("index index.html index.php;").0["index"].to_string(), r#"["index.html", "index.php"]"#);
}

#[test]
fn what_a_program_answered_is_not_sent_as_files() {
    for body in [
        "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }",
        "location ~ [^/]\\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }",
        "location /app/ { uwsgi_pass 127.0.0.1:9000; }",
        "location ^~ /app/ { scgi_pass 127.0.0.1:9000; }",
        "location = /app { grpc_pass grpc://$app; }",
        "location /app/ { proxy_pass http://$app; }",
        "location /app/ { content_by_lua_block { x } }",
        "location /app/ { js_content x; }",
        "location /app/ { perl x; }",
        "location /app/ { passenger_enabled on; }",
        "location /app/ { return 200 ok; }",
        "location /app/ { return 301 https://$unknown/; }",
    ] {
        let (site, named) = import_server(body);
        let routes = site["route"].as_array().expect("routes");
        let acts = |route: &toml::Value| ["proxy", "respond", "redirect"].iter().any(|key| route.get(key).is_some());
        let own = |route: &&toml::Value| route["path"].as_str() != Some("/");
        assert!(routes.iter().filter(own).all(acts) && routes.iter().any(|route| own(&route)), "{body}: {site}");
        assert!(marked(&named).is_empty(), "{body}: {named:?}");
    }
}

/// Paths that nginx refused and Sealion would answer are marked, and no others are.
#[test]
fn what_is_open_now_is_marked() {
    let mut wrong = Vec::new();
    // The content of the server block, and the starts of the marked lines.
    for (body, expected) in [
        // A program, and the content of another block.
        ("location /blog/ { location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } }", &[][..]),
        ("location ^~ /blog/ { location /blog/app/ { proxy_pass http://127.0.0.1:9000; } }", &[]),
        ("location / { if ($uri ~ x) { proxy_pass http://127.0.0.1:9000; } }", &[]),
        ("location / { fastcgi_pass 127.0.0.1:9000; } location /static/ { expires 1d; }", &[]),
        ("location / { proxy_pass http://127.0.0.1:9000; } location /static/ { expires 1d; }", &[]),
        ("location / { proxy_pass http://$app; } location /static/ { expires 1d; }", &[]),
        ("location / { proxy_pass http://127.0.0.1:9000; limit_except GET { deny all; } }", &[]),
        ("location / { proxy_pass http://127.0.0.1:9000; limit_except GET { allow 10.0.0.0/8; deny all; } }", &[]),
        ("location / { proxy_pass http://127.0.0.1:9000; auth_request /auth; }", &[]),
        ("location ~ \"^/(?!x).*[.]php$\" { fastcgi_pass 127.0.0.1:9000; }", &[]),
        ("location ~ ^/(a|b)/ { if ($http_referer = \"\") { return 403; } }", &[]),
        ("location ~ ^/(a|b)/ { auth_request /auth; }", &[]),
        ("location ~ ^/(a|b)/ { location ~ x { deny all; } }", &[]),
        // Conditions.
        ("if ($bad) { return 403; }", &["if"]),
        ("if ($bad) { return 444; }", &["if"]),
        ("if ($cookie_user = \"\") { return 302 /login; }", &[]),
        ("if ($cookie_user = \"\") { rewrite ^ /login last; }", &[]),
        ("if ($host = b.example) { return 301 https://a.example$request_uri; }", &[]),
        ("if ($request_method = POST) { return 405; }", &[]),
        ("valid_referers none server_names; if ($invalid_referer) { return 403; }", &[]),
        // Who may.
        ("location /x/ { auth_request /auth; }", &[]),
        ("auth_request /auth;", &[]),
        ("location /x/ { auth_request off; }", &[]),
        ("location /x/ { secure_link $arg_md5; secure_link_md5 x; }", &[]),
        ("location /x/ { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file htpasswd; }", &[]),
        ("location /x/ { limit_except GET { deny all; } }", &[]),
        ("location /x/ { limit_except POST { deny all; } }", &[]),
        ("location /x/ { rewrite_by_lua_block { x } }", &[]),
        ("location /x/ { access_by_lua_file x; }", &[]),
        ("disable_symlinks on;", &["disable_symlinks"]),
        ("disable_symlinks off;", &[]),
        ("merge_slashes off; location /x/ { deny all; }", &["merge_slashes"]),
        ("location = /x { deny all; }", &[]),
        ("location /x { deny all; }", &[]),
        ("location /x { allow 10.0.0.0/8; deny all; }", &[]),
        ("location /x { auth_basic x; auth_basic_user_file htpasswd; }", &[]),
        ("location ~* ^/X/ { deny all; }", &[]),
        ("location /x/ { internal; }", &[]),
        // Clients' certificates.
        ("ssl_client_certificate ca.pem; ssl_verify_client on;", &[]),
        ("ssl_client_certificate ca.pem; ssl_verify_client optional;", &[]),
        ("ssl_client_certificate ca.pem; ssl_verify_client optional_no_ca;", &["ssl_verify_client"]),
        ("ssl_verify_client on;", &["ssl_verify_client"]),
        ("ssl_reject_handshake on;", &[]),
        ("return 444;", &[]),
        // Directories.
        ("autoindex on; location /x/ { autoindex off; }", &[]),
        ("location / { autoindex on; } location /x/ { expires 1d; }", &[]),
        ("location /x/ { autoindex on; } location /y/ { expires 1d; }", &[]),
        ("autoindex on; location /x/ { autoindex off; deny all; }", &[]),
        ("location /x/ { alias /srv/x; }", &[]),
        // Includes.
        ("location /x/ { include snippets/office.conf; }", &["include"]),
        ("include mime.types.gone;", &["include"]),
        ("include snippets/options-ssl-nginx.conf; location /x/ { include fastcgi_params; }", &[]),
        // An expression is compared with the index that is sent, too.
        ("location ~ ^/private/.*\\.html$ { deny all; }", &[]),
        ("location ~* \\.HTML$ { deny all; }", &[]),
        ("location ~ ^/private/.+ { deny all; }", &[]),
        ("location ~ ^/private/.*$ { deny all; }", &[]),
        ("location ~ ^/[a-z]+/private/ { return 403; }", &[]),
        ("location ~ /index { deny all; }", &[]),
        ("location /index { deny all; }", &[]),
        ("location /home { deny all; }", &[]),
        ("location ~ ^/a/(b|in) { deny all; }", &[]),
        ("location ~ \\.(env|git|sql)$ { deny all; }", &[]),
        ("location ~ \\.(env|git|html?)$ { deny all; }", &[]),
        ("location ~ [^.]+$ { deny all; }", &[]),
        ("location ~ /\\.ht { deny all; }", &[]),
        ("location ~ /\\. { deny all; }", &[]),
        ("location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }", &[]),
        ("location ~ [^/]\\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }", &[]),
        ("location ~ ^(.+\\.php)(.*)$ { fastcgi_pass 127.0.0.1:9000; }", &[]),
        ("index start.htm; location ~ \\.html$ { deny all; }", &[]),
        ("index start.htm; location ~ \\.htm$ { deny all; }", &[]),
        ("location ~ ^/x/.*\\.html$ { allow 10.0.0.0/8; deny all; }", &[]),
        ("location ~ ^/x/.*\\.html$ { auth_basic x; auth_basic_user_file htpasswd; }", &[]),
        ("location ~ \"^/(?!x)\" { allow 10.0.0.0/8; deny all; }", &[]),
        ("location ~ \"^/(?!x)\" { auth_basic x; auth_basic_user_file htpasswd; }", &[]),
        ("location ~ [a&&b] { deny all; }", &["location ~"]),
        // Rewrites guard together: the first leads away from what the last sends.
        ("rewrite \"^/in/(?!open)\" /login.html last; rewrite ^/(.*)$ /$1 break;", &[]),
        ("rewrite ^/in/(a++)$ /login.html break;", &[]),
        ("rewrite \"^/in/(?!open)\" https://login.example/ redirect;", &[]),
        ("rewrite ^/in/(.*)$ /out/$arg_name last;", &[]),
        ("rewrite ^/in/(.*)$ /out/$1 last;", &[]),
        // The address that rules compare with is the proxy's.
        ("real_ip_header X-Forwarded-For; set_real_ip_from 10.0.0.0/8;", &[]),
        ("set_real_ip_from 10.0.0.0/8; location /x/ { allow 10.0.0.0/8; deny all; }", &[]),
        ("set_real_ip_from proxy.example; deny 192.0.2.1;", &["set_real_ip_from"]),
        ("set_real_ip_from proxy.example; real_ip_header X-Real-IP; deny 192.0.2.1;", &["real_ip_header"]),
        ("real_ip_header proxy_protocol; set_real_ip_from 10.0.0.0/8; deny 192.0.2.1;", &["set_real_ip_from"]),
        ("real_ip_header X-Real-IP; location /x/ { deny all; }", &[]),
    ] {
        let (_, named) = import_server(body);
        let marked = marked(&named);
        let all =
            marked.len() == expected.len() && marked.iter().zip(expected).all(|(one, start)| one.starts_with(start));
        if !all {
            wrong.push(format!("{body}: {named:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn revocation_lists_are_those_of_the_site() {
    let (site, named) = import_server("ssl_client_certificate ca.pem; ssl_verify_client on; ssl_crl crl.pem;");
    assert!(marked(&named).is_empty(), "{named:?}");
    let lists = site["client_auth"]["crls"].as_array().expect("lists");
    assert!(lists.len() == 1 && lists[0].as_str().is_some_and(|list| list.ends_with("/crl.pem")), "{site}");
    // Without verification, lists of revoked certificates have no use.
    let (site, _) = import_server("ssl_crl crl.pem;");
    assert!(site.get("client_auth").is_none(), "{site}");
}

#[test]
fn the_log_of_a_server_is_that_of_its_site() {
    const HTTP: &str = "access_log /var/log/nginx/all.log;";
    // The directives of the server, its log, and what is named.
    for (http, server, log, words) in [
        ("", "access_log /var/log/nginx/a.log;", Some("/var/log/nginx/a.log"), None::<&str>),
        (HTTP, "access_log /var/log/nginx/a.log combined buffer=32k;", Some("/var/log/nginx/a.log"), None),
        (HTTP, "access_log /var/log/nginx/all.log;", None, None),
        (HTTP, "access_log off;", None, None),
        ("access_log off;", "access_log /a.log main;", Some("/a.log"), None),
        (HTTP, "access_log /a.log combined if=$loggable;", Some("/a.log"), None),
        (HTTP, "access_log /a.log; access_log /b.log;", Some("/a.log"), None),
        (HTTP, "access_log /var/log/$host.log;", None, None),
        (HTTP, "access_log syslog:server=10.0.0.1;", None, None),
    ] {
        let (made, named, _) =
            import(&format!("{http} server {{ listen 443 ssl; server_name a.example; root /srv/a; {server} }}"));
        let site = &made["site"][0];
        assert_eq!(site.get("log").map(|log| log["to"].as_str().expect("text")), log, "{server}");
        assert_eq!(site.get("access_log").is_some(), server.contains("off"), "{server}");
        assert_eq!(named.is_empty(), words.is_none(), "{server}: {named:?}");
        assert!(words.is_none_or(|words| named[0].contains(words)), "{server}: {named:?}");
    }
}
