//! Reports of invented runs: their content, and that a browser can show them without other files.

use std::fs;
use std::path::{Path, PathBuf};

use sealion_lab::report;
use sealion_lab::row::Row;
use sealion_lab::run_info::{Guest, RunInfo};
use sealion_lab::study::StudyName;

use crate::support;

/// A separate directory below the build directory, left for inspection.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the build directory is writable");
    directory
}

fn write(directory: &Path, rows: &[Row], info: &RunInfo) {
    let mut raw = csv::Writer::from_path(directory.join(report::raw::FILE)).unwrap();
    for row in rows {
        raw.serialize(row).unwrap();
    }
    raw.flush().unwrap();
    info.write(directory).unwrap();
}

fn made_up(name: &str, studies: &[StudyName]) -> (PathBuf, String, String) {
    let directory = directory(name);
    let rows: Vec<Row> = studies.iter().flat_map(|study| support::made_up_rows(*study)).collect();
    write(&directory, &rows, &support::made_up_run(name));
    let written = report::write(&directory).unwrap();
    assert!(!written.findings.is_empty());
    (directory, fs::read_to_string(written.page).unwrap(), fs::read_to_string(written.summary).unwrap())
}

#[test]
fn every_study_has_its_report() {
    for &study in StudyName::ALL {
        let (_, page, summary) = made_up(study.name(), &[study]);
        for text in [&page, &summary] {
            for expected in [
                "loopback: no network card",
                "virtual machine: its cores",
                "nic: no interface here offers",
                "load average was 0.7",
                "generic-gcm-aesni",
                "1.22.1, OpenSSL 3.0.17",
                "6.12.0-fixture",
                "sealion-lab run",
            ] {
                assert!(text.contains(expected), "{} lacks {expected:?}", study.name());
            }
        }
        if StudyName::PUBLISHED.contains(&study) {
            assert!(summary.contains("published"), "{}", study.name());
            assert!(page.contains("runs of nginx-ktls"), "{}", study.name());
            assert!(page.contains("TlsTxSw did not rise: the kernel sealed nothing"), "{}", study.name());
        }
    }
}

#[test]
fn all_studies_in_one_report() {
    let (_, page, summary) = made_up("all", StudyName::ALL);
    for study in StudyName::ALL {
        assert!(page.contains(&format!("<h2>{}</h2>", study.name())));
        assert!(summary.contains(&format!("## {}\n", study.name())));
    }
    assert!(page.contains("<nav>"));
}

#[test]
fn a_page_needs_nothing_else() {
    let (_, page, _) = made_up("alone", StudyName::ALL);
    for asks in ["<script", "<link", "<img", "<iframe", "@import", "url(", " src=", "onload"] {
        assert!(!page.contains(asks), "the page has {asks:?}");
    }
    let references: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..(at + 40).min(page.len())]).collect();
    assert!(
        references.iter().all(|text| text.starts_with("http://www.w3.org/2000/svg\"")),
        "only the name of SVG's namespace looks like an address: {references:?}"
    );
}

#[test]
fn plots_are_well_formed_and_no_texts_overlap() {
    let (_, page, _) = made_up("plots", StudyName::ALL);
    let plots: Vec<&str> = page
        .split("<figure>")
        .skip(1)
        .map(|text| text.split("</figure>").next().expect("split has a first part"))
        .collect();
    assert!(plots.len() > 30, "{} plots", plots.len());
    for plot in plots {
        let document = roxmltree::Document::parse(plot).expect("an SVG element");
        let root = document.root_element();
        let view: Vec<f64> = numbers(root.attribute("viewBox").expect("a view box"));
        let boxes: Vec<(String, [f64; 4])> =
            document.descendants().filter(|node| node.tag_name().name() == "text").map(text_box).collect();
        for (index, (text, [left, top, right, bottom])) in boxes.iter().enumerate() {
            assert!(*left >= 0.0 && *right <= view[2] && *top >= 0.0 && *bottom <= view[3], "{text:?} leaves the plot");
            for (other, [l, t, r, b]) in &boxes[index + 1..] {
                let apart = right <= l || r <= left || bottom <= t || b <= top;
                assert!(apart, "{text:?} and {other:?} overlap in {:?}", root.attribute("aria-label"));
            }
        }
        assert!(!plot.contains("NaN") && !plot.contains("inf"));
    }
}

