//! The value of Content-Encoding (RFC 9110 §8.4).

use serde::{Deserialize, Serialize};

use crate::coding::Coding;
use crate::dictionary::DictionaryCoding;

/// The coding in Content-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentEncoding {
    /// A coding that every client with its decoder decodes.
    Plain(Coding),
    /// A coding by a dictionary that the client has.
    ByDictionary(DictionaryCoding),
}

impl ContentEncoding {
    /// The token used in Content-Encoding.
    pub fn token(self) -> &'static str {
        match self {
            ContentEncoding::Plain(coding) => coding.token(),
            ContentEncoding::ByDictionary(coding) => coding.token(),
        }
    }
}

impl From<Coding> for ContentEncoding {
    fn from(coding: Coding) -> Self {
        ContentEncoding::Plain(coding)
    }
}
