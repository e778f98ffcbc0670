//! What the operator logs in to Kafka with if the pipeline uses the login of its pods: a token of its own ServiceAccount, or a role of AWS that
//! this account has. The operator has no right to make tokens of other accounts: with it, it could act as any account.
//!
//! A user who may create a pipeline chooses its brokers, its audience, its token endpoint and its region. If the operator sent a token to any
//! broker that a pipeline names, such a user could read the token. So an admin names for each login of the operator the only brokers that it is
//! for, and for an assertion also the only token endpoint. Brokers get it over TLS only.

use sluice_crds::KafkaSource;
use std::collections::BTreeMap;

/// The operator's own logins. Without any, it logs in with the content of Secrets only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnLogins {
    /// Tokens for brokers, by audience.
    pub tokens: BTreeMap<String, BoundFile>,
    /// Tokens for token endpoints that take them instead of a client's secret, by the URL of the endpoint.
    pub assertions: BTreeMap<String, BoundFile>,
    /// The brokers of MSK that the operator's identity of AWS is for.
    pub aws_brokers: Vec<String>,
}

/// A file with a token of the operator, and the only brokers that may have it, or what is granted for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundFile {
    /// The file.
    pub file: String,
    /// Brokers, each written as in `bootstrapServers` of a pipeline.
    pub servers: Vec<String>,
}

/// Why the operator has no login of its own for a pipeline, and what an admin does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOwn {
    /// There is no token for the audience.
    #[error(
        "the operator does not ask Kafka: it has no token of its own for the audience {audience:?}; mount one into the operator's pod, and \
         name it and its brokers with --kafka-token={audience}=FILE@BROKER+BROKER (SECURITY.md, Tokens)"
    )]
    NoToken { audience: String },
    /// The token is for other brokers, or the connection has no TLS.
    #[error(
        "the operator does not ask Kafka: its token for the audience {audience:?} is sent over TLS only, and only to the brokers that \
         --kafka-token names; set tls, or add all of source.kafka.bootstrapServers to --kafka-token (SECURITY.md, Tokens)"
    )]
    TokenNotForBrokers { audience: String },
    /// There is no assertion for the endpoint.
    #[error(
        "the operator does not ask Kafka for partitions and offsets: it has no assertion of its own for the token endpoint {endpoint}; mount a \
         token into the operator's pod, and name it and its brokers with --kafka-assertion={endpoint}=FILE@BROKER+BROKER (SECURITY.md, \
         Assertions)"
    )]
    NoAssertion { endpoint: String },
    /// What is granted for the assertion is for other brokers, or the connection has no TLS.
    #[error(
        "the operator does not ask Kafka for partitions and offsets: what {endpoint} grants to it is sent over TLS only, and only to the \
         brokers that --kafka-assertion names; set tls, or add all of source.kafka.bootstrapServers to --kafka-assertion (SECURITY.md, \
         Assertions)"
    )]
    AssertionNotForBrokers { endpoint: String },
    /// The operator's identity of AWS is for other brokers, or the connection has no TLS.
    #[error(
        "the operator does not ask Kafka for partitions and offsets: it uses its own identity of AWS over TLS only, and only for the brokers \
         that --kafka-aws names; give its ServiceAccount a role, set tls, and add all of source.kafka.bootstrapServers to --kafka-aws \
         (SECURITY.md, Amazon MSK with IAM)"
    )]
    AwsNotForBrokers,
}

impl OwnLogins {
    /// The file with the token for brokers.
    ///
    /// # Errors
    /// If there is none for this audience and these brokers.
    pub(super) fn token(&self, audience: &str, kafka: &KafkaSource) -> Result<&str, NotOwn> {
        let own = self.tokens.get(audience);
        let own = own.ok_or_else(|| NotOwn::NoToken { audience: audience.to_owned() })?;
        if !is_for(&own.servers, kafka) {
            return Err(NotOwn::TokenNotForBrokers { audience: audience.to_owned() });
        }
        Ok(&own.file)
    }

    /// The file with the token for a token endpoint. The endpoint is compared as text, like brokers.
    ///
    /// # Errors
    /// If there is none for this endpoint and these brokers.
    pub(super) fn assertion(&self, endpoint: &str, kafka: &KafkaSource) -> Result<&str, NotOwn> {
        let own = self.assertions.get(endpoint);
        let own = own.ok_or_else(|| NotOwn::NoAssertion { endpoint: endpoint.to_owned() })?;
        if !is_for(&own.servers, kafka) {
            return Err(NotOwn::AssertionNotForBrokers { endpoint: endpoint.to_owned() });
        }
        Ok(&own.file)
    }