/// The titles of the drawings of a report.
fn drawings(page: &str) -> Vec<&str> {
    let titles = page.split("<svg ").skip(1).filter_map(|svg| svg.split_once("class=\"title\">"));
    titles.map(|(_, text)| text.split('<').next().unwrap_or_default()).collect()
}

#[test]
fn every_study_has_drawings_and_every_open_loop_its_distribution() {
    for &study in StudyName::ALL {
        let (_, page, _) = made_up(&format!("drawn-{}", study.name()), &[study]);
        let drawn = drawings(&page);
        assert!(!drawn.is_empty(), "{} has no drawing", study.name());
        let expected: &[&str] = match study {
            StudyName::NginxArticle => &["Throughput, kernel TLS to user space"],
            StudyName::Peers => &["Latency, 1 kB, half the load", "Latency, 16 kB, half the load"],
            StudyName::Deployed => &["Server CPU per request, ratio to nginx", "Latency, 16 kB, half the load"],
            StudyName::RateSweep => &["1 kB at 10 % of each arm's rate", "16 kB at 95 % of each arm's rate"],
            _ => &[],
        };
        for title in expected {
            assert!(drawn.contains(title), "{} lacks {title:?}: {drawn:?}", study.name());
        }
    }
}

#[test]
fn drawings_are_files_with_a_name_each() {
    let (directory, page, _) = made_up("files-of-drawings", &[StudyName::Netdev, StudyName::Mix]);
    let files = report::drawings(&directory).unwrap();
    assert_eq!(files.len(), drawings(&page).len());
    let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"server-cpu-per-request.svg"), "{names:?}");
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    for (name, svg) in &files {
        roxmltree::Document::parse(svg).unwrap_or_else(|why| panic!("{name} is no SVG: {why}"));
    }
}

