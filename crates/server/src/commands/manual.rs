//! Manual pages and shell completions, generated from the command line and the configuration's schema.

use std::fs;
use std::path::Path;

use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::config::reference::{self, Table};

/// Creates `directory`, and writes sealion(1), a page per command and sealion.toml(5) into it.
///
/// # Errors
/// The directory or a page cannot be written.
pub(super) fn write_pages(command: clap::Command, directory: &Path) -> Result<(), String> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .and_then(|()| SECTIONS.iter().try_for_each(|(page, sections)| append(&directory.join(page), sections)))
        .and_then(|()| fs::write(directory.join("sealion.toml.5"), configuration_page(&reference::tables())));
    written.map_err(|e| format!("cannot write manual pages to {}: {e}", directory.display()))
}

/// A section: its heading, then terms with their explanations.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

/// Sections that clap does not generate, by page.
const SECTIONS: [(&str, &[Section]); 3] = [
    ("sealion.1", &[EXIT_STATUS, FILES]),
    (
        "sealion-serve.1",
        &[
            (
                "EXAMPLES",
                &[
                    (
                        "sealion serve -l ~/public",
                        "Serves a directory at https://localhost:8443, with listings and a development certificate.",
                    ),
                    ("sealion serve big.iso", "Serves one file."),
                    (
                        "sealion serve -l --open ~/public",
                        "Opens the site in a browser by xdg-open; where that fails, a line has the URL.",
                    ),
                    (
                        "sealion serve --listen 0.0.0.0:8443 --qr photos",
                        "Draws the URL as a QR code for a phone in the same network, which warns of the development certificate.",
                    ),
                    ("sealion serve --config /etc/sealion/sealion.toml", "Serves the sites of a configuration file."),
                ],
            ),
            EXIT_STATUS,
            (
                "ENVIRONMENT",
                &[
                    (
                        "SEALION_CONFIG, SEALION_LISTEN, …",
                        "Each option that shows [env: NAME] takes its value from this variable if it is not given.",
                    ),
                    (
                        "XDG_DATA_HOME, HOME",
                        "The development certificate is kept in sealion/ below the first, or in .local/share/sealion/ below the second.",
                    ),
                    ("NOTIFY_SOCKET, LISTEN_FDS", "Set by systemd: notifications, and sockets to listen on."),
                ],
            ),
            (
                "SIGNALS",
                &[
                    (
                        "SIGHUP",
                        "Reload the configuration and the certificates; sealion reload also reports the outcome.",
                    ),
                    ("SIGUSR1", "Open the log files again."),
                    (
                        "SIGUSR2",
                        "Start the program again and hand over to it; sealion upgrade also reports the outcome.",
                    ),
                    ("SIGTERM, SIGINT", "Finish the responses in progress and end; a second signal ends at once."),
                ],
            ),
            FILES,
        ],
    ),
    (
        "sealion-check.1",
        &[
            (
                "EXAMPLES",
                &[(
                    "sealion check --strict --config /etc/sealion/sealion.toml",
                    "Fails for warnings too, such as an expired certificate.",
                )],
            ),
            EXIT_STATUS,
        ],
    ),
];

const EXIT_STATUS: Section = (
    "EXIT STATUS",
    &[
        ("0", "Success."),
        ("1", "An error, with a line on standard error for each problem."),
        ("2", "Wrong usage; for sealion reload and sealion upgrade: no server took the order."),
        ("3", "sealion import-nginx: some directives have no counterpart."),
    ],
);

const FILES: Section = (
    "FILES",
    &[
        ("/etc/sealion/sealion.toml", "Configuration of the service: sealion.toml(5)."),
        ("/var/lib/sealion", "Calibration, ACME accounts and certificates of the service."),
        ("/var/log/sealion", "Logs of the service, if they go to files."),
    ],
);

/// Appends sections to a page.
fn append(page: &Path, sections: &[Section]) -> std::io::Result<()> {
    let mut roff = Roff::new();
    for (heading, entries) in sections {
        roff.control("SH", [*heading]);
        for (term, text) in *entries {
            roff.control("TP", []);
            roff.text([bold(*term)]);
            roff.text([roman(*text)]);
        }
    }
    let mut text = fs::read_to_string(page)?;
    text.push_str(&roff.to_roff());
    fs::write(page, text)
}

/// The completions for a shell.
pub(super) fn completions(shell: clap_complete::Shell, mut command: clap::Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "sealion", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn configuration_page(tables: &[Table]) -> String {
    let mut page = Roff::new();
    page.control("TH", ["sealion.toml", "5", "", concat!("sealion ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]);
    page.text([roman("sealion.toml - configuration of the sealion server")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman("The file that "), bold("sealion serve --config"), roman(" FILE reads. The format is TOML.")]);
    page.control("PP", []);
    page.text([
        bold("sealion check --config"),
        roman(" FILE reports the errors of a file with line and key, and starts no server. A file with an error is rejected as a whole."),
    ]);
    page.control("PP", []);
    page.text([roman(
        "Times have a unit (500ms, 10s, 2h), and so have sizes (512B, 64KiB, 10MB). Relative paths start at the directory of the file. \
         SIGHUP makes the server read the file again.",
    )]);
    for table in tables {
        page.control("SH", [table.name.as_str()]);
        page.text([roman(table.doc.replace('`', ""))]);
        for key in &table.keys {
            page.control("TP", []);
            let kind = key.kind.replace('`', "");
            page.text([bold(&key.name), roman(" = "), italic(kind)]);
            let default = key.default.as_ref().map(|default| format!(" Default: {default}")).unwrap_or_default();
            page.text([roman(format!("{}{default}", key.doc).replace('`', ""))]);
        }
    }
    page.control("SH", ["FILES"]);
    page.text([roman("/etc/sealion/sealion.toml: configuration of the service.")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("sealion"),
        roman("(1), "),
        bold("sealion-serve"),
        roman("(1), "),
        bold("sealion-check"),
        roman("(1)"),
    ]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_commands_end_in_examples_status_and_signals() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(crate::commands::command(), directory.path()).unwrap();
        let page = fs::read_to_string(directory.path().join("sealion-serve.1")).unwrap();
        for words in [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH SIGNALS", ".SH FILES", "SIGUSR2"] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn the_page_has_every_key() {
        let tables = reference::tables();
        let page = configuration_page(&tables);
        let keys = tables.iter().flat_map(|table| &table.keys);
        // Hyphens as roff writes them.
        let missing: Vec<_> =
            keys.filter(|key| !page.contains(&format!("\\fB{}\\fR", key.name.replace('-', "\\-")))).collect();
        assert!(!tables.is_empty() && missing.is_empty(), "{missing:?}");
        assert!(!page.contains('`'), "what is Markdown is not roff");
    }
}
