//! Checks packages with the tools that read them: dpkg, systemd, Kubernetes, Helm and Prometheus.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sealion_guest::output;

use super::programs::Programs;
use super::{deb, read, source};

/// Packs the programs that the tests were built with, unpacks the packages and checks their content.
pub(crate) fn check() -> Result<()> {
    sealion_guest::tools::ensure(&[("systemd-analyze", "systemd"), ("dpkg-deb", "dpkg")])?;
    let scratch = tempfile::tempdir()?;
    let packages = deb::build(&Programs::for_tests()?, scratch.path())?;
    let root = scratch.path().join("root");
    for package in &packages {
        output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root))?;
        println!("package: {}", output(Command::new("dpkg-deb").args(["--show"]).arg(package))?.trim());
    }
    programs_run(&root)?;
    units_are_right(&root)?;
    scripts_are_shell()
}

/// Validates the manifests and what the chart makes of each file of values against the schemas of Kubernetes' API, fetched with pip.
pub(crate) fn kubernetes() -> Result<()> {
    let validator = sealion_guest::tools::python_package(VALIDATOR)?;
    validate(&validator, &source("kubernetes"))?;
    let helm = sealion_guest::tools::helm()?;
    let chart = source("helm/sealion");
    let examples = std::fs::read_dir(source("helm/values"))?;
    let examples: Vec<_> = examples.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    for values in std::iter::once(chart.join("values.yaml")).chain(examples) {
        let helm = || {
            let mut command = Command::new(&helm);
            // Nothing of this user's: settings of helm, clusters.
            command.env_clear().env("HOME", "/nonexistent");
            command
        };
        output(helm().args(["lint", "--strict"]).arg(&chart).arg("--values").arg(&values))?;
        let made = tempfile::tempdir()?;
        output(
            helm()
                .args(["template", "checked"])
                .arg(&chart)
                .arg("--values")
                .arg(&values)
                .args(["--kube-version", KUBERNETES, "--output-dir"])
                .arg(made.path()),
        )?;
        println!("helm with {}:", values.display());
        validate(&validator, &made.path().join("sealion/templates"))?;
    }
    Ok(())
}

/// Validates each manifest of a directory. Kubernetes' schemas lack the kinds of the Prometheus operator and of the Gateway API, whose manifests are left
/// out.
fn validate(validator: &Path, directory: &Path) -> Result<()> {
    let mut checked = 0;
    for manifest in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let manifest = manifest?.path();
        if manifest.file_name().is_some_and(|name| name == "podmonitor.yaml" || name == "route.yaml") {
            continue;
        }
        let said = output(
            Command::new("python3")
                .args(["-m", "kubernetes_validate", "--strict", "--kubernetes-version", KUBERNETES])
                .arg(&manifest)
                .env("PYTHONPATH", validator),
        )?;
        print!("{said}");
        checked += 1;
    }
    ensure!(checked > 0, "{} holds no manifest", directory.display());
    Ok(())
}

/// Checks and tests the alert rules with promtool, parses the dashboard's queries, and has it read metrics.
pub(crate) fn prometheus() -> Result<()> {
    sealion_guest::tools::ensure(&[("promtool", "prometheus")])?;
    let promtool = |what: [&str; 2], file: &Path| -> Result<()> {
        let said = output(Command::new("promtool").args(what).arg(file)).with_context(|| what.join(" "))?;
        print!("{said}");
        Ok(())
    };
    promtool(["check", "rules"], &source("prometheus/alerts.yml"))?;
    promtool(["test", "rules"], &source("prometheus/alerts_test.yml"))?;
    let dashboard = serde_json::from_str(&read(&source("grafana/sealion.json"))?)?;
    let mut asked = Vec::new();
    expressions(&dashboard, &mut asked);
    ensure!(!asked.is_empty(), "the dashboard asks for nothing");
    // promtool reads YAML, and JSON is YAML.
    let rules = asked.iter().enumerate().map(|(n, expression)| {
        let expression = expression.replace("$__rate_interval", "5m").replace("$instance", ".*");
        serde_json::json!({ "record": format!("dashboard:{n}"), "expr": expression })
    });
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules.collect::<Vec<_>>() }] });
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), rules.to_string())?;
    promtool(["check", "rules"], file.path())?;
    metrics_are_read()
}

