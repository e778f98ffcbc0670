//! Every long test is in one group, and every filter of a group selects a test.

use std::fs;
use std::path::Path;

use e2e_stack::paths::workspace;

use super::*;

/// The live and end-to-end tests that the quick tier leaves out, with the reasons in their files.
fn marked() -> Vec<(String, String)> {
    let mut marked = Vec::new();
    for folder in ["e2e/tests/it", "gateway/tests/live"] {
        read(&workspace().join(folder), "", &mut marked);
    }
    marked
}

fn read(folder: &Path, module: &str, marked: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let module = format!("{module}{}::", path.file_stem().unwrap().to_str().unwrap());
        if path.is_dir() {
            read(&path, &module, marked);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Each mark, and the text up to the next mark; the test's name comes first in it.
            for behind in text.split("#[ignore = \"").skip(1) {
                let (reason, behind) = behind.split_once("\"]").unwrap();
                let (_, name) = behind.split_once("fn ").unwrap();
                let (name, _) = name.split_once('(').unwrap();
                marked.push((format!("{module}{name}"), reason.to_owned()));
            }
        }
    }
}

/// Whether each test is selected only by the group in its mark, and each filter selects a test.
fn ensure_marked(marked: &[(String, String)]) -> anyhow::Result<()> {
    for (test, reason) in marked {
        let named = reason.strip_prefix("group ").unwrap_or_default();
        let finders = finders(test);
        ensure!(
            finders == [named],
            "{test} is marked {reason:?}, and the groups that select it are {finders:?}"
        );
    }
    for filter in ALL.iter().flat_map(Group::filters) {
        let is_used = marked.iter().any(|(test, _)| test.contains(filter));
        ensure!(is_used, "no test that is left out has {filter} in its name");
    }
    Ok(())
}

#[test]
fn every_test_that_is_left_out_is_in_the_group_that_it_names_and_in_no_other() {
    ensure_marked(&marked()).unwrap();
}

#[test]
fn a_mark_that_is_not_its_groups_is_found_out() {
    let test = "scaling::autoscaled::replicas_follow_the_load_and_leave_when_empty";
    for reason in ["group chart", "group faults-1", "slow", ""] {
        let mut marked = marked();
        let mark = marked.iter_mut().find(|(name, _)| name == test).unwrap();
        reason.clone_into(&mut mark.1);
        let said = ensure_marked(&marked).unwrap_err().to_string();
        assert!(said.starts_with(test) && said.contains("[\"autoscaled\"]"), "{reason}: {said}");
    }
}

#[test]
fn a_test_that_no_group_or_two_groups_find_is_found_out() {
    for (test, finders) in
        [("delivery::kill::x", "are []"), ("storage::gitops::waves::x", "are [\"storage\", \"gitops\"]")]
    {
        let said = ensure_found(&[test.to_owned()]).unwrap_err().to_string();
        assert!(said.starts_with(test) && said.contains(finders), "{said}");
    }
}

#[test]
fn a_filter_without_a_test_is_found_out() {
    let marked: Vec<_> =
        marked().into_iter().filter(|(test, _)| !test.contains("delivery::zone::")).collect();
    let said = ensure_marked(&marked).unwrap_err().to_string();
    assert!(said.contains("delivery::zone::"), "{said}");
}

#[test]
fn every_part_of_the_scenarios_is_in_a_group() {
    let parts: Vec<u32> = ALL
        .iter()
        .filter_map(|group| match group.work {
            Work::Faults(part) => Some(part),
            _ => None,
        })
        .collect();
    assert_eq!(parts, (1..=FAULT_PARTS).collect::<Vec<_>>());
}

#[test]
fn groups_beside_each_other_are_of_different_kinds() {
    let next = ALL.iter().cycle().skip(1);
    for (one, next) in ALL.iter().zip(next) {
        let faults = |group: &Group| matches!(group.work, Work::Faults(_));
        assert!(one.paths != next.paths && !(faults(one) && faults(next)), "{} and {}", one.name, next.name);
    }
}

#[test]
fn every_file_that_a_group_is_about_is_there() {
    for group in &ALL {
        for path in group.paths {
            assert!(workspace().join(path).exists(), "{}: {path}", group.name);
        }
    }
}
