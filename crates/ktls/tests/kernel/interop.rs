//! Interoperation with the tools of OpenSSL and GnuTLS, in user space and with their kernel TLS.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hkdf;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, KeyLog, ServerConfig, ServerConnection, SideData};
use sealion_ktls::stat::TlsStat;
use sealion_ktls::{AeadKey, Cipher, CryptoInfo, Incoming, Kind, More, RecordType, Rx, Tx, Version, handover};

use crate::support::tls::Tls;
use crate::support::{kernel_at_least, pattern, suites};

/// RFC 8446 §4.6.3: key_update(24), 1 byte, update_not_requested(0) or update_requested(1).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

/// The traffic secrets of one connection, as rustls logs them.
#[derive(Debug, Default)]
struct Secrets {
    client: Mutex<Vec<u8>>,
    server: Mutex<Vec<u8>>,
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let kept = match label {
            "CLIENT_TRAFFIC_SECRET_0" => &self.client,
            "SERVER_TRAFFIC_SECRET_0" => &self.server,
            _ => return,
        };
        *kept.lock().expect("not poisoned") = secret.to_vec();
    }
}

/// Derives the next keys of a direction, RFC 8446 §7.2 and §7.3.
fn next(secret: &Mutex<Vec<u8>>, cipher: Cipher) -> CryptoInfo {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let algorithm = if cipher == Cipher::Aes256Gcm { hkdf::HKDF_SHA384 } else { hkdf::HKDF_SHA256 };
    let expand = |secret: &[u8], label: &str, len: usize| {
        let label = format!("tls13 {label}");
        let info = [&(len as u16).to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0]].concat();
        let mut bytes = vec![0; len];
        let secret = hkdf::Prk::new_less_safe(algorithm, secret);
        secret.expand(&[&info], Len(len)).expect("short").fill(&mut bytes).expect("its length");
        bytes
    };
    let mut secret = secret.lock().expect("not poisoned");
    *secret = expand(&secret, "traffic upd", secret.len());
    let key = AeadKey::from_bytes(cipher, &expand(&secret, "key", cipher.key_len())).expect("its length");
    CryptoInfo::tls13(&key, &expand(&secret, "iv", 12).try_into().expect("12 bytes"), 0)
}

/// A connection with both halves in the kernel.
struct Connection {
    tx: Tx<Arc<TcpStream>>,
    rx: Rx<Arc<TcpStream>>,
    secrets: Arc<Secrets>,
}

impl Connection {
    fn serve(stream: TcpStream, tls: &Tls) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut config = ServerConfig::clone(&tls.server);
        config.key_log = secrets.clone();
        let mut connection = ServerConnection::new(Arc::new(config)).expect("a server");
        shake_hands(&mut connection, &stream);
        let version = connection.protocol_version().expect("a version").try_into().expect("known");
        Self::hand_over(stream, version, connection.dangerous_extract_secrets().expect("secrets"), secrets)
    }

    fn connect(stream: TcpStream, tls: &Tls) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut config = ClientConfig::clone(&tls.client);
        config.key_log = secrets.clone();
        let name = "localhost".try_into().expect("a name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        shake_hands(&mut connection, &stream);
        let version = connection.protocol_version().expect("a version").try_into().expect("known");
        Self::hand_over(stream, version, connection.dangerous_extract_secrets().expect("secrets"), secrets)
    }

    fn hand_over(stream: TcpStream, version: Version, of: rustls::ExtractedSecrets, secrets: Arc<Secrets>) -> Self {
        let info = |(sequence, secrets)| CryptoInfo::from_rustls(version, &secrets, sequence).expect("known");
        let tx = handover::tx(Arc::new(stream), &info(of.tx)).expect("TLS_TX");
        let rx = handover::rx(&tx, &info(of.rx)).expect("TLS_RX");
        Self { tx, rx, secrets }
    }

    fn send(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let sent = self.tx.send(data, More::No).expect("sent");
            data = &data[sent..];
        }
    }

    /// Reads once; skips session tickets.
    fn recv(&mut self) -> (RecordType, Vec<u8>) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.rx.recv(&mut buffer).expect("received") {
                // RFC 8446 §4: new_session_ticket(4).
                Incoming::Record { record_type: RecordType::HANDSHAKE, .. } if buffer[0] == 4 => {}
                Incoming::Record { record_type, len, .. } => return (record_type, buffer[..len].to_vec()),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reads application data to the end of the connection.
    fn recv_to_end(&mut self) -> Vec<u8> {
        let (mut data, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match self.rx.recv(&mut buffer).expect("received") {
                Incoming::Record { record_type: RecordType::APPLICATION_DATA, len, .. } => {
                    data.extend_from_slice(&buffer[..len]);
                }
                Incoming::Record { .. } => {}
                Incoming::End { .. } => return data,
                Incoming::KeyExpired => panic!("no key update was asked for"),
            }
        }
    }
}

