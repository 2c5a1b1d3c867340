//! Parses the directives of an nginx configuration and the files it includes.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use globset::GlobBuilder;

use super::tokens::{Token, Tokens};
use super::{Place, SyntaxError};

/// `name arguments;` or `name arguments { … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// The contents of its braces, if any.
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: Place,
}

impl Directive {
    /// The directives in its braces; empty without braces.
    pub(super) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The first argument, or an empty string.
    pub(super) fn first(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }
}

impl fmt::Display for Directive {
    /// Source form, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for argument in &self.arguments {
            let bare = !argument.is_empty() && !argument.contains([' ', '\t', '\n', ';', '{', '}', '"', '\'']);
            if bare { write!(f, " {argument}")? } else { write!(f, " {argument:?}")? }
        }
        f.write_str(if self.block.is_some() { " { … }" } else { ";" })
    }
}

/// The directives of a file and its includes, and the includes that could not be read.
pub(super) struct Configuration {
    pub(super) directives: Vec<Directive>,
    pub(super) missing: Vec<Missing>,
}

/// An included file that cannot be read.
pub(super) struct Missing {
    pub(super) place: Place,
    pub(super) what: String,
    /// Whether it is the directory of a pattern.
    pub(super) is_directory: bool,
    /// File name without directories.
    name: String,
}

impl Missing {
    /// Whether packages ship this file, and it restricts no access.
    pub(super) fn is_known(&self) -> bool {
        const KNOWN: [&str; 9] = [
            // The directory of Debian's dynamic modules.
            "modules-enabled",
            "fastcgi.conf",
            "fastcgi-php.conf",
            "fastcgi_params",
            "mime.types",
            "options-ssl-nginx.conf",
            "proxy_params",
            "scgi_params",
            "uwsgi_params",
        ];
        KNOWN.contains(&self.name.as_str())
    }
}

/// Reads `file` and its includes.
///
/// # Errors
/// A file cannot be read, or its braces and quotes do not match; the message names file and line.
pub(super) fn read(file: &Path) -> Result<Configuration, String> {
    let text = std::fs::read(file).map_err(|e| {
        let remedy = "name nginx's main configuration file, for instance /etc/nginx/nginx.conf, or a copy with its includes beside it";
        format!("cannot read {}: {e}: {remedy}", file.display())
    })?;
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = Reader { directory, depth: 0, missing: Vec::new() };
    let mut directives = reader.file(file, &String::from_utf8_lossy(&text))?;
    leave_out_behind_break(&mut directives);
    Ok(Configuration { directives, missing: reader.missing })
}

/// Leaves out what nginx never applies: in a block, all directives of the rewrite module behind a `break`.
fn leave_out_behind_break(block: &mut Vec<Directive>) {
    let mut is_behind = false;
    block.retain(|inner| {
        let applies = !is_behind || !matches!(inner.name.as_str(), "break" | "if" | "return" | "rewrite" | "set");
        is_behind |= inner.name == "break";
        applies
    });
    block.iter_mut().filter_map(|inner| inner.block.as_mut()).for_each(leave_out_behind_break);
}

struct Reader {
    /// Relative includes start at the main file's directory, as in nginx.
    directory: PathBuf,
    depth: usize,
    missing: Vec<Missing>,
}

impl Reader {
    fn file(&mut self, file: &Path, text: &str) -> Result<Vec<Directive>, String> {
        let name: Rc<Path> = file.into();
        let mut tokens = Tokens::of(text);
        let directives =
            self.block(&mut tokens, &name, None).map_err(|e| format!("{}:{}: {}", file.display(), e.line, e.what))?;
        Ok(directives)
    }

