//! Faults of kernel TLS that were found and fixed, and the kernels that have them.
//!
//! [`faults`] judges a kernel by its version. A distribution may add a fix without a change of the version, so that a
//! kernel can be better than its version says. The result is [`Standing::NotKnown`] for each series of kernels that the
//! source of a row does not cover.
//!
//! ```
//! use sealion_ktls::faults::{Direction, Kernel, Standing, faults};
//!
//! let kernel = Kernel::parse("6.1.174", "").expect("a version");
//! let ring = faults(kernel, Direction::Send).find(|(fault, _)| fault.name == "CVE-2026-64046");
//! assert!(ring.is_some_and(|(_, standing)| standing == Standing::Present { fixed_in: 175 }));
//! ```
//!
//! Rows are from the records of the CVE project as <https://osv.dev> shows them, read in November 2026, from the changelogs of Debian's kernels 6.1.176,
//! 6.12.107 and 7.2.13, and from tests of this crate. [`Fault::source`] names the source of each row.

use std::fmt;
use std::sync::OnceLock;

/// The version of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// `6` of 6.12.107.
    pub major: u32,
    /// `12` of 6.12.107.
    pub minor: u32,
    /// `107` of 6.12.107. `None`: the distribution does not say which release its kernel is based on, as with Ubuntu
    /// (`6.8.0-45-generic`) and RHEL (`5.14.0-427.13.1.el9_4.x86_64`).(`6.8.0-45-generic`) and RHEL
    /// (`5.14.0-427.13.1.el9_4.x86_64`).
    pub patch: Option<u32>,
}

/// A direction whose keys the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The kernel seals: [`Tx`](crate::Tx).
    Send,
    /// The kernel opens: [`Rx`](crate::Rx).
    Receive,
}

/// A fault that was fixed in some release.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The number of its CVE, or a short name.
    pub name: &'static str,
    /// The fault, as part of a sentence, such as `a record freed twice …`.
    pub what: &'static str,
    /// The directions whose code has the fault.
    pub directions: &'static [Direction],
    /// The calls that reach it.
    pub reach: Reach,
    /// The source of the versions.
    pub source: &'static str,
    /// The affected versions, from the first release to the one with the fix.
    affected: &'static [(Release, Release)],
    /// The series that the source covers.
    series: &'static [Series],
}

/// The calls that reach a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// Any call of its directions.
    Any,
    /// Calls that block.
    Blocking,
    /// Calls after [`Rx::expect_no_pad`](crate::Rx::expect_no_pad).
    ExpectNoPad,
}

/// Whether a kernel has a fault, judged by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// The kernel does not have the fault, or has the fix.
    Absent,
    /// The kernel has the fault.
    Present {
        /// The patch release of its series that has the fix.
        fixed_in: u32,
    },
    /// The kernel has the fault, and the source names no fixed release of its series.
    Unfixed,
    /// The source does not cover the kernel's series, or the kernel's patch release is not known.
    NotKnown,
}

type Release = (u32, u32, u32);
type Series = (u32, u32);

/// The known faults of kernel TLS in one direction, and the standing of `kernel` for each.
pub fn faults(kernel: Kernel, direction: Direction) -> impl Iterator<Item = (&'static Fault, Standing)> {
    let concerned = FAULTS.iter().copied().filter(move |fault| fault.directions.contains(&direction));
    concerned.map(move |fault| (fault, fault.standing(kernel)))
}

impl Fault {
    /// Whether `kernel` has this fault.
    pub fn standing(&self, kernel: Kernel) -> Standing {
        let series = (kernel.major, kernel.minor);
        if !self.series.contains(&series) {
            return Standing::NotKnown;
        }
        let (first, next) = ((series.0, series.1, 0), (series.0, series.1 + 1, 0));
        let mut of_series = self.affected.iter().filter(|(from, to)| *from < next && first < *to);
        let Some(patch) = kernel.patch else {
            return if of_series.next().is_none() { Standing::Absent } else { Standing::NotKnown };
        };
        let release = (series.0, series.1, patch);
        match of_series.find(|(from, to)| *from <= release && release < *to) {
            None => Standing::Absent,
            Some((_, (major, minor, fixed_in))) if (*major, *minor) == series => {
                Standing::Present { fixed_in: *fixed_in }
            }
            Some(_) => Standing::Unfixed,
        }
    }
}

