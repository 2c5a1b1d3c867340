//! Measures the costs of responses and moves for one version and AEAD.

use std::fs::File;
use std::time::{Duration, Instant};

use sealion_tls::record::Aead;
use sealion_tls::{Part, SealedBy, Version};
use serde::Serialize;

use super::cpus::thread_nanoseconds;
use super::pair::{Host, Pair};
use crate::files::cache::KEPT_IN_MEMORY;
use crate::path::costs::calibration::{SetUpSpread, SuiteCosts};
use crate::path::costs::curve::{Curve, Point};

/// Bytes of responses, including the head. The last two are far enough apart to extrapolate from.
const SIZES: [u64; 10] =
    [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, MAX_LEN];

/// Small enough for any page cache.
const MAX_LEN: u64 = 4 << 20;

/// A response head of typical length.
const HEAD: [u8; 256] = [b'h'; 256];

/// Minimum bytes per sample: short responses are repeated until the clock's resolution does not matter.
const SAMPLE: u64 = 128 << 10;

/// Minimum and maximum number of samples per median; the minimum is taken even if time is up.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=61;

/// Maximum number of connections to move.
const MOVES: usize = 48;

/// Content of responses, in memory and in a file, as the server holds it.
pub(super) struct Content {
    memory: Vec<u8>,
    file: File,
}

impl Content {
    /// Writes the file, which leaves it in the page cache.
    pub(super) fn new(path: &std::path::Path) -> Result<Self, String> {
        let memory: Vec<u8> = (0..MAX_LEN).map(|n| (n * 131 + (n >> 8)) as u8).collect();
        let file = std::fs::write(path, &memory)
            .and_then(|()| File::open(path))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { memory, file })
    }

    fn part(&self, bytes: u64) -> Part<'_> {
        if bytes <= KEPT_IN_MEMORY {
            Part::Bytes(&self.memory[..bytes as usize])
        } else {
            Part::File { file: &self.file, range: 0..bytes }
        }
    }
}

/// Measured costs of one version and AEAD.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) version: String,
    pub(super) aead: String,
    pub(super) points: Vec<MeasuredPoint>,
    /// `None` without a kernel path.
    pub(super) set_up: Option<SetUpSpread>,
}

/// A [`Point`], perhaps without its kernel side.
#[derive(Debug, Serialize)]
pub(super) struct MeasuredPoint {
    pub(super) bytes: u64,
    pub(super) user_ns: u64,
    pub(super) kernel_ns: Option<u64>,
}

impl Measured {
    /// The costs to store; `None` unless both paths were measured.
    pub(super) fn costs(&self) -> Option<SuiteCosts> {
        let point = |p: &MeasuredPoint| Some(Point { bytes: p.bytes, user_ns: p.user_ns, kernel_ns: p.kernel_ns? });
        Some(SuiteCosts {
            version: self.version.clone(),
            aead: self.aead.clone(),
            points: self.points.iter().map(point).collect::<Option<_>>()?,
            set_up: self.set_up?,
        })
    }

    /// The savings of the kernel path.
    pub(super) fn curve(&self) -> Option<Curve> {
        Curve::new(self.costs()?.points).ok()
    }
}

