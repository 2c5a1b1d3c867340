//! Manual pages and shell completions, generated from the command line and the configuration's schema.

use std::fs;
use std::path::Path;

use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::config::reference::{self, Table};

/// Creates `directory` and writes sealion(1), a page per command and sealion.toml(5) into it.
///
/// # Errors
/// The directory or a page cannot be written.
pub(super) fn write_pages(command: clap::Command, directory: &Path) -> Result<(), String> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .and_then(|()| fs::write(directory.join("sealion.toml.5"), configuration_page(&reference::tables())));
    written.map_err(|e| format!("cannot write manual pages to {}: {e}", directory.display()))
}

/// The completions of a shell.
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
        roman(" FILE reports the errors of a file with line and key, and starts no server. A file with an error is refused as a whole."),
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
    fn the_page_has_every_key() {
        let tables = reference::tables();
        let page = configuration_page(&tables);
        let keys = tables.iter().flat_map(|table| &table.keys);
        // As roff writes a hyphen.
        let missing: Vec<_> =
            keys.filter(|key| !page.contains(&format!("\\fB{}\\fR", key.name.replace('-', "\\-")))).collect();
        assert!(!tables.is_empty() && missing.is_empty(), "{missing:?}");
        assert!(!page.contains('`'), "what is Markdown is not roff");
    }
}
