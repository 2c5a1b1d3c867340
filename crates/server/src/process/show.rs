//! `--open` and `--qr`: the way from the terminal to the site.

use std::fmt::Write;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use qrcode::{Color, EcLevel, QrCode};
use tracing::Level;

use crate::config::{Config, ServeArgs};
use crate::listen::{Address, ListenConfig, Listeners};
use crate::observe::messages::{LogFormat, print};

/// The URLs to open in a browser, and to show as a QR code.
pub(super) struct Show {
    open: Option<String>,
    qr: Option<String>,
}

impl Show {
    /// Finds the URLs.
    ///
    /// # Errors
    /// A line: the requested output is not possible.
    pub(super) fn new(args: &ServeArgs, config: &Config, listeners: &Listeners) -> Result<Self, String> {
        if args.qr && config.server.log_format == LogFormat::Json {
            return Err(
                "--qr draws on standard error, where messages are JSON (log_format): leave one of them out".to_owned()
            );
        }
        let wanted = |wanted: bool, of: fn(SocketAddr) -> SocketAddr| match wanted {
            false => Ok(None),
            true => url(config, listeners, of).map(Some),
        };
        Ok(Show { open: wanted(args.open, on_this_machine)?, qr: wanted(args.qr, on_the_network)? })
    }

    /// Draws the code, and opens the browser.
    pub(super) fn run(self) {
        if let Some(url) = self.qr {
            match drawing(&url, std::io::stderr().is_terminal()) {
                Ok(drawing) => eprint!("{drawing}"),
                Err(error) => print(Level::WARN, format_args!("no QR code for {url}: {error}")),
            }
            let is_local = url.contains("//localhost");
            let note = if is_local { ", which other devices cannot reach: add --listen 0.0.0.0:8443" } else { "" };
            print(Level::INFO, format_args!("the QR code is {url}{note}"));
        }
        if let Some(url) = self.open {
            let shown = url.clone();
            // The program may run as long as the browser does.
            let opening = thread::Builder::new().name("open".to_owned()).spawn(move || open(&url));
            if let Err(error) = opening {
                print(Level::WARN, format_args!("cannot open a browser: {error}: open {shown} yourself"));
            }
        }
    }
}

/// Opens a browser, and waits until the program that does it ends.
fn open(url: &str) {
    let mut command = Command::new(OPENER);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = match command.status() {
        Ok(status) if status.success() => return,
        Ok(status) => format!("{OPENER}: {status}"),
        Err(error) => format!("{OPENER}: {error}"),
    };
    print(Level::WARN, format_args!("cannot open a browser ({why}): open {url} yourself"));
}

/// The program of the desktop that opens a URL (xdg-utils).
const OPENER: &str = "xdg-open";

/// The URL of the first listener with TLS, or else of the first that serves sites without it: by the first name of the first site in a configuration file, else by the address that `of` makes
/// of its own.
fn url(config: &Config, listeners: &Listeners, of: fn(SocketAddr) -> SocketAddr) -> Result<String, String> {
    let first = |is_wanted: fn(&ListenConfig) -> bool| {
        let wanted = |place: &usize| config.listen.get(*place).is_none_or(is_wanted);
        listeners.addresses.iter().find_map(|(address, place)| match address {
            Address::Tcp(address) if wanted(place) => Some(*address),
            _ => None,
        })
    };
    let with_tls = first(|listen| *listen.tls);
    let scheme = if with_tls.is_some() { "https" } else { "http" };
    let address = with_tls
        .or_else(|| first(ListenConfig::serves))
        .ok_or("--open and --qr need a listener over TCP: add one with --listen HOST:PORT, or leave them out")?;
    let name = config
        .site
        .first()
        .and_then(|site| site.names.first())
        .filter(|name| !name.contains('*') && !name.starts_with('~'));
    Ok(display(scheme, of(address), name.map(|name| name.as_str())))
}

