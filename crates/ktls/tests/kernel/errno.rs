//! Errnos that need an accident: a signal, a silent network, an administrator, a sandbox.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sealion_ktls::{Cipher, Error, Incoming, Kind, More, Operation, RecordType, Version, diag, handover};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::support::{self, Receiving, Sending, file_of, info, kernel_at_least, pair, pattern, suites};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);
/// The time after which unacknowledged data ends a connection; the kernel's default is 15 minutes.
const USER_TIMEOUT_MS: u32 = 500;

#[track_caller]
fn assert_is(error: Error, operation: Operation, kind: Kind, errno: Errno) {
    assert_eq!(
        (error.operation(), error.kind(), error.errno()),
        (operation, kind, Some(errno.raw_os_error())),
        "{error}"
    );
}

/// Another process that stops and continues this one over and over. This interrupts a wait in the kernel; if the socket
/// has a timeout, it does so even without a signal handler (signal(7)).
struct Storm {
    sender: Child,
    rounds: BufReader<ChildStdout>,
}

impl Storm {
    fn over_us() -> Self {
        // The pause lets this process run in between, even if every instruction is emulated.
        let script = "while kill -STOP $0 && kill -CONT $0; do echo; sleep 0.01; done";
        let mut sender = Command::new("sh")
            .args(["-c", script, &std::process::id().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh is needed");
        let rounds = BufReader::new(sender.stdout.take().expect("it is piped"));
        Self { sender, rounds }
    }

    /// Waits for `rounds` more signals.
    fn wait(&mut self, rounds: usize) {
        for _ in 0..rounds {
            assert_eq!(self.rounds.read_line(&mut String::new()).expect("a pipe"), 1, "the storm goes on");
        }
    }

    /// Its last act is to continue this process: without a reader its next `echo` ends it.
    fn end(self) {
        let Self { mut sender, rounds } = self;
        drop(rounds);
        sender.wait().expect("it ends");
    }
}

/// How a call waits for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Poll,
    Send,
    /// With SO_SNDTIMEO an interrupted call returns EINTR; without it, the kernel restarts the call.
    SendFor(Duration),
}

/// Before 6.12 (seen on 6.1.176) the kernel may break off a record when a signal comes during a blocking send, and end
/// the connection with its internal errno 512. A program that waits in poll is safe on all kernels.
fn waits() -> Vec<Waits> {
    let mut waits = vec![Waits::Poll];
    if kernel_at_least(6, 12) {
        waits.extend([Waits::Send, Waits::SendFor(LONG)]);
    }
    waits
}

#[test]
fn signals_lose_nothing_that_is_sent() {
    for waits in waits() {
        for (version, cipher) in suites() {
            let mut c = Sending::new(version, cipher, 0);
            c.narrow();
            let mut sent = c.fill(More::No);
            c.near.set_nonblocking(waits == Waits::Poll).expect("blocking");
            let mut storm = Storm::over_us();
            if let Waits::SendFor(timeout) = waits {
                c.near.set_write_timeout(Some(timeout)).expect("SO_SNDTIMEO");
                // The socket is full, but TCP may still find room at the peer.
                let interrupted = loop {
                    match rustix::net::send(&c.near, b"x", SendFlags::NOSIGNAL) {
                        Ok(_) => sent.push(b'x'),
                        Err(errno) => break errno,
                    }
                };
                assert_eq!(interrupted, Errno::INTR, "the storm reaches sends on this socket");
            }

            let (data, filed) = (pattern(300_001), pattern(200_003));
            let file = file_of(&filed);
            let expected = [&sent[..], &data, &filed].concat();
            let Sending { near, mut tx, mut far } = c;
            std::thread::scope(|scope| {
                let (expected, storm) = (&expected, &mut storm);
                let reader = scope.spawn(move || {
                    storm.wait(10);
                    let (got, _) = far.data(expected.len());
                    assert!(got == *expected, "{version} {cipher} {waits:?}");
                    assert_eq!(far.record().record_type, RecordType::ALERT);
                });
                let mut at = 0;
                while at < data.len() {
                    at += repeat(&near, || tx.send(&data[at..], More::No));
                }
                let mut offset = 0;
                while offset < filed.len() as u64 {
                    let left = filed.len() - offset as usize;
                    repeat(&near, || tx.send_file(&file, &mut offset, left));
                }
                repeat(&near, || tx.close_notify());
                reader.join().expect("the reader");
            });
            storm.end();
        }
    }
}

/// Repeats a call while the socket is full, and panics on any other failure.
#[track_caller]
fn repeat<T>(near: &TcpStream, mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) if error.kind() == Kind::WouldBlock => {
                // A storm interrupts poll as well.
                match poll(&mut [PollFd::new(near, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => panic!("poll: {errno}"),
                }
            }
            Err(error) => {
                let _ = near.shutdown(std::net::Shutdown::Both);
                panic!("a signal is no failure: {error}");
            }
        }
    }
}

