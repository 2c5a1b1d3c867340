//! nginx with kernel TLS.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sealion_testkit::PATIENCE;

use super::Site;
use super::port::free_port;

/// A master and one worker, which end with this.
pub(crate) struct Nginx {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Serves the root of `site` on a free port of 127.0.0.1.
    pub(crate) fn serve(site: &Site) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let configuration = site.outside().join("nginx.conf");
        let directory = site.outside().display().to_string();
        let text = format!(
            "daemon off;
user root;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{}}
http {{
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log off;
  sendfile on;
  server {{
    listen {address} ssl;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_conf_command Options KTLS;
    root {root};
  }}
}}
",
            cert = site.pki.certificate_file().display(),
            key = site.pki.key_file().display(),
            root = site.root().display(),
        );
        std::fs::write(&configuration, text).expect("the configuration is written");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&configuration).stdout(Stdio::null()).stderr(Stdio::inherit());
        let nginx = Self { process: command.spawn().expect("nginx is needed"), address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(started.elapsed() < PATIENCE, "nginx does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        nginx
    }

    /// The number of its master process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its own signal for a fast end; its workers would outlive a kill.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}
