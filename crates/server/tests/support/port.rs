//! Ports for those who cannot be told to listen on any.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A free port of 127.0.0.1, which no other test is given meanwhile: it lies below the range from which the kernel serves
/// connections and binds to port 0 (ip_local_port_range, from 32768), and each call takes the next one.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        // Several runs of the tests at once begin at different ports.
        let offset = std::process::id() * 64 + TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (offset % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Above the ports that `import-nginx --compare` takes, which runs beside.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;
