//! Updates tables in a README from committed runs. Each table is between two HTML comments.
//!
//! ```text
//! <!-- peers: bench/peers -->
//! …
//! <!-- end -->
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The text with its tables rewritten from the directories that they name, relative to `base`. With `only`, rewrites
/// just the table of that directory.
///
/// # Errors
///
/// A table has no end or cannot be made, or no table is for `only`.
pub fn updated(text: &str, base: &Path, only: Option<&Path>, baseline: &str) -> Result<String> {
    let only = only.map(real).transpose()?;
    let mut made = String::new();
    let mut found = false;
    let mut rest = text;
    while let Some((before, directory, inside, after)) = next(rest)? {
        made += before;
        let directory = base.join(directory);
        let wanted = match &only {
            Some(only) => real(&directory).is_ok_and(|directory| directory == *only),
            None => true,
        };
        if wanted {
            made += &format!("\n{}\n", super::readme_table(&directory, baseline)?);
            found = true;
        } else {
            made += inside;
        }
        rest = after;
    }
    ensure!(
        found || only.is_none(),
        "there is no table of that run: write <!-- peers: DIRECTORY --> and {END} where it belongs"
    );
    Ok(made + rest)
}

/// The text up to and including a table's mark, the table's directory, the table, and the rest from its end on.
fn next(text: &str) -> Result<Option<(&str, &str, &str, &str)>> {
    let mark = KINDS.iter().filter_map(|kind| text.find(&format!("<!-- {kind}: "))).min();
    let Some(mark) = mark else { return Ok(None) };
    let directory = text[mark..].split_once(": ").and_then(|(_, rest)| rest.split_once(" -->"));
    let Some((directory, rest)) = directory.filter(|(directory, _)| !directory.contains('\n')) else {
        bail!("a mark of a table is not closed: {}", text[mark..].lines().next().unwrap_or_default());
    };
    let Some(inside) = rest.find(END) else { bail!("the table of {directory} has no {END}") };
    let start = text.len() - rest.len() + 1;
    let rest =
        rest.strip_prefix('\n').with_context(|| format!("the mark of {directory} must stand on a line of its own"))?;
    Ok(Some((&text[..start], directory, &rest[..inside - 1], &rest[inside - 1..])))
}

fn real(path: &Path) -> Result<std::path::PathBuf> {
    fs::canonicalize(path).with_context(|| format!("there is no {}", path.display()))
}

/// Kinds of tables: from a run of the study `peers`, and from counts in guests.
const KINDS: [&str; 2] = ["peers", "instructions"];

const END: &str = "<!-- end -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_with_what_surrounds_it() {
        let text = "a\n<!-- peers: x/y -->\nold\n<!-- end -->\nb\n";
        let parts = next(text).unwrap().expect("a mark");
        assert_eq!(parts, ("a\n<!-- peers: x/y -->\n", "x/y", "old\n", "<!-- end -->\nb\n"));
        assert_eq!(next(parts.3).unwrap(), None);
        assert_eq!(next("<!-- other: x -->").unwrap(), None);
    }

    #[test]
    fn a_table_without_an_end_is_told() {
        for (text, why) in [("<!-- peers: x\n -->", "not closed"), ("<!-- peers: x -->\n", "no <!-- end -->")] {
            assert!(next(text).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}
