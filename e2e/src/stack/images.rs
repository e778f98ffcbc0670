//! Container images without a registry: made from a program and the libraries it needs, named by their content, given to the
//! node's containerd or to kind. Pods never pull them.

pub mod archive;
pub mod libraries;
pub mod pause;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::kubernetes::containerd;
use super::paths::Paths;
use crate::cargo::{cargo, release_folder};
use crate::process::{Job, command};
use archive::{Archive, Entry};

/// First part of every image's name; not a registry, so nobody tries to pull.
pub const REGISTRY: &str = "sluice.local";

/// User and group of the programs in images.
pub const USER: u32 = 65532;

/// An image in a docker-archive file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `sluice.local/NAME:CONTENT-HASH`. Not `latest`, so that the pull policy defaults to `IfNotPresent`.
    pub reference: String,
    /// The file.
    pub archive: PathBuf,
}

/// Where images go so that pods can use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageStore {
    /// The containerd of the local stack, by its socket.
    Containerd(PathBuf),
    /// A kind cluster, by its name.
    Kind(String),
}

/// Makes an image of a program: the program, the shared libraries it needs, and nothing else; no shell. It runs as user and group
/// 65532. The file goes to the cache; the same contents give the same file. Older images of the same name are removed from the
/// cache, so that it holds one per name.
///
/// # Errors
/// When the program or a library cannot be read, a library is missing on this machine, or the cache cannot be written.
pub fn build_image(name: &str, program: &Path) -> anyhow::Result<Image> {
    let file = program.file_name().with_context(|| format!("{} is no program", program.display()))?;
    let inside = format!("/usr/bin/{}", file.to_string_lossy());
    let mut archive = Archive::new(&[&inside], USER);
    archive.add(&inside, Entry::program(program)?);
    for library in libraries::of(program)? {
        archive.add(&library.to_string_lossy(), Entry::program(&library)?);
    }
    store(&Paths::from_environment()?, name, &archive)
}

/// Writes an archive to the cache, unless it is there.
fn store(paths: &Paths, name: &str, archive: &Archive) -> anyhow::Result<Image> {
    let built = archive.build()?;
    let reference = format!("{REGISTRY}/{name}:{}", built.tag);
    let folder = paths.cache.join("images").join(name);
    let file = folder.join(format!("{}.tar", built.tag));
    if !file.exists() {
        super::paths::remove_folder(&folder)?;
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let partial = file.with_added_extension("partial");
        fs::write(&partial, built.tar(&reference)?)
            .with_context(|| format!("write {}", partial.display()))?;
        fs::rename(&partial, &file).with_context(|| format!("rename {}", partial.display()))?;
    }
    Ok(Image { reference, archive: file })
}

/// Gives an image to the cluster, unless it has it.
///
/// # Errors
/// When containerd or kind refuses.
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

/// The programs of the project in release form.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `sluice-operator`.
    pub operator: PathBuf,
    /// `sluice-gateway`.
    pub gateway: PathBuf,
}

/// Compiles operator and gateway in release form; cargo knows what is up to date. Takes minutes the first time.
///
/// # Errors
/// What the compiler says.
pub fn build_programs() -> anyhow::Result<Programs> {
    let paths = Paths::from_environment()?;
    let mut cargo = cargo(&["build", "--release", "-p", "sluice-gateway", "-p", "sluice-operator"]);
    Job { part: "programs", doing: "compile operator and gateway", log: paths.build_log("programs") }
        .run(&mut cargo)?;
    let release = release_folder();
    Ok(Programs { operator: release.join("sluice-operator"), gateway: release.join("sluice-gateway") })
}
