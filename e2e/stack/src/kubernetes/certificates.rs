//! The cluster's certificates and kubeconfigs, made once per state folder with openssl: one authority for all, one for the API server as a
//! front proxy, a key pair for service-account tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{API_PORT, DNS_DOMAIN, Kubernetes, NODE_ADDRESS, NODE_NAME};
use crate::paths::{create_folder, put};
use crate::process::{command, output};

/// Ten years: longer than any state folder lives.
const VALID_DAYS: &str = "3650";

/// First address of the Services' range, which the API server's own Service gets.
const SERVICE_API_ADDRESS: &str = "10.96.0.1";

/// Name of cluster and context in every kubeconfig; the Corefile refers to it.
const CLUSTER: &str = "sluice";

/// Makes the files that are missing.
pub fn ensure(kubernetes: &Kubernetes) -> anyhow::Result<()> {
    let folder = create_folder(folder(&kubernetes.state))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("close {}", folder.display()))?;
    let keys = Keys { folder };
    keys.authority("ca")?;
    keys.authority("front-proxy-ca")?;
    keys.server("apiserver", "/CN=kube-apiserver")?;
    keys.client("apiserver-kubelet", "ca", "/O=system:masters/CN=kube-apiserver-kubelet-client")?;
    keys.client("front-proxy", "front-proxy-ca", "/CN=front-proxy-client")?;
    keys.client("admin", "ca", "/O=system:masters/CN=admin")?;
    keys.client("kubelet", "ca", &format!("/O=system:nodes/CN=system:node:{NODE_NAME}"))?;
    for program in ["kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"] {
        keys.client(program, "ca", &format!("/CN=system:{program}"))?;
        keys.kubeconfig(&keys.file(program, "kubeconfig"), program)?;
    }
    keys.service_accounts()?;
    keys.kubeconfig(&keys.file("kubelet", "kubeconfig"), "kubelet")?;
    keys.kubeconfig(&kubernetes.kubeconfig(), "admin")
}

pub fn folder(state: &Path) -> PathBuf {
    state.join("pki")
}

struct Keys {
    folder: PathBuf,
}

impl Keys {
    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{name}.{extension}"))
    }

    fn authority(&self, name: &str) -> anyhow::Result<()> {
        let certificate = self.file(name, "crt");
        if certificate.exists() {
            return Ok(());
        }
        let key = self.key(name)?;
        let subject = format!("/CN=sluice-{name}");
        let mut openssl = command("openssl");
        openssl.args(["req", "-x509", "-new", "-days", VALID_DAYS, "-subj", &subject, "-key"]).arg(key);
        openssl.args(["-addext", "basicConstraints=critical,CA:TRUE"]);
        openssl.args(["-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]);
        output(openssl.arg("-out").arg(certificate)).with_context(|| format!("make the authority {name}"))?;
        Ok(())
    }

    fn server(&self, name: &str, subject: &str) -> anyhow::Result<()> {
        let names = format!(
            "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.{DNS_DOMAIN},\
             DNS:localhost,IP:{SERVICE_API_ADDRESS},IP:{NODE_ADDRESS},IP:127.0.0.1"
        );
        self.signed(name, "ca", subject, &format!("extendedKeyUsage=serverAuth\nsubjectAltName={names}\n"))
    }

    fn client(&self, name: &str, authority: &str, subject: &str) -> anyhow::Result<()> {
        self.signed(name, authority, subject, "extendedKeyUsage=clientAuth\n")
    }

    fn signed(&self, name: &str, authority: &str, subject: &str, extensions: &str) -> anyhow::Result<()> {
        let certificate = self.file(name, "crt");
        if certificate.exists() {
            return Ok(());
        }
        let key = self.key(name)?;
        let (request, extension_file) = (self.file(name, "csr"), self.file(name, "ext"));
        let written = fs::write(&extension_file, format!("keyUsage=critical,digitalSignature\n{extensions}"));
        written.with_context(|| format!("write {}", extension_file.display()))?;
        let mut openssl = command("openssl");
        openssl.args(["req", "-new", "-subj", subject, "-key"]).arg(key).arg("-out").arg(&request);
        output(&mut openssl).with_context(|| format!("ask for the certificate {name}"))?;
        let mut openssl = command("openssl");
        openssl.args(["x509", "-req", "-days", VALID_DAYS, "-CAcreateserial", "-in"]).arg(&request);
        openssl.arg("-CA").arg(self.file(authority, "crt")).arg("-CAkey").arg(self.file(authority, "key"));
        openssl.arg("-extfile").arg(&extension_file).arg("-out").arg(certificate);
        output(&mut openssl).with_context(|| format!("sign the certificate {name}"))?;
        for leftover in [request, extension_file] {
            fs::remove_file(&leftover).with_context(|| format!("remove {}", leftover.display()))?;
        }
        Ok(())
    }

    fn key(&self, name: &str) -> anyhow::Result<PathBuf> {
        let key = self.file(name, "key");
        let mut openssl = command("openssl");
        openssl.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"]).arg(&key);
        output(&mut openssl).with_context(|| format!("make the key {name}"))?;
        Ok(key)
    }

    fn service_accounts(&self) -> anyhow::Result<()> {
        let public = self.file("service-accounts", "pub");
        if public.exists() {
            return Ok(());
        }
        let key = self.key("service-accounts")?;
        let mut openssl = command("openssl");
        openssl.args(["ec", "-pubout", "-in"]).arg(key).arg("-out").arg(public);
        output(&mut openssl).map(drop).context("write the public key for service-account tokens")
    }

    fn kubeconfig(&self, file: &Path, user: &str) -> anyhow::Result<()> {
        if file.exists() {
            return Ok(());
        }
        let encoded = |name: &str, extension: &str| -> anyhow::Result<String> {
            let source = self.file(name, extension);
            Ok(STANDARD.encode(fs::read(&source).with_context(|| format!("read {}", source.display()))?))
        };
        let (authority, certificate, key) =
            (encoded("ca", "crt")?, encoded(user, "crt")?, encoded(user, "key")?);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n\
             - {{name: {CLUSTER}, cluster: {{server: \"https://{NODE_ADDRESS}:{API_PORT}\", certificate-authority-data: {authority}}}}}\n\
             users:\n\
             - {{name: {user}, user: {{client-certificate-data: {certificate}, client-key-data: {key}}}}}\n\
             contexts:\n\
             - {{name: {CLUSTER}, context: {{cluster: {CLUSTER}, user: {user}}}}}\n\
             current-context: {CLUSTER}\n"
        );
        put(file, &text)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("close {}", file.display()))
    }
}