/// Measures one version and AEAD on the user-space path and, if `kernel`, on the kernel path.
pub(super) async fn suite(
    host: &Host,
    content: &Content,
    (version, aead): (Version, Aead),
    kernel: bool,
    time: Duration,
) -> Result<Measured, String> {
    let began = Instant::now();
    let set_up = if kernel { Some(moves(host, version, aead, time / 3).await?) } else { None };
    let mut paths = vec![Sender::new(host.connect(version, aead, SealedBy::User).await?.0)];
    if kernel {
        paths.push(Sender::new(host.connect(version, aead, SealedBy::Kernel).await?.0));
    }
    for sender in &mut paths {
        // Warms the page cache, the buffers and the congestion window.
        sender.sample(content, MAX_LEN).await?;
    }
    for round in 0..*ROUNDS.end() {
        if round >= *ROUNDS.start() && began.elapsed() > time {
            break;
        }
        for (n, bytes) in SIZES.into_iter().enumerate() {
            for sender in &mut paths {
                let nanoseconds = sender.sample(content, bytes).await?;
                sender.samples[n].push(nanoseconds);
            }
        }
        paths.reverse();
    }
    paths.sort_by_key(|sender| sender.pair.stream.path() == SealedBy::Kernel);
    let mut medians = paths.iter_mut().map(|sender| sender.samples.each_mut().map(|samples| quantile(samples, 0.5)));
    let user = medians.next().expect("the user path is always there");
    let kernel = medians.next();
    let points = (0..SIZES.len()).map(|n| MeasuredPoint {
        bytes: SIZES[n],
        user_ns: user[n].max(1),
        kernel_ns: kernel.map(|kernel| kernel[n].max(1)),
    });
    Ok(Measured { version: version.to_string(), aead: aead.cipher().to_string(), points: points.collect(), set_up })
}

/// Measures moves of new connections.
async fn moves(host: &Host, version: Version, aead: Aead, time: Duration) -> Result<SetUpSpread, String> {
    let began = Instant::now();
    let mut took = Vec::with_capacity(MOVES);
    while took.len() < *ROUNDS.start() || (took.len() < MOVES && began.elapsed() < time) {
        let (_pair, one) = host.connect(version, aead, SealedBy::Kernel).await?;
        took.extend(one.map(|one| one.as_nanos() as u64));
    }
    let mut at = |part| quantile(&mut took, part);
    Ok(SetUpSpread { low_ns: at(0.1), median_ns: at(0.5).max(1), high_ns: at(0.9), moves: took.len() })
}

/// A connection on one path, with its samples by response length.
struct Sender {
    pair: Pair,
    samples: [Vec<u64>; SIZES.len()],
}

impl Sender {
    fn new(pair: Pair) -> Self {
        Self { pair, samples: Default::default() }
    }

    /// Nanoseconds of this thread's CPU time per response. Returns once the reader has read everything, so that nothing
    /// spills into the next sample.
    async fn sample(&mut self, content: &Content, bytes: u64) -> Result<u64, String> {
        let repeats = (SAMPLE / bytes).max(1);
        let parts = [Part::Bytes(&HEAD), content.part(bytes - HEAD.len() as u64)];
        let read = self.pair.read();
        let began = thread_nanoseconds();
        for _ in 0..repeats {
            self.pair.stream.respond(&parts).await.map_err(|e| e.to_string())?;
        }
        let took = thread_nanoseconds() - began;
        self.pair.wait_until_read(read + repeats * bytes)?;
        Ok(took / repeats)
    }
}

/// The quantile `part` of the samples, from 0 to 1.
fn quantile(samples: &mut [u64], part: f64) -> u64 {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * part).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut samples = [5, 1, 4, 2, 3];
        assert_eq!([0.0, 0.1, 0.5, 0.9, 1.0].map(|part| quantile(&mut samples, part)), [1, 1, 3, 5, 5]);
        assert_eq!(quantile(&mut [7], 0.9), 7);
    }

    #[test]
    fn half_a_measurement_is_not_stored() {
        let set_up = SetUpSpread { low_ns: 1, median_ns: 2, high_ns: 3, moves: 4 };
        let points = |kernel_ns| [1, 2].map(|bytes| MeasuredPoint { bytes, user_ns: 5, kernel_ns }).into();
        let measured = |points, set_up| Measured { version: String::new(), aead: String::new(), points, set_up };
        assert!(measured(points(Some(3)), Some(set_up)).costs().is_some());
        assert!(measured(points(None), None).costs().is_none());
        assert!(measured(points(Some(3)), None).costs().is_none());
        assert!(measured(points(None), None).curve().is_none());
    }
}