/// Reads record by record, so that the records after the handshake stay in the socket for the kernel.
fn shake_hands<C, D>(connection: &mut C, mut stream: &TcpStream)
where
    C: DerefMut + Deref<Target = ConnectionCommon<D>>,
    D: SideData,
{
    loop {
        while connection.wants_write() {
            connection.write_tls(&mut stream).expect("written");
        }
        if !connection.is_handshaking() {
            return;
        }
        let mut record = vec![0; 5];
        stream.read_exact(&mut record).expect("a header");
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        stream.read_exact(&mut record[5..]).expect("a record");
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            connection.read_tls(&mut rest).expect("read");
            connection.process_new_packets().expect("a handshake");
        }
    }
}

/// A running tool and its output; killed on drop.
struct Tool(Child, BufReader<PipeReader>);

impl Tool {
    /// Starts an OpenSSL tool. `ktls` allows it to use kernel TLS, which OpenSSL 3.0 learns only from its
    /// configuration.
    fn start(ktls: bool, arguments: &[&str]) -> Self {
        let configuration = "/tmp/kernel_interop.cnf";
        let options = if ktls { "KTLS" } else { "-KTLS" };
        let text = format!("openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nOptions = {options}\n");
        std::fs::write(configuration, text).expect("a file");
        let (output, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new("openssl");
        command.env("OPENSSL_CONF", configuration).args(arguments).stdout(writer).stderr(Stdio::null());
        Self::spawn(command, output)
    }

    /// Starts a GnuTLS tool for one version and cipher, allowed to use kernel TLS. Standard error is captured too,
    /// because the tool announces its listener there.
    fn gnutls(program: &str, (version, cipher): (Version, Cipher), arguments: &[&str]) -> Self {
        let configuration = "/tmp/kernel_interop.gnutls";
        std::fs::write(configuration, "[global]\nktls = true\n").expect("a file");
        let version = match version {
            Version::Tls12 => "1.2",
            Version::Tls13 => "1.3",
        };
        let cipher = match cipher {
            Cipher::Aes128Gcm => "AES-128-GCM",
            Cipher::Aes256Gcm => "AES-256-GCM",
            Cipher::Chacha20Poly1305 => "CHACHA20-POLY1305",
            other => panic!("not tried: {other}"),
        };
        let priority = format!("--priority=NORMAL:-VERS-ALL:+VERS-TLS{version}:-CIPHER-ALL:+{cipher}");
        let (output, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(program);
        command.env("GNUTLS_SYSTEM_PRIORITY_FILE", configuration).arg(priority).args(arguments);
        command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
        Self::spawn(command, output)
    }

    fn spawn(mut command: Command, output: PipeReader) -> Self {
        let child = command.current_dir("/tmp").stdin(Stdio::piped()).spawn().expect("spawn");
        Self(child, BufReader::new(output))
    }

    /// Types a command, or data, in one write.
    fn types(&mut self, line: &str) {
        let mut stdin = self.0.stdin.as_ref().expect("piped");
        stdin.write_all(line.as_bytes()).expect("written");
    }

    /// Reads the output up to a line that begins with `wanted`, and returns the rest of the line.
    fn prints(&mut self, wanted: &str) -> String {
        let mut seen = Vec::new();
        for line in self.1.by_ref().lines() {
            let line = line.expect("a line");
            if let Some(rest) = line.strip_prefix(wanted) {
                return rest.to_owned();
            }
            seen.push(line);
        }
        panic!("{wanted:?} was not printed, but {seen:#?}")
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rose(before: &TlsStat, name: &str) -> i64 {
    let now = TlsStat::read().expect("counters");
    now.delta(before).into_iter().find(|&(found, _)| found == name).map_or(0, |(_, change)| change)
}

/// s_client, sealing by the kernel or by itself, talks to our server.
#[test]
fn s_client_talks() {
    for (version, cipher) in suites() {
        for ktls in [false, true] {
            let before = TlsStat::read().expect("counters");
            let (_client, _server) = greet(version, cipher, ktls);
            assert_eq!(rose(&before, "TlsTxSw"), if ktls { 2 } else { 1 }, "{version} {cipher}");
        }
    }
}

/// s_client's key updates `k` and `K`, if our kernel can follow. s_client seals by itself: OpenSSL 3.0 leaves its old
/// key in the kernel, and its next record would not open.
#[test]
fn s_client_updates_keys() {
    let rekeys = kernel_at_least(6, 14);
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let (mut client, mut server) = greet(version, cipher, false);
        client.types("k\n");
        assert_eq!(server.recv(), (RecordType::HANDSHAKE, KEY_UPDATE.to_vec()));
        let next_key = next(&server.secrets.client, cipher);
        if !rekeys {
            let refused = server.rx.rekey(&next_key).expect_err("before Linux 6.14");
            assert_eq!(refused.kind(), Kind::Unsupported);
            continue;
        }
        server.rx.rekey(&next_key).expect("rekey");
        client.types("again\n");
        assert_eq!(server.recv(), data("again\n"), "{cipher}");

        client.types("K\n");
        assert_eq!(server.recv(), (RecordType::HANDSHAKE, KEY_UPDATE_REQUESTED.to_vec()));
        server.rx.rekey(&next(&server.secrets.client, cipher)).expect("rekey");
        let next_key = next(&server.secrets.server, cipher);
        server.tx.rekey(&KEY_UPDATE, &next_key).expect("rekey");
        server.send(b"renewed\n");
        client.prints("renewed");
        client.types("both\n");
        assert_eq!(server.recv(), data("both\n"), "{cipher}");
    }
}

/// A `KtlsStream` follows `k` and replies to `K`. Before 6.14 the update ends the connection.
#[test]
fn s_client_updates_keys_of_a_stream() {
    use sealion_ktls::stream::KtlsStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (version, cipher) in suites().filter(|&(version, _)| version == Version::Tls13) {
        let tls = Tls::new(version, cipher);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let mut client = Tool::start(false, &["s_client", "-connect", &address]);
        let (socket, _) = listener.accept().expect("accept");
        socket.set_nonblocking(true).expect("non-blocking");
        runtime.block_on(async {
            let socket = tokio::net::TcpStream::from_std(socket).expect("a runtime's socket");
            let mut server = KtlsStream::accept(socket, Arc::clone(&tls.server)).await.expect("accept");
            let mut line = [0; 6];
            for key in ["k\n", "K\n", "K\n"] {
                client.types("hello\n");
                server.read_exact(&mut line).await.expect("read");
                assert_eq!(&line, b"hello\n");
                server.write_all(b"welcome\n").await.expect("written");
                client.prints("welcome");
                let before = TlsStat::read().expect("counters");
                client.types(key);
                if !kernel_at_least(6, 14) {
                    let ended = server.read(&mut line).await.expect_err("before Linux 6.14");
                    assert_eq!(ended.kind(), std::io::ErrorKind::Unsupported, "{ended}");
                    return;
                }
                // s_client takes a line for a command only if it arrives alone.
                while rose(&before, "TlsRxRekeyOk") == 0 {
                    let idle = tokio::time::timeout(Duration::from_millis(10), server.read(&mut line)).await;
                    assert!(idle.is_err(), "only a key update came: {idle:?}");
                }
            }
            client.types("bye..\n");
            server.read_exact(&mut line).await.expect("read");
            assert_eq!(&line, b"bye..\n");
            server.write_all(b"renewed\n").await.expect("written");
            client.prints("renewed");
        });
    }
}

/// s_client and our server, after one word in each direction.
fn greet(version: Version, cipher: Cipher, ktls: bool) -> (Tool, Connection) {
    let tls = Tls::new(version, cipher);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    let mut client = Tool::start(ktls, &["s_client", "-connect", &address]);
    let (stream, _) = listener.accept().expect("accept");
    let mut server = Connection::serve(stream, &tls);
    client.types("hello\n");
    assert_eq!(server.recv(), data("hello\n"), "{version} {cipher}");
    server.send(b"welcome\n");
    client.prints("welcome");
    (client, server)
}

fn data(text: &str) -> (RecordType, Vec<u8>) {
    (RecordType::APPLICATION_DATA, text.as_bytes().to_vec())
}

/// `s_server -WWW -sendfile` seals by the kernel, and our client opens by the kernel.
#[test]
fn s_server_sendfile() {
    let body = pattern(1_000_003);
    std::fs::write("/tmp/kernel_interop.file", &body).expect("a file");
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        std::fs::write("/tmp/kernel_interop.crt", &tls.pem.0).expect("a file");
        std::fs::write("/tmp/kernel_interop.key", &tls.pem.1).expect("a file");
        let before = TlsStat::read().expect("counters");
        let arguments =
            ["s_server", "-accept", "127.0.0.1:0", "-cert", "kernel_interop.crt", "-key", "kernel_interop.key"];
        let mut server = Tool::start(true, &[&arguments[..], &["-WWW", "-sendfile", "-http_server_binmode"]].concat());
        let address = server.prints("ACCEPT ");
        let stream = TcpStream::connect(address).expect("connect");
        let mut client = Connection::connect(stream, &tls);
        client.send(b"GET /kernel_interop.file HTTP/1.0\r\n\r\n");
        let answer = client.recv_to_end();
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
        assert!(answer[head..] == body, "{version} {cipher}: {} bytes", answer.len() - head);
        assert_eq!(rose(&before, "TlsTxSw"), 2, "{version} {cipher}: openssl sends by the kernel too");
    }
}

/// gnutls-cli talks to our server. Debian's GnuTLS seals by itself although it may use the kernel.
#[test]
fn gnutls_cli_talks() {
    // Several records on one line.
    let line = "x".repeat(100_000);
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        std::fs::write("/tmp/kernel_interop.crt", &tls.pem.0).expect("a file");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let port = listener.local_addr().expect("address").port().to_string();
        let before = TlsStat::read().expect("counters");
        let arguments = ["--x509cafile=kernel_interop.crt", "--verify-hostname=localhost", "-p", &port, "127.0.0.1"];
        let mut client = Tool::gnutls("gnutls-cli", (version, cipher), &arguments);
        let (stream, _) = listener.accept().expect("accept");
        let mut server = Connection::serve(stream, &tls);
        client.types("hello\n");
        assert_eq!(server.recv(), data("hello\n"), "{version} {cipher}");
        server.send(format!("{line}\n").as_bytes());
        assert!(client.prints("xx") == line[2..], "{version} {cipher}");
        assert_eq!(rose(&before, "TlsTxSw"), 1, "{version} {cipher}: ours alone");
    }
}

/// `gnutls-serv --http` talks to our client; it seals by itself too.
#[test]
fn gnutls_serv_talks() {
    let body = pattern(1_000_003);
    std::fs::write("/tmp/kernel_interop.file", &body).expect("a file");
    for (version, cipher) in suites() {
        let tls = Tls::new(version, cipher);
        std::fs::write("/tmp/kernel_interop.crt", &tls.pem.0).expect("a file");
        std::fs::write("/tmp/kernel_interop.key", &tls.pem.1).expect("a file");
        // It does not report its port, so the test gives it a free port.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let port = free.local_addr().expect("address").port();
        drop(free);
        let before = TlsStat::read().expect("counters");
        let arguments = [
            "--x509certfile=kernel_interop.crt",
            "--x509keyfile=kernel_interop.key",
            "--disable-client-cert",
            "--http",
            "--httpdata=kernel_interop.file",
            &format!("--port={port}"),
        ];
        let mut server = Tool::gnutls("gnutls-serv", (version, cipher), &arguments);
        server.prints("HTTP Server listening on IPv4");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
        let mut client = Connection::connect(stream, &tls);
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        let answer = client.recv_to_end();
        assert!(answer.ends_with(&[b"\r\n\r\n", &body[..]].concat()), "{version} {cipher}: {} bytes", answer.len());
        assert_eq!(rose(&before, "TlsTxSw"), 1, "{version} {cipher}: ours alone");
    }
}