    /// Directives up to the `}` of a block that began at line `begun`, or to the end of the file.
    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        file: &Rc<Path>,
        begun: Option<usize>,
    ) -> Result<Vec<Directive>, SyntaxError> {
        let mut directives = Vec::new();
        loop {
            let (name, line) = match (tokens.next()?, begun) {
                (Some((Token::Word(name), line)), _) => (name, line),
                (Some((Token::Close, _)), Some(_)) | (None, None) => return Ok(directives),
                (None, Some(begun)) => {
                    return Err(SyntaxError { line: begun, what: "a { without its }".to_owned() });
                }
                (Some((Token::Close, line)), None) => {
                    return Err(SyntaxError { line, what: "a } without its {".to_owned() });
                }
                (Some((Token::Open | Token::End, line)), _) => {
                    return Err(SyntaxError { line, what: "a { or ; where a directive should begin".to_owned() });
                }
            };
            let mut arguments = Vec::new();
            let place = Place { file: file.clone(), line };
            let block = loop {
                match tokens.next()? {
                    Some((Token::Word(word), _)) => arguments.push(word),
                    Some((Token::End, _)) => break None,
                    Some((Token::Open, _)) if name.ends_with("_by_lua_block") => {
                        tokens.skip_foreign_block()?;
                        break Some(Vec::new());
                    }
                    Some((Token::Open, line)) if self.depth < DEEPEST => {
                        self.depth += 1;
                        let block = self.block(tokens, file, Some(line))?;
                        self.depth -= 1;
                        break Some(block);
                    }
                    Some((Token::Open, line)) => {
                        return Err(SyntaxError {
                            line,
                            what: format!("more than {DEEPEST} blocks and files inside each other"),
                        });
                    }
                    Some((Token::Close, line)) => {
                        return Err(SyntaxError { line, what: format!("{name} has no ; before the }}") });
                    }
                    None => {
                        let line = tokens.line();
                        return Err(SyntaxError { line, what: format!("the file ends inside {name}: a ; is missing") });
                    }
                }
            };
            match (name.as_str(), arguments.as_slice(), &block) {
                ("include", [pattern], None) => directives.extend(self.include(pattern, &place)?),
                _ => directives.push(Directive { name, arguments, block, place }),
            }
        }
    }

    fn include(&mut self, pattern: &str, place: &Place) -> Result<Vec<Directive>, SyntaxError> {
        let error = |what: String| SyntaxError { line: place.line, what };
        if self.depth >= DEEPEST {
            return Err(error(format!(
                "more than {DEEPEST} blocks and files inside each other: does one include itself?"
            )));
        }
        let path = self.directory.join(pattern);
        let files = if pattern.contains(['*', '?', '[']) {
            let (found, unreadable) = glob(&path).map_err(|e| error(format!("include {pattern}: {e}")))?;
            self.missing.extend(unreadable.into_iter().map(|(directory, e)| Missing {
                place: place.clone(),
                what: format!("{} cannot be listed here ({e})", directory.display()),
                is_directory: true,
                name: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            }));
            found
        } else {
            vec![path]
        };
        let mut directives = Vec::new();
        for file in files {
            match std::fs::read(&file) {
                Ok(text) => {
                    self.depth += 1;
                    directives.extend(self.file(&file, &String::from_utf8_lossy(&text)).map_err(error)?);
                    self.depth -= 1;
                }
                Err(e) => self.missing.push(Missing {
                    place: place.clone(),
                    what: format!("{} cannot be read here ({e})", file.display()),
                    is_directory: false,
                    name: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                }),
            }
        }
        Ok(directives)
    }
}

/// Directories that cannot be listed, and why.
type Unreadable = Vec<(PathBuf, std::io::Error)>;

/// The files that match `pattern`, sorted. `*` and `?` match neither `/` nor a leading dot, as in glob(3).
fn glob(pattern: &Path) -> Result<(Vec<PathBuf>, Unreadable), globset::Error> {
    let mut unreadable = Vec::new();
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        if !matches!(component, Component::Normal(_)) || !name.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let matcher = GlobBuilder::new(&name).literal_separator(true).build()?.compile_matcher();
        let mut next = Vec::new();
        for directory in found {
            let here = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
            let entries = match std::fs::read_dir(here) {
                Ok(entries) => entries.flatten(),
                // `*/` matches files too.
                Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => continue,
                Err(e) => {
                    unreadable.push((directory, e));
                    continue;
                }
            };
            let names = entries.map(|entry| entry.file_name()).filter(|name| {
                let hidden = name.as_encoded_bytes().starts_with(b".");
                matcher.is_match(name) && !hidden
            });
            next.extend(names.map(|name| directory.join(name)));
        }
        found = next;
    }
    // A link that leads nowhere here, or a file in a directory that cannot be entered, is named when it is read.
    found.retain(|path| {
        !path
            .symlink_metadata()
            .is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory))
    });
    found.sort();
    Ok((found, unreadable))
}

