//! The image of the pod sandbox: one static program that waits, compiled from `e2e/stack/images/pause.c`.

use std::path::PathBuf;

use super::archive::{Archive, Entry};
use super::{Image, store};
use crate::paths::{Paths, content_hash, fill_once, sources};
use crate::process::{Job, command};

const SOURCE: &str = include_str!("../../images/pause.c");

/// User of the sandbox's process; it needs no rights at all.
const USER: u32 = 65535;

fn folder(paths: &Paths) -> PathBuf {
    paths.cache.join("pause").join(content_hash([SOURCE.as_bytes()]))
}

pub fn is_built(paths: &Paths) -> bool {
    folder(paths).is_dir()
}

/// Makes the image; compiles its program unless it is in the cache.
pub fn build(paths: &Paths) -> anyhow::Result<Image> {
    let folder = folder(paths);
    fill_once(&folder, |partial| {
        let mut cc = command("cc");
        cc.args(["-Os", "-static", "-s", "-o"])
            .arg(partial.join("pause"))
            .arg(sources().join("images/pause.c"));
        Job { part: "pause", doing: "compile the pod sandbox's program", log: paths.build_log("pause") }
            .run(&mut cc)
    })?;
    let mut archive = Archive::new(&["/pause"], USER);
    archive.add("/pause", Entry::program(&folder.join("pause"))?);
    store(&paths.cache.join("images/pause"), "pause", &archive)
}
