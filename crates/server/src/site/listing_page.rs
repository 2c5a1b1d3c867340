//! Rendering of listings: an HTML page without scripts, or JSON.
//!
//! File names are untrusted. On the page each is isolated (`<bdi>`), so that it cannot reorder the text around it. Control
//! characters and invisible characters are escaped visibly.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_encode;
use sealion_http::content_type::ContentType;
use sealion_http::{Fields, Status};
use serde::Serialize;

use super::archive::Format;
use super::checksums::Checksum;
use super::listing::{Bounds, Entries, Entry, ReadDirectory};
use super::listing_notes::{Notes, Notices};
use super::listing_view::{Column, OUTSIDE_UNRESERVED, Order, View};
use crate::files::resolve::Unresolved;
use crate::response::{Body, Response, SharedBytes};

/// A listing to produce on the blocking pool, since reading and sorting may take long.
#[derive(Debug)]
pub(super) struct ShowDirectory {
    pub directory: ReadDirectory,
    /// The requested path: decoded, without leading and trailing slashes.
    pub asked: Box<[u8]>,
    pub view: View,
    /// Whether the page has links to archives of the directory.
    pub archives: bool,
    /// The path of a stylesheet of the site.
    pub stylesheet: Option<Arc<str>>,
    /// Files of the directory that may be notes.
    pub notes: Option<Notes>,
    /// Whether to produce JSON instead of HTML.
    pub json: bool,
}

impl ShowDirectory {
    /// Reads the directory and renders the page.
    ///
    /// # Errors
    /// As [`ReadDirectory::run`].
    pub(super) fn run(&self) -> Result<String, Unresolved> {
        let found = self.directory.run(&self.view)?;
        if self.json {
            return Ok(json(&self.asked, &found));
        }
        let notes = self.notes.as_ref().map(|notes| notes.read(&self.directory.root, &self.directory.name));
        let frame =
            Frame { archives: self.archives, stylesheet: self.stylesheet.as_deref(), notes: notes.unwrap_or_default() };
        Ok(html(&self.asked, &found, &self.view, &frame))
    }

    /// The key of the page among all pages of its site.
    pub(super) fn key(&self) -> PageKey {
        PageKey {
            root: Arc::as_ptr(&self.directory.root) as usize,
            name: self.directory.name.clone(),
            bounds: self.directory.bounds,
            show_dotfiles: self.directory.show_dotfiles,
            asked: self.asked.clone(),
            view: self.view.clone(),
            archives: self.archives,
            stylesheet: self.stylesheet.clone(),
            notes: self.notes.clone(),
            json: self.json,
        }
    }
}

/// The parts of a page around its entries.
#[derive(Debug, Default)]
struct Frame<'a> {
    /// Whether it has links to archives.
    archives: bool,
    stylesheet: Option<&'a str>,
    notes: Notices,
}

/// Everything that a page depends on: the directory, and how it is shown.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    /// The address of the root, which lives as long as its site.
    root: usize,
    name: Box<[u8]>,
    bounds: Bounds,
    show_dotfiles: bool,
    asked: Box<[u8]>,
    view: View,
    archives: bool,
    stylesheet: Option<Arc<str>>,
    notes: Option<Notes>,
    json: bool,
}

/// The response with a page. `policy`: its Content-Security-Policy.
pub(super) fn response(page: Arc<SharedBytes>, as_json: bool, policy: &str) -> Response {
    let mut fields = Fields::default();
    if as_json {
        fields.content_type = Some(ContentType::Plain("application/json"));
    } else {
        fields.content_type = Some(ContentType::Text("text/html"));
        fields.extra.add("Content-Security-Policy", policy);
    }
    fields.extra.add("X-Content-Type-Options", "nosniff");
    fields.extra.add("Vary", "Accept");
    Response::new(Status::OK, fields, Body::Shared(page))
}

#[derive(Serialize)]
struct JsonPage<'a> {
    path: String,
    /// Whether entries follow that are not on this page.
    more: bool,
    page: usize,
    pages: usize,
    /// Entries on all pages.
    total: usize,
    entries: Vec<JsonEntry<'a>>,
}

#[derive(Serialize)]
struct JsonEntry<'a> {
    name: Cow<'a, str>,
    href: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    modified: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checksums: Vec<JsonChecksum>,
}

#[derive(Serialize)]
struct JsonChecksum {
    algorithm: &'static str,
    href: String,
}

fn json(name: &[u8], found: &Entries) -> String {
    let entries = found.entries.iter().map(|entry| JsonEntry {
        name: String::from_utf8_lossy(&entry.name),
        href: href(entry),
        kind: if entry.len.is_some() { "file" } else { "directory" },
        size: entry.len,
        modified: humantime::format_rfc3339_seconds(entry.modified).to_string(),
        checksums: entry.checksums.iter().map(json_checksum).collect(),
    });
    let slash = if name.is_empty() { "" } else { "/" };
    let path = format!("/{}{slash}", String::from_utf8_lossy(name));
    let page = JsonPage {
        path,
        more: found.page + 1 < found.pages || found.cut_at.is_some(),
        page: found.page + 1,
        pages: found.pages,
        total: found.directories + found.files,
        entries: entries.collect(),
    };
    serde_json::to_string(&page).unwrap_or_default() + "\n"
}