/// Bounds recursion; no configuration nests this deep on purpose.
const DEEPEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Directive>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let shown = format!("{}/", directory.path().display());
        read(&file).map(|read| read.directives).map_err(|e| e.replace(&shown, ""))
    }

    fn shown(directives: &[Directive]) -> Vec<String> {
        directives.iter().map(|d| format!("{}: {d}", d.place.line)).collect()
    }

    #[test]
    fn blocks_nest_and_keep_their_lines() {
        let directives = read_text("user www;\nhttp {\n  server {\n    listen 443 ssl;\n  }\n}\n").unwrap();
        assert_eq!(shown(&directives), ["1: user www;", "2: http { … }"]);
        let server = &directives[1].children()[0];
        assert_eq!((server.name.as_str(), server.place.line), ("server", 3));
        assert_eq!(shown(server.children()), ["4: listen 443 ssl;"]);
    }

    #[test]
    fn unbalanced_braces_are_errors_with_their_line() {
        for (text, expected) in [
            ("http {\n server {\n }\n", "nginx.conf:1: a { without its }"),
            ("a b;\n}", "nginx.conf:2: a } without its {"),
            ("http { listen 80 }", "nginx.conf:1: listen has no ; before the }"),
            ("a;\nlisten 80", "nginx.conf:2: the file ends inside listen: a ; is missing"),
            (";", "nginx.conf:1: a { or ; where a directive should begin"),
        ] {
            assert_eq!(read_text(text).unwrap_err(), expected, "{text}");
        }
        assert!(read_text(&"a {".repeat(100)).unwrap_err().contains("inside each other"));
    }

    #[test]
    fn a_path_that_is_not_utf_8_is_an_error_and_a_comment_is_not() {
        let text = String::from_utf8_lossy(b"# caf\xe9\nlocation /caf\xe9/ { deny all; }");
        assert!(read_text(&text).is_err_and(|error| error.contains(":2: ")));
        assert!(read_text(&String::from_utf8_lossy(b"# caf\xe9\na;")).is_ok());
    }

    #[test]
    fn lua_blocks_are_skipped() {
        let directives = read_text("a_by_lua_block { local t = { 'x;}' } -- }\n }\nb c;").unwrap();
        assert_eq!(shown(&directives), ["1: a_by_lua_block { … }", "3: b c;"]);
    }

    #[test]
    fn files_are_included_in_order_and_missing_ones_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("nginx.conf", "a;\ninclude sites/*/*.conf;\ninclude gone.conf;\ninclude none-*.conf;\nb;");
        write("sites/two/x.conf", "two;");
        write("sites/one/x.conf", "one;\ninclude snippets/deep.conf;");
        write("sites/one/.hidden.conf", "hidden;");
        write("sites/one/x.conf.bak", "old;");
        write("snippets/deep.conf", "\n\ndeep;");
        let read = read(&directory.path().join("nginx.conf")).unwrap();
        assert_eq!(shown(&read.directives), ["1: a;", "1: one;", "3: deep;", "1: two;", "5: b;"]);
        assert!(read.directives[2].place.file.ends_with("snippets/deep.conf"));
        let [missing] = &read.missing[..] else { panic!("one file is missing") };
        assert_eq!(missing.place.line, 3);
        assert!(missing.what.contains("gone.conf"), "{}", missing.what);
    }

    #[test]
    fn what_a_pattern_cannot_see_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write(
            "nginx.conf",
            "include gone/*.conf;\ninclude modules-enabled/*.conf;\ninclude *.site;\ninclude */x.conf;",
        );
        std::os::unix::fs::symlink("/nowhere", directory.path().join("a.site")).unwrap();
        let read = read(&directory.path().join("nginx.conf")).unwrap();
        let missing: Vec<_> = read.missing.iter().map(|missing| (missing.place.line, missing.is_known())).collect();
        assert_eq!(missing, [(1, false), (2, true), (3, false)]);
    }

    #[test]
    fn a_file_that_includes_itself_is_an_error() {
        assert!(read_text("include nginx.conf;").unwrap_err().contains("does one include itself"));
    }
}