    /// Whether the operator may log in to these brokers with its identity of AWS. A token of MSK is good for every cluster of its region that
    /// the identity may connect to.
    ///
    /// # Errors
    /// If it may not.
    pub(super) fn aws(&self, kafka: &KafkaSource) -> Result<(), NotOwn> {
        if is_for(&self.aws_brokers, kafka) { Ok(()) } else { Err(NotOwn::AwsNotForBrokers) }
    }
}

/// Whether a login for these brokers may be used for the brokers of this spec. Brokers are compared as text: one that is written in another way is
/// another one.
fn is_for(servers: &[String], kafka: &KafkaSource) -> bool {
    let brokers = &kafka.bootstrap_servers;
    kafka.tls.is_some() && !brokers.is_empty() && brokers.iter().all(|server| servers.contains(server))
}

/// Of an argument: a name, which may have equals signs, a file, and the brokers that it is for.
///
/// # Errors
/// If a part is missing; without words, which the caller has.
pub fn bound_file(text: &str) -> Option<(String, BoundFile)> {
    let (name, rest) = text.rsplit_once('=')?;
    let (file, servers) = rest.rsplit_once('@')?;
    let servers: Vec<String> = servers.split('+').map(str::to_owned).collect();
    let is_whole = !name.is_empty() && !file.is_empty() && servers.iter().all(|one| !one.is_empty());
    is_whole.then(|| (name.to_owned(), BoundFile { file: file.to_owned(), servers }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kafka(tls: &serde_json::Value, servers: &[&str]) -> KafkaSource {
        serde_json::from_value(json!({"bootstrapServers": servers, "topics": ["spans"], "tls": tls})).unwrap()
    }

    fn own(name: &str, servers: &[&str]) -> OwnLogins {
        let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
        let bound = BoundFile { file: "/token".to_owned(), servers: servers.clone() };
        let files: BTreeMap<_, _> = [(name.to_owned(), bound)].into();
        OwnLogins { tokens: files.clone(), assertions: files, aws_brokers: servers }
    }

    #[test]
    fn a_login_of_the_operator_goes_to_its_own_brokers_only_and_over_tls_only() {
        let (none, tls) = (json!(null), json!({}));
        for (tls, servers, allowed, expected) in [
            (&tls, &["a:9093"][..], &["a:9093", "b:9093"][..], true),
            (&tls, &["b:9093", "a:9093"][..], &["a:9093", "b:9093"][..], true),
            (&none, &["a:9093"][..], &["a:9093"][..], false),
            (&tls, &["theirs:9093"][..], &["a:9093"][..], false),
            (&tls, &["a:9093", "theirs:9093"][..], &["a:9093"][..], false),
            (&tls, &["a:9093,theirs:9093"][..], &["a:9093"][..], false),
            (&tls, &["a:9094"][..], &["a:9093"][..], false),
            (&tls, &["a:9093"][..], &[][..], false),
            (&tls, &[][..], &["a:9093"][..], false),
        ] {
            let (kafka, own) = (kafka(tls, servers), own("kafka", allowed));
            let refused = NotOwn::TokenNotForBrokers { audience: "kafka".into() };
            assert_eq!(own.token("kafka", &kafka), if expected { Ok("/token") } else { Err(refused) });
            let refused = NotOwn::AssertionNotForBrokers { endpoint: "kafka".into() };
            assert_eq!(own.assertion("kafka", &kafka), if expected { Ok("/token") } else { Err(refused) });
            assert_eq!(own.aws(&kafka), if expected { Ok(()) } else { Err(NotOwn::AwsNotForBrokers) });
        }
    }

    #[test]
    fn who_has_no_login_of_its_own_is_told_what_an_admin_does() {
        let kafka = kafka(&json!({}), &["a:9093"]);
        let said = OwnLogins::default().token("kafka", &kafka).unwrap_err().to_string();
        assert!(said.contains("--kafka-token=kafka=FILE@BROKER+BROKER"), "{said}");
        let endpoint = "https://login/token";
        let said = OwnLogins::default().assertion(endpoint, &kafka).unwrap_err().to_string();
        assert!(said.contains("--kafka-assertion=https://login/token=FILE@BROKER+BROKER"), "{said}");
        let others = own("https://login/token2", &["a:9093"]);
        assert_eq!(
            others.assertion(endpoint, &kafka),
            Err(NotOwn::NoAssertion { endpoint: endpoint.into() }),
            "an author may name any endpoint"
        );
        let said = OwnLogins::default().aws(&kafka).unwrap_err().to_string();
        assert!(said.contains("partitions and offsets") && said.contains("to --kafka-aws"), "{said}");
        let refused = NotOwn::TokenNotForBrokers { audience: "kafka".into() }.to_string();
        assert!(refused.contains("set tls, or add all of source.kafka.bootstrapServers"), "{refused}");
    }
}