fn json_checksum(checksum: &Checksum) -> JsonChecksum {
    JsonChecksum { algorithm: checksum.algorithm.key(), href: reference(&checksum.file) }
}

fn html(name: &[u8], found: &Entries, view: &View, frame: &Frame<'_>) -> String {
    let mut page = String::with_capacity(4096 + 320 * found.entries.len());
    let mut title = String::new();
    show(&mut title, name, Context::Text);
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Writing to a String cannot fail.
    let _ = write!(page, "<title>/{title}</title>\n<style>{STYLE}</style>\n");
    if let Some(path) = frame.stylesheet {
        let _ = writeln!(page, "<link rel=\"stylesheet\" href=\"{}\">", escaped(path));
    }
    page.push_str("</head>\n<body>\n<main>\n");
    breadcrumbs(&mut page, name);
    notice(&mut page, "header", frame.notes.above.as_deref());
    search_form(&mut page, view);
    let (directories, files) = (found.directories, found.files);
    let _ = write!(page, "<p>{}, {}", count(directories, "directory", "directories"), count(files, "file", "files"));
    if frame.archives {
        page.push_str(" \u{b7} download:");
        for format in Format::ALL {
            let _ = write!(page, " <a href=\"?archive={0}\" rel=\"nofollow\">{0}</a>", format.name());
        }
    }
    page.push_str("</p>\n");
    if let Some(entries) = found.cut_at {
        let _ = writeln!(
            page,
            "<p class=\"more\" role=\"status\">The directory has more entries: only {entries} are listed.</p>"
        );
    }
    let has_checksums = found.entries.iter().any(|entry| !entry.checksums.is_empty());
    page.push_str("<table>\n<thead><tr>");
    for (column, label) in [(Column::Name, "Name"), (Column::Size, "Size"), (Column::Modified, "Modified (UTC)")] {
        let is_chosen = view.order.by == column;
        let order = Order { by: column, descending: is_chosen && !view.order.descending };
        let sorted = match (is_chosen, view.order.descending) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        let link = escaped(&View { order, page: 0, ..view.clone() }.query());
        let _ = write!(page, "<th class=\"{}\"{sorted}><a href=\"{link}\">{label}</a></th>", column.name());
    }
    page.push_str(if has_checksums { "<th class=\"checksums\">Checksum</th>" } else { "" });
    page.push_str("</tr></thead>\n<tbody>\n");
    if !name.is_empty() {
        page.push_str("<tr class=\"up\"><td class=\"name\"><a href=\"../\">..</a></td><td class=\"size\"></td><td class=\"modified\"></td>");
        page.push_str(if has_checksums { "<td class=\"checksums\"></td></tr>\n" } else { "</tr>\n" });
    }
    for entry in &found.entries {
        row(&mut page, entry, has_checksums);
    }
    page.push_str("</tbody>\n</table>\n");
    pager(&mut page, found, view);
    notice(&mut page, "readme", frame.notes.below.as_deref());
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// A note of the directory, if there is one.
fn notice(page: &mut String, class: &str, note: Option<&str>) {
    if let Some(note) = note {
        let _ = writeln!(page, "<div class=\"note {class}\">\n{note}\n</div>");
    }
}

/// A form that asks for the same URL with another query.
fn search_form(page: &mut String, view: &View) {
    let _ = writeln!(
        page,
        "<form role=\"search\"><input type=\"search\" name=\"q\" value=\"{}\" aria-label=\"Part of a name, or a pattern such as *.iso\" \
         placeholder=\"*.iso\"><input type=\"hidden\" name=\"sort\" value=\"{}\">\
         <input type=\"hidden\" name=\"order\" value=\"{}\"><button>Search</button></form>",
        escaped(&view.search),
        view.order.by.name(),
        view.order.direction(),
    );
}

/// Links to the other pages, if there are any.
fn pager(page: &mut String, found: &Entries, view: &View) {
    if found.pages == 1 {
        return;
    }
    let (at, last) = (found.page, found.pages - 1);
    page.push_str("<nav aria-label=\"Pages\">");
    let mut link = |label: &str, relation: &str, to: Option<usize>| {
        if let Some(to) = to {
            let query = escaped(&View { page: to, ..view.clone() }.query());
            let _ = write!(page, "<a href=\"{query}\"{relation}>{label}</a> ");
        }
    };
    link("First", "", (at > 0).then_some(0));
    link("Previous", " rel=\"prev\"", at.checked_sub(1));
    link("Next", " rel=\"next\"", (at < last).then_some(at + 1));
    link("Last", "", (at < last).then_some(last));
    let _ = writeln!(page, "<span>Page {} of {}</span></nav>", at + 1, found.pages);
}

fn breadcrumbs(page: &mut String, name: &[u8]) {
    page.push_str("<h1><a href=\"/\" aria-label=\"root\">/</a>");
    let segments: Vec<_> = name.split(|octet| *octet == b'/').filter(|segment| !segment.is_empty()).collect();
    let mut at = String::from("/");
    for (n, segment) in segments.iter().enumerate() {
        at.extend(percent_encode(segment, OUTSIDE_UNRESERVED));
        at.push('/');
        let last = if n + 1 == segments.len() { " aria-current=\"page\"" } else { "" };
        let _ = write!(page, "<a href=\"{at}\"{last}>");
        show(page, segment, Context::Element);
        page.push_str("</a><span>/</span>");
    }
    page.push_str("</h1>\n");
}

fn row(page: &mut String, entry: &Entry, has_checksums: bool) {
    let class = if entry.len.is_some() { "file" } else { "directory" };
    let _ = write!(page, "<tr class=\"{class}\"><td class=\"name\"><a href=\"{}\">", href(entry));
    show(page, &entry.name, Context::Element);
    page.push_str(if entry.len.is_some() { "" } else { "/" });
    page.push_str("</a></td><td class=\"size\">");
    if let Some(len) = entry.len {
        let _ = write!(page, "<data value=\"{len}\">{}</data>", size(len));
    }
    let _ = write!(page, "</td><td class=\"modified\">{}</td>", time(entry.modified));
    if has_checksums {
        page.push_str("<td class=\"checksums\">");
        for checksum in &entry.checksums {
            let _ = write!(page, "<a href=\"{}\">{}</a> ", reference(&checksum.file), checksum.algorithm.name());
        }
        page.push_str("</td>");
    }
    page.push_str("</tr>\n");
}

/// A relative reference, percent-encoded so that no name acts as scheme, query or host.
fn href(entry: &Entry) -> String {
    let slash = if entry.len.is_some() { "" } else { "/" };
    reference(&entry.name) + slash
}

/// A relative reference to the file `name`.
fn reference(name: &[u8]) -> String {
    format!("./{}", percent_encode(name, OUTSIDE_UNRESERVED))
}

/// Text for an attribute, whose value it is exactly.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

#[derive(Clone, Copy, PartialEq)]
enum Context {
    /// Markup is allowed: names are isolated, and escapes marked.
    Element,
    /// Text only, as in `<title>`.
    Text,
}

/// Writes an untrusted name into HTML.
fn show(page: &mut String, name: &[u8], context: Context) {
    let (open, close) = if context == Context::Element { ("<i>", "</i>") } else { ("", "") };
    if context == Context::Element {
        page.push_str("<bdi>");
    }
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '&' => page.push_str("&amp;"),
                '<' => page.push_str("&lt;"),
                '>' => page.push_str("&gt;"),
                '"' => page.push_str("&quot;"),
                '\'' => page.push_str("&#39;"),
                c if is_deceptive(c) => {
                    let _ = write!(page, "{open}{}{close}", c.escape_unicode());
                }
                c => page.push(c),
            }
        }
        if !chunk.invalid().is_empty() {
            let _ = write!(page, "{open}{}{close}", chunk.invalid().escape_ascii());
        }
    }
    if context == Context::Element {
        page.push_str("</bdi>");
    }
}