fn display(scheme: &str, address: SocketAddr, name: Option<&str>) -> String {
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = if address.port() == usual { String::new() } else { format!(":{}", address.port()) };
    let host = match (name, address.ip()) {
        (Some(name), _) => name.to_owned(),
        (None, ip) if ip.is_loopback() => "localhost".to_owned(),
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    format!("{scheme}://{host}{port}/")
}

fn on_this_machine(address: SocketAddr) -> SocketAddr {
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    SocketAddr::new(ip, address.port())
}

/// The address of a listener on all addresses, as other devices reach it: the source address of the route to the rest of the world.
fn on_the_network(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // Connecting a UDP socket sends nothing. The address is one for documentation (RFC 5737).
    let routed = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    routed.map_or_else(|_| on_this_machine(address), |routed| SocketAddr::new(routed.ip(), address.port()))
}

/// Light modules around a code, as ISO/IEC 18004 asks for.
const QUIET: usize = 4;

/// The code of a text, two rows of modules a line. `colored`: black on white, whatever the colours of the terminal; else as for a dark one.
fn drawing(text: &str, colored: bool) -> Result<String, String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).map_err(|error| error.to_string())?;
    let width = code.width();
    let is_light = |x: usize, y: usize| {
        let inside = (QUIET..width + QUIET).contains(&x) && (QUIET..width + QUIET).contains(&y);
        !inside || code[(x - QUIET, y - QUIET)] == Color::Light
    };
    let (begin, end) = if colored { ("\x1b[38;5;231;48;5;16m", "\x1b[0m") } else { ("", "") };
    let mut drawing = String::new();
    for y in (0..width + 2 * QUIET).step_by(2) {
        let line: String = (0..width + 2 * QUIET)
            .map(|x| match (is_light(x, y), is_light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            })
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(drawing, "{begin}{line}{end}");
    }
    Ok(drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_name_or_an_address_and_a_port_if_it_is_not_443() {
        for (address, name, url) in [
            ("127.0.0.1:8443", None, "https://localhost:8443/"),
            ("[::1]:443", None, "https://localhost/"),
            ("192.0.2.7:8443", None, "https://192.0.2.7:8443/"),
            ("[2001:db8::1]:443", None, "https://[2001:db8::1]/"),
            ("0.0.0.0:443", Some("example.org"), "https://example.org/"),
        ] {
            assert_eq!(display("https", address.parse().unwrap(), name), url);
        }
        assert_eq!(display("http", "192.0.2.7:80".parse().unwrap(), None), "http://192.0.2.7/");
        assert_eq!(display("http", "127.0.0.1:443".parse().unwrap(), None), "http://localhost:443/");
        assert_eq!(on_this_machine("[::]:7".parse().unwrap()).to_string(), "127.0.0.1:7");
        let on_network = on_the_network("0.0.0.0:7".parse().unwrap());
        assert!(!on_network.ip().is_unspecified() && on_network.port() == 7, "{on_network}");
    }

    /// Every module of the code is read back from the half blocks, its quiet zone included.
    #[test]
    fn the_drawing_has_every_module_of_the_code() {
        const URL: &str = "https://192.0.2.7:8443/";
        let code = QrCode::with_error_correction_level(URL, EcLevel::L).unwrap();
        let drawing = drawing(URL, false).unwrap();
        let rows: Vec<Vec<bool>> = drawing
            .lines()
            .flat_map(|line| {
                [line.chars().map(|c| "█▀".contains(c)).collect(), line.chars().map(|c| "█▄".contains(c)).collect()]
            })
            .collect();
        let side = code.width() + 2 * QUIET;
        assert!(rows.len() >= side && rows.iter().all(|row| row.len() == side));
        for (y, row) in rows.iter().take(side).enumerate() {
            for (x, light) in row.iter().enumerate() {
                let inside = (QUIET..side - QUIET).contains(&x) && (QUIET..side - QUIET).contains(&y);
                let expected = !inside || code[(x - QUIET, y - QUIET)] == Color::Light;
                assert_eq!(*light, expected, "{x}, {y}");
            }
        }
    }
}
