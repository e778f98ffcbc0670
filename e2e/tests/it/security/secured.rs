//! TLS, client certificates, user and password: to a broker of the test's own, and to `ClickHouse` behind a front with TLS.
//!
//! Every correct way to connect works, and every wrong one causes a message that names the field to check.

mod broker;
mod front;
mod issuer;
mod keys;
mod letters;
mod operator;
pub mod pods;
mod tokens;
mod unreadable;

use std::process::Command;

use e2e_fixtures::gateway::{Orders, write_config};

use crate::delivery::process;
use crate::environment::{self, Servers};
use crate::prelude::*;
use broker::{Broker, PASSWORD, USER};
use front::Front;
use keys::Keys;
use tokens::Tokens;

/// Lifetime of a token that outlives a test.
const TOKEN_SECONDS: u64 = 3_600;

struct Secured {
    folder: PathBuf,
    keys: Keys,
    servers: Servers,
    broker: Broker,
    front: Front,
    mutual_front: Front,
}

impl Secured {
    /// Ends the broker, and then removes the files, because the broker writes into them.
    fn remove(self) -> Result<()> {
        drop(self.broker);
        fs::remove_dir_all(&self.folder).context("remove the test's files")
    }

    async fn start(test: &str) -> Result<Secured> {
        let folder = files::temporary(&format!("e2e-{test}-{:x}", std::process::id()))?;
        let keys = Keys::make(&folder)?;
        let servers = environment::servers().await?;
        for (file, text) in [("user", USER), ("password", PASSWORD), ("wrong", "battery staple")] {
            fs::write(folder.join(file), text).context("write user and password")?;
        }
        Ok(Secured {
            front: Front::start("127.0.0.1", &servers.clickhouse.url, Some((&keys, false))).await?,
            mutual_front: Front::start("127.0.0.1", &servers.clickhouse.url, Some((&keys, true))).await?,
            broker: Broker::start(&folder, &keys, None, None).await?,
            folder,
            keys,
            servers,
        })
    }

    /// A change of a gateway's config: it reads over TLS, with user and password.
    fn reads_with_password(&self) -> Value {
        json!({"source": {"kafka": {
            "bootstrapServers": [self.broker.sasl_tls],
            "tls": self.tls(),
            "sasl": self.sasl("ScramSha512", "password"),
        }}})
    }

    /// Settings with only the authority.
    fn tls(&self) -> Value {
        json!({"caFile": self.keys.certificate("ca")})
    }

    /// Settings with the authority and a certificate of this name.
    fn tls_as(&self, name: &str) -> Value {
        merged(
            &self.tls(),
            &json!({"certificateFile": self.keys.certificate(name), "keyFile": self.keys.key(name)}),
        )
    }

    fn sasl(&self, mechanism: &str, password: &str) -> Value {
        json!({
            "mechanism": mechanism,
            "usernameFile": self.folder.join("user"),
            "passwordFile": self.folder.join(password),
        })
    }
}

