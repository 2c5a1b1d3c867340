//! The servers that take orders, as distinct from programs that have a socket with such a name.
//!
//! Any user can bind any abstract name (unix(7)). The kernel names the process that listens and its user (SO_PEERCRED), and /proc names its program.
//! The user decides. The program alone proves little: a process can change its program while another one keeps its socket.
//!
//! | user of the socket | trusted |
//! |---|---|
//! | root, or the user of the command | yes |
//! | another user, and the command is root's | if the process belongs to that user and runs this program |
//! | another user | no: the server would refuse the order too |

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::geteuid;

use crate::values::{printable, random_bits};

/// Binds the socket of this process.
pub(super) fn bind() -> io::Result<UnixListener> {
    let name = name(std::process::id());
    let bind = |name: &str| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    match bind(&name) {
        // Another user may have taken the name. The second name cannot be guessed.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let random = random_bits().ok_or(error)?;
            bind(&format!("{name}-{:032x}", u128::from_be_bytes(random)))
        }
        bound => bound,
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(super) pid: u32,
    pub(super) stream: UnixStream,
}

impl Peer {
    /// The server with this process id.
    ///
    /// # Errors
    /// It takes no orders, or is not to be trusted; with the remedy.
    pub(crate) fn with_pid(pid: u32) -> Result<Self, String> {
        Self::judged(pid).map(|(_, peer)| peer)
    }

    /// The only server of this network and process namespace. Sockets of other programs do not count. A server of root or this user, or with a privilege, is
    /// preferred to servers of other users.
    ///
    /// # Errors
    /// No server runs, or several do.
    pub(crate) fn only() -> Result<Self, String> {
        let pids = listening();
        let mut ignored = Vec::new();
        let mut servers = Vec::new();
        for pid in pids {
            // A queue that is full holds connect(2) up: it must be a server's.
            let looked = match Program::of_process(pid) {
                Program::Other(_) | Program::Gone => None,
                Program::Ours | Program::Unreadable => Some(Self::judged(pid)),
            };
            match looked {
                Some(Ok(server)) => servers.push(server),
                Some(Err(why)) => ignored.push(why),
                None => ignored.push(format!("process {pid} is not a server of this program")),
            }
        }
        let best = servers.iter().map(|(standing, _)| *standing).max();
        servers.retain(|(standing, _)| Some(*standing) == best);
        match servers.len() {
            1 => Ok(servers.remove(0).1),
            0 => Err(none(&ignored)),
            _ => {
                let options: Vec<_> = servers.iter().map(|(_, peer)| format!("--pid {}", peer.pid)).collect();
                Err(format!("several servers are running: choose one by {}", options.join(" or ")))
            }
        }
    }

    /// The successor that this process started.
    ///
    /// # Errors
    /// It takes no orders.
    pub(super) fn child(pid: u32) -> Result<Self, String> {
        // The parent knows its id, and a confined process may not look at others.
        Self::connected(pid).map(|(_, peer)| peer)
    }

    fn judged(pid: u32) -> Result<(Standing, Self), String> {
        let (user, peer) = Self::connected(pid)?;
        let standing = judge(geteuid().as_raw(), user, &Process::read(pid));
        let standing = standing.map_err(|why| format!("process {pid} is not taken for a server: {why}"))?;
        Ok((standing, peer))
    }

    /// The process with this id that listens, and the user who made its socket.
    fn connected(pid: u32) -> Result<(u32, Self), String> {
        let mut refused = format!("process {pid} takes no orders");
        let first = name(pid);
        let others = std::iter::once_with(names).flatten();
        let others = others.filter(|(named, name)| *named == pid && *name != first).map(|(_, name)| name);
        for name in std::iter::once(first.clone()).chain(others) {
            let stream = match connected(&name) {
                Ok(stream) => stream,
                Err(error) => {
                    refused = format!("process {pid} takes no orders: {error}");
                    continue;
                }
            };
            match sockopt::socket_peercred(&stream) {
                Ok(peer) if u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(pid) => {
                    return Ok((peer.uid.as_raw(), Peer { pid, stream }));
                }
                Ok(peer) => refused = format!("process {} listens in place of process {pid}", peer.pid),
                Err(error) => refused = format!("process {pid} takes no orders: {error}"),
            }
        }
        Err(refused)
    }
}

fn none(ignored: &[String]) -> String {
    let mut text =
        "no server is running here: a server in a container is reached from inside, for instance by `docker exec`"
            .to_owned();
    if let Some((first, rest)) = ignored.split_first() {
        text = format!("{text}; {first}");
        if !rest.is_empty() {
            text = format!("{text}; neither are {} others", rest.len());
        }
    }
    text
}

/// How far a server is to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Another user runs it, and may have started it for any purpose.
    OfOtherUser,
    /// It belongs to root or the user of the command, or root started it with a privilege.
    Trusted,
}

