//! The exact paths and prefixes of a level of routes, as one tree of bytes: a path walks down it once.

use super::choice::RouteNumber;
use super::path::Folder;

/// The texts of a level.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The first one is the root, with an empty label. Empty without texts.
    nodes: Vec<Node>,
    prefixes: Vec<Prefix>,
}

/// A node: the bytes from the node above it, and the texts that end here.
#[derive(Debug, Default)]
struct Node {
    label: Box<[u8]>,
    /// The first byte of each label below, ascending; the nodes below, in the same order.
    firsts: Box<[u8]>,
    below: Box<[usize]>,
    /// The place of a prefix.
    prefix: Option<usize>,
    /// The routes of an exact path, in the order of the file.
    exact: Box<[RouteNumber]>,
}

/// A prefix of paths, for one or more routes.
#[derive(Debug)]
pub(super) struct Prefix {
    /// In the order of the file.
    pub(super) routes: Vec<PrefixRoute>,
    /// The place of the longest other prefix of this one.
    shorter: Option<usize>,
}

/// A route of a prefix.
#[derive(Debug)]
pub(super) struct PrefixRoute {
    pub(super) route: RouteNumber,
    /// Whether it is marked `^~`.
    pub(super) is_final: bool,
    pub(super) folder: Folder,
}

/// A text with its routes, while the tree is built.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) bytes: Box<[u8]>,
    /// In the order of the file.
    pub(super) prefix: Vec<PrefixRoute>,
    pub(super) exact: Vec<RouteNumber>,
}

/// The texts that a path meets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Walk<'a> {
    /// The routes of the exact path.
    pub(super) exact: &'a [RouteNumber],
    /// The place of the prefix that is the whole path.
    whole: Option<usize>,
    /// The place of the prefix that is the path and a slash.
    directory: Option<usize>,
    /// The place of the longest prefix that is shorter than the path.
    shorter: Option<usize>,
}

impl Walk<'_> {
    pub(super) fn has_prefix(&self) -> bool {
        self.shorter.is_some() || self.whole.is_some() || self.directory.is_some()
    }
}

impl Texts {
    /// Builds the tree. `texts`: ascending by their bytes, each once.
    pub(super) fn new(mut texts: Vec<Text>) -> Self {
        if texts.is_empty() {
            return Texts::default();
        }
        let mut tree = Texts { nodes: vec![Node::default()], prefixes: Vec::new() };
        tree.fill(0, &mut texts, 0, None);
        tree
    }

    /// Adds the nodes below a node. `texts`: all that begin with its text, of `depth` bytes. `shorter`: the longest prefix above it.
    fn fill(&mut self, node: usize, texts: &mut [Text], depth: usize, shorter: Option<usize>) {
        let mut shorter = shorter;
        // The text of the node itself comes first.
        let own = usize::from(texts.first().is_some_and(|first| first.bytes.len() == depth));
        if let [own, ..] = &mut texts[..own] {
            self.nodes[node].exact = std::mem::take(&mut own.exact).into();
            if !own.prefix.is_empty() {
                let place = self.prefixes.len();
                self.prefixes.push(Prefix { routes: std::mem::take(&mut own.prefix), shorter });
                self.nodes[node].prefix = Some(place);
                shorter = Some(place);
            }
        }
        let (mut firsts, mut below) = (Vec::new(), Vec::new());
        for group in texts[own..].chunk_by_mut(|one, other| one.bytes[depth] == other.bytes[depth]) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            // All texts between two sorted ones share the bytes that these share.
            let shared = first.bytes[depth..].iter().zip(&last.bytes[depth..]).take_while(|(one, other)| one == other);
            let end = depth + shared.count();
            let child = self.nodes.len();
            firsts.push(first.bytes[depth]);
            below.push(child);
            self.nodes.push(Node { label: first.bytes[depth..end].into(), ..Node::default() });
            self.fill(child, group, end, shorter);
        }
        (self.nodes[node].firsts, self.nodes[node].below) = (firsts.into(), below.into());
    }

    /// The texts that a path meets.
    pub(super) fn walk(&self, path: &[u8]) -> Walk<'_> {
        let mut walk = Walk::default();
        let (mut rest, Some(mut node)) = (path, self.nodes.first()) else { return walk };
        while let Some(first) = rest.first() {
            walk.shorter = node.prefix.or(walk.shorter);
            let Some(below) = node.below(*first) else { return walk };
            node = &self.nodes[below];
            match rest.strip_prefix(&*node.label) {
                Some(behind) => rest = behind,
                None => {
                    // `/api/` has the path `/api` too.
                    let is_directory = node.label.strip_suffix(b"/") == Some(rest);
                    walk.directory = node.prefix.filter(|_| is_directory);
                    return walk;
                }
            }
        }
        let slash = node.below(b'/').map(|below| &self.nodes[below]).filter(|below| *below.label == *b"/");
        Walk { exact: &node.exact, whole: node.prefix, directory: slash.and_then(|slash| slash.prefix), ..walk }
    }

    /// The prefixes that a path meets, in the order of choice: the whole path, the folder of that name, then the longest one. Each with whether it is the folder.
    pub(super) fn prefixes(&self, walk: &Walk<'_>) -> impl Iterator<Item = (&Prefix, bool)> {
        let shorter = std::iter::successors(walk.shorter, |place| self.prefixes[*place].shorter);
        let all = walk.whole.into_iter().chain(walk.directory).chain(shorter);
        all.map(|place| (&self.prefixes[place], Some(place) == walk.directory))
    }
}

impl Node {
    /// The node below whose label begins with a byte.
    fn below(&self, first: u8) -> Option<usize> {
        let at = match &*self.firsts {
            [only] => (*only == first).then_some(0),
            firsts => memchr::memchr(first, firsts),
        };
        at.map(|at| self.below[at])
    }
}
