//! The scripts of the Debian package, with stand-ins for systemd, the descriptions of container images, and the manifests for Kubernetes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http, write_program};

use crate::support::{PROGRAM, Site, wait_for_message};

/// A directory for the front of PATH: the program under test as `sealion`, and a `systemctl` that logs its arguments.
struct Systemd {
    place: tempfile::TempDir,
}

impl Systemd {
    /// `configuration`: in the place of /etc/sealion/sealion.toml. `main`: the process of the service.
    fn new(configuration: &Path, main: u32) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let program = |name: &str, script: &str| {
            let path = place.path().join(name);
            write_program(&path, &format!("#!/bin/sh\n{script}\n"));
        };
        let told = place.path().join("told");
        program("systemctl", &format!("echo \"$*\" >> {told:?}\ncase \"$1\" in show) echo {main} ;; esac"));
        program("systemd-sysusers", ":");
        symlink(PROGRAM, place.path().join("sealion")).expect("a link");
        let postinst = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/debian/postinst"));
        let postinst =
            postinst.expect("the script").replace("/run/systemd/system", &place.path().display().to_string());
        let postinst = postinst.replace("/etc/sealion/sealion.toml", &configuration.display().to_string());
        program("postinst", &postinst);
        Self { place }
    }

    /// Runs postinst as dpkg does in an upgrade. Returns its standard error, and whether the service was restarted.
    fn upgrade(&self) -> (String, bool) {
        let path = format!("{}:{}", self.place.path().display(), std::env::var("PATH").unwrap_or_default());
        let postinst = self.place.path().join("postinst");
        let output = Command::new(postinst).args(["configure", "0.0.1"]).env("PATH", path).output().expect("it starts");
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{error}");
        let told = fs::read_to_string(self.place.path().join("told")).expect("systemctl was called");
        (error, told.lines().any(|line| line == "restart sealion.service"))
    }
}

/// Kills the successors of a server at the end.
struct Successors<'a>(&'a Server);

impl Drop for Successors<'_> {
    fn drop(&mut self) {
        for line in self.0.lines() {
            let pid = line.text.split_once("process ").and_then(|(_, rest)| rest.strip_suffix(" has taken over"));
            if let Some(pid) = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

#[test]
fn an_upgrade_of_the_package_loses_no_request() {
    let site = Site::new();
    site.add("f", "content");
    let config = site.config("");
    let server = config.serve();
    let _successors = Successors(&server);
    let systemd = Systemd::new(&config.write(), server.pid());
    let (connector, over) = (site.connector(Suite::TLS13), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut requests = 0;
            while !over.load(Ordering::Relaxed) || requests < 100 {
                let mut connection = connector.connect(server.address());
                assert_eq!(http::get(&mut connection, "/f").expect("every request is answered").body, b"content");
                requests += 1;
            }
        });
        let (error, restarted) = systemd.upgrade();
        over.store(true, Ordering::Relaxed);
        client.join().expect("no request failed");
        assert!(error.is_empty() && !restarted, "{error}");
    });
    wait_for_message(&server, "has taken over");
}

#[test]
fn an_upgrade_restarts_only_a_server_that_takes_no_orders() {
    let site = Site::new();
    let config = site.config("");
    // This process runs, and is no server.
    let (error, restarted) = Systemd::new(&config.write(), std::process::id()).upgrade();
    assert!(restarted && error.contains("takes no orders"), "{error}");

    let server = config.serve();
    let systemd = Systemd::new(&config.clone().table("[limits]\ngrace = 'long'").write(), server.pid());
    let (error, restarted) = systemd.upgrade();
    assert!(!restarted && error.contains("the old version goes on serving"), "{error}");
}

/// The image of the packaged programs and the one that is built from the tree differ only in where their files come from.
#[test]
fn both_images_of_the_server_are_set_up_alike() {
    let last_stage = |file: &str| -> Vec<String> {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(path).expect("the description of an image");
        let (_, stage) = text.rsplit_once("\nFROM scratch\n").expect("the server's stage");
        // An instruction may continue on further lines.
        let instructions = stage.replace("\\\n", "");
        let lines = instructions.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.filter(|line| !line.starts_with("COPY ")).map(str::to_owned).collect()
    };
    let (packaged, built) = (last_stage("packaging/container/Containerfile"), last_stage("Dockerfile"));
    assert!(packaged.iter().any(|line| line.starts_with("HEALTHCHECK ")), "{packaged:#?}");
    assert_eq!(packaged, built);
}

/// The metrics listener has no token in the manifests: each file with such pods closes its port, because files are applied one by one.
#[test]
fn each_manifest_closes_the_metrics_port_of_its_pods() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/kubernetes");
    let mut checked = Vec::new();
    for manifest in fs::read_dir(directory).expect("the manifests") {
        let manifest = manifest.expect("a manifest").path();
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let documents: Vec<&str> = text.split("\n---\n").collect();
        let pods = documents.iter().filter(|document| document.contains("{ name: metrics, containerPort: "));
        for pod in pods {
            let (_, selector) = pod.split_once("\n  selector:\n    matchLabels: ").expect("a selector of pods");
            let labels = selector.lines().next().expect("labels");
            let policy = documents.iter().find(|document| {
                let selects = document.contains(&format!("\n  podSelector:\n    matchLabels: {labels}\n"));
                selects && document.contains("\nkind: NetworkPolicy\n")
            });
            let policy = policy.unwrap_or_else(|| panic!("{}: no policy for {labels}", manifest.display()));
            let (_, ingress) = policy.split_once("\n  policyTypes: [Ingress]\n  ingress:").expect("rules");
            // A rule without `from` admits everything, and one without `ports` opens every port.
            for rule in ingress.split("\n    - ").skip(1) {
                let is_open = !rule.starts_with("from:\n");
                let opens_metrics = !rule.contains("{ port: ") || rule.contains("{ port: metrics,");
                assert!(!(is_open && opens_metrics), "{}: {rule}", manifest.display());
            }
            assert!(ingress.contains("{ port: metrics,"), "{}: nothing may read metrics", manifest.display());
            checked.push(manifest.file_stem().expect("a name").to_owned());
        }
    }
    checked.sort();
    assert_eq!(checked, ["cache", "daemonset", "deployment"]);
}
