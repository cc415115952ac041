//! Output that was not printed when a batch died: it is kept beside the log, and the resumed batch prints it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};

use super::super::Watchdog;
use super::super::trees::until;
use super::{Place, err, out, pace};

fn kill(pid: u32, signal: &str) {
    let killed = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

/// Returns the files beside the log.
fn kept(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("run.db-output-")).collect()
}

/// Returns true if a log can be looked at.
fn has_sqlite() -> bool {
    let has = Command::new("sqlite3").arg("--version").output().is_ok();
    if !has {
        pace::skipped(pace::Need::Program("sqlite3"), "it reads the log");
    }
    has
}

#[test]
fn output_that_waits_for_its_turn_survives_a_kill() {
    let _watchdog = Watchdog::start(100);
    if !has_sqlite() {
        return;
    }
    let place = Place::new();
    let script = "echo {} >> ran; [ {} != 1 ] || until [ -e go ]; do sleep 0.05; done; echo out {}";
    let args =
        ["--log", "run.db", "-k", "-j4", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
    let mut command = place.tool(&[&["batch", "--progress", "none"], &args[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let query = "select number from jobs where state = 'succeeded'";
    let are_done = || place.rows("run.db", query).is_none_or(|rows| rows.len() == 3);
    until("three jobs are done", || place.lines("ran").len() == 4 && are_done());
    let files = kept(&place);
    assert_eq!(files.len(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(place.path(&files[0])).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    child.kill().unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    child.wait().unwrap();
    assert_eq!(printed, "");
    place.write("go", "");
    let resumed = place.batch(&["--resume", "-k", "run.db"]);
    assert!(resumed.status.success(), "{}", err(&resumed));
    assert_eq!(out(&resumed), "out 2\nout 3\nout 4\nout 1\n");
    assert!(
        err(&resumed).contains("3 jobs of an earlier run was not printed"),
        "{}",
        err(&resumed)
    );
    // Only the first one ran again, and nothing is left.
    assert_eq!(place.lines("ran"), ["1", "1", "2", "3", "4"]);
    assert_eq!(kept(&place), [""; 0]);
    assert_eq!(out(&place.batch(&["--resume", "-k", "run.db"])), "");
}

#[test]
fn output_that_a_slow_reader_has_not_taken_is_printed_later() {
    let _watchdog = Watchdog::start(100);
    if !has_sqlite() {
        return;
    }
    let place = Place::new();
    let script = "seq -f '{} %g' 20000; echo '{} end'; echo {} >> ran";
    let list: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let args = [&["--log", "run.db", "-j2", "--", "sh", "-c", script, ":::"], &list[..]].concat();
    let mut command = place.tool(&[&["batch", "--progress", "none"], &args[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let query = "select number from jobs where state = 'succeeded'";
    let are_done = || place.rows("run.db", query).is_none_or(|rows| rows.len() > 9);
    until("some jobs are done", || place.lines("ran").len() > 9 && are_done());
    kill(child.id(), "TERM");
    // Nobody reads until it has ended.
    until("it has ended", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert!(err(&output).contains("not printed, and will be by --resume"), "{}", err(&output));
    let done = place.rows("run.db", query).unwrap_or_default();
    let resumed = place.batch(&["--resume", "run.db"]);
    assert!(resumed.status.success(), "{}", err(&resumed));
    let lines: BTreeSet<&str> = out(&output).lines().chain(out(&resumed).lines()).collect();
    for number in done {
        for line in (1..=20_000).map(|line| format!("{number} {line}")) {
            assert!(lines.contains(&*line), "{line}");
        }
    }
    assert!((1..=20).all(|number| lines.contains(&*format!("{number} end"))));
}
