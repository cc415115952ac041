//! `bench` in a terminal: a narrow one, and Ctrl-C in the middle.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pace;
use super::terminal::{CTRL_C, Shell};
use super::trees::{MARK, mark, marked};

#[test]
fn nothing_is_wider_than_a_narrow_terminal() {
    let Some(mut shell) = Shell::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = "$PW bench pipes --blocks 64,4k --pin none --color never --time 40ms --series 5; echo code=$?";
    fs::write(dir.path().join("b"), script).unwrap();
    shell.types(&format!("cd {}; stty cols 40; echo rea''dy\n", dir.path().display()));
    shell.shows("ready");
    shell.types(". ./b\n");
    shell.shows(". ./b\r\n");
    let shown = shell.shows("code=0");
    assert!(shown.contains("series 1 of 5 ━") || shown.contains("series 1 of 5 ─"), "{shown:?}");
    assert!(shown.contains("best at"), "{shown:?}");
    for line in shown.split(['\r', '\n']) {
        assert!(line.chars().count() <= 40, "{line:?}");
    }
}

/// Returns the names of the tool's shared memory objects, of any process.
fn named_memory() -> Vec<String> {
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("pipewright")).collect()
}

fn saved(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[test]
fn ctrl_c_saves_the_results_and_leaves_nothing() {
    let Some(mut shell) = Shell::start() else { return };
    // Leaves out cells that take seconds, because the current one is finished first.
    let all = "all --only ipc-round-trip,disk-depth,spawn,capture-lines";
    for args in ["disk . --blocks 4k", "ipc --blocks 4k", all] {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("bench-ctrl-c-{}", args.len());
        let report = dir.path().join("report.json");
        let before = named_memory();
        shell.types(&format!("cd {}\n", dir.path().display()));
        shell.types(&format!(
            "{MARK}={} TMPDIR=. $PW bench {args} --series 1000 --time 2ms --json report.json\n",
            mark(&name)
        ));
        // Printed from the second cell on.
        for _ in 0..3 {
            shell.shows(" s left ");
        }
        assert!(!marked(&name).is_empty(), "{args}: no process has the mark");
        shell.types(CTRL_C);
        shell.shows("interrupted: these are the results so far");
        shell.ended_with(130);
        let saved = saved(&report).unwrap();
        assert_eq!(saved["complete"], false);
        // A cell that was not measured has the median null.
        let charts = saved["charts"].to_string().replace("\"median\":null", "");
        assert!(charts.contains("\"median\":"), "{args}: {saved}");
        let left: Vec<_> = fs::read_dir(&dir).unwrap().flatten().map(|it| it.file_name()).collect();
        assert_eq!(left, ["report.json"], "{args}");
        let begin = Instant::now();
        // Other processes may create and remove such memory meanwhile.
        let is_new = |name: &String| !before.contains(name);
        while !marked(&name).is_empty() || named_memory().iter().any(is_new) {
            assert!(begin.elapsed() < pace::millis(60_000), "{args}: something is left");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
