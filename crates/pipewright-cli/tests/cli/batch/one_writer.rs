//! One runner for one log.

use std::process::Stdio;

use super::super::Watchdog;
use super::super::trees::until;
use super::{Place, err, refused};

#[test]
fn a_second_runner_is_refused_with_the_pid_of_the_first() {
    let place = Place::new();
    let wait = "touch ran; until [ -e end ]; do sleep 0.05; done";
    let args = ["batch", "--quiet", "--log", "run.db", "--", "sh", "-c", wait, ":::", "1"];
    let mut first = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
    until("the job runs", || place.path("ran").exists());
    let second = place.batch(&["--log", "run.db", "--resume", "--", "touch", ":::", "second"]);
    place.write("end", "");
    refused(&second, &[&format!("process {} ", first.id()), "run.db"]);
    assert!(first.wait().unwrap().success());
    assert!(!place.path("second").exists());
    let third = place.batch(&["--log", "run.db", "--resume", "--", "touch", ":::", "third"]);
    assert_eq!(third.status.code(), Some(0), "{}", err(&third));
}

#[test]
fn of_many_runners_that_start_at_once_one_runs_each_job() {
    let _watchdog = Watchdog::start(120);
    for round in 0..3 {
        let place = Place::new();
        // Each job waits until all runners have had their chance.
        let wait = "echo {} >> ran; until [ -e end ]; do sleep 0.05; done";
        let words = ["--", "sh", "-c", wait, ":::", "1", "2", "3"];
        // In the first rounds they make the log, in the last one they resume it.
        let options: &[&str] = if round < 2 { &[] } else { &["--resume"] };
        if round == 2 {
            place.batch(&["--log", "run.db", "--", "true", ":::", "0"]);
        }
        let args = [&["batch", "--quiet", "-j3", "--log", "run.db"], options, &words[..]].concat();
        let start = |_| {
            let mut tool = place.tool(&args);
            tool.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut runners: Vec<_> = (0..6).map(start).collect();
        until("all runners but one are refused", || {
            let ended = |child: &mut std::process::Child| child.try_wait().unwrap().is_some();
            runners.iter_mut().filter_map(|child| ended(child).then_some(())).count() == 5
        });
        place.write("end", "");
        let outputs: Vec<_> =
            runners.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let codes: Vec<_> = outputs.iter().map(|output| output.status.code()).collect();
        assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
        for output in outputs.iter().filter(|output| output.status.code() != Some(0)) {
            refused(output, &["run.db"]);
        }
        assert_eq!(place.lines("ran"), ["1", "2", "3"], "round {round}");
    }
}

#[test]
fn a_log_with_another_name_is_the_same_log() {
    let place = Place::new();
    let wait = "touch ran; until [ -e end ]; do sleep 0.05; done";
    let args = ["batch", "--quiet", "--log", "run.db", "--", "sh", "-c", wait, ":::", "1"];
    let mut first = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
    until("the job runs", || place.path("ran").exists());
    std::fs::create_dir(place.path("sub")).unwrap();
    std::os::unix::fs::symlink("run.db", place.path("link.db")).unwrap();
    for name in ["./run.db", "sub/../run.db", "link.db"] {
        let second = place.batch(&["--log", name, "--resume", "--", "touch", ":::", "second"]);
        refused(&second, &[&format!("process {} ", first.id())]);
    }
    place.write("end", "");
    assert!(first.wait().unwrap().success());
    assert!(!place.path("second").exists());
}
