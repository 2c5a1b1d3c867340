//! The counterpart of each directive, for the converter's messages and the table in docs/migrate-from-nginx.md.

/// How a directive is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    /// Converted to these keys.
    Converted(&'static [&'static str]),
    /// No counterpart needed, and why.
    NotNeeded(&'static str),
    /// No counterpart, and no response depends on it; and what to do instead.
    Minor(&'static str),
    /// No counterpart, and what to do instead.
    Unsupported(&'static str),
}

use Handling::{Converted, Minor, NotNeeded, Unsupported};

/// How a directive is handled; `None`: it is unknown, for instance from a third-party module.
pub(super) fn handling(name: &str) -> Option<Handling> {
    DIRECTIVES.iter().find(|(names, ..)| names.split(' ').any(|known| known == name)).map(|(_, handling, _)| *handling)
}

/// Whether a directive becomes keys, or needs none.
pub(super) fn is_converted(name: &str) -> bool {
    matches!(handling(name), Some(Converted(_) | NotNeeded(_)))
}

/// The table of docs/migrate-from-nginx.md.
pub fn markdown() -> String {
    let mut table = String::from("| nginx | Sealion | |\n|---|---|---|\n");
    for (names, handling, note) in DIRECTIVES {
        let names: Vec<String> = names.split(' ').map(|name| format!("`{name}`")).collect();
        let (ours, more) = match handling {
            Converted(keys) => (keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "), *note),
            NotNeeded(why) => ("not needed".to_owned(), *why),
            Minor(remedy) => ("none".to_owned(), *remedy),
            Unsupported(remedy) => ("**none**".to_owned(), *remedy),
        };
        table.push_str(&format!("| {} | {ours} | {} |\n", names.join(", "), more.replace('|', "\\|")));
    }
    table
}

/// Directives, how they are handled, and notes on the conversion.
const DIRECTIVES: &[(&str, Handling, &str)] = &[
    // The process.
    ("user", NotNeeded("the service runs as the user sealion; [privileges] user sets another"), ""),
    ("worker_processes", Converted(&["server.workers"]), "`auto` is the default; workers are threads"),
    ("worker_connections", Converted(&["limits.max_connections"]), "nginx counts per worker, Sealion in total"),
    ("worker_rlimit_nofile", NotNeeded("LimitNOFILE= of the unit sets it"), ""),
    ("worker_shutdown_timeout", Converted(&["limits.grace"]), ""),
    ("worker_cpu_affinity worker_priority", Minor("use CPUAffinity= and Nice= of the unit"), ""),
    ("pid lock_file daemon master_process", NotNeeded("systemd follows the process"), ""),
    ("events http server", NotNeeded("the contents are converted"), ""),
    (
        "use multi_accept accept_mutex accept_mutex_delay worker_aio_requests",
        NotNeeded("the kernel distributes connections to workers by SO_REUSEPORT"),
        "",
    ),
    ("pcre_jit thread_pool timer_resolution working_directory env", NotNeeded("there is nothing to set"), ""),
    ("load_module", Minor("modules are not loaded: their directives are reported where they are used"), ""),
    (
        "error_log",
        Converted(&["server.log"]),
        "messages go to standard error, and so to the journal; the level is converted, `error` to `warn`, as which failures of servers are logged here",
    ),
    // Addresses and names.
    (
        "listen",
        Converted(&[
            "listen.address",
            "listen.tls",
            "listen.http3",
            "listen.proxy_protocol",
            "site.default",
            "site.listen",
        ]),
        "a site has the listeners of its server, and is the default where that is; a listener without `ssl` serves its sites (`plain = \"serve\"`); `quic` beside `ssl` is `http3`; `http2` is needed without TLS only, where it becomes `listen.http2`",
    ),
    (
        "http2 http2_max_concurrent_streams http2_chunk_size",
        NotNeeded(
            "HTTP/2 is offered on every listener with TLS, and on those without where `http2` says so; its settings are in `[http2]`",
        ),
        "",
    ),
    ("http3", Converted(&["listen.http3"]), "`off` leaves out `listen … quic`"),
    ("quic_retry", Minor("addresses are validated when many handshakes are under way"), ""),
    (
        "server_name",
        Converted(&["site.names"]),
        "`_` is dropped; `.example.org` becomes two names, an expression `~ …`",
    ),
    (
        "server_name_in_redirect port_in_redirect absolute_redirect",
        NotNeeded("redirects contain a path and no host"),
        "",
    ),
    (
        "server_names_hash_max_size server_names_hash_bucket_size types_hash_max_size types_hash_bucket_size variables_hash_max_size variables_hash_bucket_size map_hash_max_size map_hash_bucket_size",
        NotNeeded("hash tables grow on demand"),
        "",
    ),
    (
        "set_real_ip_from",
        Converted(&["listen.trusted_proxies"]),
        "networks and addresses, where all servers of a listener agree; else reported, and marked where rules compare addresses",
    ),
    (
        "real_ip_header real_ip_recursive",
        Converted(&["listen.client_address", "listen.max_proxies", "listen.proxy_protocol"]),
        "where all servers of a listener agree; else reported, and marked where rules compare addresses",
    ),
    // Files.
    ("root", Converted(&["site.root", "site.route.root"]), "variables may stand behind a first directory"),
    ("alias", Converted(&["site.route.alias", "site.route.root", "site.route.rewrite"]), ""),
    ("index", Converted(&["site.index"]), "a script is run for a path that ends with a slash"),
    ("try_files", Converted(&["site.route.try"]), "`… /index.php` runs the front script by a named route"),
    ("autoindex", Converted(&["site.listing"]), "locations that are newly listed are marked"),
    (
        "autoindex_exact_size autoindex_format autoindex_localtime",
        NotNeeded("a listing is HTML, or JSON on request"),
        "",
    ),
    (
        "location",
        Converted(&["site.route.path", "site.route.name", "site.route.route"]),
        "one location becomes one route, with those within it; an expression without counterpart is closed",
    ),
    ("internal", Converted(&["site.route.internal"]), ""),
    (
        "error_page",
        Converted(&["site.error_pages", "site.fallback"]),
        "files that are there, named locations and URLs; other targets are reported",
    ),
    ("types", Converted(&["site.media_types"]), "where they differ from Sealion's own"),
    ("default_type", Converted(&["site.media_types"]), "the type of names that tell none"),
    ("charset charset_types source_charset override_charset", NotNeeded("text is sent as UTF-8"), ""),
    ("log_not_found log_subrequest", NotNeeded("the access log has the status"), ""),
    (
        "open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors",
        Converted(&["server.file_cache_age"]),
        "files are always cached; `open_file_cache_valid` is converted",
    ),
    ("disable_symlinks", Minor("symbolic links out of the root are refused, others are followed"), ""),
    (
        "sendfile sendfile_max_chunk tcp_nopush tcp_nodelay postpone_output output_buffers",
        NotNeeded("heads and files are sent together on both paths"),
        "",
    ),
    (
        "aio aio_write directio directio_alignment read_ahead",
        NotNeeded("files outside the page cache are read by other threads"),
        "",
    ),
    ("etag if_modified_since max_ranges", NotNeeded("validators and ranges are always on"), ""),
    ("server_tokens", NotNeeded("the version is never sent"), ""),
    (
        "merge_slashes chunked_transfer_encoding ignore_invalid_headers underscores_in_headers msie_padding msie_refresh",
        NotNeeded("requests are parsed strictly"),
        "",
    ),
    ("recursive_error_pages uninitialized_variable_warn rewrite_log", NotNeeded("there is nothing to set"), ""),
    // Redirects and conditions.
    (
        "return",
        Converted(&["site.route.respond", "site.route.redirect", "site.route.deny"]),
        "any status with or without text; 444 is `respond = \"close\"`",
    ),
    (
        "rewrite",
        Converted(&["site.route.rewrite", "site.route.redirect"]),
        "a route within the location's, by the expression",
    ),
    (
        "if",
        Converted(&["site.route.match"]),
        "on method, fields, cookies, arguments, host, scheme, path and client, and whether the file is there; others are reported",
    ),
    (
        "set map geo split_clients",
        Converted(&["map.name", "split.name", "site.route.match"]),
        "constants are folded; a table is written where a text names it",
    ),
    ("valid_referers", Converted(&["site.route.match"]), "with `if ($invalid_referer)`"),
    ("empty_gif", Converted(&["site.route.respond"]), ""),
    ("break", NotNeeded("the order of routes says it"), ""),
    // Response fields.
    (
        "add_header",
        Converted(&["site.headers", "site.cache_control", "site.hsts", "site.cors", "site.proxy.response_headers"]),
        "fields that Sealion sets itself are counted",
    ),
    ("add_trailer", Minor("responses have no trailers"), ""),
    ("expires", Converted(&["site.cache_control"]), "as Cache-Control of files, which overrides Expires"),
    // Compression.
    (
        "gzip gzip_types gzip_min_length gzip_comp_level brotli brotli_types brotli_min_length brotli_comp_level zstd zstd_types zstd_min_length zstd_comp_level",
        Converted(&["site.compress"]),
        "one table for all codings; levels are for responses of applications",
    ),
    ("gzip_static brotli_static zstd_static", Converted(&["site.precompressed"]), "`always` is treated as `on`"),
    (
        "gzip_vary gzip_proxied gzip_buffers gzip_http_version gzip_disable gunzip brotli_buffers brotli_window zstd_buffers",
        NotNeeded("Vary is always sent, and clients behind proxies get the coding that they accept"),
        "",
    ),
    // TLS.
    ("ssl", NotNeeded("every listener is HTTPS unless tls = false"), ""),
    ("ssl_certificate ssl_certificate_key", Converted(&["site.certificates"]), "any number"),
    (
        "ssl_password_file",
        Unsupported("encrypted keys are not supported: decrypt with openssl pkey -in KEY -out PLAIN"),
        "",
    ),
    ("ssl_protocols", Converted(&["tls.min_version"]), "TLS 1.2 and 1.3; older versions are reported"),
    (
        "ssl_ciphers",
        Minor(
            "only AEAD suites with forward secrecy are offered: TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, and ECDHE with the same AEADs in TLS 1.2; [tls] suites restricts them",
        ),
        "",
    ),
    (
        "ssl_prefer_server_ciphers ssl_ecdh_curve ssl_dhparam",
        NotNeeded("X25519 and the NIST curves; finite-field Diffie-Hellman is not supported"),
        "",
    ),
    (
        "ssl_conf_command",
        Converted(&["server.ktls"]),
        "`Options KTLS` is `ktls = \"auto\"`, the default; other commands are reported",
    ),
    ("ssl_session_cache ssl_session_timeout", NotNeeded("sessions resume by tickets, for twelve hours"), ""),
    (
        "ssl_session_tickets",
        Converted(&["tls.session_tickets.enabled"]),
        "`off` with a shared session cache is reported: clients could not resume",
    ),
    (
        "ssl_session_ticket_key",
        Minor(
            "the key format differs: make keys with sealion ticket-key, and set [tls.session_tickets] keys to their directory",
        ),
        "",
    ),
    ("ssl_buffer_size", NotNeeded("records have the maximum length"), ""),
    ("ssl_early_data", Minor("early data is not accepted, as it can be replayed"), ""),
    (
        "ssl_stapling ssl_stapling_verify ssl_stapling_file ssl_ocsp",
        Minor(
            "responses are stapled for every certificate that names a responder, verified; responders of clients are not asked",
        ),
        "",
    ),
    (
        "ssl_client_certificate ssl_trusted_certificate ssl_verify_client",
        Converted(&["site.client_auth"]),
        "`on` and `optional`",
    ),
    ("ssl_verify_depth", Minor("chains of any length are accepted, if they end at a configured root"), ""),
    ("ssl_crl", Converted(&["site.client_auth.crls"]), ""),
    ("ssl_reject_handshake", Converted(&["site.reject_handshake"]), ""),
    // Access.
    (
        "allow deny",
        Converted(&["site.access", "site.route.deny"]),
        "`deny` takes precedence over `allow` here, so exceptions are subtracted from networks",
    ),
    ("auth_basic auth_basic_user_file", Converted(&["site.basic_auth"]), "`off` is `false`"),
    ("satisfy", Converted(&["site.satisfy"]), ""),
    (
        "auth_request auth_request_set",
        Converted(&["site.forward_auth"]),
        "the URL of the location that is asked; fields of the answer are copied under their own names",
    ),
    (
        "auth_jwt",
        Unsupported("tokens are not verified: let the application decide, or ask a server by forward_auth"),
        "",
    ),
    // Limits and times.
    ("client_header_timeout client_body_timeout", Converted(&["limits.request_timeout"]), ""),
    ("keepalive_timeout", Converted(&["limits.idle_timeout"]), ""),
    ("keepalive_requests", Converted(&["limits.max_requests"]), ""),
    ("send_timeout", Converted(&["limits.stall_timeout"]), ""),
    ("lingering_timeout", Converted(&["limits.linger_timeout"]), ""),
    ("ssl_handshake_timeout", Converted(&["limits.handshake_timeout"]), ""),
    ("large_client_header_buffers", Converted(&["limits.max_request_line", "limits.max_head"]), ""),
    (
        "client_header_buffer_size client_body_buffer_size client_body_temp_path client_body_in_file_only request_pool_size connection_pool_size",
        NotNeeded("content is forwarded as it comes, or read and discarded, up to limits.max_body"),
        "",
    ),
    (
        "keepalive_disable keepalive_time lingering_close lingering_time reset_timedout_connection keepalive_min_timeout",
        NotNeeded("there is nothing to set"),
        "",
    ),
    (
        "limit_conn limit_conn_zone",
        Converted(&["limits.max_connections_per_address"]),
        "zones by client address, for all sites; others are reported",
    ),
    (
        "limit_req limit_req_zone",
        Converted(&["site.limits.requests_per_second", "site.limits.burst"]),
        "by client address; without `nodelay`, nginx delays requests, Sealion answers 429",
    ),
    ("limit_rate", Converted(&["site.limits.bandwidth"]), "bytes per second on a connection"),
    ("limit_rate_after", Minor("the limit applies from the first byte"), ""),
    (
        "limit_conn_status limit_conn_log_level limit_conn_dry_run limit_req_status limit_req_log_level limit_req_dry_run",
        NotNeeded("the status is 429"),
        "",
    ),
    (
        "limit_except",
        Converted(&["site.route.match", "site.route.access"]),
        "a route within the location's for the other methods",
    ),
    // Logs.
    (
        "access_log",
        Converted(&["access_log.to", "access_log.format", "site.access_log", "site.log"]),
        "one for all sites, one for each server that has its own, and `off` for each location",
    ),
    ("log_format", Converted(&["access_log.text", "site.log.text"]), "variables without a field are `-`"),
    // Forwarded requests.
    (
        "proxy_pass",
        Converted(&["site.route.proxy"]),
        "constants are folded; a URL with a path of its own is asked by a further route, to which the location's rewrites",
    ),
    (
        "upstream",
        Converted(&[
            "upstream.name",
            "upstream.servers",
            "upstream.balance",
            "upstream.max_fails",
            "upstream.fail_time",
        ]),
        "a block becomes several where locations set other times or TLS, and none where no location uses it; a server that is `down` is left out; `max_conns`, `slow_start` and cookies are reported; without `max_fails`, Sealion's default is 3",
    ),
    (
        "keepalive",
        Converted(&["upstream.max_idle", "upstream.idle_timeout"]),
        "in an `upstream`, with its `keepalive_timeout`",
    ),
    (
        "least_conn ip_hash hash random least_time sticky",
        Converted(&["upstream.balance", "upstream.sticky"]),
        "`hash` by client address or by path and query; `sticky cookie`; others are reported",
    ),
    (
        "proxy_set_header",
        Converted(&["site.proxy.host", "site.proxy.request_headers"]),
        "X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Real-IP and X-Request-ID are always made, and upgrades (WebSocket) passed on; a value without placeholder is removed",
    ),
    ("proxy_hide_header", Converted(&["site.proxy.response_headers"]), ""),
    ("proxy_pass_header", NotNeeded("all fields of the server are passed on"), ""),
    ("client_max_body_size", Converted(&["site.proxy.max_body"]), "1 MiB where nginx has no other size"),
    ("proxy_intercept_errors", Converted(&["site.proxy.intercept_errors"]), ""),
    ("proxy_connect_timeout", Converted(&["upstream.connect_timeout"]), "without it, Sealion's default is 5 s"),
    (
        "proxy_read_timeout",
        Converted(&["upstream.answer_timeout", "upstream.stall_timeout", "upstream.tunnel_timeout"]),
        "",
    ),
    ("proxy_send_timeout", NotNeeded("`answer_timeout` bounds sending the request, too"), ""),
    (
        "proxy_next_upstream proxy_next_upstream_tries",
        Converted(&["upstream.tries"]),
        "another server is asked only where no answer came; cases by status are reported",
    ),
    ("proxy_next_upstream_timeout", Minor("tries are bounded by number: set tries of the [[upstream]]"), ""),
    (
        "proxy_ssl_trusted_certificate proxy_ssl_name proxy_ssl_certificate proxy_ssl_certificate_key",
        Converted(&["upstream.tls.roots", "upstream.tls.server_name", "upstream.tls.cert", "upstream.tls.key"]),
        "",
    ),
    ("proxy_ssl_verify", NotNeeded("certificates of servers are always verified; without `on`, that is reported"), ""),
    (
        "proxy_ssl_server_name proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_session_reuse proxy_ssl_verify_depth",
        NotNeeded("SNI is always sent, and TLS is 1.2 or 1.3"),
        "",
    ),
    (
        "proxy_ssl_password_file proxy_ssl_conf_command",
        Minor("encrypted keys and OpenSSL's commands are not supported: decrypt with openssl pkey"),
        "",
    ),
    ("proxy_ssl_crl", Unsupported("revocation lists are not supported"), ""),
    (
        "proxy_redirect",
        Converted(&["site.proxy.redirects", "site.proxy.locations"]),
        "an expression and variables but `$proxy_host` and `$host` are reported",
    ),
    (
        "proxy_cookie_domain proxy_cookie_path",
        Converted(&["site.proxy.redirects", "site.proxy.cookie_paths"]),
        "domains other than the server's own name, and expressions, are reported",
    ),
    ("proxy_pass_request_headers", Converted(&["site.proxy.pass_fields"]), ""),
    (
        "proxy_cookie_flags",
        Minor("the flags of cookies are sent as the server wrote them: let the application set them"),
        "",
    ),
    (
        "proxy_method proxy_set_body proxy_pass_request_body",
        Unsupported("method and content are sent as the client sent them: set fields with request_headers"),
        "",
    ),
    ("proxy_bind", Minor("the system chooses the address of connections to servers: use a route"), ""),
    ("proxy_store proxy_store_access proxy_limit_rate proxy_limit_rate_after", Minor("answers are passed on only"), ""),
    (
        "proxy_cache proxy_cache_path fastcgi_cache fastcgi_cache_path uwsgi_cache uwsgi_cache_path",
        Converted(&["site.proxy.cache", "cache.directories", "cache.size", "cache.free"]),
        "one cache for all rules, in /var/cache/sealion, where the service may write: each zone has a directory there, named by its path; without `max_size` its size is 1 GB; `inactive` and the size of `keys_zone` have no counterpart: what was asked for least goes first",
    ),
    (
        "proxy_cache_key fastcgi_cache_key uwsgi_cache_key",
        Converted(&["site.proxy.cache.key_headers", "site.proxy.cache.key_cookies"]),
        "scheme, host, path, query and upstream always belong to the key; with another variable, nothing is stored, which is reported",
    ),
    (
        "proxy_cache_valid fastcgi_cache_valid uwsgi_cache_valid",
        Converted(&["site.proxy.cache.ttl", "site.proxy.cache.heuristic"]),
        "`any` stands for the usual statuses but 401 and 403; X-Accel-Expires of the application goes before it, and 0 forbids storing, as in nginx",
    ),
    (
        "proxy_cache_bypass proxy_no_cache fastcgi_cache_bypass fastcgi_no_cache uwsgi_cache_bypass uwsgi_no_cache",
        Converted(&[
            "site.proxy.cache.bypass_cookies",
            "site.proxy.cache.key_headers",
            "site.proxy.cache.ignore_request",
        ]),
        "cookies, Authorization, and Cache-Control and Pragma of clients; with another variable, nothing is stored, which is reported",
    ),
    (
        "proxy_cache_use_stale proxy_cache_background_update fastcgi_cache_use_stale fastcgi_cache_background_update uwsgi_cache_use_stale uwsgi_cache_background_update",
        Converted(&["site.proxy.cache.stale_if_error", "site.proxy.cache.stale_while_revalidate"]),
        "for a day; answers 403, 404 and 429 are reported",
    ),
    ("proxy_cache_min_uses fastcgi_cache_min_uses uwsgi_cache_min_uses", Converted(&["site.proxy.cache.min_uses"]), ""),
    (
        "slice",
        Converted(&["site.proxy.cache.slice"]),
        "with `$slice_range` in the key and as `Range`; slices have 64 kB or more; without a cache, responses are passed on whole",
    ),
    (
        "proxy_ignore_headers fastcgi_ignore_headers uwsgi_ignore_headers",
        Converted(&["site.proxy.cache.ignore", "site.accel.ignore"]),
        "Set-Cookie is removed from what is stored; X-Accel-Buffering has no effect where there is no buffer",
    ),
    (
        "proxy_cache_methods proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age proxy_cache_revalidate proxy_cache_convert_head proxy_cache_max_range_offset fastcgi_cache_methods fastcgi_cache_lock fastcgi_cache_lock_timeout fastcgi_cache_lock_age fastcgi_cache_revalidate fastcgi_cache_max_range_offset uwsgi_cache_methods uwsgi_cache_lock uwsgi_cache_lock_timeout uwsgi_cache_lock_age uwsgi_cache_revalidate uwsgi_cache_max_range_offset",
        NotNeeded(
            "equal requests share one fetch, stale responses are validated, HEAD is answered from GET, and a request for a part fetches the whole",
        ),
        "",
    ),
    (
        "proxy_cache_purge fastcgi_cache_purge uwsgi_cache_purge",
        Minor("use sealion purge, or purge_from of the rule's cache"),
        "a location that only purges is left out",
    ),
    (
        "proxy_buffering proxy_request_buffering proxy_buffers proxy_buffer_size proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path",
        NotNeeded("content is passed on as it comes, in both directions"),
        "",
    ),
    ("proxy_http_version", NotNeeded("servers are asked over HTTP/1.1"), ""),
    (
        "proxy_socket_keepalive proxy_ignore_client_abort proxy_force_ranges proxy_headers_hash_max_size proxy_headers_hash_bucket_size",
        NotNeeded("there is nothing to set"),
        "",
    ),
    ("resolver resolver_timeout", NotNeeded("the system resolves names, for each new connection"), ""),
    ("fastcgi_pass", Converted(&["site.proxy.fastcgi", "upstream.protocol"]), "with the directory of SCRIPT_FILENAME"),
    ("fastcgi_param", Converted(&["site.proxy.fastcgi"]), "the variables of CGI are always made; others are constants"),
    ("fastcgi_index", Converted(&["site.proxy.fastcgi"]), ""),
    ("fastcgi_split_path_info", NotNeeded("the first name that ends in .php is the script, if it is a file"), ""),
    (
        "fastcgi_read_timeout fastcgi_connect_timeout",
        Converted(&["upstream.answer_timeout", "upstream.stall_timeout", "upstream.connect_timeout"]),
        "",
    ),
    ("fastcgi_intercept_errors", Converted(&["site.proxy.intercept_errors"]), ""),
    ("fastcgi_hide_header", Converted(&["site.proxy.response_headers"]), ""),
    (
        "fastcgi_buffers fastcgi_buffer_size fastcgi_busy_buffers_size fastcgi_buffering fastcgi_request_buffering fastcgi_max_temp_file_size fastcgi_temp_file_write_size fastcgi_send_timeout fastcgi_keep_conn fastcgi_pass_header fastcgi_temp_path",
        NotNeeded("content is passed on as it comes, in both directions, on a connection for each request"),
        "",
    ),
    ("uwsgi_pass", Converted(&["site.proxy.to", "upstream.protocol"]), "not over TLS (`suwsgi://`)"),
    (
        "uwsgi_param",
        Converted(&["site.proxy.uwsgi.params", "site.proxy.strip_prefix"]),
        "the variables of CGI are always made; others are constants; SCRIPT_NAME with `uwsgi_modifier1 30` is `strip_prefix`",
    ),
    ("uwsgi_modifier1 uwsgi_modifier2", Converted(&["site.proxy.uwsgi.modifier1", "site.proxy.uwsgi.modifier2"]), ""),
    (
        "uwsgi_read_timeout uwsgi_connect_timeout",
        Converted(&["upstream.answer_timeout", "upstream.stall_timeout", "upstream.connect_timeout"]),
        "",
    ),
    ("uwsgi_next_upstream", Converted(&["upstream.tries"]), "`off`; other tries are made where no answer came"),
    ("uwsgi_intercept_errors", Converted(&["site.proxy.intercept_errors"]), ""),
    ("uwsgi_hide_header", Converted(&["site.proxy.response_headers"]), ""),
    ("uwsgi_pass_request_headers", Converted(&["site.proxy.pass_fields"]), ""),
    (
        "uwsgi_buffers uwsgi_buffer_size uwsgi_busy_buffers_size uwsgi_buffering uwsgi_request_buffering uwsgi_max_temp_file_size uwsgi_temp_file_write_size uwsgi_send_timeout uwsgi_pass_header uwsgi_temp_path uwsgi_socket_keepalive",
        NotNeeded("content is passed on as it comes, in both directions, on a connection for each request"),
        "",
    ),
    (
        "grpc_pass",
        Converted(&["upstream.protocol", "site.proxy.to"]),
        "an upstream with `protocol = \"http2\"`, by TLS with `grpcs://`; the directives of `grpc_` are handled as those of `proxy_`; the server's clients need HTTP/2, which is on without TLS only where `http2` of nginx says so",
    ),
    ("grpc_set_header", Converted(&["site.proxy.host", "site.proxy.request_headers"]), ""),
    ("grpc_hide_header", Converted(&["site.proxy.response_headers"]), ""),
    ("grpc_intercept_errors", Converted(&["site.proxy.intercept_errors"]), ""),
    (
        "grpc_connect_timeout grpc_read_timeout",
        Converted(&["upstream.connect_timeout", "upstream.answer_timeout", "upstream.stall_timeout"]),
        "",
    ),
    ("grpc_next_upstream grpc_next_upstream_tries", Converted(&["upstream.tries"]), ""),
    (
        "grpc_ssl_trusted_certificate grpc_ssl_name grpc_ssl_certificate grpc_ssl_certificate_key",
        Converted(&["upstream.tls.roots", "upstream.tls.server_name", "upstream.tls.cert", "upstream.tls.key"]),
        "",
    ),
    (
        "grpc_ssl_verify grpc_ssl_server_name grpc_ssl_protocols grpc_ssl_ciphers grpc_ssl_session_reuse grpc_ssl_verify_depth grpc_send_timeout grpc_buffer_size grpc_socket_keepalive grpc_pass_header",
        NotNeeded("as those of `proxy_`"),
        "",
    ),
    (
        "scgi_pass memcached_pass",
        Unsupported(
            "requests are forwarded over HTTP, FastCGI and uwsgi only: let the program listen for HTTP, or keep nginx for this path",
        ),
        "",
    ),
    // Beyond files.
    ("stub_status", Unsupported("use [metrics], which has a listener of its own"), ""),
    (
        "dav_methods create_full_put_path mp4 flv sub_filter ssi addition_types image_filter xslt_stylesheet",
        Unsupported("files are sent unmodified"),
        "",
    ),
    ("stream mail", Minor("only HTTPS is served"), ""),
];

/// The keys of sealion.toml that directives convert to, for instance `site.root`.
pub fn counterparts() -> impl Iterator<Item = &'static str> {
    let of = |handling: &'static Handling| match handling {
        Converted(counterparts) => *counterparts,
        _ => &[],
    };
    DIRECTIVES.iter().flat_map(move |(_, handling, _)| of(handling)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        for name in DIRECTIVES.iter().flat_map(|(names, ..)| names.split(' ')) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
    }

    #[test]
    fn the_migration_page_has_the_table() {
        let page = include_str!("../../../docs/migrate-from-nginx.md");
        let table = markdown();
        assert!(page.contains(&table), "put this into docs/migrate-from-nginx.md:\n{table}");
    }
}
