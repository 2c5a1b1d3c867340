//! The script that answers a request, where a rule's servers speak FastCGI.
//!
//! The script is found here, and has to be a file: PHP would otherwise look for one in a part of the path, and run `/upload/x.jpg` for
//! `/upload/x.jpg/y.php`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use schemars::JsonSchema;
use sealion_http::path::SitePath;
use sealion_http::{Status, cgi};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use tokio::task::spawn_blocking;

use super::route::has_placeholders;
use crate::files::resolve::{NotOpened, Root, Wait};
use crate::values::{At, Problems, Secret, SecretUrl};

/// The scripts of a rule whose upstream has `protocol = "fastcgi"`. No file with their extensions is sent by the site itself.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FastcgiConfig {
    /// Name of an `[[upstream]]` with `protocol = "fastcgi"`, or the URL of a server: the action `fastcgi` of a route.
    pub to: Option<At<SecretUrl>>,
    /// Directory of the scripts, as php-fpm sees it too [default: the site's root]
    pub root: Option<At<PathBuf>>,
    /// Script of a path that ends with a slash, beneath that path.
    #[default("index.php".to_owned().into())]
    pub index: At<String>,
    /// Script for all paths that have none, for instance `/index.php` [default: they are answered 404]
    pub front: Option<At<String>>,
    /// Whether `front` is the only script that is run: others are answered 404.
    pub only_front: bool,
    /// Endings of the names of scripts. The rest of a path behind a script is its PATH_INFO: `/x.php/a` runs `/x.php` with `/a`.
    #[default(vec![".php".to_owned()].into())]
    pub extensions: At<Vec<String>>,
    /// Further variables, for instance `{ APP_ENV = "production" }`. SERVER_NAME replaces the host of the request.
    pub params: At<BTreeMap<String, Secret>>,
}

/// The scripts of a rule.
#[derive(Debug)]
pub(super) struct Scripts {
    root: Arc<Root>,
    /// Its path, without a slash at the end.
    pub(super) root_path: Arc<[u8]>,
    index: String,
    /// Without a slash at its beginning.
    front: Option<String>,
    /// Whether others are not run.
    only_front: bool,
    extensions: Vec<String>,
    pub(super) params: Arc<[(String, Secret)]>,
}

/// The script of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Beneath the root, without a slash at its beginning.
    pub(super) name: Vec<u8>,
    /// Empty, or with a slash at its beginning.
    pub(super) path_info: Vec<u8>,
}

impl FastcgiConfig {
    /// `site_root`: the root of the site. `None`: the configuration has problems.
    pub(super) fn build(&self, site_root: Option<&At<PathBuf>>, key: &str, problems: &mut Problems) -> Option<Scripts> {
        let before = problems.len();
        for (name, text, span) in [("index", Some(&self.index), &self.index.span)].into_iter().chain([(
            "front",
            self.front.as_ref(),
            self.front.as_ref().map_or(&(0..0), |front| &front.span),
        )]) {
            let Some(text) = text else { continue };
            let path = text.strip_prefix('/').filter(|_| name == "front").unwrap_or(text);
            let is_plain =
                SitePath::of_octets(path.as_bytes()).is_ok_and(|parsed| parsed.as_bytes() == path.as_bytes());
            if !is_plain || path.is_empty() || name == "index" && path.contains('/') || !self.is_script(path.as_bytes())
            {
                let what = format_args!(
                    "{:?} is not a script: write for instance index.php, with one of the extensions",
                    text.value
                );
                problems.add(span, &format!("{key}.{name}"), what);
            }
        }
        let is_extension = |text: &String| text.len() > 1 && text.starts_with('.') && !text.contains(['/', '\0']);
        if self.extensions.is_empty() || !self.extensions.iter().all(is_extension) {
            let what = "are written with their dot: write for instance [\".php\"]";
            problems.add(&self.extensions.span, &format!("{key}.extensions"), what);
        }
        if self.only_front && self.front.is_none() {
            let what = "runs only the front script, but there is none: set front, for instance \"/index.php\"";
            problems.add(&(0..0), &format!("{key}.only_front"), what);
        }
        let params = further_variables(&self.params, key, problems);
        let Some(root) = self.root.as_ref().or(site_root) else {
            let what = "names no directory of scripts: add root = \"/srv/www\" here, or to the site";
            problems.add(&(0..0), key, what);
            return None;
        };
        if has_placeholders(root) {
            let what = "has a placeholder, and scripts have one directory: set root of fastcgi to a directory";
            problems.add(&root.span, &format!("{key}.root"), what);
            return None;
        }
        let path = problems.resolve(root);
        let opened = Root::open(&path).map_err(|error| error.to_string());
        let opened = opened.and_then(|root| Ok((root, without_dots(&path).map_err(|error| error.to_string())?)));
        let (opened, path) = match opened {
            Ok(found) => found,
            Err(error) => {
                problems.add(&root.span, &format!("{key}.root"), error);
                return None;
            }
        };
        let path = path.as_os_str().as_encoded_bytes();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        (problems.len() == before).then(|| Scripts {
            root: Arc::new(opened),
            root_path: path.into(),
            index: self.index.value.clone(),
            front: self.front.as_ref().map(|front| front.trim_start_matches('/').to_owned()),
            only_front: self.only_front,
            extensions: self.extensions.value.clone(),
            params,
        })
    }

