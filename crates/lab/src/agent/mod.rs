//! The client on another machine: the lab starts and measures the servers here, and an agent there sends the requests.
//!
//! ```text
//! lab (servers, CPU, proof) ── TCP: frames of JSON ──► agent (load) ── TLS ──► servers
//!       challenge ◄── both sides prove the token ──► plans ─► outcomes
//! ```
//!
//! The token is never sent: each side proves it by HMAC-SHA256 over the other side's random challenge. The frames
//! themselves are plain, so on a network that others share, lead them through ssh(1).

mod frame;
mod remote;
mod serve;
mod wire;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use crate::load::LoadPlan;

pub(crate) use remote::Remote;
pub use serve::{Labs, serve};
use wire::Counted;

/// The first frame of each side.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    /// The version of the program; both sides must have the same.
    version: String,
    /// Random, in hexadecimal.
    challenge: String,
}

/// The second frame of each side: proves the token.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Proof {
    /// HMAC-SHA256 over the side's name and the other side's challenge, in hexadecimal.
    mac: String,
}

/// A request of the lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Request {
    /// A description of the agent's machine.
    Machine,
    /// A load.
    Run(Box<Load>),
    /// A load, and another beside it.
    RunBeside(Box<[Load; 2]>),
}

/// A plan with the content of its file of trust anchors, which the agent does not have.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Load {
    plan: LoadPlan,
    roots: Option<String>,
}

/// The agent's response.
#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Machine(String),
    Outcome(Box<Counted>),
    Both(Box<[Counted; 2]>),
    /// The plan cannot be carried out there.
    Failed(String),
}

/// The side that proves the token. A proof of one side does not prove the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Lab,
    Agent,
}

impl Side {
    fn label(self) -> &'static str {
        match self {
            Self::Lab => "sealion-lab, lab",
            Self::Agent => "sealion-lab, agent",
        }
    }

    fn message(self, challenge: &str) -> Vec<u8> {
        [self.label().as_bytes(), b"\n", challenge.as_bytes()].concat()
    }

    /// Proves the token to the side that sent `challenge`.
    fn prove(self, token: &str, challenge: &str) -> Proof {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        let tag = hmac::sign(&key, &self.message(challenge));
        Proof { mac: hexadecimal(tag.as_ref()) }
    }

    /// Whether this side proved the token. The comparison takes the same time for every proof.
    fn has_proven(self, token: &str, challenge: &str, proof: &Proof) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        let Some(tag) = bytes(&proof.mac) else { return false };
        hmac::verify(&key, &self.message(challenge), &tag).is_ok()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(pair).collect()).flatten()
}

fn challenge() -> anyhow::Result<String> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| anyhow::anyhow!("no random numbers"))?;
    Ok(hexadecimal(&random))
}

/// The least length of a token, in bytes.
pub(crate) const MIN_TOKEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_side_one_challenge_and_one_token() {
        let challenge = challenge().expect("random numbers");
        let proof = Side::Lab.prove("a token of the lab", &challenge);
        assert!(Side::Lab.has_proven("a token of the lab", &challenge, &proof));
        assert!(!Side::Agent.has_proven("a token of the lab", &challenge, &proof), "a reflected proof");
        assert!(!Side::Lab.has_proven("another token here", &challenge, &proof));
        assert!(!Side::Lab.has_proven("a token of the lab", "00", &proof));
        for wrong in ["", "0", "zz", "é"] {
            assert!(!Side::Lab.has_proven("a token of the lab", &challenge, &Proof { mac: wrong.into() }), "{wrong}");
        }
    }
}
