//! The page of the published studies: the results of each source and of the committed runs, side by side.
//!
//! ```text
//! bench/studies/RUN/{raw.csv,run.json} ─► Run ─► Markdown, and a chart of each study in each run
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::conclusions::conclude;
use super::document::Table;
use super::figures::{Measured, gather};
use super::{markdown, published, raw, study};
use crate::run_info::RunInfo;
use crate::study::StudyName;
use crate::units;

/// The page and its charts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Markdown.
    pub text: String,
    /// The names and contents of the charts, in the directory `studies` beside the page.
    pub charts: Vec<(String, String)>,
}

/// A committed run.
struct Run {
    name: String,
    info: RunInfo,
    cells: Vec<Measured>,
}

/// Makes the page of the runs in the directories of `root`, in the order of their names. The same runs produce the same
/// page.
///
/// # Errors
///
/// A run is broken, or `root` cannot be read.
pub fn studies_page(root: &Path) -> Result<Page> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?.flatten() {
        if entry.path().join(RunInfo::FILE).is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let mut runs = Vec::new();
    for name in names {
        let directory = root.join(&name);
        let (info, rows) = (RunInfo::read(&directory)?, raw::read(&directory)?);
        runs.push(Run { name, info, cells: gather(rows) });
    }
    let text = format!("{BEFORE}{}{}{}", table_of(&runs), commands_of(&runs), conclusions_of(&runs));
    let mut page = Page { text, charts: Vec::new() };
    for study in StudyName::ALL {
        let Some(source) = published::source(study.name()) else { continue };
        page.text += &format!("## {}\n\n", study.name());
        page.text += &format!(
            "- **Source**: {}.\n- **Method**: {}.\n- **Result there**: {}.\n\n",
            source.citation, source.method, source.result
        );
        let of_study = |run: &Run| -> bool { run.cells.iter().any(|measured| measured.study == study.name()) };
        let with: Vec<&Run> = runs.iter().filter(|run| of_study(run)).collect();
        if with.is_empty() {
            page.text += "Not recorded yet.\n\n";
        } else {
            one(&mut page, *study, &with);
        }
        page.text += &format!("**Why figures differ**: {}\n\n", source.apart);
    }
    page.text += &gaps_of(&runs);
    page.text += AFTER;
    Ok(page)
}

/// The exact commands of each run.
fn commands_of(runs: &[Run]) -> String {
    let recorded: Vec<String> = runs
        .iter()
        .filter(|run| !run.info.commands.is_empty())
        .map(|run| format!("# {}\n{}\n", run.name, run.info.commands.join("\n")))
        .collect();
    if recorded.is_empty() {
        return String::new();
    }
    format!("```sh\n{}```\n\n", recorded.join("\n"))
}

/// The conclusions of each run about kernel TLS, over all studies.
fn conclusions_of(runs: &[Run]) -> String {
    let mut text = "## What the runs say\n\n".to_owned();
    for run in runs {
        let cells: Vec<&Measured> = run.cells.iter().collect();
        match conclude(&cells, run.info.counts_instructions()) {
            None if cells.iter().any(|measured| measured.total(|row| row.tls_tx_opened.unwrap_or(0)) > 0) => {
                text += &format!("**{}**: see its studies below; it has other arms.\n\n", run.name);
            }
            None => {
                text += &format!("**{}**: nothing about kernel TLS, which this kernel does not have.\n\n", run.name)
            }
            Some(found) => {
                text += &format!(
                    "**{}**, change by size over all studies:\n\n{}\n",
                    run.name,
                    markdown::table(&found.table())
                );
                for sentence in found.sentences() {
                    text += &format!("- {sentence}\n");
                }
                text.push('\n');
            }
        }
    }
    let timed = runs.iter().any(|run| {
        let cells: Vec<&Measured> = run.cells.iter().collect();
        !run.info.counts_instructions() && conclude(&cells, false).is_some()
    });
    if !timed && !runs.is_empty() {
        text += "No run has measured the time of kernel TLS on a processor of its own: the counts say how much work it is, and the \
                 sources say how fast it is.\n\n";
    }
    text
}

/// The results of one study.
fn one(page: &mut Page, study: StudyName, runs: &[&Run]) {
    let mut head = vec!["figure".to_owned(), "published".to_owned()];
    head.extend(runs.iter().map(|run| run.name.clone()));
    let mut table = Table { caption: String::new(), head, rows: Vec::new(), names: 2 };
    for (number, run) in runs.iter().enumerate() {
        let cells = cells_of(run, study);
        let instructions = run.info.counts_instructions();
        for figure in study::beside(study.name(), &cells, instructions, &run.info.server_limits) {
            let place = table.rows.iter().position(|row| row[0] == figure.name).unwrap_or_else(|| {
                let mut row = vec![figure.name.clone(), figure.published.clone()];
                row.resize(2 + runs.len(), "–".to_owned());
                table.rows.push(row);
                table.rows.len() - 1
            });
            table.rows[place][2 + number] = figure.here;
        }
    }
    if table.rows.is_empty() {
        page.text += "No run has both paths of a server: nothing to put beside the source.\n\n";
    } else {
        page.text += &format!("{}\n", markdown::table(&table));
    }
    for run in runs {
        let cells = cells_of(run, study);
        let instructions = run.info.counts_instructions();
        page.text += &format!("**{}**\n\n", run.name);
        for finding in study::report(study.name(), &cells, instructions).findings {
            page.text += &format!("- {finding}\n");
        }
        page.text.push('\n');
        if let Some(picture) = study::picture(study.name(), &cells, instructions) {
            let file = format!("{}-{}.svg", study.name(), run.name);
            page.text += &format!("![{}, {}](studies/{file})\n\n", picture.title, run.name);
            page.charts.push((file, picture.svg));
        }
    }
}