/// A way to connect: its name, its settings, and the words in the message of `check`: none if the way is correct.
type Case = (&'static str, Value, &'static [&'static str]);

fn kafka_cases(secured: &Secured) -> Vec<Case> {
    const REFUSED: &[&str] = &["refuses user and password", "source.kafka.sasl"];
    let Broker { tls, mutual, sasl_tls, sasl, host, .. } = &secured.broker;
    let at = |address: &str, change: &Value| merged(&json!({"bootstrapServers": [address]}), change);
    let ca = json!({"tls": secured.tls()});
    let as_one = |name: &str| json!({"tls": secured.tls_as(name)});
    let with = |mechanism: &str, password: &str| json!({"sasl": secured.sasl(mechanism, password)});
    let login = |mechanism: &str, password: &str| at(sasl_tls, &merged(&ca, &with(mechanism, password)));
    let other = json!({"tls": {"caFile": secured.keys.certificate("other-ca")}});
    let nowhere = json!({"tls": {"caFile": "/nowhere/ca.crt"}});
    let misspelt = json!({"properties": {"socket.receive.bufer.bytes": "1"}});
    let by_address = tls.replace("localhost", "127.0.0.1");
    vec![
        ("tls", at(tls, &ca), &[]),
        ("mutual", at(mutual, &as_one("client")), &[]),
        ("plain", login("Plain", "password"), &[]),
        ("scram 256", login("ScramSha256", "password"), &[]),
        ("scram 512", login("ScramSha512", "password"), &[]),
        ("without tls", at(sasl, &with("ScramSha512", "password")), &[]),
        (
            "another authority",
            at(tls, &other),
            &["certificate verify failed", "is signed by an authority in"],
        ),
        (
            "another name",
            at(&by_address, &ca),
            &["verify failed", "made out to the host in source.kafka.bootstrapServers"],
        ),
        ("no certificate", at(mutual, &ca), &["set source.kafka.tls.certificateFile"]),
        ("a stranger", at(mutual, &as_one("stranger")), &["the broker trusts the client certificate in"]),
        ("wrong password", login("ScramSha512", "wrong"), REFUSED),
        ("wrong password, plain", login("Plain", "wrong"), REFUSED),
        ("no tls to tls", at(tls, &json!({})), &["source.kafka.bootstrapServers"]),
        ("tls to no tls", at(host, &ca), &["is one for TLS"]),
        ("no such setting", at(host, &misspelt), &["socket.receive.bufer.bytes"]),
        ("no such file", at(tls, &nowhere), &["/nowhere/ca.crt"]),
    ]
}

fn clickhouse_cases(secured: &Secured) -> Vec<Case> {
    let at = |url: &str, tls: Value| json!({"endpoints": [url], "tls": tls});
    let (url, mutual) = (&secured.front.url(), &secured.mutual_front.url());
    let wrong = ["user", "wrong"].map(|file| secured.folder.join(file));
    let wrong = json!({"credentials": {"usernameFile": wrong[0], "passwordFile": wrong[1]}});
    let other = json!({"caFile": secured.keys.certificate("other-ca")});
    let by_address = format!("https://127.0.0.1:{}", secured.front.port);
    let plain_port = secured.servers.clickhouse.url.replace("http://127.0.0.1", "https://localhost");
    let (ca, as_one) = (|| secured.tls(), |name: &str| secured.tls_as(name));
    vec![
        ("https", at(url, ca()), &[]),
        ("https, mutual", at(mutual, as_one("client")), &[]),
        ("https, another authority", at(url, other), &["no TLS connection", "check tls.caFile"]),
        (
            "https, another name",
            at(&by_address, ca()),
            &["the server's certificate is not valid for the endpoint's host"],
        ),
        ("https, no certificate", at(mutual, ca()), &["set tls.certificateFile and tls.keyFile"]),
        (
            "https, a stranger",
            at(mutual, as_one("stranger")),
            &["the server does not trust the client certificate"],
        ),
        ("https to http", at(&plain_port, ca()), &["does not speak TLS on this port"]),
        ("https, wrong password", merged(&at(url, ca()), &wrong), &["refused (code 516)"]),
    ]
}

/// The problems that `sluice-gateway check` reports for a config, one per line.
async fn problems(program: &Path, config: &Path) -> Result<Vec<String>> {
    let mut check = Command::new(program);
    check.args(["check", "--json", "--config"]).arg(config);
    let ended = blocking(move || check.output().context("run the check")).await?;
    let found: Value = serde_json::from_slice(&ended.stdout)
        .with_context(|| format!("understand the check: {}", String::from_utf8_lossy(&ended.stderr)))?;
    let problems: Vec<String> = serde_json::from_value(found["problems"].clone())?;
    ensure!(ended.status.success() == problems.is_empty(), "{} with {problems:?}", ended.status);
    Ok(problems)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn a_connection_that_is_refused_says_what_to_look_at() -> Result<()> {
    let program = process::program();
    let _turn = Uses::Servers.turn().await?;
    let secured = Secured::start("refused").await?;
    let topic = Topic::create(&secured.broker.host, "spans", 1).await?;
    let orders = Orders {
        broker: &secured.broker.host,
        topic: topic.name(),
        group: "refused",
        sink: &secured.servers.clickhouse.url,
        database: "e2e_refused",
    };
    let sink =
        json!({"sink": {"clickhouse": {"credentials": secured.servers.credentials(&secured.folder)?}}});
    let base = merged(&orders.config(), &sink);
    // A broker of their own: its listener with tokens needs an issuer from the start.
    let tokens = Tokens::start("refused-tokens", TOKEN_SECONDS).await?;
    Topic::create(&tokens.broker.host, "spans", 1).await?;
    let of_kafka = kafka_cases(&secured).into_iter().chain(tokens.cases()?);
    let of_kafka = of_kafka.map(|(name, change, said)| (name, json!({"source": {"kafka": change}}), said));
    let of_clickhouse = clickhouse_cases(&secured).into_iter();
    let of_clickhouse =
        of_clickhouse.map(|(name, change, said)| (name, json!({"sink": {"clickhouse": change}}), said));
    let file = secured.folder.join("check.yaml");
    let mut wrong = Vec::new();
    for (name, change, said) in of_kafka.chain(of_clickhouse) {
        write_config(&merged(&base, &change), &file)?;
        let problems = problems(&program, &file).await?;
        let told = problems.join("\n");
        let is_right =
            problems.len() == usize::from(!said.is_empty()) && said.iter().all(|part| told.contains(part));
        if !is_right {
            wrong.push(format!("{name}: expected {said:?}, found {problems:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    tokens.remove()?;
    secured.remove()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group security"]
async fn rows_arrive_over_secured_connections() -> Result<()> {
    let turn = Uses::Servers.turn().await?;
    let secured = Secured::start("secured").await?;
    let change = json!({
        "source": {"kafka": {
            "bootstrapServers": [secured.broker.sasl_tls],
            "tls": secured.tls(),
            "sasl": secured.sasl("ScramSha512", "password"),
            "properties": {"socket.receive.buffer.bytes": "262144"},
        }},
        "sink": {"clickhouse": {"endpoints": [secured.mutual_front.url()], "tls": secured.tls_as("client")}},
    });
    process::run_on(turn, "secured", Some(&secured.broker.host), 2, async |stage| {
        for partition in [0, 1] {
            stage.send(partition, Some(&good("secured"))).await?;
        }
        let gateway = stage.start("gateway", &change).await?;
        gateway.wait_lag(0).await?;
        let count = gateway.select("toInt64(count())", "WHERE SpanName = 'secured'").await?;
        ensure!(count == [[json!("2")]] || count == [[json!(2)]], "{count:?}");
        gateway.stop().await
    })
    .await?;
    secured.remove()
}
