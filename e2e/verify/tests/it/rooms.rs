//! The rooms of a package depend on each other without circles.
//!
//! A room is a file directly below `src`, or a folder with the file of its name. `main.rs` and `lib.rs` are no rooms. One room names
//! another if its code, without tests, has a path that begins with `crate::` and that room's name. Rooms in a circle can only be
//! understood, tested or moved together.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, Item, UseTree,
    visit::{self, Visit},
};

/// The packages whose rooms are checked.
const PACKAGES: [&str; 5] = ["gateway", "gateway/kafka", "operator", "operator/plan", "operator/kubectl"];

/// Which rooms each room names.
type Named = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_rooms_name_each_other_in_a_circle() {
    let circles: Vec<_> = PACKAGES
        .iter()
        .filter_map(|package| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(package).join("src");
            let circle = circle(named(&source));
            (!circle.is_empty()).then(|| format!("{package}: {circle:?}"))
        })
        .collect();
    assert!(
        circles.is_empty(),
        "rooms that name each other in a circle, or lie between two circles:\n{}",
        circles.join("\n")
    );
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let of = |pairs: &[(&str, &str)]| {
        let mut named = Named::new();
        for (from, to) in pairs {
            named.entry((*to).to_owned()).or_default();
            named.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        circle(named).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("a", "c")]), [""; 0]);
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]), ["b", "c"]);
}

#[test]
fn paths_in_uses_code_and_macros_are_seen_and_those_of_tests_are_not() {
    let text = "use crate::{a::One, b::{self, Two}}; fn f() { crate::c::g(); log!(crate::d::X) } \
                #[cfg(test)] mod tests { use crate::e::Three; }";
    assert_eq!(paths(text), ["a", "b", "c", "d"].map(str::to_owned).into());
}

/// The rooms in circles: repeatedly removes the rooms that name no other room, or that no other room names.
fn circle(mut named: Named) -> Named {
    loop {
        let used: BTreeSet<_> = named.values().flatten().cloned().collect();
        let before = named.len();
        named.retain(|room, names| !names.is_empty() && used.contains(room));
        let left: BTreeSet<_> = named.keys().cloned().collect();
        for names in named.values_mut() {
            names.retain(|name| left.contains(name));
        }
        if named.len() == before {
            return named;
        }
    }
}

/// The other rooms that each room below a folder names. A path through `lib.rs` would hide the room to which it leads.
fn named(source: &Path) -> Named {
    let mut named = Named::new();
    for (room, file) in files(source) {
        named.entry(room).or_default().extend(paths(&fs::read_to_string(file).unwrap()));
    }
    let rooms: BTreeSet<_> = named.keys().cloned().collect();
    for (room, names) in &mut named {
        let hidden: Vec<_> = names.difference(&rooms).collect();
        assert!(hidden.is_empty(), "{}: {room} names {hidden:?} through lib.rs", source.display());
        names.remove(room);
    }
    named
}

/// Every source file with its room, without the files that only have tests.
fn files(source: &Path) -> Vec<(String, PathBuf)> {
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let room = |path: &Path| stem(path.strip_prefix(source).unwrap().iter().next().unwrap().as_ref());
    let is_of_room =
        |path: &Path| !stem(path).ends_with("tests") && !["main", "lib"].contains(&room(path).as_str());
    let found = super::files(source, "rs", is_of_room);
    assert!(!found.is_empty(), "{}", source.display());
    found.into_iter().map(|path| (room(&path), path)).collect()
}

/// The first name after `crate::` of every path in a file.
fn paths(text: &str) -> BTreeSet<String> {
    let mut seen = Seen::default();
    seen.visit_file(&syn::parse_file(text).unwrap());
    seen.0
}

#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    fn of_use(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                self.0.insert(path.ident.to_string());
            }
            UseTree::Name(name) => {
                self.0.insert(name.ident.to_string());
            }
            UseTree::Rename(rename) => {
                self.0.insert(rename.ident.to_string());
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.of_use(tree)),
            UseTree::Glob(_) => {}
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_of_tests = match item {
            Item::Mod(item) => is_test(&item.attrs),
            Item::Use(item) => is_test(&item.attrs),
            Item::Fn(item) => is_test(&item.attrs),
            Item::Impl(item) => is_test(&item.attrs),
            _ => false,
        };
        if !is_of_tests {
            visit::visit_item(self, item);
        }
    }

    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        if let UseTree::Path(path) = tree
            && path.ident == "crate"
        {
            self.of_use(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.0.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }

    /// A macro's input is no syntax tree, so this searches for the words after `crate ::`.
    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        let text = of.tokens.to_string();
        for (_, behind) in text.match_indices("crate ::").map(|(at, found)| text.split_at(at + found.len())) {
            let name: String =
                behind.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            self.0.insert(name);
        }
        visit::visit_macro(self, of);
    }
}
