//! Values with a short form beside their table or list: `compress = true`, `redirect = "/new"`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{
    BoolDeserializer, I64Deserializer, MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer,
};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short form, or a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Short<S, T> {
    Short(S),
    Table(T),
}

impl<'de, S: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Short<S, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

struct Either<S, T>(PhantomData<(S, T)>);

impl<'de, S: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Either<S, T> {
    type Value = Short<S, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the short form, or a table")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        S::deserialize(BoolDeserializer::new(value)).map(Short::Short)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        S::deserialize(I64Deserializer::new(value)).map(Short::Short)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        S::deserialize(StrDeserializer::new(value)).map(Short::Short)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(list)).map(Short::Table)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Short::Table)
    }
}

impl<S, T: JsonSchema> JsonSchema for Short<S, T> {
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

impl<S, T> Short<S, T> {
    /// The table, if it is written as one.
    pub(crate) fn table(&self) -> Option<&T> {
        match self {
            Short::Short(_) => None,
            Short::Table(table) => Some(table),
        }
    }
}

/// `false` beside a table that has a key without a default: `true` would not say which value it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Off;

impl Serialize for Off {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(false)
    }
}

impl<'de> Deserialize<'de> for Off {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            false => Ok(Off),
            true => Err(Error::custom(NOT_ENOUGH)),
        }
    }
}

/// The error for `true` in place of a table.
pub(crate) const NOT_ENOUGH: &str = "is not enough";

impl<T> From<Option<T>> for Short<bool, T> {
    fn from(table: Option<T>) -> Self {
        table.map_or(Short::Short(false), Short::Table)
    }
}

impl<T: Default> Short<bool, T> {
    /// The table; `true` is a table with all defaults. `None`: `false`.
    pub(crate) fn into_table(self) -> Option<T> {
        match self {
            Short::Short(false) => None,
            Short::Short(true) => Some(T::default()),
            Short::Table(table) => Some(table),
        }
    }
}