impl Kernel {
    /// The kernel that this process runs on. `None`: its version has an unknown form.
    pub fn running() -> Option<Self> {
        static RUNNING: OnceLock<Option<Kernel>> = OnceLock::new();
        *RUNNING.get_or_init(|| {
            let uname = rustix::system::uname();
            Self::parse(&uname.release().to_string_lossy(), &uname.version().to_string_lossy())
        })
    }

    /// From the texts of uname(2). Debian names the release in `version` (`#1 SMP Debian 6.1.176-1`), others in `release` (`6.12.107-cloud`). `None`: the
    /// texts have an unknown form.
    pub fn parse(release: &str, version: &str) -> Option<Self> {
        let text = version.split_once("Debian ").map_or(release, |(_, text)| text);
        let mut parts = text.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let (minor, _) = number(parts.next()?);
        let (patch, rest) = number(parts.next().unwrap_or("0"));
        // After `.0-` some distributions put a build number. Their kernels contain more than the `.0` release.
        let is_build = patch == Some(0) && rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_digit));
        Some(Kernel { major, minor: minor?, patch: if is_build { None } else { Some(patch.unwrap_or(0)) } })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// The number at the beginning of a text, and the rest.
fn number(text: &str) -> (Option<u32>, &str) {
    let (digits, rest) = text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()));
    (digits.parse().ok(), rest)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// [`Rx::expect_no_pad`](crate::Rx::expect_no_pad) looks at this row.
pub(crate) const EXPECT_NO_PAD: &Fault = &Fault {
    name: "CVE-2026-74611",
    what: "padded records, or records other than data, overwrite later buffers of the reader after `TLS_RX_EXPECT_NO_PAD`",
    directions: &[Direction::Receive],
    reach: Reach::ExpectNoPad,
    source: "https://osv.dev/vulnerability/CVE-2026-74611",
    affected: &[((6, 0, 0), (6, 18, 45)), ((6, 19, 0), (7, 1, 9))],
    series: &SERIES,
};

/// Series with long support, of distributions, and newer ones. A series whose support has ended, such as 6.8, gets no
/// later fixes.
const SERIES: [Series; 10] = [(5, 10), (5, 15), (6, 1), (6, 6), (6, 8), (6, 12), (6, 18), (7, 0), (7, 1), (7, 2)];

/// The series of the kernels whose changelogs were read.
const SERIES_OF_DEBIAN: [Series; 3] = [(6, 1), (6, 12), (7, 2)];

/// [`SERIES`] for records that begin at version 0, and so do not say which of the oldest series had the fault.
const SERIES_FROM_5_15: &[Series] = SERIES.split_at(1).1;
const SERIES_FROM_6_1: &[Series] = SERIES.split_at(2).1;

const SEND: &[Direction] = &[Direction::Send];
const RECEIVE: &[Direction] = &[Direction::Receive];
const BOTH: &[Direction] = &[Direction::Send, Direction::Receive];

