//! The blocks around a directive, and which of their directives apply: the innermost block that sets any of a name has all of that name.

use crate::syntax::Directive;

/// The directives of `http`, of a `server`, and of the locations down to one.
#[derive(Debug, Clone, Default)]
pub(super) struct Level<'a>(Vec<Vec<&'a Directive>>);

impl<'a> Level<'a> {
    /// The level of `http`.
    pub(super) fn new(shared: &[&'a Directive]) -> Self {
        Level(vec![shared.to_vec()])
    }

    /// The level of a block within this one.
    pub(super) fn within(&self, block: &'a Directive) -> Self {
        let mut blocks = self.0.clone();
        blocks.push(block.children().iter().collect());
        Level(blocks)
    }

    /// One block with all that applies, for a site: it has nothing around it.
    pub(super) fn merged(&self) -> Self {
        let mut all = self.clone();
        all.0.insert(0, Vec::new());
        all.0.insert(0, Vec::new());
        all.flattened()
    }

    /// The level of the server.
    pub(super) fn of_server(&self) -> Self {
        Level(self.0[..self.0.len().min(2)].to_vec())
    }

    /// The level that locations of the server lie in.
    pub(super) fn of_locations(&self) -> Self {
        match self.0.get(1).is_some_and(Vec::is_empty) {
            // A merged level.
            true => self.clone(),
            false => self.of_server(),
        }
    }

    /// A level within the server's that has all settings of this place itself, for a route that lies elsewhere.
    pub(super) fn flattened(&self) -> Self {
        let (outer, inner) = self.0.split_at(self.0.len().min(2));
        let mut flat: Vec<&'a Directive> = Vec::new();
        for block in inner.iter().rev() {
            let known = |directive: &Directive| flat.iter().any(|other| group(&other.name) == group(&directive.name));
            let new: Vec<_> = block.iter().copied().filter(|directive| !known(directive)).collect();
            flat.extend(new);
        }
        let mut blocks = outer.to_vec();
        blocks.push(flat);
        Level(blocks)
    }

    /// The level that this one lies in.
    pub(super) fn around(&self) -> Self {
        Level(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The same level, whose innermost block has no directives of a name.
    pub(super) fn without(&self, name: &str) -> Self {
        let mut blocks = self.0.clone();
        blocks.last_mut().into_iter().for_each(|own| own.retain(|directive| directive.name != name));
        Level(blocks)
    }

    /// All directives of the innermost block.
    pub(super) fn own(&self) -> &[&'a Directive] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    /// Whether the innermost block sets any of these names.
    pub(super) fn sets(&self, names: &[&str]) -> bool {
        self.own().iter().any(|directive| names.contains(&directive.name.as_str()))
    }

    /// The directives of a name that apply.
    pub(super) fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.any_of(&[name])
    }

    /// The directives of some names that apply together, in order.
    pub(super) fn any_of(&self, names: &[&str]) -> Vec<&'a Directive> {
        let of = |block: &Vec<&'a Directive>| -> Vec<&'a Directive> {
            block.iter().copied().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.0.iter().rev().map(of).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The last directive of a name that applies.
    pub(super) fn last(&self, name: &str) -> Option<&'a Directive> {
        self.all(name).pop()
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|directive| matches!(directive.first(), "on" | "always"))
    }
}

/// `allow` and `deny` form one list.
fn group(name: &str) -> &str {
    if name == "deny" { "allow" } else { name }
}

/// Whether a directive of `http` applies to servers and locations, or is handled with them.
pub(super) fn inherits(name: &str) -> bool {
    const STARTS: [&str; 9] =
        ["proxy_", "fastcgi_", "uwsgi_", "grpc_", "gzip", "brotli", "zstd", "auth_", "limit_rate"];
    const NAMES: [&str; 26] = [
        "add_header",
        "allow",
        "autoindex",
        "client_max_body_size",
        "default_type",
        "deny",
        "error_page",
        "expires",
        "index",
        "limit_conn",
        "limit_req",
        "location",
        "mirror",
        "mirror_request_body",
        "root",
        "satisfy",
        "set",
        "slice",
        "ssl_certificate",
        "ssl_certificate_key",
        "ssl_client_certificate",
        "ssl_crl",
        "ssl_trusted_certificate",
        "ssl_verify_client",
        "types",
        "valid_referers",
    ];
    STARTS.iter().any(|start| name.starts_with(start)) && crate::directives::is_converted(name) || NAMES.contains(&name)
}