    fn is_script(&self, name: &[u8]) -> bool {
        is_script(&self.extensions, name)
    }
}

/// The absolute path of a directory, without `.` and `..`: php-fpm opens no script whose name has these. Behind a symbolic link `..` is another
/// directory than the text says; then links are resolved.
fn without_dots(directory: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(directory)?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    if id(&plain).ok() == Some(id(&path)?) { Ok(plain) } else { fs::canonicalize(path) }
}

/// Variables beside the variables that are made for each request.
pub(super) fn further_variables(
    params: &At<BTreeMap<String, Secret>>,
    key: &str,
    problems: &mut Problems,
) -> Arc<[(String, Secret)]> {
    for name in params.keys() {
        let is_name = !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
        let what = match () {
            // A program may need the server's own name.
            () if name == "SERVER_NAME" => continue,
            () if cgi::VARIABLES.contains(&name.as_str()) => "is made for each request: remove it",
            () if name.starts_with("HTTP_") => "would be a field of the client: set it in request_headers",
            () if !is_name => "is not a name of a variable: write it as APP_ENV",
            () => continue,
        };
        problems.add(&params.span, &format!("{key}.params"), format_args!("{name} {what}"));
    }
    params.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the last segment of a path is a script.
fn is_script(extensions: &[String], path: &[u8]) -> bool {
    let name = path.rsplit(|octet| *octet == b'/').next().unwrap_or_default();
    extensions.iter().any(|extension| name.len() > extension.len() && name.ends_with(extension.as_bytes()))
}

impl Scripts {
    /// The script of a path that ends with a slash, beneath that path.
    pub(super) fn index(&self) -> &str {
        &self.index
    }

    /// The script of a path.
    ///
    /// # Errors
    /// The status of a path that has none.
    pub(super) async fn find(&self, path: &SitePath<'_>) -> Result<Found, Status> {
        for found in self.candidates(path) {
            // As for files. Such directories hold files that no client should reach.
            let is_hidden = |segment: &[u8]| segment.starts_with(b".") && segment != b".well-known";
            if found.name.split(|octet| *octet == b'/').any(is_hidden) {
                return Err(Status::NOT_FOUND);
            }
            if self.is_file(&found.name).await? {
                return Ok(found);
            }
        }
        Err(Status::NOT_FOUND)
    }

    /// The scripts that a path may mean, the first one first.
    fn candidates(&self, path: &SitePath<'_>) -> Vec<Found> {
        let mut found = self.scripts_of(path);
        found.retain(|found| {
            !self.only_front || self.front.as_deref().is_some_and(|front| front.as_bytes() == found.name)
        });
        found
    }

    /// As [`Self::candidates`], with scripts that are not run.
    fn scripts_of(&self, path: &SitePath<'_>) -> Vec<Found> {
        let octets = path.as_bytes();
        let ends = memchr::memchr_iter(b'/', octets).chain([octets.len()]);
        for end in ends {
            if is_script(&self.extensions, &octets[..end]) {
                let mut path_info = octets[end..].to_vec();
                if path.names_directory() {
                    path_info.push(b'/');
                }
                // A script that is missing is answered so: no other one gets its requests.
                return vec![Found { name: octets[..end].to_vec(), path_info }];
            }
        }
        let index = path.names_directory().then(|| path.child(&self.index).as_bytes().to_vec());
        let front = self.front.as_ref().map(|front| front.clone().into_bytes());
        let found = |name| Found { name, path_info: Vec::new() };
        index.into_iter().chain(front).map(found).collect()
    }

    /// The paths that an application may read: the part behind the name of a script, alone and beneath the script's directory. Some
    /// (CodeIgniter) drop the name, or the directory, without a slash behind it: `/index.phpadmin` is `/admin` then. `run`: the script that answers.
    pub(super) fn behind_script(&self, path: &SitePath<'_>, run: &[u8]) -> Vec<Vec<u8>> {
        let full = path.full();
        let octets = &full[1..];
        let mut found = Vec::new();
        for name in self.scripts_of(path).into_iter().map(|found| found.name).chain([run.to_vec()]) {
            let directory = name.iter().rposition(|octet| *octet == b'/').map_or(&[][..], |end| &name[..end]);
            let rest = octets.strip_prefix(name.as_slice()).filter(|rest| !rest.is_empty());
            let Some(rest) = rest.or_else(|| octets.strip_prefix(directory)) else { continue };
            let rest = [b"/", rest.strip_prefix(b"/").unwrap_or(rest)].concat();
            if !directory.is_empty() {
                found.push([directory, &rest].concat());
            }
            // The path of the script itself has nothing behind the name.
            if octets.len() > name.len() && octets.starts_with(&name) {
                found.push(rest);
            }
        }
        found
    }

    async fn is_file(&self, name: &[u8]) -> Result<bool, Status> {
        let is_file = |root: &Root, name: &[u8], wait| match root.is_file(name, wait) {
            Ok(is_file) => Some(Ok(is_file)),
            Err(NotOpened::Waits) => None,
            Err(NotOpened::Unresolved(why)) => {
                Some(if why.status == Status::NOT_FOUND { Ok(false) } else { Err(why.status) })
            }
        };
        if let Some(found) = is_file(&self.root, name, Wait::No) {
            return found;
        }
        let (root, name) = (Arc::clone(&self.root), name.to_vec());
        let found = spawn_blocking(move || is_file(&root, &name, Wait::Yes)).await;
        found.ok().flatten().unwrap_or(Err(Status::INTERNAL_SERVER_ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_the_first_name_that_ends_as_a_script() {
        let directory = tempfile::tempdir().unwrap();
        let root = At { value: directory.path().to_owned(), span: 0..0 };
        let mut problems = Problems::of_arguments();
        let config = FastcgiConfig { front: Some("/front.php".to_owned().into()), ..FastcgiConfig::default() };
        let scripts = config.build(Some(&root), "fastcgi", &mut problems).unwrap();
        for (path, expected) in [
            ("/x.php", &["x.php|"][..]),
            ("/a/x.php/b/c", &["a/x.php|/b/c"]),
            ("/x.php/", &["x.php|/"]),
            ("/x.php/y.php", &["x.php|/y.php"]),
            ("/upload/x.jpg/y.php", &["upload/x.jpg/y.php|"]),
            ("/a/", &["a/index.php|", "front.php|"]),
            ("/", &["index.php|", "front.php|"]),
            ("/a", &["front.php|"]),
            ("/.php", &["front.php|"]),
            ("/x.PHP", &["front.php|"]),
            ("/x.phps", &["front.php|"]),
            ("/x.php.jpg", &["front.php|"]),
        ] {
            let path = SitePath::of_octets(path.as_bytes()).unwrap();
            let found = scripts.candidates(&path);
            let shown: Vec<_> = found
                .iter()
                .map(|found| {
                    let (name, info) =
                        (String::from_utf8_lossy(&found.name), String::from_utf8_lossy(&found.path_info));
                    format!("{name}|{info}")
                })
                .collect();
            assert_eq!(shown, expected, "{path:?}");
        }
    }

    #[test]
    fn scripts_have_the_path_of_their_directory_without_dots() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("srv/blog")).unwrap();
        fs::create_dir_all(top.join("far/deep")).unwrap();
        std::os::unix::fs::symlink("far/deep", top.join("link")).unwrap();
        std::os::unix::fs::symlink("blog", top.join("srv/current")).unwrap();
        for (root, expected) in [
            ("srv/blog", "srv/blog"),
            ("srv/./blog/", "srv/blog"),
            ("srv/../srv/blog", "srv/blog"),
            ("far/../srv/current", "srv/current"),
            ("link", "link"),
            ("link/..", "far"),
            ("link/../../srv/current", "srv/blog"),
        ] {
            let root = At { value: top.join(root), span: 0..0 };
            let scripts =
                FastcgiConfig::default().build(Some(&root), "fastcgi", &mut Problems::of_arguments()).unwrap();
            let expected = top.join(expected);
            assert_eq!(*scripts.root_path, *expected.as_os_str().as_encoded_bytes(), "{:?}", root.value);
        }
    }

    #[test]
    fn an_application_may_read_what_stands_behind_a_script() {
        let directory = tempfile::tempdir().unwrap();
        let root = At { value: directory.path().to_owned(), span: 0..0 };
        let mut problems = Problems::of_arguments();
        let scripts = FastcgiConfig::default().build(Some(&root), "fastcgi", &mut problems).unwrap();
        for (path, run, expected) in [
            ("/a/index.php", "a/index.php", &["a/index.php"][..]),
            ("/a/index.php/b", "a/index.php", &["/b", "a/b"]),
            ("/a/index.phpb", "a/index.php", &["/b", "a/b"]),
            ("/a/b", "a/index.php", &["a/b"]),
            ("/a/", "a/index.php", &["a/"]),
            ("/index.php", "index.php", &[]),
            ("/index.php/b", "index.php", &["/b"]),
        ] {
            let path = SitePath::of_octets(path.as_bytes()).unwrap();
            let mut found = scripts.behind_script(&path, run.as_bytes());
            found.sort();
            found.dedup();
            let shown: Vec<_> = found.iter().map(|found| String::from_utf8_lossy(found)).collect();
            assert_eq!(shown, expected, "{path:?}");
        }
    }

    #[test]
    fn the_front_script_alone_is_run_where_that_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let root = At { value: directory.path().to_owned(), span: 0..0 };
        let mut problems = Problems::of_arguments();
        let config = FastcgiConfig { only_front: true, ..FastcgiConfig::default() };
        assert!(config.build(Some(&root), "fastcgi", &mut problems).is_none());
        assert!(problems.to_string().contains("runs only the front script"), "{problems}");
        let front = Some("/index.php".to_owned().into());
        let mut problems = Problems::of_arguments();
        let scripts = FastcgiConfig { front, ..config }.build(Some(&root), "fastcgi", &mut problems).unwrap();
        for (path, expected) in [
            ("/x.php", &[][..]),
            ("/a/index.php", &[]),
            ("/a/index.php/index.php", &[]),
            ("/index.php", &["|"]),
            ("/index.php/a/x.php", &["|/a/x.php"]),
            ("/", &["|", "|"]),
            ("/a/", &["|"]),
            ("/a", &["|"]),
        ] {
            let found = scripts.candidates(&SitePath::of_octets(path.as_bytes()).unwrap());
            assert!(found.iter().all(|found| found.name == b"index.php"), "{path}");
            let shown: Vec<_> =
                found.iter().map(|found| format!("|{}", String::from_utf8_lossy(&found.path_info))).collect();
            assert_eq!(shown, expected, "{path}");
        }
    }
}
