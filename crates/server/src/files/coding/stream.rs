//! Content that is encoded while it is sent, a step at a time.
//!
//! A step takes at most [`STEP`] bytes, and the encoder is flushed before it has collected more than a millisecond of work. That bounds the pauses in which a
//! worker serves no other connection. Levels that take longer are refused at start: another thread would only move the load to the next core, since content of
//! applications is encoded for each request.

use std::io::{self, Write};

use schemars::JsonSchema;
use sealion_http::Coding;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::encoder::Encoder;
use crate::values::{At, Problems};

/// Levels of the codings for responses of applications, which are encoded while they are sent. Higher levels make them smaller and take more processor time.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LevelsConfig {
    /// Quality of brotli, from 1 to 6.
    // MEASURED: which level gives the most for its time? Milliseconds and bytes for 179 kB of JavaScript (liquidjs), in steps of 16 kB, on one core of the
    // test machine, 2026-11-26. gzip 5: 2.1 ms, 33,400; br 4: 2.3 ms, 34,500; br 5: 3.3 ms, 31,300; zstd 3: 0.5 ms, 36,900. Brotli below 5 is larger than
    // gzip.
    #[default(5.into())]
    pub br: At<u8>,
    /// Level of Zstandard, from 1 to 9.
    #[default(3.into())]
    pub zstd: At<u8>,
    /// Level of gzip, from 1 to 9.
    #[default(5.into())]
    pub gzip: At<u8>,
}

/// The validated levels, by coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels([u8; 3]);

impl LevelsConfig {
    /// `key`: its dotted key.
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Levels {
        let levels = Coding::ALL.map(|coding| {
            let level = match coding {
                Coding::Brotli => &self.br,
                Coding::Zstd => &self.zstd,
                Coding::Gzip => &self.gzip,
            };
            let most = max_level(coding);
            if !(1..=most).contains(&level.value) {
                let what = format_args!(
                    "is {}: write 1 to {most}, since a worker serves no other connection while it compresses (`sealion compress` has higher levels for files)",
                    level.value
                );
                problems.add(&level.span, &format!("{key}.{coding}"), what);
            }
            level.value
        });
        Levels(levels)
    }
}

impl Levels {
    /// The level of a coding.
    pub(crate) fn of(self, coding: Coding) -> u8 {
        self.0[coding as usize]
    }

    /// Bytes of memory for an encoder and the output that waits in it.
    // MEASURED: mallinfo2 around an encoder that took 179 kB, glibc 2.36, 2026-11-26; rounded up.
    pub(crate) fn memory(self, coding: Coding) -> usize {
        match (coding, self.of(coding)) {
            (Coding::Brotli, 0..=4) => 1600 << 10,
            (Coding::Brotli, 5) => 2200 << 10,
            (Coding::Brotli, _) => 3200 << 10,
            (Coding::Zstd, _) => 1280 << 10,
            (Coding::Gzip, _) => 448 << 10,
        }
    }
}

/// The highest level at which a step takes at most a millisecond.
// MEASURED: the longest step in thread CPU time, on the input and machine of [`LevelsConfig::default`]: gzip 9 0.8 ms, br 6 0.8 ms for 16 kB and 1.1 ms for
// 32 kB, zstd 9 1.0 ms for 64 kB. br 7 takes 10 MB of memory.
fn max_level(coding: Coding) -> u8 {
    match coding {
        Coding::Brotli => 6,
        Coding::Zstd | Coding::Gzip => 9,
    }
}

/// Bytes that an encoder takes before it is flushed: brotli and Zstandard collect input, and encode all of it at once.
fn max_unflushed(coding: Coding) -> usize {
    match coding {
        Coding::Brotli => 32 << 10,
        Coding::Zstd => 64 << 10,
        Coding::Gzip => usize::MAX,
    }
}

/// Bytes of content that are encoded at a time.
pub(crate) const STEP: usize = 16 << 10;

/// Encodes content as it comes.
pub(crate) struct StreamEncoder {
    encoder: Encoder<Vec<u8>>,
    coding: Coding,
    /// Bytes that went in since the last flush.
    unflushed: usize,
}

