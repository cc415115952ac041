//! The documents: the tests, links and paths that they name exist, and their tables are whole; the language of doc
//! comments.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{none, root, sources};

/// The suites by the names that documents use, and their folders.
const SUITES: [(&str, &str); 5] = [
    ("process", "crates/pipewright-tests/tests/process"),
    ("disk", "crates/pipewright-tests/tests/disk"),
    ("ipc", "crates/pipewright-tests/tests/ipc"),
    ("peers", "crates/pipewright-tests/tests/peers"),
    ("cli", "crates/pipewright-cli/tests/cli"),
];

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

    /// Returns true for a test without the crate that it is in: a reader would have to search for it, and nobody
    /// checks it.
    fn lacks_its_crate(word: &str) -> bool {
        let is_path = !word.contains(char::is_whitespace);
        is_path && word.contains("::tests::") && TestReference::parse(word).is_none()
    }

    /// Returns true if there is such a module, or such a function in one. A module may be inline.
    fn exists(&self) -> bool {
        sources(&self.folder).into_iter().any(|(file, text)| {
            let file = file.strip_prefix(&self.folder).unwrap_or(&file);
            let module = file.trim_start_matches('/').trim_end_matches(".rs").replace('/', "::");
            let module = module.trim_end_matches("::mod");
            let is_here = |path: &str| {
                let is_inline = |(outer, inner): (&str, &str)| {
                    self.is_module(module, outer) && text.contains(&format!("mod {inner} {{"))
                };
                self.is_module(module, path) || path.rsplit_once("::").is_some_and(is_inline)
            };
            let is_test = |(prefix, name)| is_here(prefix) && text.contains(&format!("fn {name}("));
            is_here(self.path) || self.path.rsplit_once("::").is_some_and(is_test)
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
    for (name, text) in documents() {
        for word in quoted(&text) {
            if TestReference::lacks_its_crate(word) {
                wrong.push(format!("{name}: {word} (of which crate?)"));
            }
            let Some(reference) = TestReference::parse(word) else { continue };
            named += 1;
            if !reference.exists() {
                wrong.push(format!("{name}: {word}"));
            }
        }
    }
    none("neither a module nor a test", wrong);
    assert!(named > 180, "{named}");
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

/// Returns the middle of a mark of a chart, from its line.
fn middle(line: &str) -> (f64, f64) {
    let attribute = |name: &str| {
        let value = line.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0;
        Some(value.replace(',', " ").split_whitespace().filter_map(|it| it.parse().ok()).collect())
    };
    let points: Vec<f64> = attribute("points").unwrap_or_else(|| {
        ["cx", "cy"].iter().flat_map(|name| attribute(name).unwrap_or_default()).collect()
    });
    let of = |first: usize| {
        let all: Vec<f64> = points.iter().skip(first).step_by(2).copied().collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    (of(0), of(1))
}

#[test]
fn no_chart_of_a_document_leads_with_a_noisy_point() {
    let mut charts = 0;
    let pictures = fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    for path in pictures.filter(|path| path.extension().is_some_and(|it| it == "svg")) {
        let text = fs::read_to_string(&path).unwrap();
        if !text.contains("pipewright bench") {
            continue;
        }
        charts += 1;
        let lines = |class: &str| {
            let start = format!("class=\"{class}");
            text.lines().filter(move |line| line.contains(&start)).map(middle).collect::<Vec<_>>()
        };
        let (best, noisy) = (lines("best\""), lines("noisy "));
        assert!(!best.is_empty(), "{path:?}: no point is named");
        for (x, y) in best {
            let is_near =
                |other: &&(f64, f64)| (other.0 - x).abs() < 2.0 && (other.1 - y).abs() < 2.0;
            let found = noisy.iter().find(is_near);
            assert_eq!(found, None, "{path:?}: measure it again on a quiet machine");
        }
    }
    assert!(charts > 0, "docs/pipes.svg is such a chart");
}

#[test]
fn references_are_distinguished_from_other_paths() {
    let exists = |word: &str| TestReference::parse(word).map(|reference| reference.exists());
    assert_eq!(exists("process::main::flood"), Some(true));
    assert_eq!(exists("process::main::no_such_test"), Some(false));
    assert_eq!(exists("process::no_such_suite"), Some(false));
    assert_eq!(exists("process::pipelines::oracle"), Some(true));
    assert_eq!(exists("process::pipelines::no_such_module"), Some(false));
    assert_eq!(exists("pipewright-os::shm::tests"), Some(true));
    assert_eq!(exists("pipewright-os::hm::tests"), Some(false));
    let in_file = |test| exists(&format!("pipewright-cluster::lease::tests::{test}"));
    let test = "a_lease_without_answers_ends_and_a_released_one_does_not";
    assert_eq!([in_file(test), in_file("none")], [Some(true), Some(false)]);
    assert_eq!(exists("Scope::Tree"), None);
    let lacks = TestReference::lacks_its_crate;
    assert!(lacks("journal::tests::trust::a_creation_refuses_what_is_there"));
    assert!(!lacks("pipewright-os::shm::tests::none") && !lacks("process::main::flood"));
}

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
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "python/README.md"]
            .map(str::to_owned),
    );
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten();
    let readmes =
        crates.map(|entry| format!("crates/{}/README.md", entry.file_name().to_string_lossy()));
    names.extend(readmes.filter(|name| root().join(name).exists()));
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
fn the_site_has_every_page() {
    let summary = document("docs/SUMMARY.md");
    let named: BTreeSet<&str> = links(&summary).collect();
    let pages = everything().into_iter().filter(|path| path.ends_with(".md"));
    let pages = pages.filter_map(|path| Some(path.strip_prefix("docs/")?.to_owned()));
    let is_missing = |page: &String| page != "SUMMARY.md" && !named.contains(page.as_str());
    none("pages that docs/SUMMARY.md does not name", pages.filter(is_missing).collect());
    assert!(named.len() > 40, "{}", named.len());
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

/// Returns the number of cells of a row.
fn cells(row: &str) -> usize {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = row.strip_suffix('|').filter(|rest| !rest.ends_with('\\')).unwrap_or(row);
    // Also in code, a cell ends at a bar without a backslash.
    let bars = row.char_indices().filter(|(at, it)| *it == '|' && !row[..*at].ends_with('\\'));
    bars.count() + 1
}

fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('|') && line.contains('-') && line.chars().all(|it| "|-: ".contains(it))
}

/// Returns what is wrong with the tables of a text, and their number.
fn wrong_tables(name: &str, text: &str) -> (Vec<String>, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut wrong, mut count, mut is_code) = (Vec::new(), 0, false);
    for (at, line) in lines.iter().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let Some(head) = at.checked_sub(1).map(|at| lines[at]) else { continue };
        if is_code || !is_delimiter(line) {
            continue;
        }
        count += 1;
        if at >= 2 && !lines[at - 2].trim().is_empty() {
            wrong.push(format!("{name}:{at}: no blank line before a table"));
        }
        let rows = lines.iter().enumerate().skip(at).take_while(|(_, row)| row.starts_with('|'));
        wrong.extend(
            rows.filter(|(_, row)| cells(row) != cells(head))
                .map(|(row, text)| format!("{name}:{}: {text}", row + 1)),
        );
    }
    (wrong, count)
}

#[test]
fn every_row_of_a_table_has_the_cells_of_its_head() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, text) in documents() {
        let (found, tables) = wrong_tables(&name, &text);
        wrong.extend(found);
        count += tables;
    }
    none("tables that are not shown as such", wrong);
    assert!(count > 50, "{count}");
}

#[test]
fn wrong_tables_are_found() {
    let right = "text\n\n| a | b |\n|---|---|\n| `x\\|y` | |\n| 1 | 2 |\n";
    assert_eq!(wrong_tables("x", right), (Vec::new(), 1));
    let no_blank = right.replace("text\n\n", "text\n");
    assert_eq!(wrong_tables("x", &no_blank).0.len(), 1);
    let bar = right.replace("\\|", "|");
    assert_eq!(wrong_tables("x", &bar).0, ["x:5: | `x|y` | |"]);
    assert_eq!(wrong_tables("x", &format!("```\n{bar}```\n")), (Vec::new(), 0));
}

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
