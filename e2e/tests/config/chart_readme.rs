//! The chart's README: its table of values is the one that helm-docs makes from values.yaml.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use e2e_stack::paths;

/// A row for each key whose comment begins with `--`, with its default and that comment.
#[test]
fn the_readme_has_every_value() -> anyhow::Result<()> {
    let folder = paths::workspace().join("charts/sluice");
    let text = std::fs::read_to_string(folder.join("values.yaml")).context("read values.yaml")?;
    let readme = std::fs::read_to_string(folder.join("README.md")).context("read README.md")?;
    let values: Value = serde_saphyr::from_str(&text).context("understand values.yaml")?;
    let (mut path, mut described, mut rows) = (Vec::<String>::new(), None::<String>, 0_usize);
    for line in text.lines() {
        let word = line.trim_start();
        let depth = (line.len() - word.len()) / 2;
        if let Some(first) = word.strip_prefix("# -- ") {
            described = Some(first.to_owned());
        } else if let (Some(more), Some(said)) = (word.strip_prefix("# "), described.as_mut()) {
            said.push(' ');
            said.push_str(more);
        } else if let Some((key, _)) = word.split_once(':').filter(|_| !word.starts_with(['#', '-'])) {
            path.truncate(depth);
            path.push(key.to_owned());
            let Some(said) = described.take() else { continue };
            let value = values.pointer(&format!("/{}", path.join("/"))).context("a value")?;
            let (key, kind_and_default) = (path.join("."), format!("| `{value}` |"));
            let row = readme.lines().find(|row| row.starts_with(&format!("| {key} | ")));
            let row = row.with_context(|| format!("README.md has no row for {key}"))?;
            ensure!(row.contains(&kind_and_default), "{key} is {value}, README.md says {row}");
            ensure!(row.ends_with(&format!("| {said} |")), "{key}: run helm-docs; README.md says {row}");
            rows += 1;
        }
    }
    ensure!(rows >= 40, "{rows} rows");
    let listed = readme
        .split("## Values")
        .nth(1)
        .context("no values")?
        .lines()
        .filter(|row| row.starts_with("| ") && !row.starts_with("| Key"));
    ensure!(listed.count() == rows, "README.md has rows that values.yaml has no keys for");
    Ok(())
}
