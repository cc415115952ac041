//! Signals to a batch: the first Ctrl-C lets running jobs end, all others stop them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use super::super::trees::{MARK, mark, marked, until};
use super::super::{send_signal, with_default_stop_signals};
use super::Place;

/// Starts two of four jobs, with a process beside each, and waits until both run.
fn started(place: &Place, name: &str) -> Child {
    let script =
        "echo start{} >> ran; sleep 600 & until [ -e end ]; do sleep 0.01; done; echo end{} >> ran";
    let mut command = with_default_stop_signals();
    command.args([
        "batch",
        "--progress",
        "none",
        "-j2",
        "--log",
        "run.db",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.args([":::", "1", "2", "3", "4"]).env(MARK, mark(name)).current_dir(place.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("both jobs run", || place.lines("ran") == ["start1", "start2"]);
    child
}

/// Returns the state of each job in the log, and the end of the last run.
fn log(place: &Place) -> Option<(Vec<String>, String)> {
    let states = place.rows("run.db", "select state from jobs order by number")?;
    let run = place.rows("run.db", "select how from runs order by number desc limit 1")?;
    Some((states, run[0].clone()))
}

#[test]
fn the_first_ctrl_c_drains() {
    let place = Place::new();
    let mut child = started(&place, "batch-drain");
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    send_signal(&child, "INT");
    let mut lines = std::io::BufRead::lines(stderr);
    let line = lines.next().expect("it says that it drains").unwrap();
    assert!(line.contains("Ctrl-C again stops"), "{line}");
    place.write("end", "");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let status = child.wait().unwrap();
    assert!(status.signal() == Some(2) || status.code() == Some(130), "{status}");
    assert_eq!(place.lines("ran"), ["end1", "end2", "start1", "start2"]);
    assert!(rest.last().is_some_and(|line| line.contains("2 ok")), "{rest:?}");
    assert_eq!(marked("batch-drain"), [0; 0]);
    if let Some((states, how)) = log(&place) {
        assert_eq!(
            (&states[..2], &how[..]),
            (&["succeeded", "succeeded"].map(str::to_owned)[..], "drained")
        );
        assert!(states[2..].iter().all(|state| state == "not_run"), "{states:?}");
    }
}

#[test]
fn the_second_ctrl_c_and_other_signals_stop() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let place = Place::new();
        let mut child = started(&place, "batch-stop");
        let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut lines = std::io::BufRead::lines(stderr);
        send_signal(&child, name);
        if name == "INT" {
            lines.next().expect("it says that it drains").unwrap();
            send_signal(&child, name);
        }
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let status = child.wait().unwrap();
        let is_killed_by_int = code == 130 && status.signal() == Some(2);
        assert!(is_killed_by_int || status.code() == Some(code), "{name}: {status}");
        assert_eq!(place.lines("ran"), ["start1", "start2"], "{name}");
        assert!(rest.last().is_some_and(|line| line.contains("2 stopped")), "{name}: {rest:?}");
        assert_eq!(marked("batch-stop"), [0; 0], "{name}");
        if let Some((states, how)) = log(&place) {
            assert_eq!(states[..2], ["stopped", "stopped"], "{name}");
            assert_eq!(how, "stopped", "{name}");
        }
        // A stopped job has not succeeded: a resumed batch runs it.
        place.write("end", "");
        let script = "echo start{} >> ran; sleep 600 & until [ -e end ]; do sleep 0.01; done; echo end{} >> ran";
        let args =
            ["--log", "run.db", "--resume", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
        let resumed = place.batch(&args);
        assert_eq!(resumed.status.code(), Some(0), "{name}: {}", super::err(&resumed));
        let ends = place.lines("ran");
        assert_eq!(ends[..4], ["end1", "end2", "end3", "end4"], "{name}");
    }
}

#[test]
fn a_stop_signal_before_the_start_ends_the_tool() {
    let place = Place::new();
    let fifo = std::process::Command::new("mkfifo").arg(place.path("fifo")).status();
    assert!(fifo.unwrap().success());
    for option in ["--events", "--trace"] {
        let args = ["batch", "--quiet", option, "fifo", "--", "touch", ":::", "started"];
        let mut child = place.tool(&args).spawn().unwrap();
        until("it catches signals", || super::super::signals::blocks_term(child.id()));
        send_signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(143), "{option}");
        assert!(!place.path("started").exists());
    }
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_a_stopped_batch() {
    // More than a pipe holds. The second job, if there is one, runs until it is stopped.
    let long = "head -c 1000000 /dev/zero; touch wrote{}; [ {} = 1 ] || exec sleep 600";
    for (jobs, signals, code) in [
        (&["1"][..], &["TERM"][..], 143),
        (&["1", "2"], &["TERM"], 143),
        (&["1", "2"], &["INT", "INT"], 130),
    ] {
        let place = Place::new();
        let mut command = with_default_stop_signals();
        command.args([
            "batch",
            "--progress",
            "none",
            "-j2",
            "--log",
            "run.db",
            "--",
            "sh",
            "-c",
            long,
            ":::",
        ]);
        command.args(jobs).env(MARK, mark("batch-reader")).current_dir(place.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut lines = std::io::BufRead::lines(stderr);
        until("the jobs have written", || {
            jobs.iter().all(|job| place.path(&format!("wrote{job}")).exists())
        });
        for signal in signals {
            send_signal(&child, signal);
            if *signal == "INT" && signals.len() == 2 {
                // Two signals at once would be one.
                lines.next().expect("it says that it drains").unwrap();
            }
        }
        until("it has ended", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        let is_killed_by_int = code == 130 && status.signal() == Some(2);
        assert!(is_killed_by_int || status.code() == Some(code), "{signals:?}: {status}");
        assert_eq!(marked("batch-reader"), [0; 0]);
    }
}
