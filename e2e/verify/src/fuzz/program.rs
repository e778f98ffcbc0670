//! The programs of the fuzz targets: how they are built, and libFuzzer's flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};

use super::{INPUT_SECONDS_MAX, Target};
use e2e_stack::cargo::target_folder;
use e2e_stack::paths::{Paths, create_folder, remove_folder, workspace};
use e2e_stack::process::{Job, command, find_program, output};

/// The compiler with sanitizers and their coverage.
const TOOLCHAIN: &str = "nightly";

/// The flags of cargo-fuzz: coverage that guides libFuzzer, comparisons from which it learns, and the address sanitizer, because the LZ4
/// library has unsafe code.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address";

/// Variables of this program's own build that would change the build of the targets.
const FOREIGN_VARIABLES: [&str; 5] =
    ["RUSTC", "RUSTC_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "LD_LIBRARY_PATH"];

/// The longest generated input, bytes: room for a few nested messages; longer ones only slow the search down.
const INPUT_BYTES_MAX: u32 = 16_384;

#[derive(Debug)]
pub struct Programs {
    /// `target/fuzz`.
    folder: PathBuf,
    triple: String,
}

impl Programs {
    pub fn build() -> anyhow::Result<Programs> {
        let programs = Programs {
            folder: target_folder().join("fuzz"),
            triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        };
        ensure_compilers()?;
        let mut build = command("rustup");
        build.args(["run", TOOLCHAIN, "cargo", "build", "--release", "--locked"]);
        build.args(["--target", &programs.triple]);
        build.current_dir(workspace().join("gateway/fuzz"));
        for name in FOREIGN_VARIABLES {
            build.env_remove(name);
        }
        build.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &programs.folder);
        job("build", "build the fuzz targets, a minute the first time")?.run(&mut build)?;
        Ok(programs)
    }

    /// The runs of `verify`: always the same, starting with the checked-in inputs.
    pub fn bounded(&self, target: &Target) -> anyhow::Result<()> {
        let found = self.folder.join("bounded").join(target.name);
        remove_folder(&found)?;
        let flags = [format!("-runs={}", target.runs), "-seed=1".to_owned()];
        self.search(target, &format!("{} runs", target.runs), &flags, &[found, seeds(target)])
    }

    /// A round of a long run; it starts with the inputs that earlier rounds found.
    pub fn for_minutes(&self, target: &Target, minutes: u32) -> anyhow::Result<()> {
        let flags = [format!("-max_total_time={}", minutes * 60)];
        self.search(target, &format!("{minutes} minutes"), &flags, &[self.found(target), seeds(target)])
    }

    pub fn once(&self, target: &Target, input: &Path) -> anyhow::Result<()> {
        self.search(target, "one run", &[], &[input.to_owned()])
    }

    /// Copies the inputs of long runs that reach new code to the checked-in ones.
    pub fn keep(&self, target: &Target) -> anyhow::Result<()> {
        let flags = ["-merge=1".to_owned()];
        self.search(target, "keep inputs that reach new code", &flags, &[seeds(target), self.found(target)])
    }

    fn found(&self, target: &Target) -> PathBuf {
        self.folder.join("corpus").join(target.corpus)
    }

    /// Runs a target; libFuzzer writes new inputs into the first of the folders.
    fn search(
        &self,
        target: &Target,
        what: &str,
        flags: &[String],
        inputs: &[PathBuf],
    ) -> anyhow::Result<()> {
        let findings = self.folder.join("findings");
        for folder in [&findings].into_iter().chain(inputs.iter().filter(|input| !input.is_file())) {
            create_folder(folder)?;
        }
        let before = written(&findings)?;
        let mut program = Command::new(self.folder.join(&self.triple).join("release").join(target.name));
        program.args(flags).args(inputs).current_dir(&findings);
        program.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
        program.arg(format!("-artifact_prefix={}/{}-", findings.display(), target.name));
        // libFuzzer looks for leaks with ptrace, which containers often forbid, and the targets keep buffers from input to input.
        program.arg("-detect_leaks=0").env("ASAN_OPTIONS", "detect_leaks=0");
        let outcome = job(target.name, &format!("{}: {what}", target.name))?.run(&mut program);
        outcome.map_err(|error| {
            let after = written(&findings).unwrap_or_default();
            let Some(name) = new_in(&after, &before) else { return error };
            let input = findings.join(name);
            error.context(format!(
                "{name} breaks a promise on {input}; to reproduce it: cargo run -p e2e-verify -- fuzz --target {name} --input {input}",
                name = target.name,
                input = input.display()
            ))
        })
    }
}

/// The checked-in inputs of a target.
fn seeds(target: &Target) -> PathBuf {
    workspace().join("gateway/fuzz/corpus").join(target.corpus)
}

/// The files of a folder, and when each was written.
type Written = BTreeMap<OsString, SystemTime>;

fn written(folder: &Path) -> anyhow::Result<Written> {
    let read = || format!("read {}", folder.display());
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name(), entry.metadata()?.modified()?))
    };
    let entries = fs::read_dir(folder).with_context(read)?;
    entries.map(entry).collect::<std::io::Result<_>>().with_context(read)
}

/// A file that is newer than before. The name of a finding is a hash of its content, so a repeated finding has the same name.
fn new_in<'a>(after: &'a Written, before: &Written) -> Option<&'a OsString> {
    after.iter().find(|(name, at)| before.get(*name) != Some(*at)).map(|(name, _)| name)
}

fn job<'a>(log: &str, doing: &'a str) -> anyhow::Result<Job<'a>> {
    let log = Paths::from_environment()?.build_log(&format!("fuzz-{log}"));
    Ok(Job { part: "fuzz", doing, log })
}

/// Makes sure that there is a nightly compiler, installing it if needed, and a compiler for C++, the language of libFuzzer.
fn ensure_compilers() -> anyhow::Result<()> {
    if find_program("c++").is_none() {
        bail!("the fuzz targets need a C++ compiler (for libFuzzer): apt-get install g++");
    }
    let hint = "the fuzz targets need a nightly compiler: rustup toolchain install nightly --profile minimal \
        (rustup itself: https://rustup.rs)";
    ensure!(find_program("rustup").is_some(), "{hint}");
    if has(TOOLCHAIN) {
        return Ok(());
    }
    let mut install = command("rustup");
    install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
    job("toolchain", "install the nightly compiler")?.run(&mut install).context(hint)?;
    ensure!(has(TOOLCHAIN), "{hint}");
    Ok(())
}

fn has(toolchain: &str) -> bool {
    // `rustup run` would install a missing toolchain without a message.
    let listed = output(command("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let named = format!("{toolchain}-");
    listed.lines().any(|line| line.starts_with(&named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_that_comes_again_is_named_again() {
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let before = Written::from([("crash-a".into(), at(1)), ("crash-b".into(), at(1))]);
        let after = Written::from([("crash-a".into(), at(1)), ("crash-b".into(), at(2))]);
        assert_eq!(new_in(&after, &before), Some(&"crash-b".into()));
        assert_eq!(new_in(&before, &before), None);
    }
}