impl StreamEncoder {
    /// # Errors
    /// Out of memory.
    pub(crate) fn new(coding: Coding, levels: Levels) -> io::Result<Self> {
        let encoder = Encoder::streaming(coding, levels.of(coding), Vec::new())?;
        Ok(StreamEncoder { encoder, coding, unflushed: 0 })
    }

    /// Encodes at most [`STEP`] bytes.
    pub(crate) fn write(&mut self, step: &[u8]) -> io::Result<()> {
        debug_assert!(step.len() <= STEP, "a step is short");
        self.encoder.write_all(step)?;
        self.unflushed += step.len();
        if self.unflushed + STEP > max_unflushed(self.coding) { self.flush() } else { Ok(()) }
    }

    /// Has all content that went in come out.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.unflushed > 0 {
            self.unflushed = 0;
            self.encoder.flush()?;
        }
        Ok(())
    }

    /// Bytes of output that wait.
    pub(crate) fn waiting(&mut self) -> usize {
        self.encoder.get_mut().len()
    }

    /// Takes the output that waits.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.encoder.get_mut())
    }

    /// Ends the content, and returns the rest of the output.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.encoder.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::files::coding::encoder::tests::decode;

    fn levels(level: u8) -> Levels {
        Levels(Coding::ALL.map(|coding| level.min(max_level(coding))))
    }

    #[test]
    fn all_levels_round_trip_in_steps_and_a_flush_completes_what_went_in() {
        let text: Vec<u8> =
            (0..9000).flat_map(|n| format!("line {} of a text\n", n * 7919 % 9001).into_bytes()).collect();
        for coding in Coding::ALL {
            for level in 1..=max_level(coding) {
                let mut encoder = StreamEncoder::new(coding, levels(level)).unwrap();
                let mut out = Vec::new();
                for step in text.chunks(STEP) {
                    encoder.write(step).unwrap();
                    out.append(&mut encoder.take());
                }
                out.append(&mut encoder.finish().unwrap());
                assert!(out.len() < text.len() / 2, "{coding} {level}: {}", out.len());
                assert!(decode(coding, &out) == text, "{coding} {level}");
            }
            let mut encoder = StreamEncoder::new(coding, levels(5)).unwrap();
            encoder.write(b"an event").unwrap();
            encoder.flush().unwrap();
            let mut flushed = encoder.take();
            assert!(flushed.len() > b"an event".len() / 2, "{coding}: {flushed:?}");
            encoder.flush().unwrap();
            assert_eq!(encoder.waiting(), 0, "{coding}: a flush of nothing adds nothing");
            flushed.append(&mut encoder.finish().unwrap());
            assert_eq!(decode(coding, &flushed), b"an event", "{coding}");
        }
    }

    #[test]
    fn nothing_is_encoded_to_a_complete_stream() {
        for coding in Coding::ALL {
            let encoder = StreamEncoder::new(coding, levels(5)).unwrap();
            assert_eq!(decode(coding, &encoder.finish().unwrap()), b"", "{coding}");
        }
    }

    #[test]
    fn levels_that_take_too_long_are_refused() {
        for (text, expected) in [
            ("br = 7", "f:1: levels.br: is 7: write 1 to 6"),
            ("zstd = 10", "f:1: levels.zstd: is 10: write 1 to 9"),
            ("gzip = 0", "f:1: levels.gzip: is 0: write 1 to 9"),
        ] {
            let config: LevelsConfig = toml::from_str(text).unwrap();
            let mut problems = Problems::of_file(Path::new("f"), text);
            config.build("levels", &mut problems);
            let problems = problems.to_string();
            assert!(problems.starts_with(expected), "{text}: {problems}");
        }
        let mut problems = Problems::of_file(Path::new("f"), "");
        assert_eq!(LevelsConfig::default().build("levels", &mut problems), Levels([5, 3, 5]));
        assert_eq!(problems.to_string(), "");
    }
}
