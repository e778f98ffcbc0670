//! Container images without a registry. An image is made of a program and the libraries it needs, named by its content, and loaded into the
//! node's containerd or into kind. Pods never pull it.

pub mod archive;
pub mod libraries;
pub mod pause;
mod save;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::kubernetes::containerd;
use crate::paths::{Paths, create_folder, remove_folder};
use crate::process::command;
use crate::programs::{self, Form};
use archive::{AUTHORITIES, Archive, Entry};

pub use save::{ImagesArgs, ProgramArgs, run};

/// First part of every image's name. It is no registry, so a pull fails.
pub const REGISTRY: &str = "sluice.local";

/// User and group of the programs in images.
pub const USER: u32 = 65532;

/// Largest image of operator or gateway, bytes. Chosen: a third more than the larger of the two (49 MB), and half of the former size of the
/// line tables.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// An image in a docker-archive file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `sluice.local/NAME:CONTENT-HASH`. Not `latest`, so that the pull policy defaults to `IfNotPresent`.
    pub reference: String,
    pub archive: PathBuf,
}

/// Where images are loaded so that pods can use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageStore {
    /// The containerd of the local stack, by its socket.
    Containerd(PathBuf),
    /// A kind cluster, by its name.
    Kind(String),
}

/// Makes an image of a program, as the Dockerfiles do with `e2e/stack/images/files.sh`. It contains the program, the shared libraries it
/// needs, the certificate authorities it may trust, and nothing else: no shell. It runs as user and group 65532. The file goes to the
/// cache; the same contents give the same file. Older images of the same name are removed from the cache, so it has one per name.
pub fn build_image(name: &str, program: &Path) -> anyhow::Result<Image> {
    build_image_in(&Paths::from_environment()?.cache.join("images").join(name), name, program)
}

/// As [`build_image`], with the file in this folder, which has no other files.
pub fn build_image_in(folder: &Path, name: &str, program: &Path) -> anyhow::Result<Image> {
    store(folder, name, &contents(program)?)
}

fn contents(program: &Path) -> anyhow::Result<Archive> {
    let file = program.file_name().with_context(|| format!("{} is not a program", program.display()))?;
    let inside = format!("/usr/bin/{}", file.to_string_lossy());
    let mut archive = Archive::new(&[&inside], USER);
    archive.add(&inside, Entry::program(program)?);
    for library in libraries::of(program)? {
        archive.add(&library.to_string_lossy(), Entry::program(&library)?);
    }
    archive.add(AUTHORITIES, Entry::plain(&authorities()?)?);
    Ok(archive)
}

/// The file with the certificates that programs of this machine trust.
fn authorities() -> anyhow::Result<PathBuf> {
    let places = [AUTHORITIES, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
    let found = places.iter().map(PathBuf::from).find(|file| file.is_file());
    found.context("this machine has no CA certificates: install the package ca-certificates")
}

/// Writes an archive to a folder, unless it is already there.
fn store(folder: &Path, name: &str, archive: &Archive) -> anyhow::Result<Image> {
    let built = archive.build()?;
    let reference = format!("{REGISTRY}/{name}:{}", built.tag);
    let file = folder.join(format!("{}.tar", built.tag));
    if !file.exists() {
        remove_folder(folder)?;
        create_folder(folder)?;
        let partial = file.with_added_extension("partial");
        fs::write(&partial, built.tar(&reference)?)
            .with_context(|| format!("write {}", partial.display()))?;
        fs::rename(&partial, &file).with_context(|| format!("rename {}", partial.display()))?;
    }
    Ok(Image { reference, archive: file })
}

/// Fails if an image of the release build is larger than [`IMAGE_BYTES_MAX`].
pub fn is_small(image: &Image) -> anyhow::Result<()> {
    let bytes =
        fs::metadata(&image.archive).with_context(|| format!("look at {}", image.archive.display()))?.len();
    ensure!(
        bytes <= IMAGE_BYTES_MAX,
        "the image {} has {bytes} bytes, more than {IMAGE_BYTES_MAX}",
        image.reference
    );
    Ok(())
}

/// Loads an image into the cluster, unless it is already there.
pub fn load(image: &Image, store: &ImageStore) -> anyhow::Result<()> {
    match store {
        ImageStore::Containerd(socket) => containerd::import(socket, image),
        ImageStore::Kind(cluster) => {
            let mut kind = command("kind");
            kind.args(["load", "image-archive", "--name", cluster]).arg(&image.archive);
            crate::process::output(&mut kind)
                .map(drop)
                .with_context(|| format!("give {} to kind", image.reference))
        }
    }
}

#[derive(Clone, Debug)]
pub struct Programs {
    pub operator: PathBuf,
    pub gateway: PathBuf,
}

impl Programs {
    /// Compiles operator and gateway.
    pub fn compiled(form: Form) -> anyhow::Result<Self> {
        programs::compile(form)?;
        Ok(Self { operator: programs::OPERATOR.file(form), gateway: programs::GATEWAY.file(form) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    /// Files below a folder by path, with mode and content.
    fn files(folder: &Path, below: &str, found: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                files(&entry.path(), &format!("{name}/"), found);
            } else {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
                found.insert(name, (mode, fs::read(entry.path()).unwrap()));
            }
        }
    }

    #[test]
    fn a_dockerfile_and_we_put_the_same_files_into_an_image() {
        let program = std::env::current_exe().unwrap();
        let folder = std::env::temp_dir().join(format!("sluice-image-{}", std::process::id()));
        let script = crate::paths::sources().join("images/files.sh");
        let ran = Command::new("sh").arg(script).arg(&program).arg(&folder).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let mut theirs = BTreeMap::new();
        files(&folder, "", &mut theirs);
        let tmp = fs::metadata(folder.join("tmp")).unwrap().permissions().mode() & 0o7777;
        fs::remove_dir_all(&folder).unwrap();
        let archive = contents(&program).unwrap();
        let ours: BTreeMap<_, _> =
            archive.files().map(|(path, mode, bytes)| (path.to_owned(), (mode, bytes.to_vec()))).collect();
        assert!(ours.keys().eq(theirs.keys()), "{:?} and {:?}", ours.keys(), theirs.keys());
        for (path, file) in &ours {
            assert!(*file == theirs[path], "{path} differs");
        }
        assert_eq!(tmp, 0o1777);
        assert!(ours.keys().all(|path| !path.ends_with("/sh") && !path.ends_with("/bash")), "a shell");
    }

    #[test]
    fn a_dockerfile_and_we_start_the_same_program_as_the_same_user() {
        for name in ["operator", "gateway"] {
            let path = crate::paths::workspace().join(name).join("Dockerfile");
            let text = fs::read_to_string(path).unwrap();
            let (_, last) = text.rsplit_once("\nFROM ").unwrap();
            let of = |word: &str| {
                let found = last.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
                found.unwrap_or_else(|| panic!("{name}: no {word}")).to_owned()
            };
            let program = format!("/usr/bin/sluice-{name}");
            let config = Archive::new(&[&program], USER).config();
            assert!(last.starts_with("scratch\n"), "{last}");
            assert_eq!(of("COPY"), "--from=builder /image/ /");
            let entrypoint: serde_json::Value = serde_json::from_str(&of("ENTRYPOINT")).unwrap();
            assert_eq!(entrypoint, config["Entrypoint"]);
            assert_eq!(of("USER"), config["User"]);
            assert!(of("ENV").split(' ').eq(config["Env"].as_array().unwrap()), "{}", of("ENV"));
            assert!(text.contains(&format!("files.sh target/release/sluice-{name} /image")), "{text}");
        }
    }
}
