//! Directives outside `server`, and directives of a server that hold for the whole process here.

use super::context::Context;
use super::{level, log, proxy, real_ip, tls, values};
use crate::syntax::Directive;

impl Context {
    /// A directive outside `http`.
    pub(super) fn process(&mut self, directive: &Directive) {
        let number = directive.first().parse::<u64>().ok();
        match (directive.name.as_str(), directive.first()) {
            ("worker_processes", "auto") => {}
            ("worker_processes", _) => match number {
                Some(workers @ 1..=1024) => {
                    self.workers = Some(workers);
                    self.root.table("server").set("workers", workers as i64);
                }
                _ => self.report(directive),
            },
            ("worker_connections", _) => match number {
                Some(connections @ 1..=1_000_000) => {
                    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
                    let all = connections * self.workers.unwrap_or_else(cores);
                    self.root.table("limits").set("max_connections", all as i64);
                }
                _ => self.report(directive),
            },
            ("worker_shutdown_timeout", _) => self.limit_time(directive, "grace"),
            ("error_log", _) => self.error_log(directive),
            _ => self.report(directive),
        }
    }

    /// A directive of `http`, or a directive of a server that is process-wide here.
    pub(super) fn shared(&mut self, directive: &Directive) {
        match directive.name.as_str() {
            "keepalive_timeout" => self.limit_time(directive, "idle_timeout"),
            "client_header_timeout" | "client_body_timeout" => self.limit_time(directive, "request_timeout"),
            "send_timeout" => self.limit_time(directive, "stall_timeout"),
            "lingering_timeout" => self.limit_time(directive, "linger_timeout"),
            "ssl_handshake_timeout" => self.limit_time(directive, "handshake_timeout"),
            "keepalive_requests" => match directive.first().parse::<i64>() {
                Ok(requests @ 1..) => self.process_wide(directive, "limits", "max_requests", requests),
                _ => self.report(directive),
            },
            "large_client_header_buffers" => self.header_buffers(directive),
            "open_file_cache_valid" => match values::time(directive.first()) {
                Some(age) => self.process_wide(directive, "server", "file_cache_age", age.to_string()),
                None => self.report(directive),
            },
            // Handled with the servers.
            name if real_ip::is_real_ip_directive(name) => {}
            "open_file_cache" | "open_file_cache_min_uses" | "open_file_cache_errors" => {}
            "error_log" => self.error_log(directive),
            "access_log" => log::of_all(self, directive),
            "limit_req_zone" | "limit_conn_zone" => {
                self.zones.take(directive);
            }
            "ssl_session_tickets" if directive.first() == "on" => {}
            "ssl_session_tickets" => {
                self.note(
                    directive,
                    "sessions resume by tickets only; to turn them off, set enabled = false in [tls.session_tickets]",
                );
            }
            "ssl_protocols" => tls::protocols(self, directive),
            "ssl_conf_command" => tls::command(self, directive),
            "upstream" => self.upstreams.take(directive),
            "map" | "geo" | "split_clients" => self.tables.push(directive.clone()),
            "log_format" => self.formats.push(directive.clone()),
            "proxy_cache_path" | "fastcgi_cache_path" | "uwsgi_cache_path" => self.cache_zones.take(directive),
            _ if proxy::is_off(directive) => {}
            // Inherited by the servers.
            name if level::inherits(name) => {}
            _ => self.report(directive),
        }
    }

    fn limit_time(&mut self, directive: &Directive, key: &str) {
        match values::time(directive.first()) {
            Some(time) if !time.0.is_zero() => self.process_wide(directive, "limits", key, time.to_string()),
            _ => self.note(directive, format!("set [limits] {key} to a time above 0")),
        }
    }

    fn header_buffers(&mut self, directive: &Directive) {
        let [number, size] = directive.arguments.as_slice() else { return self.report(directive) };
        match (number.parse::<u64>(), values::size(size)) {
            (Ok(number @ 1..), Some(size)) if (256..=1 << 20).contains(&size.0) => {
                self.root.table("limits").set("max_request_line", size.0 as i64);
                self.root.table("limits").set("max_head", (number * size.0).min(1 << 20) as i64);
            }
            _ => self.report(directive),
        }
    }

    fn error_log(&mut self, directive: &Directive) {
        let level = match directive.arguments.get(1).map_or("error", String::as_str) {
            "debug" => "debug",
            "info" => "info",
            "crit" | "alert" | "emerg" => "error",
            // Failures of servers behind a rule are errors in nginx, and warnings here.
            _ => "warn",
        };
        self.root.table("server").set("log", level);
    }
}
