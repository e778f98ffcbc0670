//! A broker of the test's own, with listeners for TLS, a client certificate, or user and password.

use std::fs::File;
use std::process::Command;

use e2e_stack::kafka::jars;
use rustix::process::{Pid, Signal, kill_process};

use super::issuer::{AUDIENCE, Issuer};
use super::keys::{Keys, SERVER_NAME};
use crate::prelude::*;

pub const USER: &str = "gateway";
pub const PASSWORD: &str = "correct horse";

/// 22 characters of base64, as the format requires.
const CLUSTER_ID: &str = "c2x1aWNlLXNlY3VyZS0wMQ";

/// What an ACL is about.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Topic,
    Group,
}

/// A broker. Killed when dropped.
pub struct Broker {
    child: Child,
    /// Without TLS, for the test itself.
    pub host: String,
    pub tls: String,
    /// TLS, with a client certificate.
    pub mutual: String,
    /// TLS, with user and password.
    pub sasl_tls: String,
    /// User and password without TLS.
    pub sasl: String,
    /// Tokens without TLS; the broker has this listener only if there is an issuer.
    pub oauth: String,
    _ports: [Port; 7],
}

impl Broker {
    /// Starts a broker with its data in `folder` and waits until it listens. `fronted` is one more listener, with TLS, a client certificate,
    /// user and password: the address at which it listens, and the one that the broker advertises. With an issuer, there is a listener for
    /// its tokens.
    pub async fn start(
        folder: &Path,
        keys: &Keys,
        fronted: Option<[&str; 2]>,
        issuer: Option<&Issuer>,
    ) -> Result<Broker> {
        let ports = Port::hold_all()?;
        let [host, controller, tls, mutual, sasl_tls, sasl, oauth] = ports.each_ref().map(Port::address);
        let named = |address: &str| address.replace("127.0.0.1", SERVER_NAME);
        let own =
            [("HOST", &host), ("TLS", &tls), ("MUTUAL", &mutual), ("SASLTLS", &sasl_tls), ("SASL", &sasl)];
        let mut listeners: Vec<Listener> =
            own.map(|(name, listen)| (name, listen.clone(), named(listen))).into();
        listeners.extend(fronted.map(|[listen, front]| ("FRONTED", listen.to_owned(), front.to_owned())));
        listeners.extend(issuer.map(|_| ("OAUTH", oauth.clone(), named(&oauth))));
        let mut text = properties(folder, keys, &listeners, &controller);
        text.push_str(&issuer.map(of_issuer).unwrap_or_default());
        let file = folder.join("server.properties");
        fs::write(&file, text).context("write the broker's properties")?;
        format(&file)?;
        let log = File::create(folder.join("broker.log")).context("create the broker's log")?;
        let mut java = java()?;
        if let Some(issuer) = issuer {
            java.arg(format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={}", issuer.keys()));
        }
        java.args(["-Xmx256m", "kafka.Kafka"]).arg(&file).stdin(Stdio::null()).stdout(log);
        let child = java.stderr(Stdio::null()).spawn().context("start the broker")?;
        let mut broker = Broker {
            child,
            tls: named(&tls),
            mutual: named(&mutual),
            sasl_tls: named(&sasl_tls),
            sasl: named(&sasl),
            oauth: named(&oauth),
            host,
            _ports: ports,
        };
        until("the broker listens", FLOW, async || {
            if let Some(ended) = broker.child.try_wait().context("look for the broker")? {
                let log = folder.join("broker.log");
                return Ok(Seen::Failed(anyhow!("the broker ended with {ended}; see {}", log.display())));
            }
            let found = TcpStream::connect(&broker.host).await;
            Ok(found.map_or_else(|error| Seen::NotYet(error.to_string()), |_| Seen::Done(())))
        })
        .await?;
        Ok(broker)
    }

    /// Stops its process, so that it answers nothing and no connection ends; or continues it.
    pub fn rest(&self, rests: bool) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, if rests { Signal::STOP } else { Signal::CONT }).context("signal the broker")
    }

    /// Gives the user another password for SCRAM-SHA-512. Existing connections stay; new ones need the new password.
    pub fn change_password(&self, password: &str) -> Result<()> {
        let mut change = java()?;
        change.args(["-Xmx128m", "kafka.admin.ConfigCommand", "--bootstrap-server", &self.host, "--alter"]);
        change.args(["--entity-type", "users", "--entity-name", USER, "--add-config"]);
        change.arg(format!("SCRAM-SHA-512=[password={password}]"));
        output(&mut change).map(drop).context("change the user's password")
    }

    /// Adds an ACL: the user may do this with the topic or the group. One without ACLs is open to all users; with ACLs, only to the users
    /// that they name.
    pub fn allow(&self, user: &str, operation: &str, kind: Kind, name: &str) -> Result<()> {
        let mut allow = java()?;
        allow.args(["-Xmx128m", "org.apache.kafka.tools.AclCommand", "--bootstrap-server", &self.host]);
        allow.args(["--add", "--allow-principal", &format!("User:{user}"), "--operation", operation]);
        let option = match kind {
            Kind::Topic => "--topic",
            Kind::Group => "--group",
        };
        allow.args([option, name]);
        output(&mut allow).map(drop).with_context(|| format!("let {user} do {operation} with {name}"))
    }
}