/// Whether a command of the user `caller` trusts a socket of the user `user`.
///
/// # Errors
/// The reason, and the remedy.
fn judge(caller: u32, user: u32, process: &Process) -> Result<Standing, String> {
    let is_trusted = user == 0 || user == caller;
    match &process.program {
        Program::Gone => return Err("it has ended".to_owned()),
        Program::Other(path) => return Err(other_program(path)),
        Program::Unreadable if !is_trusted => {
            return Err(format!("its program cannot be seen: give the order as its user, with the id {user}"));
        }
        Program::Unreadable | Program::Ours => {}
    }
    match () {
        () if is_trusted => Ok(Standing::Trusted),
        () if caller != 0 => Err(format!("it belongs to the user with the id {user}: use sudo")),
        () if !process.users.contains(&user) => Err(format!("another user, with the id {user}, made its socket")),
        () if process.has_privilege => Ok(Standing::Trusted),
        () => Ok(Standing::OfOtherUser),
    }
}

/// Says which program a process runs instead of a version of this one.
fn other_program(theirs: &Path) -> String {
    let theirs_shown = printable(&theirs.to_string_lossy());
    let ours = std::env::current_exe().unwrap_or_default();
    match theirs.file_name() == ours.file_name() {
        true => format!(
            "it runs {theirs_shown}, which belongs neither to root nor to the owner of {}, or which others may write",
            ours.display()
        ),
        false => {
            let name = ours.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "it runs {theirs_shown}, and a server is known by the file name of this command, {name}: rename the file of this command"
            )
        }
    }
}

/// The process behind a socket.
#[derive(Debug)]
struct Process {
    program: Program,
    /// The real and the effective user.
    users: Vec<u32>,
    /// Whether it has an ambient capability, as by AmbientCapabilities= of systemd: with this program in this user namespace, only root gives some.
    has_privilege: bool,
}

impl Process {
    fn read(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let users = line("Uid:").unwrap_or_default().split_ascii_whitespace().take(2);
        let ambient = line("CapAmb:").and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        Process {
            program: Program::of_process(pid),
            users: users.filter_map(|user| user.parse().ok()).collect(),
            has_privilege: ambient.is_some_and(|bits| bits != 0),
        }
    }
}

/// The program of a process.
#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// This program, in this or another version.
    Ours,
    Other(PathBuf),
    /// This process may not see it (ptrace(2), PTRACE_MODE_READ).
    Unreadable,
    Gone,
}

impl Program {
    fn of_process(pid: u32) -> Self {
        let read = || -> io::Result<_> {
            let [theirs, ours] = [format!("/proc/{pid}"), "/proc/self".to_owned()];
            // In a namespace of its own, a user can have any file at any path.
            let user_namespace = |process: &str| fs::read_link(format!("{process}/ns/user"));
            let is_here = user_namespace(&theirs)? == user_namespace(&ours)?;
            Ok((is_here, Executable::of_process(&theirs)?, Executable::of_process(&ours)?))
        };
        match read() {
            Ok((true, theirs, ours)) if theirs.is_version_of(&ours) => Program::Ours,
            Ok((_, theirs, _)) => Program::Other(theirs.path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Program::Unreadable,
            Err(_) => Program::Gone,
        }
    }
}

/// The file of a program. It may have been replaced or removed since the start.
#[derive(Debug, Clone)]
struct Executable {
    path: PathBuf,
    device: u64,
    inode: u64,
    owner: u32,
    /// Whether others than the owner may write it.
    is_open: bool,
}

impl Executable {
    fn of_process(process: &str) -> io::Result<Self> {
        let link = format!("{process}/exe");
        let path = fs::read_link(&link)?;
        // The link leads to the file that is run, also where that has no name any more.
        let file = fs::metadata(&link)?;
        let path = path.as_os_str().as_bytes();
        Ok(Executable {
            path: OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)).into(),
            device: file.dev(),
            inode: file.ino(),
            owner: file.uid(),
            is_open: file.mode() & 0o022 != 0,
        })
    }

    /// Whether both are versions of a program: the same file, a file that replaced the other at its path, or a file of that name elsewhere, where a link
    /// chooses the version. The last one counts only if it belongs to root or to the owner of this program.
    fn is_version_of(&self, ours: &Self) -> bool {
        let is_same_file = (self.device, self.inode) == (ours.device, ours.inode);
        let is_owned = [0, ours.owner].contains(&self.owner) && !self.is_open;
        let is_same_name = self.path.file_name().is_some() && self.path.file_name() == ours.path.file_name();
        is_same_file || self.path == ours.path || is_same_name && is_owned
    }
}

