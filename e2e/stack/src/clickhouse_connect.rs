//! The Python client clickhouse-connect. Tests read the table with it as users do. A folder of the cache has its packages.

use std::path::PathBuf;

use anyhow::Context;

use crate::paths::{Paths, fill_once};
use crate::process::{Job, command, output};

/// Version of the package; pip chooses the versions of its dependencies.
pub const VERSION: &str = "1.12.0";

/// The variable by which tests find the folder.
pub const FOLDER_VARIABLE: &str = "SLUICE_CLICKHOUSE_CONNECT";

/// The folder with the packages, fetched if the cache has none for this machine's Python.
pub fn path() -> anyhow::Result<PathBuf> {
    let paths = Paths::from_environment()?;
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let python = output(command("python3").args(["-c", version]))
        .context("find Python for the tests of readers: apt-get install python3 python3-pip")?;
    let folder = paths.cache.join("clickhouse-connect").join(format!("{VERSION}-python{}", python.trim()));
    fill_once(&folder, |partial| {
        let mut pip = command("python3");
        // Packages are compiled for one version of Python, so the folder's name contains that version.
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]);
        pip.arg("--target").arg(partial).arg(format!("clickhouse-connect=={VERSION}"));
        let doing = format!("fetch clickhouse-connect {VERSION}");
        Job { part: "clickhouse-connect", doing: &doing, log: paths.build_log("clickhouse-connect") }
            .run(&mut pip)
    })?;
    Ok(folder)
}
