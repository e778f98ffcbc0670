//! Logins with tokens (SASL OAUTHBEARER): a broker with Kafka's own validator, which checks tokens with the issuer's key, and gateways that
//! renew their tokens while they read.

use super::Case;
use super::broker::Broker;
use super::issuer::{AUDIENCE, CLIENT, CLIENT_SECRET, Issuer};
use super::keys::Keys;
use crate::delivery::process;
use crate::prelude::*;

/// Short, so that tokens are renewed and brokers ask for a new login several times in a test.
const LIFETIME_SECONDS: u64 = 9;

/// Number of one gateway's tokens that proves that it renews them. Each is used for two thirds of its lifetime.
const TOKENS_MIN: u64 = 4;

pub struct Tokens {
    pub folder: PathBuf,
    pub keys: Keys,
    pub issuer: Issuer,
    pub broker: Broker,
}

impl Tokens {
    pub async fn start(test: &str, lifetime_seconds: u64) -> Result<Tokens> {
        let folder = files::temporary(&format!("e2e-{test}-{:x}", std::process::id()))?;
        let keys = Keys::make(&folder)?;
        let issuer = Issuer::start(lifetime_seconds).await?;
        let broker = Broker::start(&folder, &keys, None, Some(&issuer)).await?;
        fs::write(folder.join("client-secret"), CLIENT_SECRET).context("write the client's secret")?;
        Ok(Tokens { folder, keys, issuer, broker })
    }

    /// Ends the broker, and then removes the files, because the broker writes into them.
    pub fn remove(self) -> Result<()> {
        drop(self.broker);
        fs::remove_dir_all(&self.folder).context("remove the test's files")
    }

    /// A login in a config, with tokens from this endpoint and the secret in this file.
    fn asking(endpoint: &str, secret: &Path, parameters: &Value) -> Value {
        json!({"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {
            "tokenEndpoint": endpoint, "clientId": CLIENT, "clientSecretFile": secret, "parameters": parameters,
        }, "extensions": {"traceparent": "none"}}})
    }

    pub fn cases(&self) -> Result<Vec<Case>> {
        let (right, wrong) = (self.folder.join("client-secret"), self.folder.join("wrong-secret"));
        fs::write(&wrong, "battery staple").context("write another secret")?;
        let token = |name: &str, audience: &str| -> Result<PathBuf> {
            let file = self.folder.join(name);
            fs::write(&file, self.issuer.token(audience)?).context("write a token")?;
            Ok(file)
        };
        let endpoint = self.issuer.token_endpoint();
        let at = |sasl: Value| json!({"bootstrapServers": [self.broker.oauth], "sasl": sasl});
        let asking = |endpoint: &str, secret: &Path| at(Self::asking(endpoint, secret, &json!({})));
        let given = |file: &Path| at(json!({"mechanism": "OAuthBearer", "oauth": {"tokenFile": file}}));
        let (audience, nowhere) = (json!({"audience": "another"}), "http://127.0.0.1:1/token");
        let nonsense = format!("{}/nonsense", self.issuer.url());
        Ok(vec![
            ("tokens", asking(&endpoint, &right), &[]),
            ("a token's file", given(&token("token", AUDIENCE)?), &[]),
            (
                "tokens, wrong secret",
                asking(&endpoint, &wrong),
                &["answered 401: invalid_client", "check the client's id and secret"],
            ),
            (
                "tokens, nonsense",
                asking(&nonsense, &right),
                &["6 bytes without a usable token: it is no JSON object"],
            ),
            ("tokens, nobody there", asking(nowhere, &right), &["http://127.0.0.1:1/token does not answer"]),
            (
                "tokens, another audience",
                at(Self::asking(&endpoint, &right, &audience)),
                &["the broker refuses the token", "source.kafka.sasl.oauth"],
            ),
            (
                "a token's file, another audience",
                given(&token("other-token", "another")?),
                &["the broker refuses the token"],
            ),
            (
                "a token's file, none",
                given(Path::new("/nowhere/token")),
                &["cannot read the token from /nowhere/token"],
            ),
        ])
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn rows_arrive_while_tokens_expire_and_are_renewed() -> Result<()> {
    let turn = Uses::Servers.turn().await?;
    let tokens = Tokens::start("tokens", LIFETIME_SECONDS).await?;
    let sasl =
        Tokens::asking(&tokens.issuer.token_endpoint(), &tokens.folder.join("client-secret"), &json!({}));
    let change = json!({"source": {"kafka": {"bootstrapServers": [tokens.broker.oauth], "sasl": sasl}}});
    process::run_on(turn, "tokens", Some(&tokens.broker.host), 1, async |stage| {
        stage.send(0, Some(&good("first"))).await?;
        let gateway = stage.start("gateway", &change).await?;
        gateway.wait_lag(0).await?;
        let before = tokens.issuer.issued();
        until("tokens that were renewed", FLOW, async || {
            let renewed = tokens.issuer.issued() - before;
            Ok(Seen::when(renewed >= TOKENS_MIN, || format!("{renewed} tokens")))
        })
        .await?;
        // All earlier tokens, and the connections with them, have expired.
        stage.send(0, Some(&good("last"))).await?;
        gateway.wait_lag(0).await?;
        let count = gateway.select("toInt64(count())", "WHERE SpanName IN ('first', 'last')").await?;
        ensure!(count == [[json!("2")]] || count == [[json!(2)]], "{count:?}");
        let failed = gateway.metric("sluice_gateway_kafka_tokens_total{result=\"failed\"}").await?;
        ensure!(failed == Some(0.0), "{failed:?} tries without a token");
        gateway.stop().await
    })
    .await?;
    tokens.remove()
}
