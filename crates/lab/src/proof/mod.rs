//! Decides whether a measurement took the path that its arm claims. Pure: the run collects the evidence.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::Suite;

/// The path that an arm claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// User space sealed all records.
    UserSpace,
    /// The kernel sealed, on every connection.
    Kernel,
    /// A network card sealed, on every connection.
    Device,
    /// No claim: the server decides, or is unknown. The report shows the path.
    Nothing,
}

/// Observations during a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Increase of TlsTxSw + TlsTxDevice; `None`: the kernel lacks these counters.
    pub(crate) tx_opened: Option<u64>,
    /// Increase of TlsTxDevice.
    pub(crate) tx_device: Option<u64>,
    /// The maximum number of the server's sockets with a kernel sender; `None`: not looked up, or not permitted.
    pub(crate) kernel_sockets: Option<u64>,
    /// Handshakes that the client completed.
    pub(crate) handshakes: u64,
    /// Connections among them that failed before their first response.
    pub(crate) unanswered: u64,
    /// Full handshakes among them, if sessions should have been resumed.
    pub(crate) not_resumed: Option<u64>,
    /// Connections at a time.
    pub(crate) connections: u64,
    /// Requests whose response was complete and correct.
    pub(crate) requests: u64,
    /// Failed requests and connections.
    pub(crate) failures: u64,
    /// The first failure in words.
    pub(crate) first_failure: String,
    /// The only suite that was offered; `None`: the client chose, and does not tell.
    pub(crate) offered: Option<Suite>,
    /// Negotiated version and suite.
    pub(crate) agreed: String,
    /// Expected and received SHA-256, if the whole body was read.
    pub(crate) body: Option<(String, Option<String>)>,
}

/// The reason why the measurement is void; `None` if it counts.
pub(crate) fn void(claim: Claim, evidence: &Evidence) -> Option<String> {
    let Evidence { tx_opened, tx_device, handshakes, .. } = *evidence;
    if evidence.requests == 0 {
        return Some(match evidence.first_failure.as_str() {
            "" => "no request was completed".to_owned(),
            first => format!("no request was completed: {first}"),
        });
    }
    let (failures, all) = (evidence.failures, evidence.requests + evidence.failures);
    if failures * MAX_FAILURES_IN > all {
        return Some(format!("{failures} of {all} requests failed, more than 1 %: {}", evidence.first_failure));
    }
    if let Some((expected, got)) = &evidence.body {
        match got {
            None => return Some("no body could be verified".to_owned()),
            Some(got) if got != expected => {
                return Some(format!("the body is not the file: SHA-256 {}…, not {}…", short(got), short(expected)));
            }
            Some(_) => {}
        }
    }
    let standard = evidence.offered.map(standard_name);
    if let Some(standard) = standard.filter(|standard| !evidence.agreed.ends_with(standard)) {
        return Some(format!("another suite was negotiated: {}, not …{standard}", evidence.agreed));
    }
    // The first connections have no session to resume.
    if let Some(full) = evidence.not_resumed.filter(|&full| full > evidence.connections + handshakes / FEW_IN) {
        return Some(format!("sessions were to be resumed, but {full} of {handshakes} handshakes were full ones"));
    }
    // A connection that failed before its first response may have ended before the server moved it. At least one
    // connection must have been moved, or the arm's ability is not proven.
    let demanded = handshakes.saturating_sub(evidence.unanswered).max(1);
    let kernel_is_silent = || Some("the kernel has no kernel TLS: /proc/net/tls_stat is not there".to_owned());
    match (claim, tx_opened) {
        (Claim::Nothing, _) => None,
        (Claim::UserSpace, opened) => match (opened, evidence.kernel_sockets) {
            (Some(opened @ 1..), _) => Some(format!(
                "claims user space, but {opened} connections moved to the kernel (TlsTxSw, TlsTxDevice), its own or another \
                 process's"
            )),
            (_, Some(sockets @ 1..)) => {
                Some(format!("claims user space, but {sockets} of its sockets have a kernel sender (sock_diag)"))
            }
            _ => None,
        },
        (_, None) => kernel_is_silent(),
        (Claim::Kernel, Some(opened)) if opened < demanded => {
            Some(format!("claims kernel TLS, but of {handshakes} connections {opened} moved to the kernel (TlsTxSw)"))
        }
        (Claim::Kernel, Some(_)) => None,
        (Claim::Device, Some(_)) => match tx_device {
            Some(opened) if opened >= demanded => None,
            opened => Some(format!(
                "claims a network card, but of {handshakes} connections {} were given to one (TlsTxDevice)",
                opened.unwrap_or(0)
            )),
        },
    }
}