fn cells_of(run: &Run, study: StudyName) -> Vec<&Measured> {
    run.cells.iter().filter(|measured| measured.study == study.name()).collect()
}

/// Conditions that no run has, and runs that lack a condition of the others.
fn gaps_of(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut gaps = Vec::new();
    let old: Vec<&str> = runs.iter().filter(|run| run.info.commands.is_empty()).map(|run| run.name.as_str()).collect();
    if !old.is_empty() {
        gaps.push(format!(
            "{}: recorded before the studies had five rounds, a finer grid of sizes where the paths cross, a pinned calibration for \
             `auto`, and exact commands, commits and hashes in `run.json`. Their set-up times were clamped by a histogram that was \
             too small, and are removed from the raw data.",
            old.join(", ")
        ));
    }
    if runs.iter().all(|run| run.info.client.is_empty()) {
        gaps.push("No run has a client on another computer (`sealion-lab run --agent`).".to_owned());
    }
    if !runs.iter().any(|run| run.info.arms.iter().any(|arm| arm.name == "nic" && arm.absent.is_empty())) {
        gaps.push("No run has a network card that seals.".to_owned());
    }
    if !runs.iter().any(|run| run.info.arms.iter().any(|arm| arm.name == "nginx-default" && arm.absent.is_empty())) {
        gaps.push(
            "No run has an nginx as the sources of nginx-article and size-by-calls had it, with an access log: the arms \
             nginx-default and nginx-log are newer than these runs."
                .to_owned(),
        );
    }
    let has = |run: &Run, end: &str| run.info.arms.iter().any(|arm| arm.name.ends_with(end) && arm.absent.is_empty());
    if runs.iter().all(|run| run.info.server_limits.is_empty() && !has(run, "-limited")) {
        gaps.push("No run limits processors, memory or bandwidth, as the container study did.".to_owned());
    }
    if !runs.iter().any(|run| has(run, "-vegeta")) {
        gaps.push("No run has vegeta as the client, as the container study did.".to_owned());
    }
    let list: String = gaps.iter().map(|gap| format!("- {gap}\n")).collect();
    format!("## Gaps of these runs\n\n{list}\n")
}

/// A table of the runs: where and with what they were made.
fn table_of(runs: &[Run]) -> String {
    if runs.is_empty() {
        return "No run is recorded yet.\n\n".to_owned();
    }
    let mut table =
        Table::new("", 1, &["run", "processor", "kernel", "servers", "figures", "rounds", "void", "date", "warnings"]);
    for Run { name, info, cells } in runs {
        let version = |name: &str| {
            let found = info.versions.iter().find(|version| version.name == name)?;
            Some(format!("{name} {}", found.version.split([' ', ',']).next().unwrap_or_default()))
        };
        let rounds = cells.iter().map(|measured| measured.rounds.len() + measured.voids.len()).max().unwrap_or(0);
        let void: usize = cells.iter().map(|measured| measured.voids.len()).sum();
        let all: usize = cells.iter().map(|measured| measured.rounds.len()).sum::<usize>() + void;
        table.rows.push(vec![
            name.clone(),
            match &info.guest {
                Some(guest) => guest.emulator.clone(),
                None => format!("{}, {} cores", info.machine.processor, info.machine.cores),
            },
            info.kernel.split_whitespace().next().unwrap_or("unknown").to_owned(),
            ["sealion", "nginx"].into_iter().filter_map(version).collect::<Vec<_>>().join(", "),
            if info.counts_instructions() { "instructions of the server" } else { "times" }.to_owned(),
            format!("up to {rounds}"),
            format!("{void} of {all}"),
            units::day(info.started),
            info.warnings.join("; "),
        ]);
    }
    format!("{}\n", markdown::table(&table.without_empty_columns()))
}

const BEFORE: &str = "# Published studies, repeated

```sh
target/release/sealion-lab run nginx-article --quick                                # repeats one study here
target/release/sealion-lab studies bench/studies --page docs/studies.md             # makes this page from the raw data
```

This page is made from the raw data in `bench/studies/`, and a test compares it with them. [lab.md](lab.md) explains the studies and the arms.

- `+` and `−` are changes of the kernel path against user space on the same server.
- In parentheses: for times the 95 % interval by Welch's test on logarithms, from five rounds on; for counts the spread of rounds, without a test.
- A guest counts instructions of the server, kernel included. It repeats well and claims no speed. Less work for a request is better.
- The sources' gains are of throughput: more is better.

";

const AFTER: &str = "## Record it on your machine

```sh
cargo build --release -p sealion -p sealion-lab
target/release/sealion-lab run all --full --bundle --out my-machine
```

You need kernel TLS (`modprobe tls`), nginx and an idle machine with at least two cores. A network card that seals adds the arm `nic`.

| scale | load |
|---|---|
| `--full` | about fifteen hours |
| without | about two hours |
| `--quick` | some minutes |

`my-machine.tar.gz` then holds raw data, conditions and report. It has the machine's processor and kernel, but no user name, no host name and no path. To send it,
attach it to an issue. Or unpack it in `bench/studies/`, make this page again and open a pull request.

`sealion-lab studies bench/studies --record quick --page docs/studies.md` makes this page from new runs. It records a run on this machine, one in each guest kernel,
6.1 and 7.2, the netdev study on a processor without AES, and the container study with half a processor and with 100 Mbit/s. A guest takes half an hour.
`--only guest-7.2` records one of them.
";
