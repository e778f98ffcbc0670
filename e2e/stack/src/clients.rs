//! Clients of OTLP with the SDKs of OpenTelemetry, and a Collector, for live tests of the gateway. `clients/README.md` says what they send.
//!
//! They are not part of the local stack: the group `clients` of `cargo verify` fetches and compiles them when they are missing from the cache.
//! Each is a program in a folder of its own; the folder by which tests find them has a link to each.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::gomodule::GoModule;
use crate::paths::{Paths, content_hash, fill_once, put, sources};
use crate::process::{Job, command, output};
use crate::{maven, python};

/// The variable by which tests find the folder.
pub const FOLDER_VARIABLE: &str = "SLUICE_OTLP_CLIENTS";

/// Name in the cache, and of the folder of the sources.
const NAME: &str = "clients";

const REQUIREMENTS: &str = include_str!("../clients/python/requirements.txt");
const PYTHON: &str = include_str!("../clients/python/client.py");
const PACKAGE: &str = include_str!("../clients/javascript/package.json");
const PACKAGE_LOCK: &str = include_str!("../clients/javascript/package-lock.json");
const JAVASCRIPT: &str = include_str!("../clients/javascript/client.js");
const POM: &str = include_str!("../clients/java/pom.xml");
const JAVA: &str = include_str!("../clients/java/Client.java");

/// Mode of a program: all users may run it.
const PROGRAM_MODE: u32 = 0o755;

/// The folder with a program for each client: `python`, `javascript`, `java`, `go`, and `collector`. What the cache lacks is fetched and
/// compiled, one after the other.
pub fn folder() -> anyhow::Result<PathBuf> {
    let paths = Paths::from_environment()?;
    let programs = [
        ("python", python(&paths)?),
        ("javascript", javascript(&paths)?),
        ("java", java(&paths)?),
        ("go", go("otlp-client", "./client", &["go.mod", "go.sum", "client/main.go"])?),
        ("collector", collector()?),
    ];
    let places: Vec<_> = programs.iter().map(|(_, program)| program.as_os_str().as_encoded_bytes()).collect();
    let folder = paths.cache.join(NAME).join(content_hash(places));
    fill_once(&folder, |partial| {
        for (name, program) in &programs {
            let link = partial.join(name);
            symlink(program, &link).with_context(|| format!("link {}", link.display()))?;
        }
        Ok(())
    })?;
    Ok(folder)
}

pub fn collector() -> anyhow::Result<PathBuf> {
    go("otlp-collector", "./collector", &["go.mod", "go.sum", "collector/main.go"])
}

fn python(paths: &Paths) -> anyhow::Result<PathBuf> {
    let hash = content_hash([REQUIREMENTS, PYTHON].map(str::as_bytes));
    let version = python::version("a client of OTLP")?;
    let folder = paths.cache.join(format!("{NAME}-python")).join(format!("{hash}-{version}"));
    fill_once(&folder, |partial| {
        let mut pip = python::pip(&partial.join("packages"));
        pip.args(["--no-deps", "--requirement"]).arg(sources().join(NAME).join("python/requirements.txt"));
        fetch(paths, "python", &mut pip)?;
        put(&partial.join("client.py"), PYTHON)?;
        program(partial, r#"PYTHONPATH="$here/packages" exec python3 -B "$here/client.py""#)
    })?;
    Ok(folder.join("client"))
}

fn javascript(paths: &Paths) -> anyhow::Result<PathBuf> {
    let hash = content_hash([PACKAGE, PACKAGE_LOCK, JAVASCRIPT].map(str::as_bytes));
    let folder = paths.cache.join(format!("{NAME}-javascript")).join(hash);
    fill_once(&folder, |partial| {
        put(&partial.join("package.json"), PACKAGE)?;
        put(&partial.join("package-lock.json"), PACKAGE_LOCK)?;
        put(&partial.join("client.js"), JAVASCRIPT)?;
        let mut npm = command("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        fetch(paths, "javascript", npm.current_dir(partial))?;
        program(partial, r#"exec node "$here/client.js""#)
    })?;
    Ok(folder.join("client"))
}

fn java(paths: &Paths) -> anyhow::Result<PathBuf> {
    let hash = content_hash([POM, JAVA].map(str::as_bytes));
    let folder = paths.cache.join(format!("{NAME}-java")).join(hash);
    fill_once(&folder, |partial| {
        let (jars, sources) = (partial.join("jars"), sources().join(NAME).join("java"));
        fetch(paths, "java", maven::jars(&sources.join("pom.xml"), &jars).arg("-DincludeScope=runtime"))?;
        let mut compiler = command("javac");
        compiler.args(["-encoding", "UTF-8", "-Xlint:all", "-Werror", "-d"]).arg(partial.join("classes"));
        compiler.arg("--class-path").arg(jars.join("*")).arg(sources.join("Client.java"));
        output(&mut compiler).context("compile the client in Java")?;
        program(
            partial,
            r#"exec java -XX:TieredStopAtLevel=1 --class-path "$here/classes:$here/jars/*" Client"#,
        )
    })?;
    Ok(folder.join("client"))
}

fn go(name: &'static str, package: &'static str, files: &'static [&'static str]) -> anyhow::Result<PathBuf> {
    GoModule { folder: "clients/go", ..GoModule::named(name, package, files) }.program()
}

fn fetch(paths: &Paths, language: &str, what: &mut std::process::Command) -> anyhow::Result<()> {
    let part = format!("{NAME}-{language}");
    let doing = format!("fetch OpenTelemetry's SDK for {language}");
    Job { part: &part, doing: &doing, log: paths.build_log(&part) }.run(what)
}

/// Writes the start script of a folder. Its variable `here` is the folder itself, even if a link calls the script.
fn program(folder: &Path, runs: &str) -> anyhow::Result<()> {
    let file = folder.join("client");
    put(&file, &format!("#!/bin/sh\nset -eu\nhere=$(dirname \"$(readlink -f \"$0\")\")\n{runs}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(PROGRAM_MODE))
        .with_context(|| format!("let everybody run {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_fixed_to_one_version() {
        for line in REQUIREMENTS.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.contains("==") && !line.contains('*'), "{line}");
        }
        let asked: serde_json::Value = serde_json::from_str(PACKAGE).unwrap();
        for (name, version) in asked["dependencies"].as_object().unwrap() {
            let version = version.as_str().unwrap();
            assert!(version.chars().all(|one| one.is_ascii_digit() || one == '.'), "{name}: {version}");
        }
        let lock: serde_json::Value = serde_json::from_str(PACKAGE_LOCK).unwrap();
        for (name, package) in lock["packages"].as_object().unwrap() {
            assert!(name.is_empty() || package["integrity"].is_string(), "{name}");
            assert!(package.get("resolved").is_none(), "{name} names the registry that it came from");
        }
    }

    #[test]
    fn a_program_finds_its_folder_through_a_link() {
        let folder = std::env::temp_dir().join(format!("sluice-clients-{}", std::process::id()));
        fs::create_dir_all(folder.join("links")).unwrap();
        program(&folder, "cat \"$here/said\"").unwrap();
        fs::write(folder.join("said"), "here").unwrap();
        symlink(folder.join("client"), folder.join("links/client")).unwrap();
        assert_eq!(output(&mut command(folder.join("links/client"))).unwrap(), "here");
        crate::paths::remove_folder(&folder).unwrap();
    }
}
