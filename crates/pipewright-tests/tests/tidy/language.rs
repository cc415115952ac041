//! The language of doc comments: each opens with a verb or a noun.

use super::{none, sources};

/// The crates whose doc comments are clean. Add a crate here when its last offender is reworded.
const CLEAN: [&str; 9] = [
    "pipewright",
    "pipewright-bench",
    "pipewright-cli",
    "pipewright-disk",
    "pipewright-ipc",
    "pipewright-os",
    "pipewright-test-macros",
    "pipewright-tests",
    "../bench",
];

/// First words of a clause without a noun, which a reader has to parse twice.
const REFUSED: [&str; 9] = ["What", "Whether", "Who", "Whom", "How", "Where", "That", "Of", "Why"];

/// Returns the first lines of the doc comments, with their numbers from 1.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = "";
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        let mark = line.get(..3).filter(|mark| ["///", "//!"].contains(mark)).unwrap_or("");
        let is_first = !mark.is_empty() && mark != before;
        before = mark;
        is_first.then(|| (at + 1, line[3..].trim_start()))
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
    for (name, text) in CLEAN.iter().flat_map(|name| sources(&format!("crates/{name}"))) {
        let refused = first_lines(&text).filter(|(_, comment)| is_refused(comment));
        offenders.extend(refused.map(|(line, comment)| format!("{name}:{line}: {comment}")));
    }
    none("open with a verb (`Returns`, `Waits`) or a noun", offenders);
}

#[test]
fn only_the_first_line_of_a_doc_comment_counts() {
    let text = "//! Whether.\n\n/// Returns it.\n/// What follows is part of it.\nfn f() {}\n    /// That.\n";
    let refused = first_lines(text).filter(|(_, comment)| is_refused(comment));
    assert_eq!(refused.map(|(line, _)| line).collect::<Vec<_>>(), [1, 6]);
}
