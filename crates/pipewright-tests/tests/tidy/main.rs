//! House rules that a machine can check.

mod arrows;
mod documents;
mod figures;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns every Rust file below that folder, with its text, except build output and hidden folders.
fn sources(below: &str) -> Vec<(String, String)> {
    files_of(below, "rs")
}

/// Returns the files below a folder whose names have that extension, with their texts.
fn files_of(below: &str, kind: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_left_out = name == "target" || name.to_string_lossy().starts_with('.');
            if path.is_dir() && !is_left_out {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == kind) {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name.replace('\\', "/"), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "nothing below {below}");
    found
}

#[track_caller]
fn none(what: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{what}:\n{}", offenders.join("\n"));
}

#[test]
fn a_file_has_at_most_1000_lines() {
    let long = |(name, text): (String, String)| {
        let lines = text.lines().count();
        (lines > 1000).then(|| format!("{name}: {lines} lines"))
    };
    let of_python = sources("python").into_iter();
    none("too long", sources("crates").into_iter().chain(of_python).filter_map(long).collect());
}

#[test]
fn no_line_is_longer_than_120_characters() {
    let gate = (".ci/run".to_owned(), fs::read_to_string(root().join(".ci/run")).unwrap());
    let scripts = ["ci", "bench"].into_iter().flat_map(|below| files_of(below, "sh"));
    let sources = ["crates", "bench", "fuzz", "python"].into_iter().flat_map(sources);
    let mut long = Vec::new();
    for (name, text) in sources.chain(scripts).chain([gate]) {
        // A row of a table is one line.
        let is_row =
            |line: &str| ["//! |", "/// |"].iter().any(|it| line.trim_start().starts_with(it));
        let lines = (1..).zip(text.lines());
        let lines = lines.filter(|(_, line)| line.chars().count() > 120 && !is_row(line));
        long.extend(lines.map(|(number, _)| format!("{name}:{number}")));
    }
    none("a line of more than 120 characters", long);
}

#[test]
fn a_row_of_a_table_in_a_comment_is_one_line() {
    let mut cut = Vec::new();
    for (name, text) in ["crates", "bench", "fuzz", "python"].into_iter().flat_map(sources) {
        let rows = (1..).zip(text.lines().map(str::trim));
        let rows =
            rows.filter(|(_, line)| ["//! |", "/// |"].iter().any(|it| line.starts_with(it)));
        let rows = rows.filter(|(_, row)| !row.ends_with('|'));
        cut.extend(rows.map(|(number, _)| format!("{name}:{number}")));
    }
    none("a row of a table that is cut", cut);
}

#[test]
fn a_file_starts_with_a_module_comment() {
    let silent = |(name, text): (String, String)| (!text.starts_with("//! ")).then_some(name);
    none("without a first line", sources("crates").into_iter().filter_map(silent).collect());
}

/// A forked child would wait forever for a lock that another thread held, or whose value it was making, at the fork.
/// Use `PerProcess` instead.
#[test]
fn every_file_that_the_table_of_a_module_names_is_there() {
    let mut missing = Vec::new();
    for (name, text) in sources("crates") {
        let path = root().join(&name);
        let folder = path.parent().unwrap_or(&path);
        let begins =
            |line: &&str| !(line.starts_with("//! | file") || line.starts_with("//! | folder"));
        let table = text.lines().skip_while(begins).take_while(|line| line.starts_with("//! |"));
        for line in table.skip(1) {
            // Names are in the first cell, between backticks.
            let cell = line.split('|').nth(1).unwrap_or_default();
            let names = cell.split('`').skip(1).step_by(2);
            let files = names.filter(|it| it.ends_with(".rs") || it.ends_with('/'));
            let is_missing =
                |it: &&str| !folder.join(it).exists() && !path.with_extension("").join(it).exists();
            missing.extend(files.filter(is_missing).map(|it| format!("{name}: {it}")));
        }
    }
    none("a table that names a file which is not there", missing);
}

#[test]
fn no_lock_of_a_library_outlives_a_fork() {
    let libraries = ["pipewright-os", "pipewright", "pipewright-ipc", "pipewright-disk"];
    // Nothing forks there.
    let never_forked = ["windows", "overlapped.rs", "shm/plain.rs"];
    let locks = ["Mutex<", "RwLock<", "Condvar", "Once", "LazyLock<"];
    let is_lock = |line: &&str| {
        let kind = line.trim_start().strip_prefix("static ").and_then(|rest| rest.split_once(": "));
        kind.is_some_and(|(_, kind)| locks.iter().any(|lock| kind.starts_with(lock)))
    };
    let mut found = Vec::new();
    for (name, text) in libraries.iter().flat_map(|it| sources(&format!("crates/{it}/src"))) {
        if !never_forked.iter().any(|part| name.contains(part)) {
            found.extend(text.lines().filter(is_lock).map(|line| format!("{name}: {line}")));
        }
    }
    none("a lock that a fork inherits", found);
}

