//! `bench` under bad conditions: full or closed disks and pipes, and the results and processes left after a kill.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::bench::{TINY, bench};
use super::trees::{MARK, mark, marked};
use super::{err, out, pace, pipewright};

#[test]
fn bench_disk_reports_a_disk_without_room_for_its_file() {
    // A private mount, which disappears with the process.
    let script = "mount -t tmpfs -o size=1m pipewright /mnt || exit 77; \
                  \"$0\" bench disk /mnt --series 1 --time 1ms --quiet; code=$?; ls -A /mnt; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(pipewright(&[]).get_program());
    let output = command.output().unwrap();
    if output.status.code() == Some(77) || err(&output).starts_with("unshare:") {
        pace::skipped(pace::Need::Mount, err(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    let stderr = err(&output);
    assert!(stderr.contains("cannot create a file of 64 MiB in \"/mnt\": "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // The incomplete file was removed.
    let is_left = out(&output).lines().any(|line| line.starts_with(".pipewright-bench"));
    assert!(!is_left, "{}", out(&output));
}

#[test]
fn a_full_disk_for_the_report_suppresses_no_output() {
    let output = bench(&["pipes", "--blocks", "64", "--pin", "none", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("cannot write \"/dev/full\": "), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(out(&output).contains("two threads, pipe"), "{}", out(&output));
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let args = ["bench", "pipes", "--blocks", "64", "--pin", "none", "--series", "1"];
    for shape in [&[][..], &["--json"]] {
        let mut full = pipewright(&args);
        full.args(TINY).args(shape).stdout(fs::File::create("/dev/full").unwrap());
        let output = full.stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(err(&output).contains("cannot write to stdout: "), "{}", err(&output));
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let writer = reader.stdin.take().unwrap();
        reader.wait().unwrap();
        let mut gone = pipewright(&args);
        gone.args(TINY).args(shape).stdout(writer).stderr(Stdio::piped());
        let output = gone.output().unwrap();
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
    }
}

#[test]
fn a_killed_bench_leaves_no_file_and_no_process() {
    use std::os::unix::process::ExitStatusExt as _;
    let dir = tempfile::tempdir().unwrap();
    for args in [&["disk", "."][..], &["ipc"], &["pipes", "--topology", "processes"]] {
        let saved = dir.path().join("report.json");
        let name = format!("bench-killed-{}", args[0]);
        let mut command = pipewright(&["bench"]);
        command.args(args).args(["--blocks", "4k", "--series", "1000", "--time", "5ms", "--quiet"]);
        command.arg("--json").arg(&saved).current_dir(&dir).env("TMPDIR", dir.path());
        command.env(MARK, mark(&name));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        // Every file and process exists from the first series on.
        while fs::metadata(&saved).map_or(0, |file| file.len()) == 0 {
            assert!(begin.elapsed() < pace::millis(60_000), "{args:?}: nothing is saved");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "{args:?}");
        fs::remove_file(&saved).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{args:?}");
        // Its children exit with it.
        while !marked(&name).is_empty() {
            assert!(begin.elapsed() < pace::millis(60_000), "{args:?}: a process is left");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
