//! The examples of the documents: each command of a block `console` prints what the page says.
//!
//! A line of the page may have `[..]` for anything, and its folder is `/data`. A file that `cat` shows is written
//! first. Times are not compared, and of a batch neither is the order of the lines. A comment in front of a block has
//! what a reader would have done before (`<!-- before: ... -->`), which words may be others (`<!-- any: ... -->`), or
//! why the block does not run (`<!-- not run: ... -->`).

use std::fs;
use std::process::Command;

use super::shared::watchdog::Watchdog;
use super::{Place, out, pace, sorted};

/// A block `console` of a page, with the comment in front of it.
struct Block<'a> {
    line: usize,
    comment: &'a str,
    /// Each command, and what it prints.
    commands: Vec<(&'a str, Vec<&'a str>)>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut comment): (Vec<Block>, &str) = (Vec::new(), "");
    let mut is_inside = false;
    for (at, line) in page.lines().enumerate() {
        match line.trim() {
            "```console" => {
                blocks.push(Block { line: at + 1, comment, commands: Vec::new() });
                (is_inside, comment) = (true, "");
            }
            "```" => is_inside = false,
            text if !is_inside => {
                let inner = text.strip_prefix("<!-- ").and_then(|text| text.strip_suffix(" -->"));
                comment = inner.unwrap_or(if text.is_empty() { comment } else { "" });
            }
            text => {
                let Some(Block { commands, .. }) = blocks.last_mut() else { continue };
                match (text.strip_prefix("$ "), commands.last_mut()) {
                    (Some(command), _) => commands.push((command, Vec::new())),
                    (None, Some((_, output))) => output.push(text),
                    (None, None) => panic!("line {}: a block begins with its command", at + 1),
                }
            }
        }
    }
    blocks
}

/// Returns the words of a line, without times and what follows from their widths.
fn words(line: &str) -> String {
    let line = &match line.split_once("\"unix_seconds\":") {
        Some((before, rest)) => {
            before.to_owned() + rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.')
        }
        None => line.to_owned(),
    };
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for at in 1..words.len() {
        let is_unit = ["s", "ms", "µs"].contains(&words[at].trim_end_matches([';', ',']));
        if is_unit && (words[at - 1] == "[..]" || words[at - 1].parse::<f64>().is_ok()) {
            (words[at - 1], words[at]) = ("N", "s");
        }
    }
    words.join(" ")
}

/// Returns true if a line is the one of the page, which may have `[..]` for anything.
fn fits(of_the_page: &str, printed: &str) -> bool {
    let (of_the_page, printed) = (words(of_the_page), words(printed));
    let mut parts = of_the_page.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    for part in &parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
}

/// Runs the blocks of a page one after the other in one folder, and returns the number of commands.
fn run(page: &str) -> usize {
    let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = fs::read_to_string(path) else {
        pace::skipped(pace::Need::File("docs/batch.md"), "the package has no documents");
        return 0;
    };
    let _watchdog = Watchdog::start(300);
    let (place, tool) = (Place::new(), Place::new());
    let link = tool.path("pipewright");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pipewright"), link).unwrap();
    let found = format!("{}:{}", tool.path("").display(), std::env::var("PATH").unwrap());
    let shell = |line: &str| {
        let mut shell = Command::new("env");
        shell.args([
            "--default-signal=INT,QUIT,HUP,TERM",
            "sh",
            "-c",
            &format!("exec 2>&1\n{line}"),
        ]);
        shell.current_dir(place.path("")).env("PATH", &found).env("LC_ALL", "C");
        shell.output().unwrap()
    };
    let (mut wrong, mut count) = (Vec::new(), 0);
    for Block { line, comment, commands } in blocks(&text) {
        if comment.starts_with("not run: ") {
            continue;
        }
        if let Some(before) = comment.strip_prefix("before: ") {
            assert!(shell(before).status.success(), "{page}:{line}: {before}");
        }
        for (command, expected) in commands {
            count += 1;
            if let Some(name) = command.strip_prefix("cat ").filter(|it| !place.path(it).exists()) {
                place.write(name, &(expected.join("\n") + "\n"));
            }
            let mut output = shell(command);
            // A busy machine may need more than the second of the page until a command prints something.
            let is_short = command.starts_with("pipewright run --timeout 1s ");
            let lines = out(&output).lines().count();
            let mut expected = expected.join("\n");
            if is_short && lines != expected.lines().count() {
                output = shell(&command.replace("1s", "20s"));
                expected = expected.replace("1s", "20s");
            }
            if output.status.code() == Some(127) && out(&output).contains("not found") {
                let program = command.split(' ').next().unwrap_or_default();
                pace::skipped(pace::Need::Program(program), format!("{page}:{line}"));
                continue;
            }
            let printed = out(&output).replace(&*place.path("").to_string_lossy(), "/data/");
            let any = comment.strip_prefix("any: ").unwrap_or("[..]");
            let mut found = printed.trim_end_matches('\n').to_owned();
            expected = expected.replace(any, "[..]");
            if command.contains("pipewright batch") || command.contains("sqlite3") {
                (expected, found) = (sorted(&expected).join("\n"), sorted(&found).join("\n"));
            }
            let is_same = expected.lines().count() == found.lines().count()
                && expected.lines().zip(found.lines()).all(|(page, line)| fits(page, line));
            if !is_same {
                wrong.push(format!("{page}:{line}: $ {command}\n{printed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "the page says something else:\n{}", wrong.join("\n"));
    count
}

/// Runs the blocks of a page, which has at least so many commands, if it is here.
fn runs_all(page: &str, least: usize) {
    let count = run(page);
    assert!(count >= least || !std::path::Path::new("../..").join(page).exists(), "{count}");
}

#[test]
fn the_first_batch_of_the_readme() {
    runs_all("README.md", 1);
}

#[test]
fn the_pages_about_the_tool() {
    for page in ["installation", "tutorial-tool", "agents", "ci", "troubleshooting"] {
        runs_all(&format!("docs/{page}.md"), 1);
    }
}

#[test]
fn the_page_about_batches() {
    runs_all("docs/batch.md", 30);
}

#[test]
fn times_and_marked_parts_are_not_compared() {
    assert!(fits("in 0.0 s; more", "in 12.5 s; more") && fits("a   b", "a b"));
    assert!(fits("[..] ms wall, [..]", "3.4 ms wall, 5") && !fits("[..] ms wall", "3 ms wall, 5"));
    assert!(!fits("job 1", "job 2") && !fits("a [..] c", "a b"));
    let text = "<!-- before: touch x -->\n\n```console\n$ ls\nx\n$ true\n```\ntext\n```console\n$ a\n```\n";
    let found = blocks(text);
    assert_eq!(found[0].commands, [("ls", vec!["x"]), ("true", vec![])]);
    assert_eq!((found[0].comment, found[1].comment), ("before: touch x", ""));
}
