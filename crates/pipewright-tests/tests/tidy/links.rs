//! Links and paths in the documents: each leads to something that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{none, root};

/// Folders that the documents abbreviate, as architecture.md says; the first that fits counts.
const ABBREVIATED: [(&str, &str); 6] = [
    ("os/", "crates/pipewright-os/src/"),
    ("ipc/", "crates/pipewright-ipc/src/"),
    ("disk/src/", "crates/pipewright-disk/src/"),
    ("disk/", "crates/pipewright-disk/src/"),
    ("supervisor/", "crates/pipewright-os/supervisor/"),
    ("nolibc/", "crates/pipewright-os/nolibc/"),
];

/// Folders of the root: a word that begins with one is a path, with any ending.
const ROOTS: [&str; 8] =
    ["crates/", "docs/", "ci/", ".ci/", "bench/", "fuzz/", "clients/", "python/"];

const EXTENSIONS: [&str; 5] = [".rs", ".sh", ".md", ".toml", ".svg"];

/// Returns the documents, by their paths from the root, with their texts.
pub(super) fn documents() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("docs")).unwrap().flatten();
    let names = entries.map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.extend(
        ["README.md", "CONTRIBUTING.md", "bench/README.md", "python/README.md"].map(str::to_owned),
    );
    let read = |name: String| (name.clone(), fs::read_to_string(root().join(name)).unwrap());
    names.into_iter().map(read).collect()
}

/// Returns every file and folder of the repository, by its path from the root.
fn everything() -> BTreeSet<String> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name == "target" || name == ".git" {
                continue;
            }
            let from_root = path.strip_prefix(root()).unwrap().display().to_string();
            found.insert(from_root.replace('\\', "/"));
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Returns the text without its blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(is_prose).flat_map(|line| [line, "\n"]).collect()
}

/// Returns the targets of the links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns the anchors of the headings, as they are made of their texts.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|it| it.is_alphanumeric() || "-_".contains(*it)).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the words in backticks that are paths.
fn paths(text: &str) -> Vec<String> {
    let text = prose(text);
    let words = text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let is_path = |word: &&str| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
        let is_named = EXTENSIONS.iter().any(|end| word.ends_with(end)) || word.ends_with('/');
        let is_below = ROOTS.iter().any(|folder| word.starts_with(folder));
        let is_elsewhere = word.starts_with(['/', '-']) || word.starts_with("target/");
        word.len() > 1 && word.chars().all(is_plain) && (is_named || is_below) && !is_elsewhere
    };
    words.map(|word| word.trim_start_matches("*/")).filter(is_path).map(str::to_owned).collect()
}

/// Returns true if that path exists from the root, or is the end of one that does.
fn exists(path: &str, everything: &BTreeSet<String>) -> bool {
    let full = |(short, full): &(&str, &str)| Some(format!("{full}{}", path.strip_prefix(short)?));
    let expanded = ABBREVIATED.iter().find_map(full);
    let path = path.trim_end_matches('/');
    let is_end = |whole: &String| whole.strip_suffix(path).is_some_and(|it| it.ends_with('/'));
    expanded.is_some_and(|path| everything.contains(path.trim_end_matches('/')))
        || everything.contains(path)
        || everything.iter().any(is_end)
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for (name, text) in documents() {
        let folder = Path::new(&name).parent().unwrap();
        for link in links(&prose(&text)).filter(|link| !link.contains("://")) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => root().join(&name),
                file => root().join(folder).join(file),
            };
            let has = |anchor: &str| {
                fs::read_to_string(&path).is_ok_and(|text| anchors(&text).contains(anchor))
            };
            if !path.exists() || !(anchor.is_empty() || has(anchor)) {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    none("broken links", broken);
    assert!(count > 20, "{count}");
}

#[test]
fn every_path_in_a_document_exists() {
    let everything = everything();
    let (mut missing, mut count) = (Vec::new(), 0);
    for (name, text) in documents() {
        let paths = paths(&text);
        count += paths.len();
        let wrong = paths.iter().filter(|path| !exists(path, &everything));
        missing.extend(wrong.map(|path| format!("{name}: {path}")));
    }
    none("paths that do not exist", missing);
    assert!(count > 100, "{count}");
}

#[test]
fn links_anchors_and_paths_are_read_outside_of_code() {
    let text =
        "# How `it` works, here\n[a](b.md#c) and `bash ci/x.sh -p y`\n```\n`z.rs`\n```\n`*/w.rs`";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md#c"]);
    assert_eq!(anchors(text), BTreeSet::from(["how-it-works-here".to_owned()]));
    assert_eq!(paths(text), ["ci/x.sh", "w.rs"]);
    let some = BTreeSet::from(["crates/pipewright-os/src/a.rs".to_owned()]);
    assert!(exists("os/a.rs", &some) && exists("src/a.rs", &some) && !exists("rc/a.rs", &some));
}
