//! The Python client clickhouse-connect. Tests read the table with it as users do. A folder of the cache has its packages.

use std::path::PathBuf;

use crate::paths::{Paths, fill_once};
use crate::process::Job;
use crate::python;

/// Version of the package; pip chooses the versions of its dependencies.
pub const VERSION: &str = "1.12.0";

/// The variable by which tests find the folder.
pub const FOLDER_VARIABLE: &str = "SLUICE_CLICKHOUSE_CONNECT";

/// The folder with the packages, fetched if the cache has none for this machine's Python.
pub fn path() -> anyhow::Result<PathBuf> {
    let paths = Paths::from_environment()?;
    let version = python::version("the tests of readers")?;
    let folder = paths.cache.join("clickhouse-connect").join(format!("{VERSION}-{version}"));
    fill_once(&folder, |partial| {
        let mut pip = python::pip(partial);
        pip.arg(format!("clickhouse-connect=={VERSION}"));
        let doing = format!("fetch clickhouse-connect {VERSION}");
        Job { part: "clickhouse-connect", doing: &doing, log: paths.build_log("clickhouse-connect") }
            .run(&mut pip)
    })?;
    Ok(folder)
}