#[test]
fn platform_code_stays_below_the_border() {
    let mut above = sources("crates/pipewright/src");
    above.extend(sources("crates/pipewright-disk/src"));
    above.extend(sources("crates/pipewright-ipc/src"));
    above.extend(sources("crates/pipewright-batch/src"));
    above.extend(sources("crates/pipewright-cluster/src"));
    above.extend(sources("crates/pipewright-bench/src"));
    above.extend(sources("crates/pipewright-cli/src"));
    // A test of what differs between systems has to name them.
    above.retain(|(name, _)| !name.contains("/tests"));
    let words = [
        "unsafe {",
        "unsafe fn",
        "libc::",
        "cfg(unix",
        "cfg(windows",
        "cfg(target_os",
        "std::os::unix",
    ];
    let mut offenders = Vec::new();
    for (name, text) in above {
        let product = text.rfind("\nmod tests").and_then(|at| text[..at].rfind("\n#[cfg(test)]"));
        for (number, line) in text[..product.unwrap_or(text.len())].lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if !is_comment && words.iter().any(|word| line.contains(word)) {
                offenders.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    none("platform code above the border", offenders);
}

#[test]
fn public_docs_name_no_path_of_the_platform_crate() {
    // What it exports is documented on the pages of the crates above. A hidden line of an example may name it.
    let folders = ["os/src", "batch/src", "bench/src", "cluster/src", "disk/src", "ipc/src"]
        .map(|folder| format!("crates/pipewright-{folder}"));
    let mut offenders = Vec::new();
    for folder in folders.iter().map(String::as_str).chain(["crates/pipewright/src"]) {
        for (name, text) in sources(folder) {
            for (number, line) in text.lines().enumerate() {
                let doc =
                    ["/// ", "//! "].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
                if doc.is_some_and(|doc| doc.contains("pipewright_os::") && !doc.starts_with("# "))
                {
                    offenders.push(format!("{name}:{}: {line}", number + 1));
                }
            }
        }
    }
    none("a path of the platform crate", offenders);
}

#[test]
fn crates_above_the_border_forbid_unsafe() {
    for file in [
        "crates/pipewright/src/lib.rs",
        "crates/pipewright-disk/src/lib.rs",
        "crates/pipewright-ipc/src/lib.rs",
        "crates/pipewright-ipc-macros/src/lib.rs",
        "crates/pipewright-batch/src/lib.rs",
        "crates/pipewright-cluster/src/lib.rs",
        "crates/pipewright-bench/src/lib.rs",
        "crates/pipewright-cli/src/main.rs",
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{file}");
    }
}

#[test]
fn dependencies_between_crates_point_one_way() {
    let allowed: [(&str, &[&str]); 9] = [
        ("pipewright-os", &[]),
        ("pipewright", &["pipewright-os"]),
        ("pipewright-disk", &["pipewright-os"]),
        ("pipewright-ipc", &["pipewright", "pipewright-ipc-macros", "pipewright-os"]),
        ("pipewright-ipc-macros", &[]),
        ("pipewright-batch", &["pipewright", "pipewright-os"]),
        ("pipewright-cluster", &["pipewright", "pipewright-batch", "pipewright-os"]),
        ("pipewright-bench", &["pipewright", "pipewright-disk", "pipewright-ipc", "pipewright-os"]),
        (
            "pipewright-cli",
            &[
                "pipewright",
                "pipewright-batch",
                "pipewright-bench",
                "pipewright-cluster",
                "pipewright-disk",
                "pipewright-os",
            ],
        ),
    ];
    for (name, allowed) in allowed {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let text = fs::read_to_string(manifest).unwrap();
        // Tests may use the crates of the suites, which no product depends on.
        let (product, tests) = text.split_once("[dev-dependencies]").unwrap_or((&text, ""));
        for suites in ["pipewright-tests", "pipewright-test-macros"] {
            assert!(!product.contains(suites), "{name} depends on {suites}");
        }
        // A crate that names itself there turns on its own features for its tests.
        let own = format!("{name} = {{ path = \".\",");
        let tests = tests.lines().filter(|line| !line.starts_with("pipewright-test"));
        let tests = tests.filter(|line| !line.starts_with(&own));
        let ours = product.lines().chain(tests).filter_map(|line| line.split([' ', '.']).next());
        for other in ours.filter(|word| word.starts_with("pipewright")) {
            assert!(allowed.contains(&other), "{name} depends on {other}");
        }
    }
}

#[test]
fn every_test_of_the_suites_is_under_a_watchdog() {
    let suites = ["process", "disk", "ipc"].map(|it| format!("crates/pipewright-tests/tests/{it}"));
    let mut unwatched = Vec::new();
    for (name, text) in suites.iter().flat_map(|folder| sources(folder)) {
        let plain = text.lines().filter(|line| line.trim() == "#[test]").count();
        if plain > 0 {
            unwatched.push(format!("{name}: {plain} times"));
        }
    }
    none("`#[test]`, and not `#[watched_test]` or `#[isolated_test]`", unwatched);
}

#[test]
fn every_async_call_documents_its_cancellation() {
    let mut silent = Vec::new();
    let mut count = 0;
    for (name, text) in sources("crates/pipewright/src") {
        let mut docs = String::new();
        for line in text.lines().map(str::trim) {
            let is_call = line.starts_with("pub fn ") || line.starts_with("pub async fn ");
            if line.starts_with("///") {
                docs += line;
            } else if is_call {
                let is_for_tasks = (line.starts_with("pub async") || line.contains("_async"))
                    && !line.ends_with("-> Stdio {");
                count += usize::from(is_for_tasks);
                if is_for_tasks && !docs.contains("# Cancellation") {
                    silent.push(format!("{name}: {line}"));
                }
                docs.clear();
            } else if !line.starts_with('#') {
                docs.clear();
            }
        }
    }
    none("without documented cancellation", silent);
    assert!(count > 25, "{count}");
}
