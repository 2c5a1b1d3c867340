//! An agent sends the requests, and the lab measures the servers on its side.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sealion_lab::run_info::RunInfo;

use crate::process::{files, lab, rows, run};

/// A running agent, killed on drop.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    /// `before`: a command that starts the agent, such as ip netns exec.
    fn start(before: &[&str], listen: &str, token: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_sealion-lab");
        let mut words = before.iter().copied().chain([program]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(["agent", "--listen", listen, "--token-file"]).arg(token);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the agent runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("waiting for a lab on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        // The agent must never wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, address }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(directory: &Path, name: &str, text: &str) -> PathBuf {
    let file = directory.join(name);
    fs::write(&file, text).expect("a file");
    file
}

fn info(out: &Path) -> RunInfo {
    serde_json::from_str(&fs::read_to_string(out.join("run.json")).expect("run.json")).expect("conditions")
}

#[test]
fn a_lab_measures_its_servers_while_an_agent_sends_the_requests() {
    let directory = tempfile::tempdir().expect("a directory");
    let secret = token(directory.path(), "token", "a secret of both machines\n");
    let agent = Agent::start(&[], "127.0.0.1:0", &secret);
    let out = directory.path().join("run");
    let mut command = lab(&["peers", "--smoke", "--arms", "user,nginx", "--agent", &agent.address], &out);
    command.arg("--token-file").arg(&secret);
    let (output, said) = run(command);
    assert!(output.status.success(), "{said}");
    for row in rows(&out) {
        if row.cell.ends_with(" idle") {
            assert!(row.void.contains("without --agent"), "{row:?}");
            continue;
        }
        assert_eq!(row.void, "", "{row:?}");
        assert!(row.body_verified && row.requests > 0, "{row:?}");
        // Of two loads in one thread, neither has CPU of its own.
        assert_eq!(row.client_cpu > 0, row.beside.is_empty(), "{row:?}");
        assert_eq!(row.server_cpu.is_some_and(|cpu| cpu > 0), row.beside.is_empty(), "{row:?}");
        assert!(!row.latency.is_empty() && !row.response.is_empty(), "{row:?}");
    }
    assert!(info(&out).client.contains(" cores, Linux "), "{:?}", info(&out).client);
}

#[test]
fn an_agent_answers_only_a_lab_that_has_its_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let secret = token(directory.path(), "token", "a secret of both machines");
    let agent = Agent::start(&[], "127.0.0.1:0", &secret);
    let other = token(directory.path(), "other", "another secret entirely");
    let out = directory.path().join("run");
    let mut command = lab(&["mix", "--smoke", "--arms", "user,nginx", "--agent", &agent.address], &out);
    command.arg("--token-file").arg(&other);
    let (output, said) = run(command);
    assert!(!output.status.success() && said.contains("do both have the same token?"), "{said}");
    // A request without a proof, and a frame that is too large for one.
    let hello = br#"{"version":"x","challenge":""}"#;
    for bytes in [&b"\0\0\0\x09\"Machine\""[..], &[&[0, 0, 0, hello.len() as u8][..], hello].concat(), &[0xff; 64]] {
        let mut stream = TcpStream::connect(&agent.address).expect("it listens");
        stream.write_all(bytes).expect("a write");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("challenge") && !text.contains("cores"), "{text}");
    }
    let short = token(directory.path(), "short", "short");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealion-lab"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--token-file"]).arg(short);
    let (output, said) = run(command);
    assert!(!output.status.success() && said.contains("16 are needed"), "{said}");
}

/// Two network namespaces joined by veth(4), removed on drop.
struct Namespaces {
    server: String,
    client: String,
}

impl Namespaces {
    /// `None`: this process may not make any; the reason is printed.
    fn make() -> Option<Self> {
        let id = std::process::id();
        let made = Self { server: format!("labs{id}"), client: format!("labc{id}") };
        for name in [&made.server, &made.client] {
            let Ok(output) = Command::new("ip").args(["netns", "add", name]).output() else {
                eprintln!("skipped: there is no ip(8)");
                return None;
            };
            if !output.status.success() {
                eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
        }
        let Self { server, client } = &made;
        for command in [
            format!("link add v0 netns {server} type veth peer name v1 netns {client}"),
            format!("-n {server} addr add 10.253.0.1/24 dev v0"),
            format!("-n {client} addr add 10.253.0.2/24 dev v1"),
            format!("-n {server} link set v0 up"),
            format!("-n {client} link set v1 up"),
            format!("-n {server} link set lo up"),
        ] {
            let output = Command::new("ip").args(command.split(' ')).output().expect("ip");
            assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Some(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn over_a_network_neither_side_is_on_loopback() {
    let Some(namespaces) = Namespaces::make() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let secret = token(directory.path(), "token", "a secret of both machines");
    let agent = Agent::start(&["ip", "netns", "exec", &namespaces.client], "10.253.0.2:25210", &secret);
    let out = directory.path().join("run");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespaces.server, env!("CARGO_BIN_EXE_sealion-lab"), "run", "mix", "--smoke"]);
    command.args(["--arms", "user,nic", "--address", "10.253.0.1", "--agent", &agent.address, "--token-file"]);
    command.arg(&secret).args(["--allow-debug", "--yes", "--out"]).arg(&out).arg("--files").arg(files());
    let (output, said) = run(command);
    assert!(output.status.success(), "{said}");
    let rows = rows(&out);
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row.void, "", "{row:?}");
        assert!(row.body_verified && row.server_cpu.is_some_and(|cpu| cpu > 0) && row.client_cpu > 0, "{row:?}");
    }
    let info = info(&out);
    assert!(info.limits.iter().all(|limit| !limit.contains("loopback")), "{:?}", info.limits);
    let nic = info.arms.iter().find(|arm| arm.name == "nic").expect("the arm");
    assert!(nic.absent.contains("TLS offload"), "{nic:?}");
}
