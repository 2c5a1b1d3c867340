//! Formats numbers for reports.

/// A file size in binary units: `64k`, `1M`, or a fraction such as `21.3k`.
pub(crate) fn size(bytes: f64) -> String {
    let units = [(1u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    for (unit, name) in units {
        let value = bytes / unit as f64;
        if value >= 1.0 {
            return if (value - value.round()).abs() < 1e-9 {
                format!("{value:.0}{name}")
            } else {
                format!("{}{name}", significant(value))
            };
        }
    }
    format!("{bytes:.0} B")
}

/// A size to two digits, for places between measured sizes: `3.9k`, `21k`.
pub(crate) fn size_about(bytes: f64) -> String {
    let units = [(1u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    let found = units.into_iter().find(|(unit, _)| bytes >= *unit as f64);
    let Some((unit, name)) = found else { return format!("{bytes:.0} B") };
    let value = bytes / unit as f64;
    let text = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{}{name}", text.trim_end_matches(".0"))
}

/// A body's size in words: `64 kB`, k being 1,024.
pub(crate) fn body(bytes: f64) -> String {
    let text = size(bytes);
    match text.char_indices().last() {
        Some((at, unit)) if unit != 'B' => format!("{} {unit}B", &text[..at]),
        _ => text,
    }
}

/// Nanoseconds as a time: `9.2 µs`, `1.03 ms`.
pub(crate) fn time(nanoseconds: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    for (unit, name) in units {
        if nanoseconds.abs() >= unit {
            return format!("{} {name}", significant(nanoseconds / unit));
        }
    }
    format!("{} ns", significant(nanoseconds))
}

/// A count or rate: `840`, `12.5 k`, `3.1 M`.
pub(crate) fn count(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    for (unit, name) in units {
        if value.abs() >= unit {
            let scale = if name == "k" { 1e3 } else { unit };
            return format!("{} {name}", significant(value / scale));
        }
    }
    significant(value)
}

/// Bytes, or bytes a second, in decimal units: `1.2 GB`.
pub(crate) fn bytes(value: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    for (unit, name) in units {
        if value.abs() >= unit {
            return format!("{} {name}", significant(value / unit));
        }
    }
    format!("{value:.0} B")
}

/// Bytes a second: `1.2 GB/s`.
pub(crate) fn rate(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// A ratio: `0.56`, `12.3`.
pub(crate) fn ratio(value: f64) -> String {
    if value.abs() >= 10.0 { significant(value) } else { format!("{value:.2}") }
}

/// Three significant digits, never in scientific notation.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    // The exponent after rounding to three digits: 9.999 becomes 10.0, not 10.00.
    let exponent: i32 = format!("{value:.2e}").rsplit('e').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let digits = if value == 0.0 { 0 } else { (2 - exponent).clamp(0, 9) as usize };
    format!("{value:.digits$}")
}

/// A ratio as a change in percent: 1.5 is `+50 %`.
pub(crate) fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent.abs() < 0.5 { "±0 %".to_owned() } else { format!("{percent:+.0} %").replace('-', "−") }
}

/// The name of a percentile: 0.999 is `p99.9`.
pub(crate) fn percentile(quantile: f64) -> String {
    format!("p{}", round(&format!("{:.2}", 100.0 * quantile)))
}

/// A formatted number without trailing zeros in its fraction, for axes, whose values are round.
pub(crate) fn round(text: &str) -> String {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.contains('.') {
        return text.to_owned();
    }
    format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Calls on a connection.
pub(crate) fn calls(calls: Option<u64>) -> String {
    calls.map_or_else(|| "unlimited".to_owned(), |calls| calls.to_string())
}

/// Seconds since 1970 as a date and time of day in UTC.
pub(crate) fn date(seconds: f64) -> String {
    let seconds = if seconds.is_finite() && seconds > 0.0 { seconds } else { 0.0 };
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds as u64);
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}

/// Seconds since 1970 as a date in UTC.
pub(crate) fn day(seconds: f64) -> String {
    date(seconds).split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_read_them() {
        let table = [
            (size(1024.0), "1k"),
            (size(65536.0), "64k"),
            (size(1048576.0), "1M"),
            (size(21811.2), "21.3k"),
            (size(300.0), "300 B"),
            (size_about(3_993.0), "3.9k"),
            (size_about(4_096.0), "4k"),
            (size_about(21_811.0), "21k"),
            (size(1073741824.0), "1G"),
            (body(65536.0), "64 kB"),
            (body(300.0), "300 B"),
            (time(9_200.0), "9.20 µs"),
            (time(1_032_000.0), "1.03 ms"),
            (time(999.9), "1000 ns"),
            (time(3.7e10), "37.0 s"),
            (count(840.0), "840"),
            (count(9_999.0), "9999"),
            (count(12_500.0), "12.5 k"),
            (count(4_646_000.0), "4.65 M"),
            (bytes(1.2e9), "1.20 GB"),
            (bytes(12.0), "12 B"),
            (ratio(0.5649), "0.56"),
            (ratio(12.34), "12.3"),
            (change(1.504), "+50 %"),
            (change(0.78), "−22 %"),
            (change(0.999), "±0 %"),
            (percentile(0.5), "p50"),
            (percentile(0.999), "p99.9"),
            (round("30.0 ms"), "30 ms"),
            (round("0.0300"), "0.03"),
            (round("1.50"), "1.5"),
            (round("100 k"), "100 k"),
            (significant(0.03857), "0.0386"),
            (significant(9.999), "10.0"),
            (significant(0.0), "0"),
            (significant(f64::NAN), "–"),
            (date(1_795_000_000.0), "2026-11-18 11:06:40 UTC"),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
    }
}