/// Name, address to listen on, and advertised address.
type Listener = (&'static str, String, String);

impl Drop for Broker {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

fn java() -> Result<Command> {
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(jars(&Paths::from_environment()?));
    Ok(java)
}

fn format(properties: &Path) -> Result<()> {
    let mut format = java()?;
    format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(properties);
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        format.arg("--add-scram").arg(format!("{mechanism}=[name={USER},password={PASSWORD}]"));
    }
    output(&mut format).map(drop).context("format the broker's data folder")
}

/// A listener for tokens. Kafka's own validator checks them with the issuer's key. The broker itself never logs in with a token.
fn of_issuer(issuer: &Issuer) -> String {
    let settings = [
        (
            "sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;".to_owned(),
        ),
        (
            "sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler".to_owned(),
        ),
        ("sasl.oauthbearer.jwks.endpoint.url", issuer.keys()),
        ("sasl.oauthbearer.expected.audience", AUDIENCE.to_owned()),
        ("sasl.oauthbearer.expected.issuer", issuer.url()),
    ];
    let mechanisms = "listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER\n".to_owned();
    settings.iter().fold(mechanisms, |text, (name, value)| {
        format!("{text}listener.name.oauth.oauthbearer.{name}={value}\n")
    })
}

fn properties(folder: &Path, keys: &Keys, listeners: &[Listener], controller: &str) -> String {
    let at = |of: fn(&Listener) -> &String| {
        let each = listeners.iter().map(|one| format!("{}://{}", one.0, of(one)));
        each.collect::<Vec<_>>().join(",")
    };
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let plain = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
    );
    let mut text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
         listeners={},CONTROLLER://{controller}\nadvertised.listeners={}\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,TLS:SSL,MUTUAL:SSL,SASLTLS:SASL_SSL,SASL:SASL_PLAINTEXT,FRONTED:SASL_SSL,OAUTH:SASL_PLAINTEXT\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=HOST\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=1\n\
         group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\nlog.cleaner.dedupe.buffer.size=4194304\n\
         ssl.keystore.type=PEM\nssl.keystore.location={}\nssl.truststore.type=PEM\nssl.truststore.location={}\n\
         listener.name.mutual.ssl.client.auth=required\nlistener.name.fronted.ssl.client.auth=required\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n",
        at(|listener| &listener.1),
        at(|listener| &listener.2),
        folder.join("data").display(),
        keys.key_store().display(),
        keys.certificate("ca").display(),
    );
    let mechanisms = [("plain", plain.as_str()), ("scram-sha-256", scram), ("scram-sha-512", scram)];
    for (mechanism, module) in mechanisms {
        for listener in ["sasltls", "sasl", "fronted"] {
            text.push_str("listener.name.");
            text.push_str(&[listener, mechanism, "sasl.jaas.config"].join("."));
            text.push_str(&["=", module, "\n"].concat());
        }
    }
    text
}