#[test]
fn signals_lose_nothing_that_is_received() {
    for (version, cipher) in suites() {
        let Receiving { near, mut rx, mut far, tx: _tx } = Receiving::new(version, cipher, 0);
        near.set_read_timeout(Some(LONG)).expect("SO_RCVTIMEO");
        let mut storm = Storm::over_us();
        let interrupted = rustix::net::recv(&near, &mut [0; 9], RecvFlags::empty()).expect_err("there is nothing");
        assert_eq!(interrupted, Errno::INTR, "the storm reaches receiving on this socket");
        std::thread::scope(|scope| {
            let storm = &mut storm;
            scope.spawn(move || {
                for byte in 0..3 {
                    storm.wait(5);
                    far.send(RecordType::APPLICATION_DATA, &[byte; 5]);
                }
            });
            let mut got = Vec::new();
            while got.len() < 15 {
                let mut buffer = [0; 64];
                match rx.recv(&mut buffer).expect("a signal is no failure") {
                    Incoming::Record { len, .. } => got.extend_from_slice(&buffer[..len]),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(got, [[0; 5], [1; 5], [2; 5]].concat());
        });
        storm.end();
    }
}

/// Sends until a send fails, and returns the error.
fn send_until_refused(c: &mut Sending) -> Error {
    c.near.set_nonblocking(true).expect("non-blocking");
    loop {
        poll(&mut [PollFd::new(&c.near, PollFlags::OUT)], None).expect("poll");
        match c.tx.send(&[0; 1000], More::No) {
            Ok(_) => {}
            Err(error) if error.kind() == Kind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

fn short_user_timeout(c: &Sending) {
    rustix::net::sockopt::set_tcp_user_timeout(&c.near, USER_TIMEOUT_MS).expect("TCP_USER_TIMEOUT");
}

#[test]
fn a_peer_that_takes_nothing_is_timed_out() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    short_user_timeout(&c);
    assert_is(send_until_refused(&mut c), Operation::Send, Kind::Peer, Errno::TIMEDOUT);
}

/// While this lives, the interface lo is down.
struct LoopbackDown;

impl LoopbackDown {
    fn now() -> Self {
        ip(&["link", "set", "lo", "down"]);
        Self
    }
}

impl Drop for LoopbackDown {
    fn drop(&mut self) {
        ip(&["link", "set", "lo", "up"]);
        let addresses = ip(&["addr", "show", "dev", "lo"]);
        for (address, all) in [("127.0.0.1/8", "inet 127.0.0.1/8"), ("::1/128", "inet6 ::1/128")] {
            if !addresses.contains(all) {
                ip(&["addr", "add", address, "dev", "lo"]);
            }
        }
    }
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().expect("ip is needed");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The kernel reports it once the data has waited long enough.
#[test]
fn a_network_that_is_gone_is_told() {
    let mut c = Sending::new(Version::Tls13, Cipher::Aes128Gcm, 0);
    short_user_timeout(&c);
    c.tx.send(b"before", More::No).expect("send");
    let down = LoopbackDown::now();
    let error = send_until_refused(&mut c);
    drop(down);
    assert_is(error, Operation::Send, Kind::Peer, Errno::TIMEDOUT);
    let _works = pair();
}

/// An administrator ends a connection with `ss -K`.
#[test]
fn a_connection_that_was_ended_by_an_administrator_is_told() {
    for operation in [Operation::Send, Operation::Receive] {
        let mut c = Receiving::new(Version::Tls13, Cipher::Aes128Gcm, 0);
        let port = c.near.local_addr().expect("an address").port().to_string();
        let killed = Command::new("ss").args(["-K", "-t", "-n", "sport", "=", &format!(":{port}")]).output();
        assert!(killed.expect("ss is needed").status.success());
        let error = match operation {
            Operation::Send => c.tx.send(b"x", More::No).expect_err("it is over"),
            _ => c.refused(),
        };
        assert_is(error, operation, Kind::Peer, Errno::CONNABORTED);
    }
}

/// Runs `body` on a thread on which one system call with this argument value fails.
fn sandboxed<T: Send>(call: i64, argument: u8, value: i32, errno: Errno, body: impl FnOnce() -> T + Send) -> T {
    let condition =
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64).expect("a condition");
    let rules = BTreeMap::from([(call, vec![SeccompRule::new(vec![condition]).expect("a rule")])]);
    let refuse = SeccompAction::Errno(errno.raw_os_error() as u32);
    let here = std::env::consts::ARCH.try_into().expect("an architecture with seccomp");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    std::thread::scope(|scope| {
        let sandbox = scope.spawn(move || {
            apply_filter(&program).expect("seccomp is needed");
            body()
        });
        sandbox.join().expect("the thread in the sandbox")
    })
}

#[test]
fn a_sandbox_is_named_and_leaves_user_space_its_socket() {
    const TCP_ULP_OPTION: (u8, i32) = (2, libc::TCP_ULP);
    const SOL_TLS_LEVEL: (u8, i32) = (1, libc::SOL_TLS);
    for errno in [Errno::PERM, Errno::ACCESS] {
        for ((argument, value), operation, name) in
            [(TCP_ULP_OPTION, Operation::SetUlp, "TCP_ULP"), (SOL_TLS_LEVEL, Operation::SetTx, "TLS_TX")]
        {
            let (near, mut far) = pair();
            let error = sandboxed(libc::SYS_setsockopt, argument, value, errno, || {
                handover::tx(&near, &info(Version::Tls13, Cipher::Aes128Gcm, 1, 0)).expect_err("it is forbidden").error
            });
            assert_is(error, operation, Kind::Unsupported, errno);
            assert!(error.advice().contains("sandbox") && error.advice().contains(name), "{error}");
            support::write_plain(&near, b"plain");
            let mut got = [0; 5];
            far.read_exact(&mut got).expect("read");
            assert_eq!(&got, b"plain");
        }
        let error = sandboxed(libc::SYS_socket, 0, libc::AF_NETLINK, errno, || diag::sockets().expect_err("forbidden"));
        assert_is(error, Operation::Diagnose, Kind::Unsupported, errno);
        assert!(error.advice().contains("sandbox"), "{error}");
    }
}
