//! Values of the configuration file: times, sizes, bounded numbers, and positions in the file.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A value with its position in the file, for messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct At<T> {
    pub value: T,
    /// Its bytes in the file; empty if it is not from the file.
    pub span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> From<T> for At<T> {
    fn from(value: T) -> Self {
        At { value, span: 0..0 }
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        let span = spanned.span();
        Ok(At { value: spanned.into_inner(), span })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A time of at most [`Time::MAX`], written with its unit: `500ms`, `10s`, `2h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub Duration);

impl Time {
    /// Ten years: far more than any setting needs, and little enough to be added to any clock time.
    const MAX: Duration = Duration::from_secs(87_600 * 3600);

    pub(crate) const fn seconds(seconds: u64) -> Self {
        Time(Duration::from_secs(seconds))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One number and one unit, as an operator would write it.
        let nanoseconds = self.0.as_nanos();
        let exact = |unit: &&(u128, &str)| nanoseconds >= unit.0 && nanoseconds.is_multiple_of(unit.0);
        let (unit, name) = TIME_UNITS.iter().find(exact).unwrap_or(&(1_000_000_000, "s"));
        write!(f, "{}{name}", nanoseconds / unit)
    }
}

const TIME_UNITS: [(u128, &str); 5] =
    [(3_600_000_000_000, "h"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Err("\"0\" has no unit: write 0s".to_owned());
        }
        let time = humantime::parse_duration(text).map_err(|e| format!("{e}: write for instance 500ms, 10s or 2m"))?;
        if time > Self::MAX {
            return Err(format!("\"{text}\" is longer than ten years: write {} or less", Time(Self::MAX)));
        }
        Ok(Time(time))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)?.parse().map_err(D::Error::custom)
    }
}

/// The text of a time.
struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, for instance \"250ms\" or \"10s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "time" })
    }
}

impl serde::Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A [`Time`] longer than zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Timeout(Time);

impl Timeout {
    /// At least one second.
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Timeout(Time::seconds(if seconds == 0 { 1 } else { seconds }))
    }

    pub(crate) const fn duration(self) -> Duration {
        self.0.0
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Time>()? {
            Time(Duration::ZERO) => Err("must be longer than zero: write for instance 10s".to_owned()),
            time => Ok(Timeout(time)),
        }
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeVisitor)?.parse().map_err(D::Error::custom)
    }
}

/// A number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct Bounded<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Bounded<MIN, MAX> {
    /// `None` if `number` is out of range.
    pub(crate) const fn new(number: u64) -> Option<Self> {
        if MIN <= number && number <= MAX { Some(Bounded(number)) } else { None }
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// For ranges that fit into `usize`.
    pub(crate) const fn usize(self) -> usize {
        self.0 as usize
    }

    fn refusal(what: impl fmt::Display) -> String {
        match MAX {
            u64::MAX => format!("{what} is not a number of at least {MIN}: write one from {MIN}"),
            _ => format!("{what} is not in {MIN}..={MAX}: write a number from {MIN} to {MAX}"),
        }
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u64, const MAX: u64> std::str::FromStr for Bounded<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| Self::refusal(format_args!("\"{text}\"")))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for NumberVisitor<MIN, MAX> {
            type Value = Bounded<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match MAX {
                    u64::MAX => write!(f, "a number from {MIN}, without quotes and unit"),
                    _ => write!(f, "a number from {MIN} to {MAX}, without quotes and unit"),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                let bounded = u64::try_from(number).ok().and_then(Bounded::new);
                bounded.ok_or_else(|| E::custom(Self::Value::refusal(number)))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Bounded::new(number).ok_or_else(|| E::custom(Self::Value::refusal(number)))
            }
        }
        deserializer.deserialize_i64(NumberVisitor)
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("from {MIN} to {MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        match MAX {
            u64::MAX => json_schema!({ "type": "integer", "minimum": MIN }),
            _ => json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX }),
        }
    }
}

/// A number of bytes of at most [`Size::MAX`], with or without a unit: `512`, `64KiB`, `1MiB`, `10MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub u64);

impl Size {
    /// A pebibyte: more than any file or cache, and small enough that sums of sizes do not overflow.
    const MAX: Size = Size(1 << 50);

    fn new(bytes: u64) -> Result<Self, String> {
        let size = Size(bytes);
        if size > Self::MAX {
            return Err(format!("{size} is too much: write {} or less", Self::MAX));
        }
        Ok(size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) =
            BINARY.iter().rev().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)).unwrap_or(&(1, "B"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || format!("\"{text}\" is not a size: write for instance 512B, 64KiB or 10MB");
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| hint())?;
        let unit = unit.trim_start();
        let unit = match unit {
            "" => 1,
            _ => BINARY.iter().chain(&DECIMAL).find(|(_, name)| *name == unit).ok_or_else(hint)?.0,
        };
        number.checked_mul(unit).ok_or_else(hint).and_then(Size::new)
    }
}

const BINARY: [(u64, &str); 5] = [(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")];
const DECIMAL: [(u64, &str); 4] = [(1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"), (1_000_000_000_000, "TB")];

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 512, \"64KiB\" or \"10MB\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Size, E> {
                let bytes = u64::try_from(number).map_err(|_| E::custom("a size cannot be negative"))?;
                Size::new(bytes).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
                Size::new(number).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "format": "size" })
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<T: serde::Serialize> serde::Serialize for At<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_they_are_read() {
        for text in ["0s", "500ms", "1500ms", "10s", "65s", "2h", "24h", "7us"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!("0".parse::<Time>().unwrap_err(), "\"0\" has no unit: write 0s");
        assert!("250".parse::<Time>().unwrap_err().contains("write for instance 500ms"));
    }

    #[test]
    fn times_and_sizes_have_an_upper_bound() {
        assert_eq!("87600h".parse::<Timeout>().unwrap().duration(), Time::MAX);
        for text in ["87600h 1ns", "18446744073709551615s"] {
            assert!(text.parse::<Timeout>().unwrap_err().contains("write 87600h or less"), "{text}");
        }
        assert_eq!("1024TiB".parse(), Ok(Size::MAX));
        for text in ["1025TiB", "9223372036854775807"] {
            assert!(text.parse::<Size>().unwrap_err().contains("write 1024TiB or less"), "{text}");
        }
    }

    #[test]
    fn sizes_have_units_and_print_as_they_are_read() {
        for (text, bytes) in
            [("512", 512), ("512B", 512), ("64KiB", 64 << 10), ("10MB", 10_000_000), ("1 GiB", 1 << 30)]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        for text in ["", "B", "-1", "1.5MB", "12 kb", "99999999999TiB"] {
            assert!(text.parse::<Size>().unwrap_err().contains("64KiB"), "{text}");
        }
    }
}
