//! Rewrites a configuration so that nginx can run it beside the server in production: it listens only on loopback, and writes into one directory.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use super::syntax::{self, Directive};

/// A configuration in one file, for `nginx -c`.
#[derive(Debug)]
pub struct OnLoopback {
    /// The text of the file.
    pub text: String,
    /// Each address of a `listen`, with the port of 127.0.0.1 that stands for it.
    pub moved: Vec<Moved>,
}

/// A `listen` of the original, and where it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The address as nginx understands it; `*` for all addresses.
    pub host: String,
    /// The port of the original.
    pub port: u16,
    /// The port of 127.0.0.1.
    pub to: u16,
}

/// Rewrites `file` and its includes. `directory`: where nginx writes. `free_port`: a port of 127.0.0.1 for each call.
///
/// # Errors
/// The configuration cannot be read or parsed, or there is no port; the message names file and line.
pub fn on_loopback(
    file: &Path,
    directory: &Path,
    free_port: &mut dyn FnMut() -> Result<u16, String>,
) -> Result<OnLoopback, String> {
    let read = syntax::read(file)?;
    // A pattern without files is no error for nginx.
    if let Some(missing) = read.missing.iter().find(|missing| !missing.is_directory) {
        return Err(format!("{}: {}", missing.place, missing.what));
    }
    let file = file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
    let base = file.parent().unwrap_or(Path::new("/"));
    let mut writer = Writer { base, directory, free_port, moved: Vec::new(), defaults: HashSet::new() };
    let mut text = format!(
        "daemon off;\nworker_processes 1;\npid {0}/nginx.pid;\nerror_log {0}/nginx.log;\n",
        directory.display()
    );
    writer.block(&read.directives, Level::Main, &mut text)?;
    Ok(OnLoopback { text, moved: writer.moved })
}

struct Writer<'a> {
    /// Names of files in a configuration begin at its directory.
    base: &'a Path,
    directory: &'a Path,
    free_port: &'a mut dyn FnMut() -> Result<u16, String>,
    moved: Vec<Moved>,
    /// Ports that have a default server.
    defaults: HashSet<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Main,
    Http,
    Inner,
}

impl Writer<'_> {
    fn block(&mut self, directives: &[Directive], level: Level, text: &mut String) -> Result<(), String> {
        for directive in directives {
            match directive.name.as_str() {
                name if LEFT_OUT.contains(&name) => {}
                "stream" | "mail" | "daemon" | "worker_processes" | "pid" | "master_process"
                    if level == Level::Main => {}
                "http" if level == Level::Main => {
                    text.push_str("http {\naccess_log off;\n");
                    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
                        let _ = writeln!(text, "{kind}_temp_path {}/{kind};", self.directory.display());
                    }
                    self.block(directive.children(), Level::Http, text)?;
                    text.push_str("}\n");
                }
                "server" if level == Level::Http => self.server(directive, text)?,
                _ => self.directive(directive, text)?,
            }
        }
        Ok(())
    }

    fn directive(&mut self, directive: &Directive, text: &mut String) -> Result<(), String> {
        push_word(text, &directive.name);
        for (at, argument) in directive.arguments.iter().enumerate() {
            text.push(' ');
            match (directive.name.as_str(), at) {
                (name, 0) if is_file(name, argument) => push_word(text, &self.base.join(argument).to_string_lossy()),
                (name, 0) if name.ends_with("_cache_path") => {
                    let name = argument.replace('/', "_");
                    push_word(text, &self.directory.join(name).to_string_lossy());
                }
                _ => push_word(text, argument),
            }
        }
        if directive.block.is_none() {
            text.push_str(";\n");
            return Ok(());
        }
        text.push_str(" {\n");
        self.block(directive.children(), Level::Inner, text)?;
        text.push_str("}\n");
        Ok(())
    }

    /// A server without an address that clients reach over IP is left out.
    fn server(&mut self, server: &Directive, text: &mut String) -> Result<(), String> {
        let listens: Vec<&Directive> = server.children().iter().filter(|child| child.name == "listen").collect();
        let mut addresses: Vec<(Address, Vec<&str>)> = Vec::new();
        if listens.is_empty() {
            addresses.push((Address { host: "*".to_owned(), port: 80 }, Vec::new()));
        }
        for listen in &listens {
            let kept: Vec<&str> =
                listen.arguments.iter().skip(1).map(String::as_str).filter(|word| KEPT.contains(word)).collect();
            let is_quic = listen.arguments.iter().any(|word| word == "quic");
            match Address::parse(listen.first()) {
                Some(_) if is_quic => {}
                Some(address) => match addresses.iter_mut().find(|(other, _)| *other == address) {
                    Some((_, words)) => words.extend(kept),
                    None => addresses.push((address, kept)),
                },
                None if listen.first().starts_with("unix:") => {}
                None => return Err(format!("{}: {listen}: not an address", listen.place)),
            }
        }
        if addresses.is_empty() {
            return Ok(());
        }
        text.push_str("server {\n");
        for (address, words) in addresses {
            let to = self.port(&address)?;
            let _ = write!(text, "listen 127.0.0.1:{to}");
            let mut written = HashSet::new();
            for word in words {
                let word = if word == "default" { "default_server" } else { word };
                // Two addresses of one port may be one here.
                let is_second = word == "default_server" && !self.defaults.insert(to);
                if !is_second && written.insert(word) {
                    let _ = write!(text, " {word}");
                }
            }
            text.push_str(";\n");
        }
        let others: Vec<Directive> = server.children().iter().filter(|child| child.name != "listen").cloned().collect();
        self.block(&others, Level::Inner, text)?;
        text.push_str("}\n");
        Ok(())
    }

    fn port(&mut self, address: &Address) -> Result<u16, String> {
        let known = self.moved.iter().find(|moved| moved.host == address.host && moved.port == address.port);
        if let Some(known) = known {
            return Ok(known.to);
        }
        let to = (self.free_port)()?;
        self.moved.push(Moved { host: address.host.clone(), port: address.port, to });
        Ok(to)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// `port`, `host`, `host:port`. All addresses of IPv4 and all of IPv6 are one.
    fn parse(text: &str) -> Option<Self> {
        if text.starts_with("unix:") {
            return None;
        }
        let (host, port) = match text.parse::<u16>() {
            Ok(port) => ("*", port),
            Err(_) => match text.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
                _ => (text, 80),
            },
        };
        let host = if matches!(host, "*" | "0.0.0.0" | "[::]") { "*" } else { host };
        Some(Address { host: host.to_owned(), port })
    }
}

