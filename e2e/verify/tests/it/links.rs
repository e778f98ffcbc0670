//! Links in documents lead to files and headings that exist.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::files;

/// Folders without documents of ours.
const PASSED_OVER: [&str; 4] = ["target", ".git", "node_modules", "testdata"];

#[test]
fn every_relative_link_leads_somewhere() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let documents: BTreeMap<PathBuf, String> = documents(&workspace);
    assert!(documents.len() >= 15, "{}", documents.len());
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (document, text) in &documents {
        for link in links(text).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            checked += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = document.parent().unwrap().join(path);
            let target = if path.is_empty() { Ok(document.clone()) } else { target.canonicalize() };
            let Ok(target) = target else {
                broken.push(format!("{}: {link}: no such file", document.display()));
                continue;
            };
            let is_there = anchor.is_empty()
                || documents
                    .get(&target)
                    .is_some_and(|text| anchors(text).iter().any(|found| found == anchor));
            if !is_there {
                broken.push(format!("{}: {link}: no such heading", document.display()));
            }
        }
    }
    assert!(checked > 100, "{checked} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn headings_have_the_anchors_that_github_gives_them() {
    let text =
        "# One\n## Exactly once, or at least once\n```sh\n# no heading\n```\n### `a.b` and C\n## One\n";
    assert_eq!(anchors(text), ["one", "exactly-once-or-at-least-once", "ab-and-c", "one-1"]);
    assert_eq!(links("see [a](b.md#c), [d](e) and `[f](g)`").collect::<Vec<_>>(), ["b.md#c", "e", "g"]);
}

/// Every document of the repository, by its path.
fn documents(workspace: &Path) -> BTreeMap<PathBuf, String> {
    let is_ours = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !path.is_dir() || !PASSED_OVER.contains(&name) && !path.is_symlink()
    };
    let text = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    files(workspace, "md", is_ours).into_iter().map(text).collect()
}

/// The texts between `](` and `)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, found)| Some(text[at + found.len()..].split_once(')')?.0))
}

/// The anchors of all headings.
fn anchors(text: &str) -> Vec<String> {
    let (mut found, mut seen, mut is_code) = (Vec::new(), BTreeMap::<String, u32>::new(), false);
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some((marks, heading)) = line.split_once(' ').filter(|_| !is_code) else { continue };
        if marks.is_empty() || marks.chars().any(|c| c != '#') {
            continue;
        }
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let times = seen.entry(slug.clone()).or_default();
        found.push(if *times == 0 { slug.clone() } else { format!("{slug}-{times}") });
        *times += 1;
    }
    found
}
