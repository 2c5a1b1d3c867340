//! The report of a conversion: each directive without counterpart, and the consequence for each site.

use std::fmt;

use super::Place;

/// The effect of a lost directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// No client depends on it.
    Cosmetic,
    /// Some responses differ.
    Part,
    /// Its part of the site answers 501 or 403 now.
    Closed,
    /// Requests are answered that were refused.
    Unguarded,
}

/// A directive that was not converted, or not exactly. Displays as one line with place and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconverted {
    pub(crate) place: Place,
    pub(crate) directive: String,
    pub(crate) remedy: String,
    /// The effect of its loss.
    pub loss: Loss,
    /// The site that it belongs to.
    pub(crate) site: Option<String>,
}

impl Unconverted {
    /// The name of the site in summaries.
    fn site(&self) -> &str {
        self.site.as_deref().unwrap_or("all sites")
    }
}

impl fmt::Display for Unconverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.loss {
            Loss::Unguarded => "UNGUARDED: ",
            Loss::Closed => "closed: ",
            Loss::Part | Loss::Cosmetic => "",
        };
        write!(f, "{}: {}: {mark}{}", self.place, self.directive, self.remedy)
    }
}

/// How a site is after the conversion, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Its root answers 501 or 403, or no request reaches it.
    Dead,
    /// Some of it differs.
    InPart,
    /// Nothing but cosmetic directives differs.
    Works,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Dead => "dead",
            Verdict::InPart => "in part",
            Verdict::Works => "works",
        })
    }
}

/// A site and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its first name, or the place of its server.
    pub site: String,
    /// How it is.
    pub verdict: Verdict,
    /// Directives to write by hand.
    pub losses: usize,
    /// Guards that are lost.
    pub unguarded: usize,
    /// Their places.
    places: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verdict, self.site)?;
        match self.unguarded {
            0 => {}
            1 => write!(f, ", 1 guard is lost")?,
            count => write!(f, ", {count} guards are lost")?,
        }
        if !self.places.is_empty() {
            write!(f, ": write by hand what stands at {}", self.places.join(", "))?;
        }
        Ok(())
    }
}

/// The summary of sites, the worst first. `sites`: the names of those that were written, and whether the root of each answers.
pub(crate) fn summaries(unconverted: &[Unconverted], sites: &[(String, bool)]) -> Vec<Summary> {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for (name, answers) in sites {
        // One server for HTTP and one for HTTPS have one name.
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, answer)) => *answer &= answers,
            None => names.push((name, *answers)),
        }
    }
    for one in unconverted {
        // A server that became no site, and guards of no server.
        let is_named = names.iter().any(|(name, _)| *name == one.site());
        if !is_named && (one.loss == Loss::Unguarded || one.loss == Loss::Closed && one.site.is_some()) {
            names.push((one.site(), one.site.is_none()));
        }
    }
    let mut summaries: Vec<Summary> = names
        .into_iter()
        .map(|(site, answers)| {
            let own = unconverted.iter().filter(|one| one.site() == site && one.loss > Loss::Cosmetic);
            let mut places: Vec<String> = own.clone().map(|one| one.place.to_string()).collect();
            places.dedup();
            let verdict = match (answers, places.is_empty()) {
                (false, _) => Verdict::Dead,
                (true, false) => Verdict::InPart,
                (true, true) => Verdict::Works,
            };
            let unguarded = own.clone().filter(|one| one.loss == Loss::Unguarded).count();
            Summary { site: site.to_owned(), verdict, losses: own.count(), unguarded, places }
        })
        .collect();
    summaries.sort_by_key(|summary| (summary.verdict, std::cmp::Reverse(summary.unguarded)));
    summaries
}
