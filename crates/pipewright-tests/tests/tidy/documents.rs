//! References in the documents: the suites that they name exist.

use std::fs;

use super::{none, root, sources};

/// The suites by the name that documents call them, and their folders.
const SUITES: [(&str, &str); 4] = [
    ("process", "crates/pipewright-tests/tests/process"),
    ("disk", "crates/pipewright-tests/tests/disk"),
    ("ipc", "crates/pipewright-tests/tests/ipc"),
    ("cli", "crates/pipewright-cli/tests/cli"),
];

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns true if that suite has a module of this name.
fn suite_has(suite: &str, module: &str) -> bool {
    let folder = SUITES.iter().find(|(name, _)| *name == suite).map(|(_, folder)| *folder);
    let is_there = |folder: &str| {
        let folder = root().join(folder);
        folder.join(format!("{module}.rs")).exists() || folder.join(module).is_dir()
    };
    folder.is_some_and(is_there)
}

/// Returns true if a file of that crate is a module whose path ends so, as in `ring::model`.
fn crate_has(name: &str, module: &str) -> bool {
    let path = module.replace("::", "/");
    let ends = [format!("/{path}.rs"), format!("/{path}/mod.rs")];
    let mut files = sources(&format!("crates/{name}")).into_iter();
    files.any(|(file, _)| ends.iter().any(|end| file.replace('\\', "/").ends_with(end)))
}

/// Returns false if a part of a table's last column names a suite or a module that does not exist.
///
/// The parts are `` `name`, `name` (Linux) `` for the suite of processes, `` ipc: `name` `` for another one, and
/// `` `pipewright-os`: `module::path` `` for the tests of a crate.
fn part_is_right(part: &str) -> bool {
    let mut names = quoted(part).peekable();
    let prefix = part.split('`').next().unwrap_or_default().trim();
    let of_a_crate = names.next_if(|name| name.starts_with("pipewright-") && part.contains("`: "));
    names.all(|name| match (of_a_crate, prefix) {
        _ if name.contains('/') => root().join(name).exists(),
        (Some(owner), _) => crate_has(owner, name),
        (None, "") => suite_has("process", name),
        (None, "the tool's") => suite_has("cli", name),
        (None, other) => suite_has(other.trim_end_matches(':'), name),
    })
}

#[test]
fn every_row_of_the_platform_tables_names_a_suite_that_exists() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    let text = document("docs/platforms.md");
    let mut is_of_suites = false;
    for line in text.lines() {
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        is_of_suites &= line.starts_with('|');
        if is_of_suites && !line.starts_with("|---") {
            named += 1;
            wrong.extend(last.split(';').filter(|part| !part_is_right(part)).map(str::to_owned));
        }
        is_of_suites |= line.starts_with('|') && last == "suite";
    }
    none("suites that do not exist", wrong);
    assert!(named > 40, "{named}");
}

#[test]
fn every_suite_that_a_document_names_exists() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    for name in ["docs/gotchas.md", "docs/disk.md"] {
        let text = document(name);
        let modules = quoted(&text).filter_map(|word| word.split_once("::"));
        for (suite, module) in modules.filter(|(suite, _)| SUITES.iter().any(|it| it.0 == *suite)) {
            named += 1;
            if !suite_has(suite, module) {
                wrong.push(format!("{name}: {suite}::{module}"));
            }
        }
    }
    none("suites that do not exist", wrong);
    assert!(named > 40, "{named}");
}
