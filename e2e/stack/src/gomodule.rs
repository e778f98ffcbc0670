//! Programs of the stack that are compiled from Go modules. All use the same flags: the flags are part of the key of Go's build cache, so
//! shared packages are compiled once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::paths::{Paths, content_hash, fill_once, sources};
use crate::process::{Job, command};

/// Flags of every build: without local paths in the program, without gRPC's tracing (which keeps the linker from dropping
/// unused methods), and without asking git.
/// No debugger is used on these programs, and DWARF takes a twentieth of the compiler's time. Calls are not inlined (`-l`), since the programs wait
/// more than they compute: kubebin took 350 CPU seconds instead of 429 (29 November 2026, two shared virtual cores).
const BUILD_FLAGS: [&str; 7] = [
    "build",
    "-v",
    "-buildvcs=false",
    "-mod=readonly",
    "-trimpath",
    "-tags=grpcnotrace",
    "-gcflags=all=-dwarf=false -l",
];

/// Percent by which the heap of a compiler's process may grow before it is collected: 150 CPU seconds for helm with 400, 162 with Go's
/// 100 (26 November 2026, Go 1.26, two shared virtual cores). The largest process has 1.5 GiB with it.
const COMPILER_GOGC: &str = "400";

/// The niceness of Go's compiler. Rust packages compile at the same time and wait for each other, so they go first. Go has thousands of
/// packages that do not wait for each other; they use the CPU time that is left.
const NICENESS: &str = "10";

/// A Go module below `e2e/stack` and the program it builds.
pub struct GoModule {
    /// Its name in the cache and in progress lines.
    pub name: &'static str,
    /// Its folder below `e2e/stack`.
    pub folder: &'static str,
    /// The source files of the program: their contents name the build.
    pub files: &'static [&'static str],
    pub package: &'static str,
    /// What `-ldflags` has beside stripping.
    pub link_flags: String,
    /// Names by which the program is also called (links to it).
    pub aliases: &'static [&'static str],
}

impl GoModule {
    /// A module in the folder of its name, whose program is the package `package`.
    pub fn named(name: &'static str, package: &'static str, files: &'static [&'static str]) -> GoModule {
        GoModule { name, folder: name, files, package, link_flags: String::new(), aliases: &[] }
    }

    /// The program, compiled unless it is in the cache.
    pub fn program(&self) -> anyhow::Result<PathBuf> {
        Ok(self.build(&Paths::from_environment()?)?.join(self.name))
    }

    pub fn is_built(&self, paths: &Paths) -> bool {
        self.built(paths).is_ok_and(|folder| folder.is_dir())
    }

    /// The folder in the cache that holds exactly this program, built or not.
    pub fn built(&self, paths: &Paths) -> anyhow::Result<PathBuf> {
        let folder = sources().join(self.folder);
        let read = |name: &&str| {
            fs::read(folder.join(name)).with_context(|| format!("read {}", folder.join(name).display()))
        };
        let files: Vec<_> = self.files.iter().map(read).collect::<Result<_, _>>()?;
        let flags = format!(
            "{BUILD_FLAGS:?} {} {} {:?} {}",
            self.link_flags,
            self.package,
            self.aliases,
            std::env::consts::ARCH
        );
        let contents = files.iter().map(Vec::as_slice).chain([flags.as_bytes()]);
        Ok(paths.cache.join(self.name).join(content_hash(contents)))
    }

    /// Compiles it unless it is in the cache; returns the folder with the program and its links.
    pub fn build(&self, paths: &Paths) -> anyhow::Result<PathBuf> {
        let folder = self.built(paths)?;
        fill_once(&folder, |partial| {
            let doing = format!("compile {}", self.name);
            Job { part: self.name, doing: &doing, log: paths.build_log(self.name) }
                .run(&mut self.compiler(partial))?;
            for alias in self.aliases {
                let link = partial.join(alias);
                std::os::unix::fs::symlink(self.name, &link)
                    .with_context(|| format!("link {}", link.display()))?;
            }
            Ok(())
        })?;
        Ok(folder)
    }

    fn compiler(&self, output: &Path) -> Command {
        let mut go = command("nice");
        go.args(["-n", NICENESS, "go"])
            .current_dir(sources().join(self.folder))
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local");
        // Flags and workspaces of the user's settings would change what Go builds.
        go.env("GOFLAGS", "").env("GOWORK", "off").env("GOGC", COMPILER_GOGC);
        go.args(BUILD_FLAGS).arg(format!("-ldflags=-s -w {}", self.link_flags));
        go.arg("-o").arg(output.join(self.name)).arg(self.package);
        go
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The folders of the programs that a check with an empty cache compiles.
    const TOGETHER: [&str; 5] = ["kubernetes/kubebin", "helm", "gitopscheck", "rulecheck", "crane"];

    /// Argo CD compiles only with an older version than Helm requires.
    const APART: [&str; 1] = ["github.com/cyphar/filepath-securejoin"];

    /// What a `go.mod` requires: module and version.
    fn required(text: &str) -> impl Iterator<Item = (&str, &str)> {
        let lines = text.lines().map(|line| line.trim().trim_start_matches("require "));
        lines.filter(|line| !line.contains("=>")).filter_map(|line| {
            let mut words = line.split_whitespace();
            let (module, version) = (words.next()?, words.next()?);
            (module.contains('.') && version.starts_with('v')).then_some((module, version))
        })
    }

    #[test]
    fn modules_that_programs_share_have_one_version() {
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for folder in TOGETHER {
            let text = fs::read_to_string(sources().join(folder).join("go.mod")).unwrap();
            for (module, version) in required(&text) {
                versions.entry(module.to_owned()).or_default().insert(version.to_owned());
            }
        }
        assert!(versions.len() > 200, "{}", versions.len());
        versions.retain(|module, versions| versions.len() > 1 && !APART.contains(&module.as_str()));
        assert!(versions.is_empty(), "Go compiles each version of these: {versions:#?}");
    }
}
