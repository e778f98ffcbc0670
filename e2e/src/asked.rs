//! Programs that read JSON to its end, and then answer in JSON.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Tells the program `input`, and returns its answer; `name` is for errors.
pub fn asked<Answer: DeserializeOwned>(
    name: &str,
    program: &mut Command,
    input: &(impl Serialize + ?Sized),
) -> Result<Answer> {
    let spawned = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("start {name}"))?;
    let mut stdin = child.stdin.take().with_context(|| format!("the input of {name} is not piped"))?;
    // It answers after it has read everything, so neither waits for the other.
    let told = stdin.write_all(&serde_json::to_vec(input)?);
    drop(stdin);
    let done = child.wait_with_output().with_context(|| format!("wait for {name}"))?;
    ensure!(done.status.success(), "{name}: {}", done.status);
    told.with_context(|| format!("tell {name} what is asked"))?;
    serde_json::from_slice(&done.stdout).with_context(|| format!("understand {name}"))
}
