/// The site of a server with this body, and what is named.
pub(super) fn site(body: &str) -> (toml::Table, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nginx.conf");
    let server = "listen 443 ssl; server_name a.example; ssl_certificate c; ssl_certificate_key k; root /srv;";
    std::fs::write(&file, format!("http {{ server {{ {server}\n{body}\n}} }}\n")).unwrap();
    let conversion = crate::convert(&file, |name| name.eq_ignore_ascii_case("server")).unwrap();
    let text = conversion.text();
    let config: toml::Table = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let named = conversion.unconverted.iter().map(ToString::to_string).collect();
    (config["site"][0].as_table().unwrap().clone(), named)
}
