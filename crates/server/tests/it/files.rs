//! A file that changes while it is sent, from user space.

use crate::support::changing_file;

const NEVER: &[&str] = &["--ktls", "never"];
const WAY: (&str, &str) = ("user", "never");

#[test]
fn a_truncated_file_ends_with_an_alert() {
    changing_file::truncated(NEVER, WAY);
}

#[test]
fn a_grown_file_gives_what_was_announced() {
    changing_file::grown(NEVER, WAY);
}

#[test]
fn a_replaced_file_is_sent_as_it_was() {
    changing_file::replaced(NEVER, WAY);
}

#[test]
fn a_removed_file_is_sent_and_then_gone() {
    changing_file::removed(NEVER, WAY);
}
