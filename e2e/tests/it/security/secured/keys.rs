//! Certificates of a test: two independent authorities, a server, and a client of each authority.

use std::fs;
use std::process::Command;

use e2e_stack::kubernetes::NODE_ADDRESS;
use e2e_stack::process::output;

use crate::prelude::*;

/// The name in the server's certificate; the only other entry is the address at which pods reach this machine.
pub const SERVER_NAME: &str = "localhost";

/// Longer than any test, and too short for other uses.
const VALID_DAYS: &str = "2";

/// Files in a folder, all PEM: `<name>.crt` and `<name>.key`.
pub struct Keys {
    folder: PathBuf,
}

impl Keys {
    /// Makes all of them with openssl.
    pub fn make(folder: &Path) -> Result<Keys> {
        let keys = Keys { folder: folder.to_owned() };
        for authority in ["ca", "other-ca"] {
            keys.authority(authority)?;
        }
        let names = format!("subjectAltName=DNS:{SERVER_NAME},IP:{NODE_ADDRESS}\n");
        keys.signed("server", "ca", &names)?;
        keys.signed("client", "ca", "extendedKeyUsage=clientAuth\n")?;
        keys.signed("stranger", "other-ca", "extendedKeyUsage=clientAuth\n")?;
        let both = [keys.certificate("server"), keys.key("server")].map(fs::read_to_string);
        let [certificate, key] = both;
        fs::write(keys.key_store(), certificate? + &key?).context("write the server's key store")?;
        Ok(keys)
    }

    pub fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// The server's certificate and key in one file, as Kafka needs them.
    pub fn key_store(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// Makes or changes the Secret `secret` with the certificate of an authority.
    pub async fn apply_authority(&self, name: &str, namespace: &Namespace, secret: &str) -> Result<()> {
        let certificate = fs::read_to_string(self.certificate(name)).context("read an authority")?;
        namespace.apply_secret(secret, &[("ca.crt", &certificate)]).await
    }

    /// Makes or changes the Secret `secret` with the certificate and the key of a client.
    pub async fn apply_client(&self, name: &str, namespace: &Namespace, secret: &str) -> Result<()> {
        let certificate = fs::read_to_string(self.certificate(name)).context("read a certificate")?;
        let key = fs::read_to_string(self.key(name)).context("read a key")?;
        namespace.apply_secret(secret, &[("tls.crt", &certificate), ("tls.key", &key)]).await
    }

    /// Makes or changes the Secret `secret` with the keys of Strimzi's Secret for a `KafkaUser` with a certificate. Its `ca.crt` is the
    /// authority of clients.
    pub async fn apply_strimzi_user(&self, name: &str, namespace: &Namespace, secret: &str) -> Result<()> {
        let read =
            |file: PathBuf| fs::read_to_string(&file).with_context(|| format!("read {}", file.display()));
        let (authority, certificate, key) =
            (read(self.certificate("ca"))?, read(self.certificate(name))?, read(self.key(name))?);
        let content = [
            ("ca.crt", authority.as_str()),
            ("user.crt", &certificate),
            ("user.key", &key),
            ("user.p12", "not read"),
            ("user.password", "not read"),
        ];
        namespace.apply_secret(secret, &content).await
    }

    fn private_key(&self, name: &str) -> Result<PathBuf> {
        let key = self.key(name);
        let mut openssl = Command::new("openssl");
        openssl
            .args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"])
            .arg(&key);
        output(&mut openssl).map(drop).with_context(|| format!("make the key {name}"))?;
        Ok(key)
    }

    fn authority(&self, name: &str) -> Result<()> {
        let key = self.private_key(name)?;
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-new", "-days", VALID_DAYS, "-subj", &format!("/CN={name}"), "-key"]);
        openssl.arg(key).args(["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out"]);
        output(openssl.arg(self.certificate(name)))
            .map(drop)
            .with_context(|| format!("make the authority {name}"))
    }

    fn signed(&self, name: &str, authority: &str, extensions: &str) -> Result<()> {
        let key = self.private_key(name)?;
        let (request, extension_file) = (self.folder.join("request"), self.folder.join("extensions"));
        fs::write(&extension_file, extensions).context("write the extensions")?;
        let mut openssl = Command::new("openssl");
        openssl
            .args(["req", "-new", "-subj", &format!("/CN={name}"), "-key"])
            .arg(key)
            .arg("-out")
            .arg(&request);
        output(&mut openssl).with_context(|| format!("ask for the certificate {name}"))?;
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-req", "-days", VALID_DAYS, "-CAcreateserial", "-in"]).arg(request);
        openssl.arg("-CA").arg(self.certificate(authority)).arg("-CAkey").arg(self.key(authority));
        openssl.arg("-extfile").arg(extension_file).arg("-out").arg(self.certificate(name));
        output(&mut openssl).map(drop).with_context(|| format!("sign the certificate {name}"))
    }
}
