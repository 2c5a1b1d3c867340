//! MD5-crypt, the password hash of `htpasswd -m` (`$apr1$`) and of old crypt(3) (`$1$`). It is too fast to be safe, and accepted so that files of users can move.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use md5::{Digest, Md5};

/// A hash with its salt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Md5Crypt {
    magic: &'static str,
    salt: Box<str>,
    encoded: Box<str>,
}

impl Md5Crypt {
    /// Parses `$apr1$salt$hash` or `$1$salt$hash`. `None`: it is neither, or damaged.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let magic = ["$apr1$", "$1$"].into_iter().find(|magic| text.starts_with(magic))?;
        let (salt, encoded) = text[magic.len()..].split_once('$')?;
        let is_encoded = encoded.len() == ENCODED_LEN && encoded.bytes().all(|byte| DIGITS.contains(&byte));
        (salt.len() <= MAX_SALT && is_encoded).then(|| Md5Crypt { magic, salt: salt.into(), encoded: encoded.into() })
    }

    /// Whether the password is right.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        if password.len() > MAX_PASSWORD {
            return false;
        }
        let encoded = encode(&self.digest(password));
        verify_slices_are_equal(encoded.as_bytes(), self.encoded.as_bytes()).is_ok()
    }

    fn digest(&self, password: &[u8]) -> [u8; 16] {
        let salt = self.salt.as_bytes();
        let inner = md5(&[password, salt, password]);
        let mut context = Md5::new();
        context.update(password);
        context.update(self.magic);
        context.update(salt);
        for part in password.chunks(inner.len()) {
            context.update(&inner[..part.len()]);
        }
        let mut bits = password.len();
        while bits > 0 {
            context.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
            bits >>= 1;
        }
        let mut digest: [u8; 16] = context.finalize().into();
        for round in 0..ROUNDS {
            let is_odd = round % 2 == 1;
            let (first, last): (&[u8], &[u8]) = if is_odd { (password, &digest) } else { (&digest, password) };
            let salt = if round % 3 > 0 { salt } else { b"" };
            let again = if round % 7 > 0 { password } else { b"" };
            digest = md5(&[first, salt, again, last]);
        }
        digest
    }
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut context = Md5::new();
    parts.iter().for_each(|part| context.update(part));
    context.finalize().into()
}

/// The digest in the order and the digits of crypt(3).
fn encode(digest: &[u8; 16]) -> String {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let groups =
        ORDER.map(|[high, middle, low]| (u32::from_be_bytes([0, digest[high], digest[middle], digest[low]]), 4));
    let mut encoded = String::with_capacity(ENCODED_LEN);
    for (mut bits, digits) in groups.into_iter().chain([(u32::from(digest[11]), 2)]) {
        for _ in 0..digits {
            encoded.push(char::from(DIGITS[(bits & 0x3f) as usize]));
            bits >>= 6;
        }
    }
    encoded
}

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const ENCODED_LEN: usize = 22;

const MAX_SALT: usize = 8;

const ROUNDS: usize = 1000;

/// Each round hashes the password up to three times: a longer one would keep a thread busy. Apache's `htpasswd` takes 255 bytes at most.
const MAX_PASSWORD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_programs_are_verified() {
        // `openssl passwd -apr1 -salt …` and `openssl passwd -1 -salt …`
        for (text, password) in [("$apr1$lZL6Vxci$yAMrxbTXz9GgGyzVmW0Px0", "secret"), APR1_EMPTY, APR1_LONG, CRYPT] {
            let hash = Md5Crypt::parse(text).unwrap();
            assert!(hash.verify(password.as_bytes()), "{text}");
            assert!(!hash.verify(b"Secret") && !hash.verify(format!("{password}x").as_bytes()), "{text}");
        }
    }

    #[test]
    fn damaged_hashes_are_refused() {
        for text in [
            "$apr1$x$y",
            "$apr1$",
            "$apr1$123456789$yAMrxbTXz9GgGyzVmW0Px0",
            "$apr1$x$yAMrxbTXz9GgGyzVmW0P!0",
            "secret",
        ] {
            assert_eq!(Md5Crypt::parse(text), None, "{text}");
        }
        let hash = Md5Crypt::parse("$apr1$lZL6Vxci$yAMrxbTXz9GgGyzVmW0Px0").unwrap();
        assert!(!hash.verify(&[b'x'; MAX_PASSWORD + 1]));
    }

    const APR1_EMPTY: (&str, &str) = ("$apr1$abc$BfqKdn9xFDWJPa3kcp/PH0", "");
    const APR1_LONG: (&str, &str) =
        ("$apr1$12345678$/zEfpsRK6phAOnMgyZglb0", "a rather long password that is longer than sixteen");
    const CRYPT: (&str, &str) = ("$1$xy$mkJt1Ht8AivD6sawHd.Cf1", "secret");
}
