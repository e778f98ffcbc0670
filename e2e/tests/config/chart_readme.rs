//! The chart's README: its table of values is the one that helm-docs makes from values.yaml.

use anyhow::{Context as _, ensure};

use e2e_fixtures::files::{text, yaml};

/// The chart's values, with comments.
pub(super) const VALUES: &str = "charts/sluice/values.yaml";

/// A row for each key whose comment begins with `--`, with its default and that comment.
#[test]
fn the_readme_has_every_value() -> anyhow::Result<()> {
    let (readme, values, described) =
        (text("charts/sluice/README.md")?, yaml(VALUES)?, described(&text(VALUES)?));
    for (key, said) in &described {
        let value = values.pointer(&format!("/{}", key.replace('.', "/"))).context("a value")?;
        let row = readme.lines().find(|row| row.starts_with(&format!("| {key} | ")));
        let row = row.with_context(|| format!("README.md has no row for {key}"))?;
        ensure!(row.contains(&format!("| `{value}` |")), "{key} is {value}, README.md says {row}");
        ensure!(row.ends_with(&format!("| {said} |")), "{key}: run helm-docs; README.md says {row}");
    }
    ensure!(described.len() >= 40, "{} rows", described.len());
    let listed = readme
        .split("## Values")
        .nth(1)
        .context("no values")?
        .lines()
        .filter(|row| row.starts_with("| ") && !row.starts_with("| Key"));
    ensure!(listed.count() == described.len(), "README.md has rows that values.yaml has no keys for");
    Ok(())
}

/// The keys of values.yaml whose comment begins with `--`, each with that comment.
pub(super) fn described(text: &str) -> Vec<(String, String)> {
    let (mut path, mut comment, mut found) = (Vec::new(), None::<String>, Vec::new());
    for line in text.lines() {
        let word = line.trim_start();
        if let Some(first) = word.strip_prefix("# -- ") {
            comment = Some(first.to_owned());
        } else if let (Some(more), Some(said)) = (word.strip_prefix("# "), comment.as_mut()) {
            said.push(' ');
            said.push_str(more);
        } else if let Some((key, _)) = word.split_once(':').filter(|_| !word.starts_with(['#', '-'])) {
            path.truncate((line.len() - word.len()) / 2);
            path.push(key);
            found.extend(comment.take().map(|said| (path.join("."), said)));
        }
    }
    found
}
