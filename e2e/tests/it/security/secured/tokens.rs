//! Logins with tokens (SASL OAUTHBEARER): a broker with Kafka's own validator, which checks tokens with the issuer's key, and gateways that
//! renew their tokens while they read.

use std::fs;

use super::broker::Broker;
use super::issuer::{AUDIENCE, CLIENT, CLIENT_SECRET, Issuer};
use super::keys::Keys;
use crate::delivery::malformed::good;
use crate::delivery::process;
use crate::prelude::*;

/// Short, so that tokens are renewed and brokers ask for a new login several times in a test.
const LIFETIME_SECONDS: u64 = 9;

/// Number of one gateway's tokens that proves that it renews them. Each is used for two thirds of its lifetime.
const TOKENS_MIN: u64 = 4;

/// Time for these tokens, and for a gateway that starts on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A broker and its issuer.
pub struct Tokens {
    pub folder: PathBuf,
    pub keys: Keys,
    pub issuer: Issuer,
    pub broker: Broker,
}

impl Tokens {
    /// Starts them with tokens that live for this long.
    pub async fn start(test: &str, lifetime_seconds: u64) -> Result<Tokens> {
        let folder = files::temporary(&format!("e2e-{test}-{:x}", std::process::id()))?;
        let keys = Keys::make(&folder)?;
        let issuer = Issuer::start(lifetime_seconds).await?;
        let broker = Broker::start_with_tokens(&folder, &keys, &issuer).await?;
        fs::write(folder.join("client-secret"), CLIENT_SECRET).context("write the client's secret")?;
        Ok(Tokens { folder, keys, issuer, broker })
    }

    /// Ends the broker, and then removes the files, because the broker writes into them.
    pub fn remove(self) -> Result<()> {
        drop(self.broker);
        fs::remove_dir_all(&self.folder).context("remove the test's files")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A login in a config, with tokens from this endpoint and the secret in this file.
    fn asking(endpoint: &str, secret: &Path, parameters: &Value) -> Value {
        json!({"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {
            "tokenEndpoint": endpoint, "clientId": CLIENT, "clientSecretFile": secret, "parameters": parameters,
        }, "extensions": {"traceparent": "none"}}})
    }

    fn given(file: &Path) -> Value {
        json!({"mechanism": "OAuthBearer", "oauth": {"tokenFile": file}})
    }

    /// Ways to log in, and the words in the message of `check`: none if the way is correct.
    pub fn cases(&self) -> Result<Vec<(&'static str, Value, &'static [&'static str])>> {
        let (right, wrong) = (self.file("client-secret"), self.file("wrong-secret"));
        fs::write(&wrong, "battery staple").context("write another secret")?;
        let token = |name: &str, audience: &str| -> Result<PathBuf> {
            let file = self.file(name);
            fs::write(&file, self.issuer.token(audience)?).context("write a token")?;
            Ok(file)
        };
        let endpoint = self.issuer.token_endpoint();
        let at = |sasl: Value| json!({"bootstrapServers": [self.broker.oauth], "sasl": sasl});
        let (audience, none) = (json!({"audience": "another"}), json!({}));
        let nonsense = format!("{}/nonsense", self.issuer.url());
        Ok(vec![
            ("tokens", at(Self::asking(&endpoint, &right, &none)), &[]),
            ("a token's file", at(Self::given(&token("token", AUDIENCE)?)), &[]),
            (
                "tokens, wrong secret",
                at(Self::asking(&endpoint, &wrong, &none)),
                &["answered 401: invalid_client", "check the client's id and secret"],
            ),
            (
                "tokens, nonsense",
                at(Self::asking(&nonsense, &right, &none)),
                &["6 bytes without a usable token: it is no JSON object"],
            ),
            (
                "tokens, nobody there",
                at(Self::asking("http://127.0.0.1:1/token", &right, &none)),
                &["http://127.0.0.1:1/token does not answer"],
            ),
            (
                "tokens, another audience",
                at(Self::asking(&endpoint, &right, &audience)),
                &["the broker refuses the token", "source.kafka.sasl.oauth"],
            ),
            (
                "a token's file, another audience",
                at(Self::given(&token("other-token", "another")?)),
                &["the broker refuses the token"],
            ),
            (
                "a token's file, none",
                at(Self::given(Path::new("/nowhere/token"))),
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
    let sasl = Tokens::asking(&tokens.issuer.token_endpoint(), &tokens.file("client-secret"), &json!({}));
    let change = json!({"source": {"kafka": {"bootstrapServers": [tokens.broker.oauth], "sasl": sasl}}});
    process::run_on(turn, "tokens", Some(&tokens.broker.host), 1, async |stage| {
        stage.send(0, Some(&good("first"))).await?;
        let gateway = stage.start_with("gateway", &change).await?;
        gateway.wait_lag(0).await?;
        let before = tokens.issuer.issued();
        until("tokens that were renewed", PATIENCE, async || {
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
