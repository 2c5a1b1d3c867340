//! One order, from the account to the certificate (RFC 8555 §7.4).

use std::time::Duration;

use instant_acme::{
    AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};

use super::answers::Answers;
use super::{AcmeSite, ChallengeKind, Settings, explain};

/// Time for the authority to validate or to issue. Let's Encrypt takes seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Orders a certificate. Returns key and chain, PEM.
pub(super) async fn obtain(
    settings: &Settings,
    site: &AcmeSite,
    replaces: Option<CertificateIdentifier<'_>>,
    answers: &mut Answers<'_>,
) -> Result<String, String> {
    let account = settings.account().await?;
    let identifiers: Vec<Identifier> = site.names.iter().cloned().map(Identifier::Dns).collect();
    let order = match replaces {
        Some(replaces) => account.new_order(&NewOrder::new(&identifiers).replaces(replaces)).await,
        None => Err(instant_acme::Error::Str("nothing to replace")),
    };
    // Authorities without RFC 9773 refuse `replaces`: retry without it.
    let mut order = match order {
        Ok(order) => order,
        Err(_) => account.new_order(&NewOrder::new(&identifiers)).await.map_err(explain)?,
    };
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
        };
        let mut challenge =
            authorization.challenge(kind).ok_or("the authority does not offer the challenge in tls.acme.challenge")?;
        let name = challenge.identifier().to_string();
        let answer = challenge.key_authorization();
        match settings.challenge {
            ChallengeKind::TlsAlpn01 => answers.over_tls(&name, answer.digest().as_ref())?,
            ChallengeKind::Http01 => answers.over_http(&challenge.token, answer.as_str()),
        }
        challenge.set_ready().await.map_err(explain)?;
    }
    let patience = RetryPolicy::new().timeout(PATIENCE);
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