/// Writes an untrusted text into HTML: its lines and tabs stay.
pub(super) fn show_text(page: &mut String, text: &[u8]) {
    for piece in text.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
        let (piece, end) = match piece.split_last() {
            Some((end @ (b'\n' | b'\t'), piece)) => (piece.strip_suffix(b"\r").unwrap_or(piece), Some(*end)),
            _ => (piece, None),
        };
        if !piece.is_empty() {
            show(page, piece, Context::Element);
        }
        page.extend(end.map(char::from));
    }
}

/// Whether a character is a control, changes the text direction (UAX #9), or is invisible. Joiners, which some scripts and emoji
/// need, are allowed.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value < 9.95);
    format!("{value:.decimals$} {}", UNITS[unit])
}

fn time(time: SystemTime) -> String {
    let full = humantime::format_rfc3339_seconds(time).to_string();
    match (full.get(..10), full.get(11..16)) {
        (Some(date), Some(clock)) => format!("<time datetime=\"{full}\">{date} {clock}</time>"),
        _ => String::new(),
    }
}

/// Content-Security-Policy that allows only the page's own style, and its form. `of_site`: styles, images and fonts of the site too.
pub(super) fn policy(of_site: bool) -> String {
    static OWN: LazyLock<String> = LazyLock::new(|| STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes())));
    let (styles, rest) = match of_site {
        true => (" 'self'", "; img-src 'self'; font-src 'self'"),
        false => ("", ""),
    };
    format!(
        "default-src 'none'; style-src 'sha256-{}'{styles}{rest}; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
        *OWN
    )
}

const STYLE: &str = include_str!("listing.css");

#[cfg(test)]
#[path = "listing_page_tests.rs"]
mod tests;
