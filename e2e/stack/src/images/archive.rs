//! The docker-archive format, which `ctr images import` and `kind load image-archive` read:
//!
//! ```text
//! IMAGE.tar
//! |-- CONFIG-SHA256.json   user, entrypoint, sha256 of the layer
//! |-- layer.tar            the file system, one layer
//! `-- manifest.json        names the two above and the image
//! ```
//!
//! Byte for byte reproducible: sorted entries, time 0, owner 0:0. The image's tag is a hash of the config, which holds a hash of
//! the layer: the same contents have the same name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::paths::{HASH_DIGITS, hexadecimal};

/// The default CA certificates of programs.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Names of the user and group, for programs that look them up. Without `nsswitch.conf`, glibc asks DNS before `/etc/hosts`.
const FILES: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
    ("/etc/group", "root:x:0:\nnonroot:x:65532:\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

#[derive(Clone, Debug)]
pub struct Entry {
    mode: u32,
    bytes: Vec<u8>,
}

impl Entry {
    /// An executable file with the contents of a file of this machine (links are followed).
    pub fn program(source: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(source).with_context(|| format!("read {}", source.display()))?;
        Ok(Self { mode: 0o755, bytes })
    }

    /// A data file with the contents of a file of this machine.
    pub fn plain(source: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(source).with_context(|| format!("read {}", source.display()))?;
        Ok(Self { mode: 0o644, bytes })
    }

    fn text(text: &str) -> Self {
        Self { mode: 0o644, bytes: text.as_bytes().to_vec() }
    }
}

#[derive(Clone, Debug)]
pub struct Archive {
    entrypoint: Vec<String>,
    user: u32,
    files: BTreeMap<String, Entry>,
}

/// An image ready to be written.
pub struct Built {
    /// Hash of its contents, 12 hexadecimal digits.
    pub tag: String,
    layer: Vec<u8>,
    config: Vec<u8>,
    config_name: String,
}

impl Archive {
    /// An image that runs `entrypoint` as `user` in the group of the same number. It has only `/tmp` and a user table.
    pub fn new(entrypoint: &[&str], user: u32) -> Self {
        let files = FILES.iter().map(|(path, text)| (inside(path), Entry::text(text))).collect();
        Self { entrypoint: entrypoint.iter().map(|&text| text.to_owned()).collect(), user, files }
    }

    /// Adds a file under an absolute path.
    pub fn add(&mut self, path: &str, entry: Entry) {
        self.files.insert(inside(path), entry);
    }

    /// Every file by its path below the root, with its mode.
    pub fn files(&self) -> impl Iterator<Item = (&str, u32, &[u8])> {
        self.files.iter().map(|(path, entry)| (path.as_str(), entry.mode, entry.bytes.as_slice()))
    }

    /// What a container starts with: entry point, user and environment.
    pub fn config(&self) -> Value {
        json!({
            "Entrypoint": self.entrypoint,
            "User": format!("{0}:{0}", self.user),
            "Env": ["PATH=/usr/bin", format!("SSL_CERT_FILE={AUTHORITIES}")],
            "WorkingDir": "/",
        })
    }

    /// Lays out the file system and names the image by it.
    pub fn build(&self) -> anyhow::Result<Built> {
        let layer = self.layer()?;
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": self.config(),
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
            "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "sluice" }],
        });
        let config = config.to_string().into_bytes();
        let hash = digest(&config);
        Ok(Built { tag: hash[..HASH_DIGITS].to_owned(), layer, config, config_name: format!("{hash}.json") })
    }

    fn layer(&self) -> anyhow::Result<Vec<u8>> {
        let mut folders = BTreeMap::from([("tmp/".to_owned(), 0o1777)]);
        for path in self.files.keys() {
            for (at, _) in path.match_indices('/') {
                folders.entry(path[..=at].to_owned()).or_insert(0o755);
            }
        }
        let mut layer = tar::Builder::new(Vec::new());
        for (path, mode) in folders {
            append(&mut layer, &path, mode, tar::EntryType::Directory, &[])?;
        }
        for (path, entry) in &self.files {
            append(&mut layer, path, entry.mode, tar::EntryType::Regular, &entry.bytes)?;
        }
        layer.into_inner().context("end the layer")
    }
}

impl Built {
    /// The bytes of the archive, which names the image `reference`.
    pub fn tar(&self, reference: &str) -> anyhow::Result<Vec<u8>> {
        let manifest =
            json!([{ "Config": self.config_name, "RepoTags": [reference], "Layers": ["layer.tar"] }]);
        let mut image = tar::Builder::new(Vec::new());
        append(&mut image, &self.config_name, 0o644, tar::EntryType::Regular, &self.config)?;
        append(&mut image, "layer.tar", 0o644, tar::EntryType::Regular, &self.layer)?;
        append(&mut image, "manifest.json", 0o644, tar::EntryType::Regular, manifest.to_string().as_bytes())?;
        image.into_inner().context("end the image")
    }
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    mode: u32,
    kind: tar::EntryType,
    bytes: &[u8],
) -> anyhow::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(u64::try_from(bytes.len()).context("size of a file")?);
    tar.append_data(&mut header, path, bytes).with_context(|| format!("add {path} to the image"))
}

/// Paths in a layer are relative to its root.
fn inside(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn example(program: &str) -> Archive {
        let mut archive = Archive::new(&["/usr/bin/x"], 65532);
        archive.add("/usr/bin/x", Entry { mode: 0o755, bytes: program.into() });
        archive.add("/lib64/ld.so", Entry { mode: 0o755, bytes: b"loader".to_vec() });
        archive
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let (first, second) = (example("a").build().unwrap(), example("a").build().unwrap());
        assert_eq!(first.tag, second.tag);
        assert_eq!(first.tar("n:1").unwrap(), second.tar("n:1").unwrap());
        assert_ne!(first.tag, example("b").build().unwrap().tag);
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let layer = example("a").layer().unwrap();
        let mut tar = tar::Archive::new(layer.as_slice());
        let entry = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap())
        };
        let found: Vec<(String, u32)> = tar.entries().unwrap().map(entry).collect();
        let expected = [
            ("etc/", 0o755),
            ("lib64/", 0o755),
            ("tmp/", 0o1777),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("etc/group", 0o644),
            ("etc/nsswitch.conf", 0o644),
            ("etc/passwd", 0o644),
            ("lib64/ld.so", 0o755),
            ("usr/bin/x", 0o755),
        ];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn the_manifest_names_config_layer_and_image() {
        let built = example("a").build().unwrap();
        let bytes = built.tar("sluice.local/x:1").unwrap();
        let mut tar = tar::Archive::new(bytes.as_slice());
        let mut files = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "sluice.local/x:1");
        let config: Value = serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&files["layer.tar"])));
    }
}