/// The reason why an open loop is void: the client sent its requests late, so that their latency is the client's. `None`
/// if the 99th percentile of the client's delays is at most a tenth of the latency's.
pub(crate) fn late(lag: &Histogram<u64>, latency: &Histogram<u64>) -> Option<String> {
    let [lag, latency] = [lag, latency].map(|times| times.value_at_quantile(0.99));
    let (late, all) = (Duration::from_nanos(lag), Duration::from_nanos(latency));
    (lag > latency / LATE_IN).then(|| {
        format!("the client was late: the 99th percentile of its delays is {late:.0?}, of a latency of {all:.0?}")
    })
}

/// A client whose delay is more than this part of a latency distorts it.
const LATE_IN: u64 = 10;

/// If more than one request in this many fails, the server was under faults, and its cost and latency are not
/// representative.
const MAX_FAILURES_IN: u64 = 100;

/// One full handshake in this many does not affect a mean.
const FEW_IN: u64 = 100;

/// The suite's name without the prefix of its version.
fn standard_name(suite: Suite) -> &'static str {
    match suite {
        Suite::Aes128Gcm | Suite::Tls12Aes128Gcm => "AES_128_GCM_SHA256",
        Suite::Aes256Gcm | Suite::Tls12Aes256Gcm => "AES_256_GCM_SHA384",
        Suite::Chacha20Poly1305 => "CHACHA20_POLY1305_SHA256",
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence() -> Evidence {
        Evidence {
            tx_opened: Some(0),
            tx_device: Some(0),
            kernel_sockets: None,
            handshakes: 4,
            unanswered: 0,
            not_resumed: None,
            connections: 4,
            requests: 100,
            failures: 0,
            first_failure: String::new(),
            offered: Some(Suite::Aes128Gcm),
            agreed: "TLSv1.3 TLS_AES_128_GCM_SHA256".to_owned(),
            body: Some(("aa".to_owned(), Some("aa".to_owned()))),
        }
    }

    fn opened(opened: u64) -> Evidence {
        Evidence { tx_opened: Some(opened), ..evidence() }
    }

    fn by_device(opened: u64) -> Evidence {
        Evidence { tx_device: Some(opened), ..self::opened(opened) }
    }

    #[test]
    fn a_cell_of_resumption_counts_only_with_resumed_sessions() {
        let full = |full| Evidence { not_resumed: full, handshakes: 1000, connections: 64, ..evidence() };
        assert_eq!(void(Claim::UserSpace, &full(None)), None);
        assert_eq!(void(Claim::UserSpace, &full(Some(74))), None);
        let why = void(Claim::UserSpace, &full(Some(75))).expect("it does not count");
        assert!(why.contains("75 of 1000 handshakes were full"), "{why}");
    }

    #[test]
    fn an_arm_counts_only_if_the_kernel_shows_what_it_claims() {
        let no_counters = Evidence { tx_opened: None, tx_device: None, ..evidence() };
        let table = [
            (Claim::UserSpace, opened(0), None),
            (Claim::UserSpace, no_counters.clone(), None),
            (Claim::UserSpace, opened(1), Some("1 connections moved to the kernel")),
            (Claim::UserSpace, Evidence { kernel_sockets: Some(2), ..evidence() }, Some("2 of its sockets")),
            (Claim::Kernel, opened(4), None),
            (Claim::Kernel, opened(5), None),
            (Claim::Kernel, opened(3), Some("of 4 connections 3 moved")),
            (Claim::Kernel, opened(0), Some("of 4 connections 0 moved")),
            (Claim::Kernel, no_counters.clone(), Some("has no kernel TLS")),
            (Claim::Kernel, Evidence { unanswered: 1, failures: 1, ..opened(3) }, None),
            (Claim::Kernel, Evidence { failures: 1, ..opened(3) }, Some("of 4 connections 3 moved")),
            (Claim::Kernel, Evidence { unanswered: 4, ..opened(0) }, Some("of 4 connections 0 moved")),
            (Claim::Device, Evidence { unanswered: 4, ..opened(1) }, Some("of 4 connections 0 were given")),
            (Claim::Device, by_device(4), None),
            (Claim::Device, opened(4), Some("of 4 connections 0 were given to one")),
            (Claim::Device, no_counters.clone(), Some("has no kernel TLS")),
            (Claim::Nothing, opened(0), None),
            (Claim::Nothing, opened(4), None),
            (Claim::Nothing, no_counters, None),
        ];
        for (claim, evidence, expected) in table {
            let void = void(claim, &evidence);
            match expected {
                None => assert_eq!(void, None, "{claim:?} {evidence:?}"),
                Some(part) => {
                    let void = void.unwrap_or_else(|| panic!("{claim:?} {evidence:?} must be void"));
                    assert!(void.contains(part), "{void}");
                }
            }
        }
    }

    #[test]
    fn a_late_client_voids_an_open_loop() {
        let of = |micros: u64| {
            let mut times = crate::histogram::of_times();
            (0..100).for_each(|_| crate::histogram::record(&mut times, Duration::from_micros(micros)));
            times
        };
        assert_eq!(late(&of(90), &of(1000)), None);
        let why = late(&of(200), &of(1000)).expect("it does not count");
        assert!(why.contains("the client was late") && why.contains("200") && why.contains("ms"), "{why}");
    }

    #[test]
    fn failures_do_not_prove_the_kernel_path() {
        let failed =
            |failures, unanswered, opened| Evidence { failures, unanswered, requests: 10_000, ..self::opened(opened) };
        for evidence in [failed(4, 0, 0), failed(5, 4, 0), failed(100, 0, 3)] {
            assert!(void(Claim::Kernel, &evidence).is_some(), "{evidence:?}");
        }
        let device = Evidence { failures: 4, requests: 10_000, ..by_device(0) };
        assert!(void(Claim::Device, &device).is_some());
    }

    #[test]
    fn more_than_one_failure_in_a_hundred_voids_any_arm() {
        let failed = |failures| Evidence { failures, requests: 9_900, ..opened(0) };
        for claim in [Claim::UserSpace, Claim::Nothing] {
            assert_eq!(void(claim, &failed(100)), None);
            let why = void(claim, &failed(101)).expect("it does not count");
            assert!(why.contains("101 of 10001 requests failed"), "{why}");
        }
    }

    #[test]
    fn any_arm_must_answer_with_the_file_by_the_suite() {
        let table = [
            (Evidence { requests: 0, ..evidence() }, "no request was completed"),
            (Evidence { requests: 0, first_failure: "refused".to_owned(), ..evidence() }, "completed: refused"),
            (Evidence { body: Some(("aa".to_owned(), Some("bb".to_owned()))), ..evidence() }, "is not the file"),
            (Evidence { body: Some(("aa".to_owned(), None)), ..evidence() }, "no body could be verified"),
            (Evidence { agreed: "TLSv1.3 TLS_AES_256_GCM_SHA384".to_owned(), ..evidence() }, "another suite"),
            (Evidence { agreed: String::new(), ..evidence() }, "another suite"),
        ];
        for (evidence, part) in table {
            let void = void(Claim::Nothing, &evidence).unwrap_or_else(|| panic!("{evidence:?} must be void"));
            assert!(void.contains(part), "{void}");
        }
        let untold = Evidence { offered: None, agreed: String::new(), ..evidence() };
        assert_eq!(void(Claim::Nothing, &untold), None);
        // The body was verified before the measurement, which then need not read it.
        assert_eq!(void(Claim::Nothing, &Evidence { body: None, ..evidence() }), None);
    }
}
