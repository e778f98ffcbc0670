//! The operator's own connection to Kafka. A pipeline with correct TLS, client certificate, or user and password gets its partitions. A
//! pipeline with wrong ones reports what is wrong, and continues once its Secret is corrected.

use e2e_fixtures::local_operator::ensure_definition;
use e2e_stack::target::Resolved;

use super::broker::{Broker, PASSWORD, USER};
use super::issuer::{CLIENT, CLIENT_SECRET};
use super::tokens::Tokens;
use crate::environment::without_operator;
use crate::own_operator::{self, at_rest, settings};
use crate::prelude::*;

/// Partitions of the topic on the secured broker.
const PARTITIONS: u32 = 3;

/// Lifetime of tokens: short, so that the operator renews them during the test.
const TOKEN_SECONDS: u64 = 9;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn the_operator_reads_partitions_over_secured_connections() -> Result<()> {
    without_operator(Uses::OwnOperator, run).await
}

async fn run(cluster: &Cluster, target: &Resolved) -> Result<()> {
    ensure_definition(cluster).await?;
    let tokens = Tokens::start("operator-secured", TOKEN_SECONDS).await?;
    // The broker and its topic are removed with the test.
    Topic::create(&tokens.broker.host, "spans", i32::try_from(PARTITIONS)?).await?;
    let name = format!("e2e-operator-secured-{:x}", std::process::id());
    let namespace = Namespace::create(cluster, &name).await?;
    let stage = Stage { namespace: namespace.clone(), tokens };
    let ran = stage.run(target).await;
    let removed = namespace.delete().await;
    ran.and(removed)?;
    stage.tokens.remove()
}

struct Stage {
    namespace: Namespace,
    tokens: Tokens,
}

impl Stage {
    async fn run(&self, target: &Resolved) -> Result<()> {
        let keys = &self.tokens.keys;
        keys.apply_authority("ca", &self.namespace, "ca").await?;
        keys.apply_authority("other-ca", &self.namespace, "other-ca").await?;
        keys.apply_client("client", &self.namespace, "client").await?;
        self.user(PASSWORD).await?;
        let client = [("client-id", CLIENT), ("client-secret", CLIENT_SECRET)];
        self.namespace.apply_secret("oauth-client", &client).await?;
        let folder = &self.tokens.folder;
        let operator = own_operator::start(target, &self.namespace, "operator", folder).await?;
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
        let keys = &self.tokens.keys;
        let [ca, certificate, key] = ["ca.crt", "client.crt", "client.key"].map(|file| keys.read(file));
        let (ca, certificate, key) = (ca?, certificate?, key?);
        let authorities = [("ca.crt", ca.as_str()), ("ca.p12", "not read"), ("ca.password", "not read")];
        self.namespace.apply_secret("traces-cluster-ca-cert", &authorities).await?;
        // Both samples name the KafkaUser `sluice`; one Secret has the keys of both kinds.
        let jaas = format!("ScramLoginModule required username=\"{USER}\" password=\"{PASSWORD}\";");
        let of_user = [
            ("ca.crt", ca.as_str()),
            ("user.crt", &certificate),
            ("user.key", &key),
            ("user.p12", "not read"),
            ("user.password", "not read"),
            ("password", PASSWORD),
            ("sasl.jaas.config", &jaas),
        ];
        self.namespace.apply_secret("sluice", &of_user).await?;
        let of_certificate = [("ca.crt", ca.as_str()), ("tls.crt", &certificate), ("tls.key", &key)];
        self.namespace.apply_secret("sluice-client-tls", &of_certificate).await?;
        let of_vault = [
            ("kafka-ca.pem", ca.as_str()),
            ("api-key", USER),
            ("api-secret", PASSWORD),
            ("clickhouse-password", "not read"),
        ];
        self.namespace.apply_secret("sluice-vault", &of_vault).await
    }

    /// If the Secret lacks a key, the message lists the keys that it has, without any value.
    async fn lacking_key(&self, name: &str) -> Result<()> {
        let change = json!({"sasl": {"mechanism": "ScramSha512", "username": USER,
            "secretRef": {"name": "sluice-vault", "passwordKey": "password"}}});
        let security = merged(&json!({"tls": {"caSecretRef": {"name": "traces-cluster-ca-cert"}}}), &change);
        self.apply(name, &self.tokens.broker.sasl_tls, &security).await?;
        let refused = ("False", reason::SECRET_INCOMPLETE);
        let message = self.pipeline(name, "").wait_condition(kind::SOURCE_REACHABLE, refused, READY).await?;
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
        self.apply("no-token", &self.tokens.broker.oauth, &self.tokens("stranger")).await?;
        let refused = ("False", reason::AUTH_FAILED);
        let pipeline = self.pipeline("no-token", "");
        let message = pipeline.wait_condition(kind::SOURCE_REACHABLE, refused, READY).await?;
        ensure!(message.contains("answered 401") && message.contains("invalid_client"), "{message}");
        ensure!(!message.contains("battery"), "the message has the secret: {message}");
        Ok(())
    }

    /// The status reports what is wrong; a correct Secret is enough to fix it.
    async fn wrong_ones(&self) -> Result<()> {
        let other = json!({"tls": {"caSecretRef": {"name": "other-ca"}}});
        self.apply("other-authority", &self.tokens.broker.tls, &other).await?;
        self.wait_refused("other-authority", reason::TLS_FAILED).await?;
        self.user("battery staple").await?;
        let login = json!({"sasl": {"mechanism": "ScramSha512", "secretRef": {"name": "user"}}});
        let login = merged(&login, &json!({"tls": {"caSecretRef": {"name": "ca"}}}));
        self.apply("wrong-password", &self.tokens.broker.sasl_tls, &login).await?;
        self.wait_refused("wrong-password", reason::AUTH_FAILED).await?;
        self.user(PASSWORD).await?;
        self.wait_partitions("wrong-password").await?;
        self.tokens.keys.apply_authority("ca", &self.namespace, "other-ca").await?;
        self.wait_partitions("other-authority").await
    }

    async fn wait_partitions(&self, name: &str) -> Result<()> {
        let pipeline = self.pipeline(name, "");
        let reachable = pipeline.wait_condition(kind::SOURCE_REACHABLE, ("True", reason::OK), READY);
        reachable.await.with_context(|| format!("the way {name}"))?;
        let all = |status: &TracePipelineStatus| status.partitions == Some(PARTITIONS);
        pipeline.wait("with its partitions", READY, all).await.map(drop)
    }

    async fn wait_refused(&self, name: &str, reason: &str) -> Result<()> {
        let refused = ("False", reason);
        self.pipeline(name, "").wait_condition(kind::SOURCE_REACHABLE, refused, READY).await.map(drop)
    }

    async fn apply(&self, name: &str, address: &str, security: &Value) -> Result<()> {
        let mut spec = at_rest();
        // Two pipelines at one address must not share a group. Without one in the spec, each uses the group of its name.
        spec["source"] = json!({"kafka": merged(&json!({"consumerGroup": null}), security)});
        self.pipeline(name, address).apply(&spec).await
    }

    fn pipeline(&self, name: &str, address: &str) -> Pipeline {
        Pipeline::new(&self.namespace, settings(name, address, "spans", "http://127.0.0.1:8123"))
    }

    async fn user(&self, password: &str) -> Result<()> {
        self.namespace.apply_credentials("user", USER, password).await
    }
}