/// Connects to an abstract name. A listener that takes no connection is not waited for long.
fn connected(name: &str) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It bounds connect(2) too, where the queue of the listener is full.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECT_TIMEOUT))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket.into())
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The processes whose ids names of sockets have.
fn listening() -> Vec<u32> {
    let mut pids: Vec<u32> = names().into_iter().map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The names of servers' sockets in this network namespace with the process ids in them, for processes of this process namespace.
fn names() -> Vec<(u32, String)> {
    // A name may have any bytes, and a confined process may not read the list.
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let start = name_before_pid();
    let named = |line: &str| {
        let name = line.split_ascii_whitespace().last()?.strip_prefix('@')?;
        let rest = name.strip_prefix(&start)?;
        let pid = rest.split_once('-').map_or(rest, |(pid, _)| pid);
        Some((pid.parse().ok()?, name.to_owned()))
    };
    String::from_utf8_lossy(&sockets).lines().filter_map(named).collect()
}

fn name(pid: u32) -> String {
    format!("{}{pid}", name_before_pid())
}

/// Process ids repeat in each process namespace, while containers on the host's network share the names of sockets.
fn name_before_pid() -> String {
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    let namespace = namespace.as_ref().and_then(|link| link.to_str()).unwrap_or_default();
    format!("sealion-{}-", namespace.trim_matches(|c: char| !c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAILER: u32 = 1001;
    const SERVICE: u32 = 998;

    fn process(program: Program, user: u32, has_privilege: bool) -> Process {
        Process { program, users: vec![user, user], has_privilege }
    }

    #[test]
    fn the_user_of_a_socket_decides_and_its_program_must_be_this_one() {
        let other = || Program::Other("/usr/bin/python3\u{1b}[2J".into());
        let (trusted, of_other) = (Ok(Standing::Trusted), Ok(Standing::OfOtherUser));
        for (caller, user, process, expected) in [
            (0, 0, process(Program::Ours, 0, false), trusted),
            // The socket is older than the change of the user.
            (0, 0, process(Program::Ours, SERVICE, false), trusted),
            (0, SERVICE, process(Program::Ours, SERVICE, true), trusted),
            (0, SERVICE, process(Program::Ours, SERVICE, false), of_other),
            (SERVICE, SERVICE, process(Program::Ours, SERVICE, false), trusted),
            (SERVICE, SERVICE, process(Program::Unreadable, SERVICE, true), trusted),
            // It says itself that it takes no orders from this user.
            (SERVICE, 0, process(Program::Unreadable, 0, false), trusted),
            (0, MAILER, process(other(), MAILER, false), Err("it runs /usr/bin/python3\\u{1b}[2J")),
            (0, 0, process(other(), 0, false), Err("it runs /usr/bin/python3")),
            (0, MAILER, process(Program::Unreadable, MAILER, false), Err("its program cannot be seen")),
            (0, MAILER, process(Program::Ours, SERVICE, true), Err("another user, with the id 1001, made its socket")),
            (SERVICE, MAILER, process(Program::Ours, MAILER, false), Err("it belongs to the user with the id 1001")),
            (0, 0, process(Program::Gone, 0, false), Err("it has ended")),
        ] {
            let found = judge(caller, user, &process);
            match expected {
                Ok(standing) => assert_eq!(found, Ok(standing), "{caller} {user} {process:?}"),
                Err(words) => assert!(
                    found.as_ref().is_err_and(|why| why.contains(words) && !why.contains('\u{1b}')),
                    "{caller} {user} {process:?}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn another_version_is_the_same_program_and_a_file_of_another_user_is_not() {
        let ours = Executable { path: "/usr/bin/sealion".into(), device: 1, inode: 2, owner: 0, is_open: false };
        let other =
            |path: &str, inode, owner, is_open| Executable { path: path.into(), inode, owner, is_open, ..ours.clone() };
        for (theirs, expected) in [
            (other("/usr/bin/sealion", 2, 0, false), true),
            // Replaced since, or another name of the same file.
            (other("/usr/bin/sealion", 3, 0, false), true),
            (other("/srv/sealion-server", 2, 0, false), true),
            // Another version, which a link chooses.
            (other("/opt/1.1/sealion", 4, 0, false), true),
            (other("/opt/1.1/sealion", 4, 0, true), false),
            (other("/home/mallory/sealion", 4, MAILER, false), false),
            (other("/usr/bin/python3", 4, 0, false), false),
        ] {
            assert_eq!(theirs.is_version_of(&ours), expected, "{theirs:?}");
        }
    }

    #[test]
    fn a_name_that_is_taken_keeps_nobody_from_listening() {
        // Names have the id of this process, which all tests share.
        let pid = std::process::id();
        let taken = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(pid)).unwrap()).unwrap();
        let server = bind().unwrap();
        let names: Vec<_> = names().into_iter().filter(|(named, _)| *named == pid).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let found = Peer::with_pid(pid).unwrap();
        assert_eq!(found.pid, pid);
        drop((taken, server));
    }

    #[test]
    fn a_process_is_compared_with_this_one() {
        assert_eq!(Program::of_process(std::process::id()), Program::Ours);
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // Between fork and exec it still runs this program.
        while Program::of_process(other.id()) == Program::Ours {
            std::thread::yield_now();
        }
        assert!(matches!(Program::of_process(other.id()), Program::Other(path) if path.ends_with("sleep")));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(Program::of_process(other.id()), Program::Gone);
    }
}