static FAULTS: [&Fault; 16] = [
    &Fault {
        name: "CVE-2026-64046",
        what: "a chain of buffers that the cipher cannot follow, where the ring of a record's buffers wraps",
        directions: SEND,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-64046",
        affected: RING,
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2026-64047",
        what: "a chain of buffers with one entry too few, where the ring of a record's buffers wraps",
        directions: SEND,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-64047",
        affected: RING,
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2026-74610",
        what: "a record whose buffers are full stays open, and the next splice or sendfile overwrites them",
        directions: SEND,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-74610",
        affected: &[
            ((6, 5, 0), (6, 6, 152)),
            ((6, 7, 0), (6, 12, 104)),
            ((6, 13, 0), (6, 18, 45)),
            ((6, 19, 0), (7, 1, 9)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2026-31533",
        what: "a use after free where the queue of the cipher is full",
        directions: SEND,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-31533",
        affected: &[
            ((5, 15, 0), (5, 15, 203)),
            ((5, 16, 0), (6, 1, 169)),
            ((6, 2, 0), (6, 6, 135)),
            ((6, 7, 0), (6, 12, 82)),
            ((6, 13, 0), (6, 18, 23)),
            ((6, 19, 0), (6, 19, 13)),
        ],
        series: SERIES_FROM_5_15,
    },
    &Fault {
        name: "CVE-2026-23240",
        what: "a use after free at the close of a socket whose rest waits to be sent",
        directions: SEND,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-23240",
        affected: &[((5, 3, 0), (6, 12, 75)), ((6, 13, 0), (6, 18, 16)), ((6, 19, 0), (6, 19, 6))],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2024-26584",
        what: "a request that the cipher queues is taken for a failure",
        directions: BOTH,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2024-26584",
        affected: &[
            ((4, 16, 0), (5, 15, 160)),
            ((5, 16, 0), (6, 1, 84)),
            ((6, 2, 0), (6, 6, 18)),
            ((6, 7, 0), (6, 7, 6)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2024-26583",
        what: "a use after free between the end of an asynchronous cipher and the close of the socket",
        directions: BOTH,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2024-26583",
        affected: &[
            ((5, 7, 0), (5, 15, 160)),
            ((5, 16, 0), (6, 1, 79)),
            ((6, 2, 0), (6, 6, 18)),
            ((6, 7, 0), (6, 7, 6)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "control record as data",
        what: "a control record sent as data after a full send buffer",
        directions: SEND,
        reach: Reach::Any,
        source: "changelogs of Debian's linux 6.1.176, 6.12.107 and 7.2.13",
        affected: &[((6, 1, 0), (6, 1, 158)), ((6, 12, 0), (6, 12, 57))],
        series: &SERIES_OF_DEBIAN,
    },
    &Fault {
        name: "signals abort a send",
        what: "signals that abort a blocking send",
        directions: SEND,
        reach: Reach::Blocking,
        source: "changelogs of Debian's linux 6.12.107 and 7.2.13; 6.1.176: signals_lose_nothing_that_is_sent in tests/kernel/errno.rs",
        affected: &[((6, 1, 0), (6, 2, 0)), ((6, 12, 0), (6, 12, 105)), ((7, 2, 0), (7, 2, 13))],
        series: &SERIES_OF_DEBIAN,
    },
    EXPECT_NO_PAD,
    &Fault {
        name: "CVE-2025-38616",
        what: "a use after free where data leaves the socket without the TLS layer",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2025-38616",
        affected: &[
            ((6, 0, 0), (6, 1, 185)),
            ((6, 2, 0), (6, 6, 103)),
            ((6, 7, 0), (6, 12, 43)),
            ((6, 13, 0), (6, 15, 11)),
            ((6, 16, 0), (6, 16, 2)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2026-23414",
        what: "memory of records that an asynchronous cipher opened is not freed",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2026-23414",
        affected: &[
            ((6, 1, 0), (6, 1, 168)),
            ((6, 2, 0), (6, 6, 131)),
            ((6, 7, 0), (6, 12, 80)),
            ((6, 13, 0), (6, 18, 21)),
            ((6, 19, 0), (6, 19, 11)),
        ],
        series: SERIES_FROM_6_1,
    },
    &Fault {
        name: "CVE-2025-39946",
        what: "a record with an impossible header overflows a buffer",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2025-39946",
        affected: &[
            ((6, 0, 0), (6, 1, 154)),
            ((6, 2, 0), (6, 6, 108)),
            ((6, 7, 0), (6, 12, 49)),
            ((6, 13, 0), (6, 16, 9)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2025-39682",
        what: "an empty record has the next one opened into the wrong buffer",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2025-39682",
        affected: &[
            ((6, 0, 0), (6, 1, 149)),
            ((6, 2, 0), (6, 6, 103)),
            ((6, 7, 0), (6, 12, 44)),
            ((6, 13, 0), (6, 16, 4)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2025-38471",
        what: "a use after free where TCP joins buffers of a record",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2025-38471",
        affected: &[
            ((6, 1, 0), (6, 1, 147)),
            ((6, 2, 0), (6, 6, 100)),
            ((6, 7, 0), (6, 12, 40)),
            ((6, 13, 0), (6, 15, 8)),
        ],
        series: &SERIES,
    },
    &Fault {
        name: "CVE-2025-38018",
        what: "a crash if there is no memory for a record",
        directions: RECEIVE,
        reach: Reach::Any,
        source: "https://osv.dev/vulnerability/CVE-2025-38018",
        affected: &[
            ((6, 0, 0), (6, 1, 140)),
            ((6, 2, 0), (6, 6, 92)),
            ((6, 7, 0), (6, 12, 30)),
            ((6, 13, 0), (6, 14, 8)),
        ],
        series: &SERIES,
    },
];

/// The versions of CVE-2026-64046 and CVE-2026-64047.
const RING: &[(Release, Release)] = &[
    ((5, 5, 0), (5, 10, 258)),
    ((5, 11, 0), (5, 15, 209)),
    ((5, 16, 0), (6, 1, 175)),
    ((6, 2, 0), (6, 6, 142)),
    ((6, 7, 0), (6, 12, 92)),
    ((6, 13, 0), (6, 18, 34)),
    ((6, 19, 0), (7, 0, 11)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str, kernel: &str) -> Standing {
        let fault = FAULTS.iter().find(|fault| fault.name == name).unwrap();
        fault.standing(Kernel::parse(kernel, "").unwrap())
    }

    #[test]
    fn versions_are_read_from_where_distributions_put_them() {
        for (release, version, expected) in [
            ("6.1.0-51-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-10-02)", Some((6, 1, Some(176)))),
            (
                "6.12.107+deb13-cloud-amd64",
                "#1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1 (2026-10-20)",
                Some((6, 12, Some(107))),
            ),
            ("7.2.13-cloud-amd64", "#1 SMP", Some((7, 2, Some(13)))),
            ("5.10.223-211.872.amzn2.x86_64", "#1 SMP", Some((5, 10, Some(223)))),
            ("6.8.0-45-generic", "#45-Ubuntu SMP", Some((6, 8, None))),
            ("5.14.0-427.13.1.el9_4.x86_64", "#1 SMP", Some((5, 14, None))),
            ("7.2.0", "#1 SMP", Some((7, 2, Some(0)))),
            ("7.2.0-rc1", "#1 SMP", Some((7, 2, Some(0)))),
            ("7.2-rc1", "#1 SMP", Some((7, 2, Some(0)))),
            ("", "", None),
            ("6", "", None),
            ("6.x", "", None),
            ("unknown", "", None),
        ] {
            let expected = expected.map(|(major, minor, patch)| Kernel { major, minor, patch });
            assert_eq!(Kernel::parse(release, version), expected, "{release} {version}");
        }
    }

    #[test]
    fn each_series_has_its_release_with_the_fix() {
        for (name, releases) in [
            ("CVE-2026-64046", &["5.10.258", "5.15.209", "6.1.175", "6.6.142", "6.12.92", "6.18.34", "7.0.11"][..]),
            ("CVE-2026-64047", &["5.10.258", "5.15.209", "6.1.175", "6.6.142", "6.12.92", "6.18.34", "7.0.11"]),
            ("CVE-2026-31533", &["5.15.203", "6.1.169", "6.6.135", "6.12.82", "6.18.23"]),
            ("CVE-2026-23240", &["6.12.75", "6.18.16"]),
            ("CVE-2026-74610", &["6.6.152", "6.12.104", "6.18.45", "7.1.9"]),
            ("CVE-2026-74611", &["6.18.45", "7.1.9"]),
            ("CVE-2025-38616", &["6.1.185", "6.6.103", "6.12.43"]),
            ("control record as data", &["6.1.158", "6.12.57"]),
            ("signals abort a send", &["6.12.105", "7.2.13"]),
        ] {
            for release in releases {
                let (series, patch) = release.rsplit_once('.').unwrap();
                let fixed_in: u32 = patch.parse().unwrap();
                assert_eq!(standing(name, release), Standing::Absent, "{name} {release}");
                let before = format!("{series}.{}", fixed_in - 1);
                assert_eq!(standing(name, &before), Standing::Present { fixed_in }, "{name} {before}");
            }
        }
    }

    #[test]
    fn a_series_without_a_fix_and_one_without_a_source_are_told_apart() {
        for (name, kernel, expected) in [
            ("CVE-2026-74611", "6.1.176", Standing::Unfixed),
            ("CVE-2026-74611", "6.6.152", Standing::Unfixed),
            ("CVE-2026-74611", "6.12.107", Standing::Unfixed),
            ("CVE-2026-74611", "7.0.11", Standing::Unfixed),
            ("CVE-2026-74611", "7.2.0", Standing::Absent),
            // The option is newer than this kernel.
            ("CVE-2026-74611", "5.15.209", Standing::Absent),
            ("CVE-2026-23240", "6.1.176", Standing::Unfixed),
            ("CVE-2026-23240", "7.0.0", Standing::Absent),
            ("CVE-2026-31533", "5.10.258", Standing::NotKnown),
            ("signals abort a send", "6.1.176", Standing::Unfixed),
            ("signals abort a send", "6.6.152", Standing::NotKnown),
            ("CVE-2026-64046", "6.8.12", Standing::Unfixed),
            ("CVE-2026-64046", "6.8.0-45-generic", Standing::NotKnown),
            // Holds for every release that this kernel may be based on.
            ("CVE-2026-64046", "7.2.0-1-generic", Standing::Absent),
            ("CVE-2026-64046", "5.14.0-427.el9", Standing::NotKnown),
            ("CVE-2026-64046", "6.9.1", Standing::NotKnown),
            ("CVE-2026-64046", "8.0.0", Standing::NotKnown),
        ] {
            assert_eq!(standing(name, kernel), expected, "{name} {kernel}");
        }
    }

    /// The cells for a fault in the page: `?`, `no`, `none`, or the first fixed release.
    fn cells(fault: &Fault) -> String {
        let cell = |(major, minor): &Series| {
            let last = Kernel { major: *major, minor: *minor, patch: Some(u32::MAX) };
            let standings = (0..1000).map(|patch| fault.standing(Kernel { patch: Some(patch), ..last }));
            let fixed = standings.filter_map(|standing| match standing {
                Standing::Present { fixed_in } => Some(fixed_in.to_string()),
                _ => None,
            });
            fixed.max().unwrap_or_else(|| match fault.standing(last) {
                Standing::NotKnown => "?".to_owned(),
                Standing::Unfixed => "none".to_owned(),
                _ => "no".to_owned(),
            })
        };
        SERIES.iter().map(cell).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn the_page_has_each_row() {
        let page = include_str!("../docs/kernel.md");
        for fault in FAULTS {
            let direction = match fault.directions {
                [Direction::Send] => "sending",
                [Direction::Receive] => "receiving",
                _ => "both",
            };
            let row = format!("| {} | {direction} | {} |", fault.name, cells(fault));
            assert!(page.lines().any(|line| line == row), "docs/kernel.md lacks: {row}");
        }
        assert_eq!(
            page.matches("| sending | ").count()
                + page.matches("| receiving | ").count()
                + page.matches("| both | ").count(),
            FAULTS.len()
        );
    }

    #[test]
    fn rows_are_complete_and_in_order() {
        for fault in FAULTS {
            assert!(!fault.directions.is_empty() && !fault.source.is_empty() && !fault.what.is_empty(), "{fault:?}");
            assert!(fault.affected.iter().all(|(from, to)| from < to), "{fault:?}");
            assert!(fault.affected.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{fault:?}");
            assert_eq!(FAULTS.iter().filter(|other| other.name == fault.name).count(), 1, "{fault:?}");
        }
        let kernel = Kernel::parse("6.1.0", "").unwrap();
        for direction in [Direction::Send, Direction::Receive] {
            assert!(faults(kernel, direction).all(|(fault, _)| fault.directions.contains(&direction)));
        }
        assert!(faults(kernel, Direction::Receive).any(|(fault, _)| fault.reach == Reach::ExpectNoPad));
    }
}