/// A text and its box, if a letter is 0.6 of its size wide: more than the average of common fonts.
fn text_box(node: roxmltree::Node<'_, '_>) -> (String, [f64; 4]) {
    let number = |name: &str| node.attribute(name).and_then(|text| text.parse::<f64>().ok()).expect("a number");
    let text = node.text().unwrap_or_default().to_owned();
    let (x, y, size) = (number("x"), number("y"), number("font-size"));
    let width = text.chars().count() as f64 * size * 0.52;
    let left = match node.attribute("text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    (text, [left, y - size * 0.8, left + width, y + size * 0.2])
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

#[test]
fn findings_pick_no_cell_out_and_are_corrected_for_many_comparisons() {
    let (_, _, summary) = made_up("verdicts", &[StudyName::SizeByCalls]);
    let findings: Vec<&str> =
        summary.lines().filter(|line| line.contains(" in the geometric mean of 28 cells")).collect();
    let of = |start: &str| findings.iter().find(|line| line.contains(start)).unwrap_or_else(|| panic!("{summary}"));
    let auto = of("requests/s of auto against user: ");
    assert!(auto.contains("; lower in ") && auto.ends_with("(Welch, Holm)"), "{auto}");
    let peer = of("CPU per request of user against nginx: ");
    assert!(peer.contains("lower in 28, higher in 0, no difference proven in 0"), "{peer}");
    assert!(!summary.contains("requests/s of kernel against user: from"), "{summary}");

    // Equal arms: without correction, one or two of 28 tests at 5 % would find a difference.
    let directory = directory("equal");
    let mut rows = support::made_up_rows(StudyName::SizeByCalls);
    rows.retain(|row| row.arm == "user");
    let mut dice = 1u64;
    let again: Vec<Row> = rows
        .iter()
        .map(|row| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let elapsed = row.elapsed as f64 * (0.97 + 0.06 * (dice >> 33) as f64 / (1u64 << 31) as f64);
            Row { arm: "kernel".into(), elapsed: elapsed as u64, ..row.clone() }
        })
        .collect();
    rows.extend(again);
    write(&directory, &rows, &support::made_up_run("size-by-calls"));
    let findings = report::write(&directory).unwrap().findings;
    assert!(findings[0].contains("lower in 0, higher in 0, no difference proven in 28"), "{findings:?}");
}

#[test]
fn a_busy_client_and_an_idle_server_are_told() {
    let directory = directory("busy");
    let mut rows = support::made_up_rows(StudyName::NginxArticle);
    rows.retain(|row| row.arm == "user");
    let mut summary = |client: f64, server: f64| {
        for row in &mut rows {
            row.client_cpu = (row.elapsed as f64 * client) as u64;
            row.server_cpu = Some((row.elapsed as f64 * server) as u64);
        }
        write(&directory, &rows, &support::made_up_run("nginx-article"));
        fs::read_to_string(report::write(&directory).unwrap().summary).unwrap()
    };
    let (busy, idle) =
        ("Client: at least 85 % busy in 1 of 1 cells of user", "Server: less than 95 % busy in 1 of 1 cells of user");
    for (client, server, expected) in
        [(0.84, 0.96, [false, false]), (0.86, 0.96, [true, false]), (0.5, 0.94, [false, true])]
    {
        let summary = summary(client, server);
        assert_eq!([summary.contains(busy), summary.contains(idle)], expected, "{client} {server}: {summary}");
    }
}

#[test]
fn the_hand_over_has_a_column_for_each_call_and_the_servers_own_time() {
    let (_, _, summary) = made_up("set-up", &[StudyName::Netdev]);
    let head = "| where | measured by | TCP_ULP | TLS_TX | TLS_RX | whole move, in the server | N |";
    assert!(summary.contains(head), "{summary}");
    assert!(summary.contains("| here | the lab | 900 ns | 5.20 µs | 4.10 µs |  |"), "{summary}");
    assert!(summary.contains("| here | kernel |  |  |  | 23.0 µs |"), "{summary}");
    assert!(summary.contains("| published 2022 | NIC offload |  | 1.21 ms | 3.86 ms |  |  |"), "{summary}");
}

#[test]
fn the_articles_gains_have_the_errors_of_both_tests_and_say_what_they_are_of() {
    let (_, _, summary) = made_up("article", &[StudyName::NginxArticle]);
    for expected in ["+13.4 % ± 7.1 %", "+27.6 % ± 3.9 %", "+27.6 % ± 3.7 %", "17.0 %", "it prints no error"] {
        assert!(summary.contains(expected), "{expected} is not in {summary}");
    }
}

#[test]
fn the_container_study_is_reported_as_vegeta_reports() {
    let directory = directory("vegeta");
    let row = |round, arm: &str| Row {
        study: "container".into(),
        cell: "size=1048576 calls=unlimited connections=500 suite=aes128-gcm".into(),
        arm: arm.into(),
        round,
        size: 1 << 20,
        connections: 500,
        threads: 1,
        elapsed: 10_000_000_000,
        attack: Some(8_000_000_000),
        requests: 990,
        body_bytes: 990 << 20,
        errors: 8,
        bad_statuses: 6,
        timeouts: 2,
        first_error: "status 503 Service Unavailable".into(),
        ..Row::default()
    };
    write(&directory, &[row(0, "nginx"), row(1, "nginx")], &support::made_up_run("container"));
    let summary = fs::read_to_string(report::write(&directory).unwrap().summary).unwrap();
    // 2,000 requests in 16 s of attack, 1,980 successes in 20 s, and 10,240 bytes kept of each.
    for expected in
        ["| 2000 | 125 | 99.0 | 20.0 s | 16.0 s | 4.00 s |", "20.3 MB", "10.2 kB", "99.00 %", "200:1980 other:12 0:8"]
    {
        assert!(summary.contains(expected), "{expected} is not in {summary}");
    }
}

#[test]
fn in_a_guest_the_hand_over_is_counted_and_has_no_time() {
    let directory = directory("set-up-counts");
    let mut rows = support::made_up_rows(StudyName::Netdev);
    rows.iter_mut().for_each(|row| row.server_instructions = row.server_cpu.take());
    let mut info = support::made_up_run("netdev");
    info.guest = Some(Guest { emulator: "QEMU 7.2 TCG".into(), counts_instructions: true });
    write(&directory, &rows, &info);
    let summary = fs::read_to_string(report::write(&directory).unwrap().summary).unwrap();
    assert!(summary.contains("Instructions of each system call"), "{summary}");
    assert!(summary.contains("| here | the lab | 900 | 5200 | 4100 |  |"), "{summary}");
    assert!(summary.contains("| here | kernel |  |  |  | 23.0 k |"), "{summary}");
}

/// The verdict and the gaps come before every figure.
#[test]
fn the_report_begins_with_the_verdict_and_with_what_was_not_measured() {
    let (_, page, summary) = made_up("verdict", &[StudyName::Netdev]);
    let at = |text: &str| summary.find(text).unwrap_or_else(|| panic!("{text} is not in {summary}"));
    let order = [
        at("Verdict: kernel takes "),
        at("Not measured: nic"),
        at("Not measured: a network"),
        at("by ROI"),
        at("A/A noise"),
    ];
    assert!(order.is_sorted(), "{order:?} {summary}");
    assert!(page.contains("data-head=\"TLS_TX\"") && page.contains("@media screen and (max-width: 640px)"));
    for recorded in ["0123456789abcdef", "abababab", "4096 131072 6291456", "sealion calibrate, before the run cdcd"] {
        assert!(summary.contains(recorded), "{recorded} is not in {summary}");
    }
}

#[test]
fn a_few_rounds_claim_nothing_and_have_no_tail() {
    let directory = directory("few");
    let mut rows = support::made_up_rows(StudyName::SizeByCalls);
    rows.retain(|row| row.round < 4);
    write(&directory, &rows, &support::made_up_run("size-by-calls"));
    let written = report::write(&directory).unwrap();
    assert!(written.findings[0].contains("no claim: fewer than 5 rounds"), "{:?}", written.findings);
    let summary = fs::read_to_string(written.summary).unwrap();
    assert!(summary.contains("Not claimed: ") && !summary.contains("| p99 |"), "{summary}");
}

#[test]
fn an_arm_of_ours_that_loses_is_named_with_every_cell() {
    let directory = directory("loses");
    let mut rows = support::made_up_rows(StudyName::SizeByCalls);
    for row in rows.iter_mut().filter(|row| row.arm == "auto" && row.size >= 1 << 20 && row.calls == Some(20)) {
        row.server_cpu = row.server_cpu.map(|cpu| 2 * cpu);
    }
    write(&directory, &rows, &support::made_up_run("size-by-calls"));
    let findings = report::write(&directory).unwrap().findings;
    let auto = findings.iter().find(|line| line.starts_with("auto costs more than user in ")).expect("a finding");
    for cell in ["1M × 20 +", "8M × 20 +", "64M × 20 +"] {
        assert!(auto.contains(cell), "{cell}: {auto}");
    }
}

#[test]
fn made_again_it_is_the_same() {
    let (directory, page, summary) = made_up("again", &[StudyName::SizeByCalls]);
    let written = report::write(&directory).unwrap();
    assert_eq!(fs::read_to_string(written.page).unwrap(), page);
    assert_eq!(fs::read_to_string(written.summary).unwrap(), summary);
}

#[test]
fn instructions_are_not_shown_as_times() {
    let directory = directory("instructions");
    let mut rows = support::made_up_rows(StudyName::SizeByCalls);
    for row in &mut rows {
        row.server_instructions = row.server_cpu;
    }
    let mut info = support::made_up_run("size-by-calls");
    info.guest = Some(Guest { emulator: "QEMU 7.2 TCG".into(), counts_instructions: true });
    write(&directory, &rows, &info);
    let page = fs::read_to_string(report::write(&directory).unwrap().page).unwrap();
    assert!(page.contains("they are no times and claim no speed"));
    assert!(page.contains("Instructions per request"));
    for clock in ["Throughput", "Requests per second", "Latency", "Return on investment", " µs"] {
        assert!(!page.contains(clock), "an emulated guest cannot tell {clock:?}");
    }
}

#[test]
fn counts_of_guests_are_reported_too() {
    let directory = directory("guest");
    let mut rows = Vec::new();
    for (size, name) in [(1 << 10, "1k"), (64 << 10, "64k")] {
        for (arm, count) in [("user", 60_000), ("kernel", 80_000), ("nginx", 70_000)] {
            rows.push(Row {
                study: "instructions".into(),
                cell: name.into(),
                arm: arm.into(),
                size,
                connections: 2,
                requests: 10,
                server_instructions: Some(10 * if size == 1 << 10 { count } else { 900_000 - 5 * count }),
                ..Row::default()
            });
        }
    }
    let mut info = support::made_up_run("instructions");
    info.guest = Some(Guest { emulator: "QEMU 7.2 TCG".into(), counts_instructions: true });
    write(&directory, &rows, &info);
    let written = report::write(&directory).unwrap();
    assert!(
        written.findings[0]
            .starts_with("kernel against user, unlimited calls per connection, 2 connections: kernel cheaper from "),
        "{:?}",
        written.findings
    );
    let table = report::readme_table(&directory, "nginx").unwrap();
    assert!(table.contains("| 1k | 70.0 k | 60.0 k (0.86×) | 80.0 k (1.14×) |\n"), "{table}");
    assert!(table.contains("Instructions of the server per request"), "{table}");
}

#[test]
fn an_auto_that_stayed_in_user_space_proves_nothing_about_the_kernel() {
    let directory = directory("idle");
    let mut rows = support::made_up_rows(StudyName::Netdev);
    rows.retain(|row| ["user", "auto"].contains(&row.arm.as_str()));
    write(&directory, &rows, &support::made_up_run("netdev"));
    let page = || fs::read_to_string(report::write(&directory).unwrap().page).unwrap();
    assert!(!page().contains("user by another name"));
    for row in &mut rows {
        row.tls_tx_opened = None;
    }
    write(&directory, &rows, &support::made_up_run("netdev"));
    assert!(page().contains("auto in netdev sent nothing through the kernel"));
    assert_eq!(report::write(&directory).unwrap().findings, ["measured, but not on two paths or servers that compare"]);
    assert!(!page().contains("kernel cheaper from"));
}

#[test]
fn the_readme_table_is_stable_and_has_ratios() {
    let directory = directory("readme");
    let rows = support::made_up_rows(StudyName::Crossover);
    let keep = |row: &Row| row.cell.contains("calls=unlimited") && row.cell.contains("suite=aes128-gcm");
    let mut rows: Vec<Row> = rows.into_iter().filter(keep).collect();
    write(&directory, &rows, &support::made_up_run("crossover"));
    let table = report::readme_table(&directory, "user").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "| cell | user | kernel |");
    assert_eq!(lines[1], "| --- | ---: | ---: |");
    assert_eq!(lines[2], "| 1k | 8.08 µs | 8.87 µs (1.10×) |");
    assert!(table.ends_with("MADE UP FOR A TEST, NOT MEASURED, Linux 6.12.0-fixture, 2026-11-18.\n"), "{table}");
    // The order of the rows does not matter.
    rows.reverse();
    write(&directory, &rows, &support::made_up_run("crossover"));
    assert_eq!(report::readme_table(&directory, "user").unwrap(), table);

    let error = report::readme_table(&directory, "nginx").unwrap_err().to_string();
    assert!(error.contains("no cell was measured on nginx") && error.contains("user, kernel"), "{error}");
}

