//! OCSP requests and responses (RFC 6960).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use der::asn1::{AnyRef, ObjectIdentifier, OctetString};
use der::{Decode, Encode, Header, Reader, SliceReader};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use x509_cert::Certificate;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityInfoAccessSyntax, ExtendedKeyUsage};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspGeneralizedTime, OcspRequest, OcspResponse, OcspResponseStatus, Request,
    TbsRequest, Version,
};

const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");
const TLS_FEATURE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.24");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// A question to a responder.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The URL of the whole request, for GET (RFC 6960 §A.1): caches in front of responders key by it.
    pub(super) url: String,
    id: CertId,
    issuer: Certificate,
}

/// A response that may be stapled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) der: Vec<u8>,
    pub(super) since: SystemTime,
    pub(super) until: SystemTime,
}

/// The reason why there is no response to staple.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The responder says that the certificate is revoked, since this time (thisUpdate).
    #[error("the certificate is REVOKED: replace it")]
    Revoked(SystemTime),
    #[error("{0}")]
    Other(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// The responder of a certificate, and whether clients insist on a response (RFC 7633).
pub(super) struct Wanted {
    pub(super) question: Option<Question>,
    pub(super) must_staple: bool,
}

impl Wanted {
    /// `chain`: DER, the site's own certificate first.
    pub(super) fn of<'a>(mut chain: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let read = |der: &[u8]| Certificate::from_der(der).map_err(|error| format!("not a certificate ({error})"));
        let own = read(chain.next().unwrap_or_default())?;
        let features = own.tbs_certificate.extensions.iter().flatten().find(|one| one.extn_id == TLS_FEATURE);
        // A list of numbers, among them status_request (5).
        let must_staple =
            features.is_some_and(|one| one.extn_value.as_bytes().windows(3).any(|part| part == [2, 1, 5]));
        let access: Option<(bool, AuthorityInfoAccessSyntax)> = own
            .tbs_certificate
            .get()
            .map_err(|error| format!("its authority information access is malformed ({error})"))?;
        let responders = access.iter().flat_map(|(_, access)| &access.0).filter(|one| one.access_method == OCSP);
        let url = responders.filter_map(|one| match &one.access_location {
            GeneralName::UniformResourceIdentifier(url) if url.as_str().starts_with("http://") => Some(url.as_str()),
            _ => None,
        });
        let Some(url) = url.into_iter().next() else { return Ok(Self { question: None, must_staple }) };
        let issuer = chain.next().ok_or("its file has no issuer certificate after it, which the request needs")?;
        let question = Question::new(url, &own, read(issuer)?).map_err(|error| error.to_string())?;
        Ok(Self { question: Some(question), must_staple })
    }
}

impl Question {
    fn new(url: &str, own: &Certificate, issuer: Certificate) -> der::Result<Self> {
        let hash = |bytes: &[u8]| OctetString::new(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref());
        let key = &issuer.tbs_certificate.subject_public_key_info.subject_public_key;
        // SHA-1 identifies the issuer, without a security role; all responders support it (RFC 5019 §2.1.1).
        let id = CertId {
            hash_algorithm: AlgorithmIdentifierOwned { oid: SHA1, parameters: Some(AnyRef::NULL.into()) },
            issuer_name_hash: hash(&own.tbs_certificate.issuer.to_der()?)?,
            issuer_key_hash: hash(key.raw_bytes())?,
            serial_number: own.tbs_certificate.serial_number.clone(),
        };
        let request = OcspRequest {
            tbs_request: TbsRequest {
                version: Version::V1,
                requestor_name: None,
                request_list: vec![Request { req_cert: id.clone(), single_request_extensions: None }],
                request_extensions: None,
            },
            optional_signature: None,
        };
        let text = BASE64_STANDARD.encode(request.to_der()?);
        let url = format!("{}/{}", url.trim_end_matches('/'), utf8_percent_encode(&text, NON_ALPHANUMERIC));
        Ok(Self { url, id, issuer })
    }

