//! Latency histograms as text: HDR V2, deflate, base64. Other HDR tools can read them.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// A histogram of times in nanoseconds to three digits, up to [`MAX_TIME`].
pub(crate) fn of_times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_TIME.as_nanos() as u64, 3).expect("bounds that HDR histograms can have")
}

/// Records a time in a histogram of [`of_times`].
pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record((time.as_nanos() as u64).max(1));
}

/// The maximum time recorded; longer times count as this. No time limit is that long.
const MAX_TIME: Duration = Duration::from_secs(3600);

/// The text of a histogram.
///
/// # Errors
///
/// The histogram is too large for the format.
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| anyhow!("{error:?}"))?;
    Ok(STANDARD.encode(bytes))
}

/// Decodes a text made by [`encode`]. `None` for an empty text, which stands for "not measured".
///
/// # Errors
///
/// The text is not base64, or not a histogram.
pub(crate) fn decode(text: &str) -> Result<Option<Histogram<u64>>> {
    if text.is_empty() {
        return Ok(None);
    }
    let bytes = STANDARD.decode(text).context("a histogram is not base64")?;
    let histogram = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| anyhow!("a histogram is not HDR V2: {error:?}"))?;
    Ok(Some(histogram))
}

/// Adds several histograms up. Percentiles of rounds cannot be averaged, but their counts can be added.
///
/// # Errors
///
/// A value does not fit; impossible with histograms that resize.
pub(crate) fn merge<'a>(histograms: impl IntoIterator<Item = &'a Histogram<u64>>) -> Result<Option<Histogram<u64>>> {
    let mut all: Option<Histogram<u64>> = None;
    for histogram in histograms {
        match &mut all {
            None => {
                let mut first = histogram.clone();
                first.auto(true);
                all = Some(first);
            }
            Some(all) => all.add(histogram).map_err(|error| anyhow!("histograms do not merge: {error:?}"))?,
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        for value in values {
            histogram.record(value).expect("it grows by itself");
        }
        histogram
    }

    #[test]
    fn times_of_all_lengths_are_recorded_as_they_are() {
        let mut histogram = of_times();
        let times = [Duration::from_nanos(2), Duration::from_micros(10), Duration::from_millis(5), MAX_TIME];
        times.iter().for_each(|time| record(&mut histogram, *time));
        let recorded: Vec<u64> = histogram.iter_recorded().map(|value| value.value_iterated_to()).collect();
        for (recorded, time) in recorded.into_iter().zip(times) {
            let nanoseconds = time.as_nanos() as f64;
            assert!((recorded as f64 / nanoseconds - 1.0).abs() < 0.001, "{time:?} became {recorded} ns");
        }
        assert_eq!(histogram.len(), 4);
    }

    #[test]
    fn survives_text() {
        for histogram in [of([]), of([1]), of((1..5_000).map(|n| n * n * 97)), of([0, u64::MAX / 4])] {
            let text = encode(&histogram).unwrap();
            assert_eq!(decode(&text).unwrap().expect("a histogram"), histogram);
        }
    }

    #[test]
    fn nothing_measured_is_no_histogram() {
        assert!(decode("").unwrap().is_none());
        assert!(merge([]).unwrap().is_none());
    }

    #[test]
    fn broken_text_is_an_error() {
        let text = encode(&of([1, 2, 3])).unwrap();
        assert!(decode("not base64!").unwrap_err().to_string().contains("base64"));
        assert!(decode(&text[..text.len() / 2 / 4 * 4]).is_err());
    }

    #[test]
    fn merged_percentiles_are_those_of_all_values() {
        let (fast, slow) = (of(1..=900), of((1..=100).map(|n| n * 1_000_000)));
        let merged = merge([&fast, &slow]).unwrap().expect("two histograms");
        assert_eq!(merged, of((1..=900).chain((1..=100).map(|n| n * 1_000_000))));
        assert_eq!(merged.len(), 1_000);
        // Averaging the medians would give 25 ms.
        assert!(merged.value_at_quantile(0.5) < 1_000);
    }
}