#[test]
fn a_readme_shows_medians_of_seven_rounds_or_more() {
    let directory = directory("rounds");
    let rows = support::made_up_rows(StudyName::Peers);
    write(&directory, &rows, &support::made_up_run("peers"));
    report::enough_rounds(&directory).expect("the study's default");
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.round < 6 || row.arm == "nginx").collect();
    write(&directory, &rows, &support::made_up_run("peers"));
    let why = report::enough_rounds(&directory).unwrap_err().to_string();
    assert!(why.contains("has 6 rounds of a cell") && why.contains("--rounds 7"), "{why}");
}

#[test]
fn broken_input_is_told_with_its_line() {
    let directory = directory("broken");
    let failure = || format!("{:#}", report::write(&directory).unwrap_err());
    let raw = directory.join(report::raw::FILE);

    assert!(failure().contains("run.json") && failure().contains("sealion-lab run"), "{}", failure());
    support::made_up_run("x").write(&directory).unwrap();
    assert!(failure().contains("raw.csv") && failure().contains("sealion-lab run"), "{}", failure());
    fs::write(&raw, "").unwrap();
    assert!(failure().contains("holds no measurement"), "{}", failure());

    let rows = support::made_up_rows(StudyName::NginxArticle);
    write(&directory, &rows, &support::made_up_run("x"));
    let whole = fs::read_to_string(&raw).unwrap();
    report::write(&directory).unwrap();

    fs::write(&raw, &whole[..whole.lines().next().unwrap().len() + 1]).unwrap();
    assert!(failure().contains("holds no measurement"), "{}", failure());
    fs::write(&raw, &whole[..whole.len() - 40]).unwrap();
    assert!(failure().contains("was the run cut short"), "{}", failure());
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    lines[2] = lines[2].replacen("1073741824", "a lot", 2);
    fs::write(&raw, lines.join("\n")).unwrap();
    assert!(failure().contains("line 3") && failure().contains("not a measurement"), "{}", failure());
    let mut changed = rows.clone();
    changed[4].latency = "AAAA".into();
    write(&directory, &changed, &support::made_up_run("x"));
    assert!(failure().contains("line 6") && failure().contains("column latency"), "{}", failure());
}

