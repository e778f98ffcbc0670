//! The Secrets of OTLP clients: of an edge, or of gateways with `source.otlp`.

use super::named_secret::{KeyUse, NamedSecret, SecretUse, UsedKey};
use crate::trace_pipeline::Listeners;

impl SecretUse {
    /// Those of the edge's clients: certificate, authorities, bearer tokens, users.
    pub const OF_EDGE: [Self; 4] =
        [Self::EdgeCertificate, Self::EdgeClientAuthorities, Self::EdgeBearerTokens, Self::EdgeBasicUsers];
    /// Those of the clients of `source.otlp`, in the same order.
    pub const OF_OTLP: [Self; 4] =
        [Self::OtlpCertificate, Self::OtlpClientAuthorities, Self::OtlpBearerTokens, Self::OtlpBasicUsers];

    /// Whether it is for connections of OTLP clients. Pods read these files again while they run; the operator connects to no server with them.
    pub fn is_of_clients(self) -> bool {
        Self::OF_EDGE.contains(&self) || Self::OF_OTLP.contains(&self)
    }
}

/// Every Secret that they name. `uses` are [`SecretUse::OF_EDGE`] or [`SecretUse::OF_OTLP`].
pub(super) fn of_clients(
    Listeners { tls, authentication: clients, .. }: Listeners<'_>,
    [certificate_use, ca_use, tokens_use, users_use]: [SecretUse; 4],
) -> Vec<NamedSecret<'_>> {
    let certificate = tls.map(|tls| &tls.certificate_secret_ref).map(|secret| NamedSecret {
        of: certificate_use,
        name: &secret.name,
        keys: secret.keys(),
    });
    let ca = tls.and_then(|tls| tls.client_ca_secret_ref.as_ref()).map(|secret| NamedSecret {
        of: ca_use,
        name: &secret.name,
        keys: secret.keys(),
    });
    let tokens = clients.and_then(|clients| clients.bearer_tokens_secret_ref.as_ref());
    let tokens = tokens.map(|secret| NamedSecret {
        of: tokens_use,
        name: &secret.name,
        keys: vec![UsedKey::new(KeyUse::BearerTokens, secret.key.as_ref())],
    });
    let users = clients.and_then(|clients| clients.basic_users_secret_ref.as_ref());
    let users = users.map(|secret| NamedSecret {
        of: users_use,
        name: &secret.name,
        keys: vec![UsedKey::new(KeyUse::BasicUsers, secret.key.as_ref())],
    });
    [certificate, ca, tokens, users].into_iter().flatten().collect()
}
