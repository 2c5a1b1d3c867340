//! The file of a request, as the disk has it now: indexes, names with an extension, the listing, the fallback.

use std::fs::Metadata;

use sealion_http::path::SitePath;

use super::super::fallback;
use super::super::route::{FileLocation, Route};
use super::{Ending, Next, Step, Way, name_of};
use crate::files::resolve::{NotOpened, Unresolved, Wait};
use crate::placeholders::{Asked, Led};
use crate::site::clean_urls::TrailingSlash;

/// Why a hidden name has no file.
pub(super) const HIDDEN: &str = "a name that begins with a dot, and the route has no show_dotfiles";

/// The entry of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File,
    Directory,
    Missing,
}

/// The file that was found for a path, or all that was looked for.
enum Found<'a> {
    Next(Next<'a>),
    /// The names, beneath the root.
    Missing(Vec<String>),
}

impl<'a> Way<'a> {
    /// The end of a request that is answered with a file, or the step to the route of an index.
    pub(super) fn explain_files(&mut self, step: &Step<'a>, path: &SitePath<'_>, asked: &Asked<'_>) -> Next<'a> {
        match self.find(step, path, asked) {
            Found::Next(next) => next,
            Found::Missing(tried) => Next::Answer(self.missing(step.route, path, asked, &tried)),
        }
    }

    /// The file that goes before the server of a route. `None`: the server is asked.
    pub(super) fn file_first(&mut self, step: &Step<'a>, path: &SitePath<'_>, asked: &Asked<'_>) -> Option<Next<'a>> {
        let tried = match self.find(step, path, asked) {
            Found::Next(next) => return Some(next),
            Found::Missing(tried) => tried,
        };
        self.say(2, format_args!("files first: there is no {}", tried.join(", ")));
        let page = step.route.features.fallback.as_deref()?;
        let is_navigation = fallback::is_navigation(self.request.fields.singleton("accept").value());
        is_navigation.then(|| {
            Next::Answer(Ending::status(200, format_args!("the fallback {}, as Accept names HTML", name_of(page))))
        })
    }

    /// The file of a rewritten path in the same route.
    pub(super) fn stay(&mut self, step: &Step<'a>, to: &str) -> Next<'a> {
        let raw = to.split('?').next().unwrap_or(to);
        let Ok(path) = SitePath::parse(raw, true) else { return super::unfit() };
        let asked = self.site.asked(self.request, &path, step.query.as_deref(), self.client);
        self.explain_files(step, &path, &Asked { groups: Some(&step.route.groups), ..asked })
    }

    /// The answer or step that a path of `try` leads to. `None`: it is not there.
    pub(super) fn tried(&mut self, step: &Step<'a>, to: &str, asked: &Asked<'_>) -> Option<Next<'a>> {
        let raw = to.split('?').next().unwrap_or(to);
        let path = SitePath::parse(raw, step.route.options.show_dotfiles).ok()?;
        let entry = self.entry(step.route, &path, asked);
        match (entry, path.names_directory()) {
            (Entry::File, false) => {
                let file = self.shown(step.route, &path, asked);
                Some(Next::Answer(Ending::status(200, format_args!("the file {file}"))))
            }
            (Entry::Directory, true) => match self.find(step, &path, asked) {
                Found::Next(next) => Some(next),
                Found::Missing(_) => {
                    Some(Next::Answer(self.with_page(step.route, 403, "the directory has no index and no listing")))
                }
            },
            _ => None,
        }
    }

    fn find(&mut self, step: &Step<'a>, path: &SitePath<'_>, asked: &Asked<'_>) -> Found<'a> {
        let route = step.route;
        if !route.shows(path) {
            return Found::Next(Next::Answer(self.with_page(route, 404, HIDDEN)));
        }
        let entry = self.entry(route, path, asked);
        let file = |way: &Self, path: &SitePath<'_>| {
            Found::Next(Next::Answer(Ending::status(200, format_args!("the file {}", way.shown(route, path, asked)))))
        };
        let mut tried = vec![self.shown(route, path, asked)];
        match (entry, path.names_directory()) {
            (Entry::File, false) => return file(self, path),
            (Entry::Directory, true) => return self.find_index(step, path, asked),
            _ => {}
        }
        let is_root = path.as_bytes().is_empty();
        for extension in route.features.extensions.iter().filter(|_| !is_root && !path.names_directory()) {
            let own = path.with_extension(extension);
            match self.entry(route, &own, asked) {
                Entry::File => return file(self, &own),
                _ => tried.push(self.shown(route, &own, asked)),
            }
        }
        if entry == Entry::Directory
            && !path.names_directory()
            && route.features.trailing_slash != TrailingSlash::Remove
        {
            let to = path.with_slash(step.query.as_deref());
            return Found::Next(Next::Answer(Ending::status(301, format_args!("a directory: redirected to {to}"))));
        }
        Found::Missing(tried)
    }

    /// The index of a directory.
    fn find_index(&mut self, step: &Step<'a>, path: &SitePath<'_>, asked: &Asked<'_>) -> Found<'a> {
        let route = step.route;
        let mut tried = Vec::new();
        for index in route.indexes() {
            let own = path.child(index);
            let raw = String::from_utf8_lossy(own.full()).into_owned();
            if self.entry(route, &own, asked) != Entry::File {
                tried.push(self.shown(route, &own, asked));
                continue;
            }
            return Found::Next(match self.lead_to(step, &raw, Led::InternalRedirect) {
                Next::Step(next) if next.route.number != route.number => {
                    self.say(2, format_args!("the index {index} is of another route"));
                    Next::Step(next)
                }
                _ => Next::Answer(Ending::status(200, format_args!("the index {}", self.shown(route, &own, asked)))),
            });
        }
        match route.features.listing {
            Some(_) => Found::Next(Next::Answer(Ending::status(200, "the listing of the directory"))),
            None => Found::Missing(tried),
        }
    }

    /// The answer where no file is.
    fn missing(&self, route: &Route, path: &SitePath<'_>, asked: &Asked<'_>, tried: &[String]) -> Ending {
        let none = match self.metadata(route, path, asked) {
            Some(Err(Unresolved { cause: Some(cause), .. })) => format!("{}: {cause}", self.shown(route, path, asked)),
            _ => format!("there is no {}", tried.join(", ")),
        };
        let Some(page) = route.features.fallback.as_deref() else { return self.with_page(route, 404, &none) };
        let accept = self.request.fields.singleton("accept").value();
        match fallback::applies(path.as_bytes(), accept) {
            true => Ending::status(200, format_args!("the fallback {}: {none}", name_of(page))),
            false => {
                let why = format!("{none}; the fallback {} is for clients whose Accept has HTML", name_of(page));
                self.with_page(route, 404, &why)
            }
        }
    }

    fn entry(&self, route: &Route, path: &SitePath<'_>, asked: &Asked<'_>) -> Entry {
        match self.metadata(route, path, asked) {
            Some(Ok(metadata)) if metadata.is_dir() => Entry::Directory,
            Some(Ok(metadata)) if metadata.is_file() && !path.names_directory() => Entry::File,
            _ => Entry::Missing,
        }
    }

    /// The metadata of the entry. `None`: the path is not in the directory of `alias`.
    fn metadata(&self, route: &Route, path: &SitePath<'_>, asked: &Asked<'_>) -> Option<Result<Metadata, Unresolved>> {
        let FileLocation { files, path: beneath, .. } = route.locate(path, || Asked { path, ..*asked })?;
        // A script has no file where files are sent.
        let root = files.root();
        let metadata = root.unhidden().map_or_else(
            || root.metadata(beneath.as_bytes(), Wait::Yes),
            |unhidden| unhidden.metadata(beneath.as_bytes(), Wait::Yes),
        );
        match metadata {
            Ok(metadata) => Some(Ok(metadata)),
            Err(NotOpened::Unresolved(why)) => Some(Err(why)),
            Err(NotOpened::Waits) => None,
        }
    }

    /// The full name of a file.
    fn shown(&self, route: &Route, path: &SitePath<'_>, asked: &Asked<'_>) -> String {
        match route.locate(path, || Asked { path, ..*asked }) {
            None => "file of this path in the directory of alias".to_owned(),
            Some(FileLocation { files, path: beneath, .. }) => {
                files.root().path().join(String::from_utf8_lossy(beneath.as_bytes()).as_ref()).display().to_string()
            }
        }
    }
}
