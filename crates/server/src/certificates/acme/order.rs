//! One order, from the account to the certificate (RFC 8555 §7.4).

use std::time::Duration;

use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};

use super::answers::Answers;
use super::dns::Record;
use super::{AcmeSite, ChallengeKind, Settings, address, explain};
use crate::values::one_line;

/// The timeout for the authority to validate or to issue. Let's Encrypt takes seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// The profile for addresses, unless the configuration names another: Let's Encrypt issues certificates for addresses in this profile alone.
const PROFILE_OF_ADDRESSES: &str = "shortlived";

/// Orders a certificate. Returns key and chain, PEM.
pub(super) async fn obtain(
    settings: &Settings,
    site: &AcmeSite,
    replaces: Option<CertificateIdentifier<'_>>,
    answers: &mut Answers<'_>,
) -> Result<String, String> {
    let account = settings.account().await?;
    let identifiers: Vec<Identifier> = site.names.iter().map(|name| identifier(name)).collect();
    let of_addresses = || {
        let has_it = account.profiles().any(|profile| profile.name == PROFILE_OF_ADDRESSES);
        (has_it && site.names.iter().any(|name| address(name).is_some())).then_some(PROFILE_OF_ADDRESSES)
    };
    let profile = settings.profile.as_deref().or_else(of_addresses);
    let new = || match profile {
        Some(profile) => NewOrder::new(&identifiers).profile(profile),
        None => NewOrder::new(&identifiers),
    };
    let order = new();
    let mut order = match replaces {
        None => account.new_order(&order).await,
        Some(replaces) => match account.new_order(&new().replaces(replaces)).await {
            Err(error) if may_be_about_replaces(&error) => account.new_order(&order).await,
            ordered => ordered,
        },
    }
    .map_err(explain)?;
    if let Some(dns) = &settings.dns {
        // Sets all records before the first validation, so that there is only one wait.
        answer(settings, site, &mut order, answers, Step::Answer).await?;
        tokio::time::sleep(dns.wait).await;
        answer(settings, site, &mut order, answers, Step::Validate).await?;
    } else {
        answer(settings, site, &mut order, answers, Step::Both).await?;
    }
    let patience = RetryPolicy::new().timeout(TIMEOUT);
    match order.poll_ready(&patience).await {
        Ok(OrderStatus::Ready) => {}
        Ok(status) => {
            return Err(refusal(&mut order)
                .await
                .unwrap_or_else(|| format!("the authority reports the order as {status:?}")));
        }
        Err(error) => return Err(refusal(&mut order).await.unwrap_or_else(|| explain(error))),
    }
    let key = order.finalize().await.map_err(explain)?;
    let chain = order.poll_certificate(&patience).await.map_err(explain)?;
    Ok(key + &chain)
}

/// The action for each pending authorization.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Prepares the response.
    Answer,
    /// Tells the authority that the response is ready.
    Validate,
    Both,
}

/// Goes through the order's authorizations.
async fn answer(
    settings: &Settings,
    site: &AcmeSite,
    order: &mut Order,
    answers: &mut Answers<'_>,
    step: Step,
) -> Result<(), String> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(explain)?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            other => return Err(format!("the authority reports an authorization as {other:?}")),
        }
        let kind = match settings.challenge {
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::Dns01 => ChallengeType::Dns01,
        };
        let mut challenge =
            authorization.challenge(kind).ok_or("the authority does not offer the challenge of its account")?;
        if step != Step::Validate {
            let name = challenge.identifier().to_string();
            let host = name.strip_prefix("*.").unwrap_or(&name);
            if !site.names.iter().any(|own| own.strip_prefix("*.").unwrap_or(own) == host) {
                return Err(format!("the authority wants to validate {}, which was not ordered", one_line(&name)));
            }
            let answer = challenge.key_authorization();
            match (settings.challenge, &settings.dns) {
                (ChallengeKind::TlsAlpn01, _) => answers.over_tls(&name, answer.digest().as_ref())?,
                (ChallengeKind::Http01, _) => answers.over_http(&challenge.token, answer.as_str()),
                (ChallengeKind::Dns01, Some(dns)) => {
                    answers.over_dns(&dns.zone, Record::of(host, answer.dns_value())).await?;
                }
                // Rejected at start.
                (ChallengeKind::Dns01, None) => {
                    return Err("neither dns_hook nor dns_update of its account is set".to_owned());
                }
            }
        }
        if step != Step::Answer {
            challenge.set_ready().await.map_err(explain)?;
        }
    }
    Ok(())
}

fn identifier(name: &str) -> Identifier {
    address(name).map_or_else(|| Identifier::Dns(name.to_owned()), Identifier::Ip)
}

/// Whether an order may succeed without `replaces` (RFC 9773 §5). Some authorities do not know the field, and others
/// reject it for a certificate that was already replaced; Pebble responds with 500 if it does not find the certificate.
/// A second order does not help against a limit, and would count towards it (RFC 8555 §6.6). Nor does it help against a
/// network failure or an overloaded authority.
fn may_be_about_replaces(error: &Error) -> bool {
    match error {
        Error::Unsupported(_) => true,
        // The authority accepted the order but did not repeat the field, as it must (RFC 9773 §5).
        Error::Other(why) => why.to_string().contains("replaces"),
        Error::Api(problem) => {
            let is_limit = problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":rateLimited"));
            !is_limit && problem.status.is_none_or(|status| (400..=500).contains(&status) && status != 429)
        }
        _ => false,
    }
}

/// The authority's reason for a failed validation.
async fn refusal(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.ok()?;
        let state = authorization.refresh().await.ok()?;
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            return Some(format!("{}: {problem}", state.identifier()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_may_be_about_the_replaced_certificate_is_followed_by_another_order() {
        let problem = |kind: &str, status: u16| {
            let text = format!(r#"{{"type": "urn:ietf:params:acme:error:{kind}", "detail": "x", "status": {status}}}"#);
            Error::Api(serde_json::from_str(&text).unwrap())
        };
        for (error, is_followed) in [
            (problem("malformed", 400), true),
            (problem("alreadyReplaced", 409), true),
            (problem("rateLimited", 429), false),
            (problem("rateLimited", 400), false),
            (problem("serverInternal", 500), true),
            (problem("serverInternal", 503), false),
            (Error::Unsupported("ARI"), true),
            (Error::Other("replaces field mismatch: expected Some(a), found None".into()), true),
            (Error::Timeout(None), false),
            (Error::Other("the network is unreachable".into()), false),
        ] {
            assert_eq!(may_be_about_replaces(&error), is_followed, "{error}");
        }
    }
}
