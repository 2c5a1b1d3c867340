//! Network namespaces (ip-netns(8)): machines of their own. Only root can make them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{demand_root, tool};

/// A network namespace, gone when dropped.
pub(crate) struct Namespace(String);

impl Namespace {
    /// # Panics
    /// Without root.
    #[track_caller]
    pub(crate) fn new(name: &str) -> Self {
        demand_root("make network namespaces");
        let namespace = Self(format!("sealion-{name}-{}", std::process::id()));
        tool("ip", ["netns", "add", &namespace.0]);
        tool("ip", ["-netns", &namespace.0, "link", "set", "lo", "up"]);
        namespace
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// A thread that opens this file can enter the namespace (setns(2)).
    pub(crate) fn file(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.0)
    }

    /// Lays a cable from here. Returns the namespace's address at its end.
    pub(crate) fn link(&self) -> Ipv4Addr {
        // Networks of four addresses, out of those that are set apart for tests (RFC 2544).
        let network = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + std::process::id() % (1 << 15) * 4;
        let [here, there] = [1, 2].map(|n| Ipv4Addr::from(network + n));
        let end = self.end();
        tool("ip", ["link", "add", &end, "type", "veth", "peer", "name", "far", "netns", &self.0]);
        tool("ip", ["address", "add", &format!("{here}/30"), "dev", &end]);
        tool("ip", ["link", "set", &end, "up"]);
        tool("ip", ["-netns", &self.0, "address", "add", &format!("{there}/30"), "dev", "far"]);
        tool("ip", ["-netns", &self.0, "link", "set", "far", "up"]);
        there
    }

    /// Cuts it: nothing comes from either end any more, and neither is told.
    pub(crate) fn cut(&self) {
        tool("ip", ["link", "set", &self.end(), "down"]);
    }

    fn end(&self) -> String {
        format!("sealion{}", std::process::id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}
