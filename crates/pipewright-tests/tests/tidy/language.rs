//! The language of doc comments: each opens with a verb or a noun.

use std::fs;

use super::{none, root, sources};

/// The first words of a clause without a noun, which a reader has to parse twice.
const REFUSED: [&str; 9] = ["What", "Whether", "Who", "Whom", "How", "Where", "That", "Of", "Why"];

/// Returns the first lines of the doc comments and of each section in them, with their numbers from 1.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = "";
    let mut is_after_heading = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        let mark = line.get(..3).filter(|mark| ["///", "//!"].contains(mark)).unwrap_or("");
        let comment = line[mark.len()..].trim_start();
        let is_first = !mark.is_empty() && (mark != before || is_after_heading);
        before = mark;
        is_after_heading = !mark.is_empty()
            && (comment.starts_with("# ") || (is_after_heading && comment.is_empty()));
        is_first.then_some((at + 1, comment))
    })
}

/// Returns true if the comment opens with one of the refused words.
fn is_refused(comment: &str) -> bool {
    let word = comment.split(|letter: char| !letter.is_alphanumeric()).next();
    word.is_some_and(|word| REFUSED.contains(&word))
}

#[test]
fn doc_comments_open_with_a_verb_or_a_noun() {
    let mut offenders = Vec::new();
    for (name, text) in sources("") {
        let refused = first_lines(&text).filter(|(_, comment)| is_refused(comment));
        offenders.extend(refused.map(|(line, comment)| format!("{name}:{line}: {comment}")));
    }
    none("open with a verb (`Returns`, `Waits`) or a noun", offenders);
}

#[test]
fn every_package_of_the_repository_is_checked() {
    let files = sources("");
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten();
    let crates = crates.filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut packages: Vec<String> =
        crates.map(|entry| format!("crates/{}/", entry.file_name().to_string_lossy())).collect();
    packages.extend(
        ["bench/driver/", "bench/ipc/src/peer/", "fuzz/targets/", "python/src/"].map(str::to_owned),
    );
    let is_checked =
        |package: &String| files.iter().any(|(name, _)| name.starts_with(package.as_str()));
    none(
        "packages without a checked file",
        packages.into_iter().filter(|it| !is_checked(it)).collect(),
    );
}

#[test]
fn only_the_first_lines_of_a_doc_comment_and_of_its_sections_count() {
    let text = "//! Whether.\n\n/// Returns it.\n/// What follows is part of it.\nfn f() {}\n    /// That.\n\
                /// # Errors\n///\n/// What is refused.\n/// Whether.\n";
    let refused = first_lines(text).filter(|(_, comment)| is_refused(comment));
    assert_eq!(refused.map(|(line, _)| line).collect::<Vec<_>>(), [1, 6, 9]);
}
