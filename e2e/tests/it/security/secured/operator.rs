//! The operator's own connection to Kafka. A pipeline with correct TLS, client certificate, or user and password gets its partitions. A
//! pipeline with wrong ones reports what is wrong, and continues once its Secret is corrected.

use super::broker::{Broker, PASSWORD, USER};
use super::issuer::{CLIENT, CLIENT_SECRET};
use super::keys::{AUTHORITY, CERTIFICATE, NOT_READ, STRIMZI_USER};
use super::tokens::Tokens;
use crate::own_operator::{self, at_rest, settings};
use crate::prelude::*;

/// Partitions of the topic on the secured broker.
const PARTITIONS: u32 = 3;

/// Lifetime of tokens: short, so that the operator renews them during the test.
const TOKEN_SECONDS: u64 = 9;

#[test]
#[ignore = "group secrets"]
fn the_operator_reads_partitions_over_secured_connections() -> Result<()> {
    without_operator(Uses::OwnOperator, run)
}

async fn run(cluster: &Cluster, target: &Resolved) -> Result<()> {
    ensure_definition(cluster).await?;
    let tokens = Tokens::start("operator-secured", TOKEN_SECONDS).await?;
    // The broker and its topic are removed with the test.
    Topic::create(&tokens.broker.host, "spans", i32::try_from(PARTITIONS)?).await?;
    in_namespace(cluster, "operator-secured", async |namespace| {
        Stage { namespace, tokens: &tokens }.run(target).await
    })
    .await?;
    tokens.remove()
}

struct Stage<'a> {
    namespace: &'a Namespace,
    tokens: &'a Tokens,
}

