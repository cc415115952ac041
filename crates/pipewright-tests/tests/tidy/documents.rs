//! References in the documents: the suites and the tests that they name exist.

use std::fs;

use super::{none, root, sources};

/// The suites by the names that documents use, and their folders.
const SUITES: [(&str, &str); 5] = [
    ("process", "crates/pipewright-tests/tests/process"),
    ("disk", "crates/pipewright-tests/tests/disk"),
    ("ipc", "crates/pipewright-tests/tests/ipc"),
    ("peers", "crates/pipewright-tests/tests/peers"),
    ("cli", "crates/pipewright-cli/tests/cli"),
];

/// The documents whose references are checked.
const DOCUMENTS: [&str; 5] =
    ["docs/platforms.md", "docs/gotchas.md", "docs/disk.md", "docs/security.md", "CONTRIBUTING.md"];

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A module or a test that a document names: `process::held_pipes`,
/// `pipewright-os::shm::tests::others_cannot_write_it`.
struct TestReference<'a> {
    folder: String,
    /// The path may begin in any folder of the crate.
    is_of_a_crate: bool,
    path: &'a str,
}

impl<'a> TestReference<'a> {
    /// Returns `None` for the path of something else, as in `Scope::Tree`.
    fn parse(word: &'a str) -> Option<TestReference<'a>> {
        let (owner, path) = word.split_once("::").filter(|(_, path)| !path.is_empty())?;
        let suite = SUITES.iter().find(|(name, _)| *name == owner).map(|(_, folder)| *folder);
        let is_of_a_crate = owner.starts_with("pipewright-");
        let folder = match suite {
            Some(folder) => folder.to_owned(),
            None if is_of_a_crate => format!("crates/{owner}/src"),
            None => return None,
        };
        Some(TestReference { folder, is_of_a_crate, path })
    }

    fn is_module(&self, module: &str, path: &str) -> bool {
        let is_end = || module.strip_suffix(path).is_some_and(|prefix| prefix.ends_with("::"));
        // The tests of a file may be in the file.
        let in_file = path.strip_suffix("::tests").is_some_and(|path| module == path);
        module == path || self.is_of_a_crate && (is_end() || in_file)
    }

    /// Returns true if there is such a module, or such a function in one.
    fn exists(&self) -> bool {
        sources(&self.folder).into_iter().any(|(file, text)| {
            let file = file.strip_prefix(&self.folder).unwrap_or(&file);
            let module = file.trim_start_matches('/').trim_end_matches(".rs").replace('/', "::");
            let module = module.trim_end_matches("::mod");
            let is_test = |(prefix, name)| {
                self.is_module(module, prefix) && text.contains(&format!("fn {name}("))
            };
            self.is_module(module, self.path) || self.path.rsplit_once("::").is_some_and(is_test)
        })
    }
}

fn names_a_test(text: &str) -> bool {
    let is_reference = |word| TestReference::parse(word).is_some();
    quoted(text).any(|word| is_reference(word) || word.ends_with(".rs") || word.ends_with(".sh"))
}

#[test]
fn every_test_that_a_document_names_exists() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    for name in DOCUMENTS {
        let text = document(name);
        for word in quoted(&text) {
            let Some(reference) = TestReference::parse(word) else { continue };
            named += 1;
            if !reference.exists() {
                wrong.push(format!("{name}: {word}"));
            }
        }
    }
    none("neither a module nor a test", wrong);
    assert!(named > 120, "{named}");
}

#[test]
fn every_row_of_the_platform_tables_names_a_test() {
    let (mut without, mut rows) = (Vec::new(), 0);
    let text = document("docs/platforms.md");
    let mut is_of_tests = false;
    for line in text.lines() {
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        is_of_tests &= line.starts_with('|');
        if is_of_tests && !line.starts_with("|---") {
            rows += 1;
            without.extend((!names_a_test(last)).then(|| line.to_owned()));
        }
        is_of_tests |= line.starts_with('|') && last == "tests";
    }
    none("rows without a test", without);
    assert!(rows > 40, "{rows}");
}

#[test]
fn every_surprise_names_a_test_or_says_that_there_is_none() {
    let text = document("docs/gotchas.md");
    let sections = text.split("\n## ").filter(|section| !section.contains("nothing was run"));
    let entries = sections.flat_map(|section| section.split("\n* ").skip(1));
    let excuses = ["No test", "Not tried", "`bench/`"];
    let is_bare =
        |entry: &&str| !names_a_test(entry) && !excuses.iter().any(|excuse| entry.contains(excuse));
    none("entries without a test", entries.filter(is_bare).map(str::to_owned).collect());
}

#[test]
fn references_are_distinguished_from_other_paths() {
    let exists = |word: &str| TestReference::parse(word).map(|reference| reference.exists());
    assert_eq!(exists("process::main::flood"), Some(true));
    assert_eq!(exists("process::main::no_such_test"), Some(false));
    assert_eq!(exists("process::no_such_suite"), Some(false));
    assert_eq!(exists("pipewright-os::shm::tests"), Some(true));
    assert_eq!(exists("pipewright-os::hm::tests"), Some(false));
    let in_file = |test| exists(&format!("pipewright-cluster::lease::tests::{test}"));
    let test = "a_lease_without_answers_ends_and_a_released_one_does_not";
    assert_eq!([in_file(test), in_file("none")], [Some(true), Some(false)]);
    assert_eq!(exists("Scope::Tree"), None);
}