#[test]
fn a_run_json_of_another_version() {
    let directory = directory("versions");
    write(&directory, &support::made_up_rows(StudyName::NginxArticle), &support::made_up_run("nginx-article"));
    let file = directory.join(RunInfo::FILE);
    let whole = fs::read_to_string(&file).unwrap();

    let old: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let mut without = old.clone();
    for later in ["guest", "aead_drivers", "versions", "arms", "server_cores", "client_cores", "warnings", "limits"] {
        without.as_object_mut().unwrap().remove(later);
    }
    fs::write(&file, without.to_string()).unwrap();
    let page = fs::read_to_string(report::write(&directory).unwrap().page).unwrap();
    assert!(page.contains("not recorded"));

    without.as_object_mut().unwrap().remove("kernel");
    fs::write(&file, without.to_string()).unwrap();
    let error = format!("{:#}", report::write(&directory).unwrap_err());
    assert!(error.contains("run.json") && error.contains("missing field `kernel`"), "{error}");
}

#[test]
fn nothing_that_counts_is_said_and_not_drawn() {
    let directory = directory("void");
    let mut rows = support::made_up_rows(StudyName::SizeByCalls);
    for row in &mut rows {
        row.void = "debug build".into();
        row.elapsed = 0;
    }
    write(&directory, &rows, &support::made_up_run("size-by-calls"));
    let page = fs::read_to_string(report::write(&directory).unwrap().page).unwrap();
    assert!(page.contains("nothing that counts was measured"));
    assert!(page.contains("debug build"));
    assert!(!page.contains("<svg"));
}