    /// Reads a response. It may only be stapled if it says "good" now, and is signed by the issuer or a delegate.
    pub(super) fn read(&self, der: Vec<u8>, now: SystemTime) -> Result<Answer, Unusable> {
        let malformed = |error: der::Error| format!("the response is malformed: {error}");
        let response = OcspResponse::from_der(&der).map_err(malformed)?;
        if response.response_status != OcspResponseStatus::Successful {
            return Err(format!("the responder returns {:?}", response.response_status).into());
        }
        let bytes = response.response_bytes.ok_or_else(|| "the response is empty".to_owned())?.response;
        let basic = BasicOcspResponse::from_der(bytes.as_bytes()).map_err(malformed)?;
        self.check_signature(&basic, bytes.as_bytes(), now)?;
        let is_ours = |id: &CertId| {
            (&id.serial_number, &id.issuer_key_hash) == (&self.id.serial_number, &self.id.issuer_key_hash)
                && id.issuer_name_hash == self.id.issuer_name_hash
        };
        let one = basic.tbs_response_data.responses.iter().find(|one| is_ours(&one.cert_id));
        let one = one.ok_or_else(|| "the response is about another certificate".to_owned())?;
        match one.cert_status {
            CertStatus::Good(_) => {}
            CertStatus::Revoked(_) => return Err(Unusable::Revoked(time(one.this_update))),
            CertStatus::Unknown(_) => return Err("the responder does not know the certificate".to_owned().into()),
        }
        let since = time(one.this_update);
        let until = one.next_update.map_or(since + WITHOUT_END, time);
        if since > now + SKEW || until <= now {
            return Err("the response is not valid now: is the clock right?".to_owned().into());
        }
        Ok(Answer { der, since, until })
    }

    fn check_signature(&self, basic: &BasicOcspResponse, der: &[u8], now: SystemTime) -> Result<(), String> {
        let signed = first_of_sequence(der).map_err(|error| error.to_string())?;
        let signature = basic.signature.raw_bytes();
        let is_signed_by = |signer: &Certificate| {
            let key = &signer.tbs_certificate.subject_public_key_info;
            verify(key, &basic.signature_algorithm.oid, signed, signature)
        };
        // A delegate whom the issuer lets sign (RFC 6960 §4.2.2.2).
        let is_delegated = |signer: &Certificate| {
            let key = &self.issuer.tbs_certificate.subject_public_key_info;
            let validity = &signer.tbs_certificate.validity;
            let may = signer.tbs_certificate.get::<ExtendedKeyUsage>();
            matches!(may, Ok(Some((_, usages))) if usages.0.contains(&OCSP_SIGNING))
                && validity.not_before.to_system_time() <= now + SKEW
                && now <= validity.not_after.to_system_time()
                && signer
                    .tbs_certificate
                    .to_der()
                    .is_ok_and(|tbs| verify(key, &signer.signature_algorithm.oid, &tbs, signer.signature.raw_bytes()))
        };
        let mut others = basic.certs.iter().flatten();
        match is_signed_by(&self.issuer) || others.any(|other| is_signed_by(other) && is_delegated(other)) {
            true => Ok(()),
            false => Err("the response is not signed by the certificate's issuer".to_owned()),
        }
    }
}

/// Clocks differ.
const SKEW: Duration = Duration::from_secs(300);

/// How long a response without an end (nextUpdate) is stapled.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

fn time(time: OcspGeneralizedTime) -> SystemTime {
    UNIX_EPOCH + time.0.to_unix_duration()
}

/// The bytes of the first element of a sequence, which are signed.
fn first_of_sequence(der: &[u8]) -> der::Result<&[u8]> {
    let mut reader = SliceReader::new(der)?;
    Header::decode(&mut reader)?;
    reader.tlv_bytes()
}

fn verify(key: &SubjectPublicKeyInfoOwned, algorithm: &ObjectIdentifier, message: &[u8], signature: &[u8]) -> bool {
    let is_p256 = || {
        let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
        curve == Some(P256)
    };
    let algorithm: &dyn VerificationAlgorithm = match algorithm.to_string().as_str() {
        "1.2.840.10045.4.3.2" if is_p256() => &signature::ECDSA_P256_SHA256_ASN1,
        "1.2.840.10045.4.3.2" => &signature::ECDSA_P384_SHA256_ASN1,
        "1.2.840.10045.4.3.3" if is_p256() => &signature::ECDSA_P256_SHA384_ASN1,
        "1.2.840.10045.4.3.3" => &signature::ECDSA_P384_SHA384_ASN1,
        "1.2.840.113549.1.1.11" => &signature::RSA_PKCS1_2048_8192_SHA256,
        "1.2.840.113549.1.1.12" => &signature::RSA_PKCS1_2048_8192_SHA384,
        "1.2.840.113549.1.1.13" => &signature::RSA_PKCS1_2048_8192_SHA512,
        "1.3.101.112" => &signature::ED25519,
        _ => return false,
    };
    UnparsedPublicKey::new(algorithm, key.subject_public_key.raw_bytes()).verify(message, signature).is_ok()
}