/// Writes a word so that nginx reads the same one.
fn push_word(text: &mut String, word: &str) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:$=@^~*%+?,!<>|".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        text.push_str(word);
        return;
    }
    let _ = write!(text, "\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""));
}

/// Whether the argument is a file that nginx looks up beside its configuration.
fn is_file(name: &str, argument: &str) -> bool {
    let is_named = matches!(name, "auth_basic_user_file" | "geoip_country" | "geoip_city")
        || name.contains("ssl_")
            && (name.ends_with("_key") || name.ends_with("_file") || name.ends_with("certificate"))
        || matches!(name, "ssl_dhparam" | "ssl_crl" | "proxy_ssl_crl");
    is_named && argument != "off" && !argument.starts_with(['$', '/']) && !argument.contains(':')
}

/// Words of `listen` that matter to requests.
const KEPT: [&str; 5] = ["ssl", "http2", "default_server", "default", "proxy_protocol"];

/// Directives that write or name files, and change no response.
const LEFT_OUT: [&str; 10] = [
    "access_log",
    "error_log",
    "lock_file",
    "client_body_temp_path",
    "proxy_temp_path",
    "fastcgi_temp_path",
    "uwsgi_temp_path",
    "scgi_temp_path",
    "worker_cpu_affinity",
    "worker_rlimit_nofile",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> OnLoopback {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let mut next = 9000;
        let mut free_port = || {
            next += 1;
            Ok(next)
        };
        on_loopback(&file, Path::new("/run/x"), &mut free_port).unwrap()
    }

    #[test]
    fn each_address_gets_one_port_and_keeps_what_matters() {
        let OnLoopback { text, moved } = rewritten(
            "http { server { listen 80 default_server reuseport; listen [::]:80 default_server ipv6only=on; listen 443 ssl http2; }\n\
             server { listen 80; listen 127.0.0.2:443 ssl; listen 443 quic; } server { } server { listen unix:/x; deny all; } }",
        );
        assert!(text.contains("listen 127.0.0.1:9001 default_server;\nlisten 127.0.0.1:9002 ssl http2;\n"), "{text}");
        assert!(text.contains("listen 127.0.0.1:9001;\nlisten 127.0.0.1:9003 ssl;\n}"), "{text}");
        assert_eq!(
            text.matches("listen 127.0.0.1:9001;").count(),
            2,
            "without listen, nginx listens on port 80: {text}"
        );
        assert!(!text.contains("deny"), "{text}");
        let ports: Vec<_> = moved.iter().map(|moved| (moved.host.as_str(), moved.port, moved.to)).collect();
        assert_eq!(ports, [("*", 80, 9001), ("*", 443, 9002), ("127.0.0.2", 443, 9003)]);
    }

    #[test]
    fn words_are_read_as_they_were() {
        let text = rewritten(
            "http { map $http_x $y { '' close; \"~^a{2}\\.b\" \"c d\"; } server { if ($y = \"a b\") { return 200 '{\"a\": \"\\\\\"}'; } } }",
        )
        .text;
        for words in [
            "\"\" close;",
            "\"~^a{2}\\\\.b\" \"c d\";",
            "if \"($y\" = \"a b\" \")\" {",
            "return 200 \"{\\\"a\\\": \\\"\\\\\\\"}\";",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn nginx_writes_into_the_directory_alone() {
        let text = rewritten(
            "pid /run/nginx.pid; error_log /var/log/e; stream { } http { access_log /var/log/a; proxy_cache_path /var/c keys_zone=z:1m;\n\
             server { listen 1; ssl_certificate a.pem; error_log x; proxy_temp_path /y; } }",
        )
        .text;
        assert!(!text.contains("/var/") && !text.contains("/y") && !text.contains("stream"), "{text}");
        assert!(text.contains("proxy_cache_path /run/x/_var_c keys_zone=z:1m;"), "{text}");
        assert!(text.contains("pid /run/x/nginx.pid;") && !text.contains("ssl_certificate a.pem"), "{text}");
    }

    #[test]
    fn a_missing_file_is_an_error_and_a_pattern_without_files_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nginx.conf");
        let mut free_port = || Ok(9000);
        std::fs::write(&file, "include gone/*.conf; events { }").unwrap();
        assert!(on_loopback(&file, Path::new("/x"), &mut free_port).is_ok());
        std::fs::write(&file, "include gone.conf;").unwrap();
        let error = on_loopback(&file, Path::new("/x"), &mut free_port).unwrap_err();
        assert!(error.contains("nginx.conf:1: ") && error.contains("gone.conf"), "{error}");
    }
}