/// Has promtool read the metrics of a running server.
fn metrics_are_read() -> Result<()> {
    let root = tempfile::tempdir()?;
    // Another program may take the port meanwhile; the check then fails.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let mut server = Command::new(Programs::for_tests()?.sealion)
        .args(["serve", "--plain", "127.0.0.1:0", "--metrics", &address])
        .arg(root.path())
        .stderr(Stdio::null())
        .spawn()?;
    let retry = ["--retry", "30", "--retry-delay", "1", "--retry-connrefused"];
    let fetched = output(Command::new("curl").arg("-sf").args(retry).arg(format!("http://{address}/metrics")));
    server.kill()?;
    server.wait()?;
    let metrics = tempfile::NamedTempFile::new()?;
    std::fs::write(metrics.path(), fetched?)?;
    output(Command::new("promtool").args(["check", "metrics"]).stdin(metrics.reopen()?))?;
    println!("promtool reads the metrics of a server that runs");
    Ok(())
}

/// The queries of a dashboard.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == "expr" => found.push(text.to_owned()),
            _ => expressions(value, found),
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

const VALIDATOR: &str = "kubernetes-validate==1.37.0";
const KUBERNETES: &str = "1.34";

/// The unpacked server accepts the unpacked configuration, with its root moved to the unpacked tree.
fn programs_run(root: &Path) -> Result<()> {
    let configuration = root.join("etc/sealion/sealion.toml");
    let here = root.join("usr/share/sealion/html");
    let text = read(&configuration)?;
    ensure!(text.contains("root = \"/usr/share/sealion/html\""), "the shipped configuration serves the shipped page");
    let moved = configuration.with_file_name("here.toml");
    std::fs::write(&moved, text.replace("/usr/share/sealion/html", &here.display().to_string()))?;
    output(
        Command::new(root.join("usr/bin/sealion"))
            .args(["check", "--config"])
            .arg(&moved)
            // The development certificate goes there.
            .env("XDG_DATA_HOME", root),
    )
    .context("the server refuses the configuration that is shipped with it")?;
    output(Command::new(root.join("usr/bin/sealion-lab")).arg("--version"))?;
    Ok(())
}

/// systemd accepts the units without a warning. It warns about settings that it ignores, and still exits with 0.
fn units_are_right(root: &Path) -> Result<()> {
    // Units that ours refer to and that other packages ship.
    let stubs = root.join("usr/lib/systemd/system");
    for name in [
        "sysinit.target",
        "basic.target",
        "network-online.target",
        "multi-user.target",
        "sockets.target",
        "shutdown.target",
        "modprobe@.service",
        "-.mount",
    ] {
        let installed = Path::new("/usr/lib/systemd/system").join(name);
        if installed.is_file() {
            std::fs::copy(installed, stubs.join(name))?;
        }
    }
    for directory in ["bin", "sbin"] {
        std::fs::create_dir_all(root.join(directory))?;
    }
    for unit in ["sealion.service", "sealion.socket"] {
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(format!("--root={}", root.display()))
            .arg(unit)
            .output()
            .context("cannot run systemd-analyze")?;
        let said = String::from_utf8_lossy(&verified.stderr);
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("sealion")).collect();
        ensure!(verified.status.success() && ours.is_empty(), "systemd-analyze verify {unit}:\n{said}");
    }
    Ok(())
}

fn scripts_are_shell() -> Result<()> {
    for script in ["postinst", "prerm", "postrm"] {
        output(Command::new("sh").arg("-n").arg(source(&format!("debian/{script}"))))?;
    }
    Ok(())
}
