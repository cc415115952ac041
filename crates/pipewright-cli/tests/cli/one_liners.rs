//! The lines of docs/one-liners.md: each does what its original does.
//!
//! Both lines of a block run in a folder of their own with the same files. Their stdout (in any order of lines), their
//! exit codes and the files that they leave are compared, except for what the text below the block says to differ. An
//! original that is not installed is skipped; ours runs then, too.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{Place, Watchdog, err, out, pace, sorted};

/// The lines that a page of these has at least.
const LEAST: usize = 25;

/// Programs that not every machine has.
const ORIGINALS: [&str; 8] =
    ["parallel", "sem", "flock", "chronic", "script", "/usr/bin/time", "bash", "split"];

/// A block of the page.
struct Pair<'a> {
    title: &'a str,
    original: &'a str,
    ours: &'a str,
    /// The differences, in words.
    differs: &'a str,
}

fn pairs(page: &str) -> Vec<Pair<'_>> {
    let mut pairs = Vec::new();
    for section in page.split("\n### ").skip(1) {
        let (title, rest) = section.split_once('\n').unwrap();
        let (_, rest) = rest.split_once("```sh\n").unwrap();
        let (block, rest) = rest.split_once("```").unwrap();
        let [original, ours] = block.lines().collect::<Vec<_>>()[..] else {
            panic!("{title}: two lines are expected")
        };
        let text = rest.split("\n## ").next().unwrap().trim();
        let differs = text.strip_prefix("Differs: ").unwrap_or_default();
        assert_eq!(text.is_empty(), differs.is_empty(), "{title}: {text}");
        pairs.push(Pair { title, original, ours, differs });
    }
    pairs
}

/// The output of a line, and the files that it leaves.
struct Done {
    output: Output,
    files: BTreeMap<String, Vec<u8>>,
}

/// Runs a line in a new folder with the files of the page.
fn run(line: &str) -> Done {
    let place = Place::new();
    let write = |name: &str, text: &str| fs::write(place.path("work").join(name), text).unwrap();
    for folder in ["bin", "home", "tmp", "work", "work/img"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    for name in ["a", "b", "c"] {
        write(&format!("{name}.log"), &format!("log {name}\n"));
    }
    write("list", "a.log\nb.log\nc.log\n");
    write("hosts", "db,5432\nweb,80\n");
    write("img/a.jpg", "");
    write("img/b c.jpg", "");
    write("flaky", "#!/bin/sh\necho >> tries; test $(wc -l < tries) -ge 3\n");
    write("../bin/convert", "#!/bin/sh\necho \"$1 to $2\"\n");
    for script in ["work/flaky", "bin/convert"] {
        fs::set_permissions(place.path(script), fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_pipewright"), place.path("bin/pipewright")).unwrap();
    let mut path = place.path("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(place.path("work")).stdin(Stdio::null());
    command.env("PATH", path).env("HOME", place.path("home")).env("TMPDIR", place.path("tmp"));
    let output = command.output().unwrap();
    let mut files = BTreeMap::new();
    collect(&place.path("work"), "", &mut files);
    Done { output, files }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => collect(&entry.path(), &format!("{name}/"), files),
            false => _ = files.insert(name, fs::read(entry.path()).unwrap()),
        }
    }
}

/// Returns a program of the line that is missing here, with a message.
fn lacks(line: &str) -> bool {
    let words: Vec<&str> = line.split([' ', '|', ';']).collect();
    let is_missing = |program: &&&str| {
        let mut look = Command::new("sh");
        look.args(["-c", &format!("command -v {program}")]).stdout(Stdio::null());
        words.contains(program) && !look.status().unwrap().success()
    };
    let missing = ORIGINALS.iter().find(is_missing);
    if let Some(program) = missing {
        pace::skipped(pace::Need::Program(program), "is not here: the original is not run");
    }
    missing.is_some()
}

#[test]
fn each_line_does_what_its_original_does() {
    let _watchdog = Watchdog::start(300);
    let Ok(page) = fs::read_to_string("../../docs/one-liners.md") else {
        return pace::skipped(
            pace::Need::File("docs/one-liners.md"),
            "the package has no documents",
        );
    };
    let pairs = pairs(&page);
    assert!(pairs.len() >= LEAST, "{}", pairs.len());
    for Pair { title, original, ours, differs } in pairs {
        let done = run(ours);
        let code = done.output.status.code();
        let said = format!("{title}: {ours}: {code:?}, {:?}", err(&done.output));
        // The page states the code, or ours ends as the original.
        let stated = differs.split_once("exit code ").map(|(_, rest)| {
            let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
            digits.unwrap().parse::<i32>().unwrap()
        });
        if let Some(stated) = stated {
            assert_eq!(code, Some(stated), "{said}");
        }
        assert_ne!(code, Some(125), "{said}");
        assert_ne!(code, Some(127), "{said}");
        if lacks(original) {
            continue;
        }
        let theirs = run(original);
        let theirs_said = format!("{original}: {:?}", err(&theirs.output));
        if stated.is_none() {
            assert_eq!(code, theirs.output.status.code(), "{said}\n{theirs_said}");
        }
        if !differs.contains("Stderr stays stderr") {
            let (ours, theirs) = (sorted(out(&done.output)), sorted(out(&theirs.output)));
            assert_eq!(ours, theirs, "{said}\n{theirs_said}");
        }
        // Two pipes lead to the file of both streams, in no order.
        if differs.contains("the file has both") {
            let lines = |done: &Done| -> BTreeMap<_, Vec<_>> {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                done.files.iter().map(|(name, it)| (name.clone(), sorted(&text(it)))).collect()
            };
            assert_eq!(lines(&done), lines(&theirs), "{said}\n{theirs_said}");
        } else if !differs.contains("files") {
            assert_eq!(done.files, theirs.files, "{said}\n{theirs_said}");
        }
        if !differs.to_lowercase().contains("stderr") {
            let (ours, theirs) = (sorted(err(&done.output)), sorted(err(&theirs.output)));
            assert_eq!(ours, theirs, "{said}\n{theirs_said}");
        }
    }
}
