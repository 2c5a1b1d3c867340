//! What becomes of each directive: what the converter says, and the table of docs/migrate-from-nginx.md.

/// What a directive is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Keys of ours say the same.
    Converted(&'static [&'static str]),
    /// Nothing has to be said: why.
    Needless(&'static str),
    /// There is no counterpart: what to do.
    Absent(&'static str),
}

use Fate::{Absent, Converted, Needless};

/// What is known of a directive; `None`: it is of a module that is not, and so absent.
pub(super) fn fate(name: &str) -> Option<Fate> {
    DIRECTIVES.iter().find(|(names, ..)| names.split(' ').any(|known| known == name)).map(|(_, fate, _)| *fate)
}

/// The table of the page on migration.
pub fn markdown() -> String {
    let mut table = String::from("| nginx | Sealion | |\n|---|---|---|\n");
    for (names, fate, note) in DIRECTIVES {
        let names: Vec<String> = names.split(' ').map(|name| format!("`{name}`")).collect();
        let (ours, more) = match fate {
            Converted(keys) => (keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "), *note),
            Needless(why) => ("not needed".to_owned(), *why),
            Absent(remedy) => ("**none**".to_owned(), *remedy),
        };
        table.push_str(&format!("| {} | {ours} | {} |\n", names.join(", "), more.replace('|', "\\|")));
    }
    table
}

/// Names, what becomes of them, and what to know of the conversion.
const DIRECTIVES: &[(&str, Fate, &str)] = &[
    // The process.
    ("user", Needless("the service runs as the user sealion; in [privileges] for another way to start it"), ""),
    ("worker_processes", Converted(&["server.workers"]), "`auto` is the default; workers are threads"),
    ("worker_connections", Converted(&["limits.max_connections"]), "nginx counts for each worker, Sealion for all"),
    ("worker_rlimit_nofile", Needless("the unit's LimitNOFILE says it"), ""),
    ("worker_shutdown_timeout", Converted(&["limits.grace"]), ""),
    ("worker_cpu_affinity worker_priority", Absent("use CPUAffinity= and Nice= of the unit"), ""),
    ("pid lock_file daemon master_process", Needless("systemd follows the process"), ""),
    ("events http server", Needless("what is inside is converted"), ""),
    (
        "use multi_accept accept_mutex accept_mutex_delay worker_aio_requests",
        Needless("workers share out connections by SO_REUSEPORT"),
        "",
    ),
    ("pcre_jit thread_pool timer_resolution working_directory env", Needless("there is nothing to set"), ""),
    ("load_module", Absent("modules are not loaded: what they add is named where it is used"), ""),
    (
        "error_log",
        Converted(&["server.log"]),
        "messages go to standard error, and so to the journal; the level is converted",
    ),
    // Addresses and names.
    (
        "listen",
        Converted(&["listen.address", "listen.tls", "listen.proxy_protocol", "site.default"]),
        "a site answers on every listener, and a server that did not is marked; `http2` and `quic` are named: Sealion speaks HTTP/1.1",
    ),
    (
        "http2 http2_max_concurrent_streams http2_chunk_size http3 quic_retry",
        Absent("Sealion speaks HTTP/1.1; clients fall back to it by themselves"),
        "",
    ),
    ("server_name", Converted(&["site.names"]), "`_` is left out; regular expressions and `www.example.*` are named"),
    ("server_name_in_redirect port_in_redirect absolute_redirect", Needless("redirects name a path, and no host"), ""),
    (
        "server_names_hash_max_size server_names_hash_bucket_size types_hash_max_size types_hash_bucket_size variables_hash_max_size variables_hash_bucket_size map_hash_max_size map_hash_bucket_size",
        Needless("tables grow by themselves"),
        "",
    ),
    (
        "set_real_ip_from",
        Converted(&["listen.trusted_proxies"]),
        "of listeners with `proxy_protocol`; named without one, and marked where rules compare addresses",
    ),
    (
        "real_ip_header real_ip_recursive",
        Absent(
            "`proxy_protocol` is what Sealion does; fields of requests are not believed, which is marked where rules compare addresses",
        ),
        "",
    ),
    // Files.
    ("root", Converted(&["site.root", "site.mounts"]), ""),
    ("alias", Converted(&["site.mounts"]), "closed where the path ends with a slash and the directory does not"),
    ("index", Converted(&["site.index"]), "but for programs"),
    (
        "try_files",
        Converted(&["site.fallback"]),
        "`$uri $uri/ =404` is what Sealion does; `… /index.html` becomes the fallback; programs, files that a location refuses and other forms are named",
    ),
    ("autoindex", Converted(&["site.listing"]), "locations without it that are listed now are marked"),
    (
        "autoindex_exact_size autoindex_format autoindex_localtime",
        Needless("a listing is HTML, or JSON for who asks for it"),
        "",
    ),
    (
        "location",
        Converted(&[
            "site.redirects",
            "site.rewrites",
            "site.headers",
            "site.cache_control",
            "site.access",
            "site.basic_auth",
        ]),
        "what is inside becomes rules for its path; forms that no pattern says are named",
    ),
    (
        "internal",
        Converted(&["site.access"]),
        "nobody may ask for it; error pages and the fallback are sent all the same",
    ),
    (
        "error_page",
        Converted(&["site.error_pages", "site.fallback"]),
        "programs, and files that a location refuses, are named",
    ),
    ("types", Converted(&["site.media_types"]), "where they differ from those that Sealion knows"),
    ("default_type", Needless("unknown extensions are application/octet-stream"), ""),
    ("charset charset_types source_charset override_charset", Needless("text is sent as UTF-8"), ""),
    ("log_not_found log_subrequest", Needless("the access log has the status"), ""),
    (
        "open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors",
        Converted(&["server.file_cache_age"]),
        "files stay open without being told; `open_file_cache_valid` is converted",
    ),
    ("disable_symlinks", Absent("links that lead out of the root are refused, and others are followed"), ""),
    (
        "sendfile sendfile_max_chunk tcp_nopush tcp_nodelay postpone_output output_buffers",
        Needless("heads and files leave together, on both paths"),
        "",
    ),
    (
        "aio aio_write directio directio_alignment read_ahead",
        Needless("what is not in memory is read by other threads"),
        "",
    ),
    ("etag if_modified_since max_ranges", Needless("validators and ranges are always there"), ""),
    ("server_tokens", Needless("no version is told"), ""),
    (
        "merge_slashes chunked_transfer_encoding ignore_invalid_headers underscores_in_headers msie_padding msie_refresh",
        Needless("requests are parsed strictly"),
        "",
    ),
    ("recursive_error_pages uninitialized_variable_warn rewrite_log", Needless("there is nothing to set"), ""),
    // Redirects and conditions.
    (
        "return",
        Converted(&["site.redirects", "site.access"]),
        "redirects and refusals; other answers are named, and their paths closed",
    ),
    (
        "rewrite",
        Converted(&["site.redirects", "site.rewrites"]),
        "regular expressions with look-around are named; what leads to a program is closed",
    ),
    (
        "if",
        Absent(
            "conditions are not converted, but for the redirect to HTTPS: say what it is for with redirects, access or a site of its own",
        ),
        "",
    ),
    ("set map geo split_clients", Absent("there are no variables: say what they are for with rules of the site"), ""),
    // Response fields.
    (
        "add_header",
        Converted(&["site.headers", "site.cache_control", "site.hsts"]),
        "fields that Sealion makes itself are named",
    ),
    ("add_trailer", Absent("responses have no trailers"), ""),
    ("expires", Converted(&["site.cache_control"]), "Cache-Control without Expires, which it overrides"),
    // Compression.
    (
        "gzip gzip_types gzip_min_length brotli brotli_types brotli_min_length zstd zstd_types zstd_min_length",
        Converted(&["site.compress"]),
        "one table for all codings",
    ),
    ("gzip_static brotli_static zstd_static", Converted(&["site.precompressed"]), "`always` is taken for `on`"),
    (
        "gzip_vary gzip_proxied gzip_comp_level gzip_buffers gzip_http_version gzip_disable gunzip brotli_comp_level brotli_buffers brotli_window zstd_comp_level",
        Needless("Vary is always sent, and the level is chosen by the size"),
        "",
    ),
    // TLS.
    ("ssl", Needless("every listener but one with tls = false is HTTPS"), ""),
    ("ssl_certificate ssl_certificate_key", Converted(&["site.certificates"]), "several, as many as there are"),
    ("ssl_password_file", Absent("keys with a password are not read: openssl pkey -in KEY -out PLAIN"), ""),
    ("ssl_protocols", Converted(&["tls.min_version"]), "TLS 1.2 and 1.3; older ones are named"),
    (
        "ssl_ciphers",
        Absent(
            "the suites are the AEAD ones with forward secrecy: TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, and of TLS 1.2 ECDHE with the same; [tls] suites leaves some out",
        ),
        "",
    ),
    (
        "ssl_prefer_server_ciphers ssl_ecdh_curve ssl_dhparam",
        Needless("X25519 and the NIST curves; there is no finite-field Diffie-Hellman"),
        "",
    ),
    (
        "ssl_conf_command",
        Converted(&["server.ktls"]),
        "`Options KTLS` is `ktls = \"auto\"`, the default; other commands are named",
    ),
    ("ssl_session_cache ssl_session_timeout", Needless("sessions are resumed by tickets, for twelve hours"), ""),
    (
        "ssl_session_tickets",
        Converted(&["tls.session_tickets.enabled"]),
        "`off` with a shared session cache is named: clients would resume nothing",
    ),
    (
        "ssl_session_ticket_key",
        Absent(
            "keys have another form: sealion ticket-key makes them, and [tls.session_tickets] keys names their directory",
        ),
        "",
    ),
    ("ssl_buffer_size", Needless("records are as long as they may be"), ""),
    ("ssl_early_data", Absent("early data is not taken, as it can be replayed"), ""),
    ("ssl_stapling ssl_stapling_verify ssl_stapling_file ssl_ocsp", Absent("no OCSP response is stapled"), ""),
    (
        "ssl_client_certificate ssl_trusted_certificate ssl_verify_client",
        Converted(&["site.client_auth"]),
        "`on` and `optional`",
    ),
    ("ssl_verify_depth", Needless("chains are followed to a root that you name"), ""),
    ("ssl_crl", Absent("no revocation list is read"), ""),
    (
        "ssl_reject_handshake",
        Absent("names of no site get the default site's certificate, and then 403 for everything"),
        "",
    ),
    // Who may.
    (
        "allow deny",
        Converted(&["site.access"]),
        "`deny` goes before `allow` here, so exceptions are taken out of networks; rules of a server hold in its locations too",
    ),
    (
        "auth_basic auth_basic_user_file",
        Converted(&["site.basic_auth"]),
        "passwords of bcrypt and argon2 only; `off` inside a protected part is named",
    ),
    ("satisfy auth_request auth_jwt", Absent("every rule of access and basic_auth has to hold"), ""),
    // Limits and times.
    ("client_header_timeout client_body_timeout", Converted(&["limits.request_timeout"]), ""),
    ("keepalive_timeout", Converted(&["limits.idle_timeout"]), ""),
    ("keepalive_requests", Converted(&["limits.max_requests"]), ""),
    ("send_timeout", Converted(&["limits.stall_timeout"]), ""),
    ("lingering_timeout", Converted(&["limits.linger_timeout"]), ""),
    ("ssl_handshake_timeout", Converted(&["limits.handshake_timeout"]), ""),
    ("large_client_header_buffers", Converted(&["limits.max_request_line", "limits.max_head"]), ""),
    (
        "client_header_buffer_size client_body_buffer_size client_max_body_size client_body_temp_path client_body_in_file_only request_pool_size connection_pool_size",
        Needless("bodies of requests are read and dropped, to limits.max_body"),
        "",
    ),
    (
        "keepalive_disable keepalive_time lingering_close lingering_time reset_timedout_connection keepalive_min_timeout",
        Needless("there is nothing to set"),
        "",
    ),
    (
        "limit_conn limit_conn_zone",
        Converted(&["limits.max_connections_per_address"]),
        "of zones by address, and for all sites; others are named",
    ),
    (
        "limit_req limit_req_zone",
        Converted(&["site.limits.requests_per_second", "site.limits.burst"]),
        "by address; without `nodelay` nginx makes requests wait, Sealion answers 429",
    ),
    ("limit_rate", Converted(&["site.limits.bandwidth"]), "bytes a second, of a connection"),
    ("limit_rate_after", Absent("the pace holds from the first byte"), ""),
    (
        "limit_conn_status limit_conn_log_level limit_conn_dry_run limit_req_status limit_req_log_level limit_req_dry_run",
        Needless("the answer is 429"),
        "",
    ),
    ("limit_except", Absent("only GET, HEAD and OPTIONS are answered"), ""),
    // Logs.
    (
        "access_log",
        Converted(&["access_log.to", "access_log.format", "site.access_log"]),
        "one for all sites, or `off` for some; others, and those of paths, are named",
    ),
    ("log_format", Absent("[access_log] format and fields say what a line has"), ""),
    // What is no server of files.
    (
        "proxy_pass proxy_set_header proxy_http_version proxy_read_timeout proxy_connect_timeout proxy_buffering proxy_redirect proxy_cache proxy_cache_path upstream",
        Absent("Sealion serves files: leave this path with nginx, under a name of its own"),
        "",
    ),
    (
        "fastcgi_pass fastcgi_param fastcgi_index fastcgi_split_path_info uwsgi_pass scgi_pass grpc_pass memcached_pass",
        Absent("Sealion serves files: leave this path with nginx, under a name of its own"),
        "",
    ),
    ("stub_status", Absent("[metrics] tells more, on a listener of its own"), ""),
    (
        "dav_methods create_full_put_path mp4 flv slice sub_filter ssi addition_types image_filter xslt_stylesheet",
        Absent("files are sent as they are"),
        "",
    ),
    ("stream mail", Absent("Sealion serves files over HTTPS"), ""),
];

/// The keys of sealion.toml that directives are converted to, for instance `site.root`.
pub fn counterparts() -> impl Iterator<Item = &'static str> {
    let of = |fate: &'static Fate| match fate {
        Converted(counterparts) => *counterparts,
        _ => &[],
    };
    DIRECTIVES.iter().flat_map(move |(_, fate, _)| of(fate)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for name in DIRECTIVES.iter().flat_map(|(names, ..)| names.split(' ')) {
            assert!(seen.insert(name), "{name} stands twice");
        }
    }

    #[test]
    fn the_page_on_migration_has_the_table() {
        let page = include_str!("../../../docs/migrate-from-nginx.md");
        let table = markdown();
        assert!(page.contains(&table), "put this into docs/migrate-from-nginx.md:\n{table}");
    }
}
