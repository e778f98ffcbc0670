//! Certificates of a test: two independent authorities, a server, and a client of each authority.

use std::process::Command;

use crate::prelude::*;

/// The name in the server's certificate; the only other entry is the address at which pods reach this machine.
pub const SERVER_NAME: &str = "localhost";

/// Longer than any test, and too short for other uses.
const VALID_DAYS: &str = "2";

/// The authority of servers and clients, as key of a Secret and file.
pub const AUTHORITY: [(&str, &str); 1] = [("ca.crt", "ca.crt")];

/// The client's certificate, by the usual keys.
pub const CERTIFICATE: [(&str, &str); 2] = [("tls.crt", "client.crt"), ("tls.key", "client.key")];

/// The client's certificate in Strimzi's Secret for a `KafkaUser`. Its `ca.crt` is the authority of clients.
pub const STRIMZI_USER: [(&str, &str); 3] =
    [("ca.crt", "ca.crt"), ("user.crt", "client.crt"), ("user.key", "client.key")];

/// Keys of that Secret that no program of ours reads.
pub const NOT_READ: [(&str, &str); 2] = [("user.p12", "not read"), ("user.password", "not read")];

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
        let both = keys.read("server.crt")? + &keys.read("server.key")?;
        fs::write(keys.key_store(), both).context("write the server's key store")?;
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

    pub fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.folder.join(file)).with_context(|| format!("read {file}"))
    }

    /// Makes or changes a Secret with these keys: some with the text of one of the files, some with other values.
    pub async fn apply(
        &self,
        namespace: &Namespace,
        secret: &str,
        files: &[(&str, &str)],
        others: &[(&str, &str)],
    ) -> Result<()> {
        let texts: Vec<String> = files.iter().map(|(_, file)| self.read(file)).collect::<Result<_>>()?;
        let of_files = files.iter().zip(&texts).map(|((key, _), text)| (*key, text.as_str()));
        let content: Vec<(&str, &str)> = of_files.chain(others.iter().copied()).collect();
        namespace.apply_secret(secret, &content).await
    }

    fn private_key(&self, name: &str) -> Result<()> {
        let words = format!("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {name}.key");
        self.openssl(&words).with_context(|| format!("make the key {name}"))
    }

    fn authority(&self, name: &str) -> Result<()> {
        self.private_key(name)?;
        let words = format!(
            "req -x509 -new -days {VALID_DAYS} -subj /CN={name} -key {name}.key \
             -addext keyUsage=critical,keyCertSign,cRLSign -out {name}.crt"
        );
        self.openssl(&words).with_context(|| format!("make the authority {name}"))
    }

    fn signed(&self, name: &str, authority: &str, extensions: &str) -> Result<()> {
        self.private_key(name)?;
        fs::write(self.folder.join("extensions"), extensions).context("write the extensions")?;
        let request = format!("req -new -subj /CN={name} -key {name}.key -out request");
        self.openssl(&request).with_context(|| format!("ask for the certificate {name}"))?;
        let words = format!(
            "x509 -req -days {VALID_DAYS} -CAcreateserial -in request -CA {authority}.crt -CAkey {authority}.key \
             -extfile extensions -out {name}.crt"
        );
        self.openssl(&words).with_context(|| format!("sign the certificate {name}"))
    }

    /// Runs openssl in the folder. No word has a space in it.
    fn openssl(&self, words: &str) -> Result<()> {
        let mut openssl = Command::new("openssl");
        output(openssl.args(words.split(' ')).current_dir(&self.folder)).map(drop)
    }
}
