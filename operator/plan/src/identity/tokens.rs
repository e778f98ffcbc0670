//! Tokens of the pods' ServiceAccount, as pods mount them. The kubelet asks for them and replaces them; gateways read the file again.

use crate::names::TokenUse;
use sluice_crds::{TracePipelineSpec, security::ServiceAccountToken};

/// How long a token lives where the spec does not say, in seconds: the kubelet's own default for projected tokens.
const EXPIRATION_SECONDS: i64 = 3_600;

/// A token that pods mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedToken {
    pub of: TokenUse,
    pub audience: String,
    pub expiration_seconds: i64,
}

/// The tokens that the spec asks for.
pub(crate) fn mounted(spec: &TracePipelineSpec) -> Vec<MountedToken> {
    let sasl = spec.source.kafka.as_ref().and_then(|kafka| kafka.sasl.as_ref());
    let oauth = sasl.and_then(|sasl| sasl.oauth.as_ref());
    let kafka = oauth.and_then(|oauth| oauth.service_account_token.as_ref());
    let client = oauth.and_then(|oauth| oauth.client_credentials.as_ref());
    let assertion = client.and_then(|client| client.client_assertion.as_ref());
    let credentials = spec.sink.clickhouse.credentials.as_ref();
    let clickhouse = credentials.and_then(|credentials| credentials.service_account_token.as_ref());
    let whole = |token: &ServiceAccountToken| (token.audience.clone(), token.expiration_seconds);
    let all = [
        (TokenUse::Kafka, kafka.map(whole)),
        (TokenUse::KafkaAssertion, assertion.map(|token| (token.audience.clone(), token.expiration_seconds))),
        (TokenUse::ClickHouse, clickhouse.map(whole)),
    ];
    let each = all.into_iter().filter_map(|(of, token)| {
        let (audience, expiration_seconds) = token?;
        let expiration_seconds = expiration_seconds.unwrap_or(EXPIRATION_SECONDS);
        Some(MountedToken { of, audience, expiration_seconds })
    });
    each.collect()
}