impl Stage<'_> {
    async fn run(&self, target: &Resolved) -> Result<()> {
        let keys = &self.tokens.keys;
        keys.apply(self.namespace, "ca", &AUTHORITY, &[]).await?;
        keys.apply(self.namespace, "other-ca", &[("ca.crt", "other-ca.crt")], &[]).await?;
        keys.apply(self.namespace, "client", &CERTIFICATE, &[]).await?;
        self.user(PASSWORD).await?;
        let client = [("client-id", CLIENT), ("client-secret", CLIENT_SECRET)];
        self.namespace.apply_secret("oauth-client", &client).await?;
        let folder = &self.tokens.folder;
        let operator = own_operator::start(target, self.namespace, "operator", folder).await?;
        for (name, address, security) in self.ways() {
            self.apply(name, address, &security).await?;
        }
        for (name, ..) in self.ways() {
            self.wait_partitions(name).await?;
        }
        self.samples().await?;
        self.refused_client().await?;
        self.wrong_ones().await?;
        operator.program.stop().await
    }

    /// The samples for Secrets of other tools, with Secrets in the form of these tools: each connection of a sample works.
    async fn samples(&self) -> Result<()> {
        self.foreign_secrets().await?;
        let Broker { mutual, sasl_tls, .. } = &self.tokens.broker;
        let samples = [
            ("tracepipeline-strimzi-tls.yaml", mutual),
            ("tracepipeline-strimzi-scram.yaml", sasl_tls),
            ("tracepipeline-cert-manager.yaml", mutual),
            ("tracepipeline-external-secrets.yaml", sasl_tls),
        ];
        let mut names = Vec::new();
        for (file, address) in samples {
            let sample = files::yaml(&format!("config/samples/{file}"))?;
            let name = sample["metadata"]["name"].as_str().context("a sample without a name")?.to_owned();
            let kafka = &sample["spec"]["source"]["kafka"];
            let mut security = json!({"tls": kafka["tls"]});
            if !kafka["sasl"].is_null() {
                security["sasl"] = kafka["sasl"].clone();
            }
            if security["sasl"]["username"].is_string() {
                // The broker's user, in place of the KafkaUser's name.
                security["sasl"]["username"] = json!(USER);
            }
            self.apply(&name, address, &security).await?;
            names.push(name);
        }
        for name in &names {
            self.wait_partitions(name).await?;
        }
        self.lacking_key(&names[1]).await
    }

    /// Secrets with the names in the samples. They also have values that the operator does not read.
    async fn foreign_secrets(&self) -> Result<()> {
        let (keys, namespace) = (&self.tokens.keys, self.namespace);
        let not_read = [("ca.p12", "not read"), ("ca.password", "not read")];
        keys.apply(namespace, "traces-cluster-ca-cert", &AUTHORITY, &not_read).await?;
        // Both samples name the KafkaUser `sluice`; one Secret has the keys of both kinds.
        let jaas = format!("ScramLoginModule required username=\"{USER}\" password=\"{PASSWORD}\";");
        let of_user = [NOT_READ[0], NOT_READ[1], ("password", PASSWORD), ("sasl.jaas.config", jaas.as_str())];
        keys.apply(namespace, "sluice", &STRIMZI_USER, &of_user).await?;
        let of_certificate = [AUTHORITY[0], CERTIFICATE[0], CERTIFICATE[1]];
        keys.apply(namespace, "sluice-client-tls", &of_certificate, &[]).await?;
        let of_vault = [("api-key", USER), ("api-secret", PASSWORD), ("clickhouse-password", "not read")];
        keys.apply(namespace, "sluice-vault", &[("kafka-ca.pem", "ca.crt")], &of_vault).await
    }

    /// If the Secret lacks a key, the message lists the keys that it has, without any value.
    async fn lacking_key(&self, name: &str) -> Result<()> {
        let change = json!({"sasl": {"mechanism": "ScramSha512", "username": USER,
            "secretRef": {"name": "sluice-vault", "passwordKey": "password"}}});
        let security = merged(&json!({"tls": {"caSecretRef": {"name": "traces-cluster-ca-cert"}}}), &change);
        let address = &self.tokens.broker.sasl_tls;
        let message = self.refused(name, address, &security, reason::SECRET_INCOMPLETE).await?;
        ensure!(message.contains("has no password") && message.contains("api-secret"), "{message}");
        ensure!(!message.contains(PASSWORD), "the message has a value of the Secret: {message}");
        Ok(())
    }

    /// Every way to connect with success.
    fn ways(&self) -> Vec<(&'static str, &str, Value)> {
        let Broker { tls, mutual, sasl_tls, sasl, oauth, .. } = &self.tokens.broker;
        let ca = json!({"tls": {"caSecretRef": {"name": "ca"}}});
        let with = |change: Value| merged(&ca, &change);
        let login =
            |mechanism: &str| json!({"sasl": {"mechanism": mechanism, "secretRef": {"name": "user"}}});
        let certificate = json!({"tls": {"clientCertificateSecretRef": {"name": "client"}}});
        vec![
            ("tls", tls, ca.clone()),
            ("mutual", mutual, with(certificate)),
            ("plain", sasl_tls, with(login("Plain"))),
            ("scram-256", sasl_tls, with(login("ScramSha256"))),
            ("scram-512", sasl_tls, with(login("ScramSha512"))),
            ("without-tls", sasl, login("ScramSha512")),
            ("tokens", oauth, self.tokens("oauth-client")),
        ]
    }

    /// A login with tokens, for the client whose id and secret are in this Secret.
    fn tokens(&self, secret: &str) -> Value {
        json!({"sasl": {"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {
            "tokenEndpoint": self.tokens.issuer.token_endpoint(), "secretRef": {"name": secret},
        }}}})
    }

    /// If a token endpoint refuses, the message quotes its answer, without the secret.
    async fn refused_client(&self) -> Result<()> {
        let stranger = [("client-id", CLIENT), ("client-secret", "battery staple")];
        self.namespace.apply_secret("stranger", &stranger).await?;
        let (address, login) = (&self.tokens.broker.oauth, self.tokens("stranger"));
        let message = self.refused("no-token", address, &login, reason::AUTH_FAILED).await?;
        ensure!(message.contains("answered 401") && message.contains("invalid_client"), "{message}");
        ensure!(!message.contains("battery"), "the message has the secret: {message}");
        Ok(())
    }

    /// The status reports what is wrong; a correct Secret is enough to fix it.
    async fn wrong_ones(&self) -> Result<()> {
        let Broker { tls, sasl_tls, .. } = &self.tokens.broker;
        let other = json!({"tls": {"caSecretRef": {"name": "other-ca"}}});
        self.refused("other-authority", tls, &other, reason::TLS_FAILED).await?;
        self.user("battery staple").await?;
        let login = json!({"mechanism": "ScramSha512", "secretRef": {"name": "user"}});
        let login = json!({"tls": {"caSecretRef": {"name": "ca"}}, "sasl": login});
        self.refused("wrong-password", sasl_tls, &login, reason::AUTH_FAILED).await?;
        self.user(PASSWORD).await?;
        self.wait_partitions("wrong-password").await?;
        self.tokens.keys.apply(self.namespace, "other-ca", &AUTHORITY, &[]).await?;
        self.wait_partitions("other-authority").await
    }

    async fn wait_partitions(&self, name: &str) -> Result<()> {
        let pipeline = self.pipeline(name, "");
        let reachable = pipeline.wait_true(kind::SOURCE_REACHABLE, reason::OK, READY);
        reachable.await.with_context(|| format!("the way {name}"))?;
        let all = |status: &TracePipelineStatus| status.partitions == Some(PARTITIONS);
        pipeline.wait("with its partitions", READY, all).await.map(drop)
    }

    /// Applies a pipeline that cannot connect, for this reason; returns the message.
    async fn refused(&self, name: &str, address: &str, security: &Value, reason: &str) -> Result<String> {
        self.apply(name, address, security).await?;
        self.pipeline(name, "").wait_false(kind::SOURCE_REACHABLE, reason, READY).await
    }

    async fn apply(&self, name: &str, address: &str, security: &Value) -> Result<()> {
        let mut spec = at_rest();
        // Two pipelines at one address must not share a group. Without one in the spec, each uses the group of its name.
        spec["source"] = json!({"kafka": merged(&json!({"consumerGroup": null}), security)});
        self.pipeline(name, address).apply(&spec).await
    }

    fn pipeline(&self, name: &str, address: &str) -> Pipeline {
        Pipeline::new(self.namespace, settings(name, address, "spans", "http://127.0.0.1:8123"))
    }

    async fn user(&self, password: &str) -> Result<()> {
        self.namespace.apply_credentials("user", USER, password).await
    }
}
