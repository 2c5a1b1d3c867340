//! Which process a command gives its order to.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sealion_testkit::copy_program;
use sealion_testkit::server::{Server, Signal};

use crate::support::namespace::Namespace;
use crate::support::{PROGRAM, Site};

/// Binds the name of a server with the id of this process, which is no server, in a network namespace.
fn impostor(namespace: &Namespace) -> UnixListener {
    let file = File::open(namespace.file()).expect("the namespace");
    let bind = || {
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).expect("root may");
        let processes = fs::read_link("/proc/self/ns/pid").expect("a namespace");
        let number: String = processes.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        let name = format!("sealion-{number}-{}", std::process::id());
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).expect("a name")).expect("the name is free")
    };
    // Only that thread changes its namespace; the socket keeps it.
    thread::scope(|scope| scope.spawn(bind).join().expect("it binds"))
}

/// A listener that is shut down at its end.
struct Impostor(UnixListener);

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Tells every client that the order is done, until the listener is shut down.
fn pretend(listener: &UnixListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut order = Vec::new();
        let _ = stream.read_to_end(&mut order);
        let _ = stream.write_all(b"ok\n\x1b[2J\x1b]0;gotcha\x07all is purged\n");
    }
}

#[track_caller]
fn order(namespace: &Namespace, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = namespace.command(PROGRAM).args(arguments).output().expect("it runs");
    let text = String::from_utf8([stdout, stderr].concat()).expect("text");
    assert!(!text.contains('\u{1b}') && !text.contains("gotcha"), "{text:?}");
    (status.code(), text)
}

#[test]
fn a_program_that_takes_the_name_of_a_server_gets_no_order_and_hinders_none() {
    let namespace = Namespace::new("orders");
    let site = Site::new();
    let impostor = Impostor(impostor(&namespace));
    thread::scope(|scope| {
        // Its end ends the thread, also where an assertion fails.
        let held = impostor;
        let listener = held.0.try_clone().expect("a descriptor");
        scope.spawn(move || pretend(&listener));
        let pid = std::process::id().to_string();
        let (code, text) = order(&namespace, &["purge", "--all"]);
        assert!(code == Some(2) && text.contains("no server is running here"), "{code:?} {text}");

        let mut command = namespace.command(PROGRAM);
        command.args(["serve", "--config"]).arg(site.config("").write());
        let server = Server::spawn(command);
        for arguments in [&["reload", "--pid", &pid][..], &["purge", "--all", "--pid", &pid], &["cache", "--pid", &pid]]
        {
            let (code, text) = order(&namespace, arguments);
            assert!(code == Some(2) && text.contains("is not taken for a server"), "{code:?} {text}");
        }
        // It is the only server, although there is a second name.
        assert_eq!(order(&namespace, &["reload"]), (Some(0), "configuration 1 is in use\n".to_owned()));
        drop(server);
    });
}

#[test]
fn a_server_is_known_by_any_version_of_its_program() {
    let site = Site::new();
    let program = site.outside().join("sealion");
    copy_program(Path::new(PROGRAM), &program);
    let file = site.config("").write();
    let mut server = Server::start(&program, ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let pid = server.pid().to_string();
    let reload = |number: u32| {
        let output = Command::new(PROGRAM).args(["reload", "--pid", &pid]).output().expect("it runs");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("configuration {number} is in use\n"),
            "{output:?}"
        );
    };
    reload(1);
    fs::remove_file(&program).expect("it is ours");
    reload(2);
    copy_program(Path::new(PROGRAM), &program);
    reload(3);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}
