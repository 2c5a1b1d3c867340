//! The requests of a comparison: `GET https://example.org/path -H 'Name: value' -d 'content'`, one a line.

/// A request, as it goes to both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The line of the file.
    pub(super) line: String,
    pub(super) method: String,
    pub(super) is_https: bool,
    /// Host and port, as the URL has them.
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query, unchanged.
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) content: Vec<u8>,
}

/// Reads the lines. Empty lines, and lines that begin with `#`, are left out.
///
/// # Errors
/// Lines are no requests; the message has a line for each, which begins with its number.
pub(super) fn parse(text: &str) -> Result<Vec<Request>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let requests = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (at, line) in requests {
        match Request::parse(line) {
            Ok(request) => found.push(request),
            Err(error) => wrong.push(format!("{at}: {error}")),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong.join("\n")) }
}

impl Request {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words = words(line)?.into_iter();
        let (Some(method), Some(url)) = (words.next(), words.next()) else {
            return Err(format!("{line}: write METHOD URL, for instance GET https://example.org/"));
        };
        let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if method.is_empty() || !method.chars().all(is_token) {
            return Err(format!("{method}: not a method"));
        }
        let (is_https, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(format!("{url}: write the whole URL, with http:// or https://")),
        };
        let (authority, target) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('?') => (&rest[..at], format!("/{}", &rest[at..])),
            Some(at) => (&rest[..at], rest[at..].to_owned()),
            None => (rest, "/".to_owned()),
        };
        let default = if is_https { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("{authority}: {port} is not a port"))?)
            }
            _ => (authority, default),
        };
        if host.is_empty() {
            return Err(format!("{url}: no host"));
        }
        let (authority, host) = (authority.to_owned(), host.to_owned());
        let line = line.to_owned();
        let (fields, content) = (Vec::new(), Vec::new());
        let mut request = Request { line, method, is_https, authority, host, port, target, fields, content };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option}: a value is missing"))?;
            match option.as_str() {
                "-H" => {
                    let (name, value) = value.split_once(':').ok_or_else(|| format!("{value}: write Name: value"))?;
                    request.fields.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                "-d" => request.content = value.into_bytes(),
                _ => return Err(format!("{option}: the options are -H and -d")),
            }
        }
        Ok(request)
    }

    /// The value of a field that the line names.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Words as a shell splits them, with single and double quotes.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.map_or(Ok(words), |open| Err(format!("{line}: a {open} without its end")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request() {
        let requests = parse(
            "# comment\n\nGET https://a.test//x/%2e?q -H 'X: a b' -H \"Host: b.test\"\nPOST http://[::1]:81 -d 'a=b'\n",
        )
        .unwrap();
        let [get, post] = &requests[..] else { panic!("{requests:?}") };
        assert_eq!((get.method.as_str(), get.is_https, get.host.as_str(), get.port), ("GET", true, "a.test", 443));
        assert_eq!(
            (get.target.as_str(), get.field("x"), get.field("host")),
            ("//x/%2e?q", Some("a b"), Some("b.test"))
        );
        assert_eq!((post.host.as_str(), post.port, post.target.as_str()), ("[::1]", 81, "/"));
        assert_eq!(post.content, b"a=b");
        assert_eq!(parse("GET https://a.test?x").unwrap()[0].target, "/?x");
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        for (line, words) in [
            ("https://a.test/", "1: https://a.test/: write METHOD URL"),
            ("GET /x", "1: /x: write the whole URL"),
            ("GET http://a.test:x/", "1: a.test:x: x is not a port"),
            ("GET http:///x", "1: http:///x: no host"),
            ("GET http://a.test/ -H", "1: -H: a value is missing"),
            ("GET http://a.test/ -H x", "1: x: write Name: value"),
            ("GET http://a.test/ --data x", "1: --data: the options are -H and -d"),
            ("\nGET http://a.test/ -H 'x", "2: GET http://a.test/ -H 'x: a ' without its end"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn all_wrong_lines_are_told() {
        assert_eq!(parse("GET\nGET http://a.test/\nGET /x").unwrap_err().lines().count(), 2);
    }

    #[test]
    fn the_example_of_the_documentation_is_read() {
        let page = include_str!("../../../../../docs/migrate-from-nginx.md");
        let (_, example) = page.split_once("# requests.txt\n").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        assert_eq!(parse(example).unwrap().len(), 4);
    }
}
