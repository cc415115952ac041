//! `bench` under bad conditions: full or closed disks and pipes, a kill, threads that cannot be pinned, a terminal.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{TINY, bench, json};
use crate::terminal::{CTRL_C, Shell};
use crate::trees::{MARK, mark, marked};
use crate::{err, out, pace, pipewright};

#[test]
fn bench_disk_reports_a_disk_without_room_for_its_file() {
    // A private mount, which disappears with the process.
    let script = "mount -t tmpfs -o size=1m pipewright /mnt || exit 77; \
                  \"$0\" bench disk /mnt --runs 1 --time 1ms --quiet; code=$?; ls -A /mnt; exit $code";
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
    let output = bench(&["pipes", "--bs", "64", "--pin", "none", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("cannot write \"/dev/full\": "), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(out(&output).contains("two threads, pipe"), "{}", out(&output));
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let args = ["bench", "pipes", "--bs", "64", "--pin", "none", "--runs", "1"];
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
        command.args(args).args(["--bs", "4k", "--runs", "1000", "--time", "5ms", "--quiet"]);
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

/// A script that makes the kernel refuse the call to it and its children, and then executes the given program.
const REFUSE: &str = "
import ctypes, os, struct, sys
number = {'x86_64': 203, 'aarch64': 122, 'riscv64': 122}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('program', ctypes.c_void_p)]
library = ctypes.CDLL(None)
assert library.prctl(38, 1, 0, 0, 0) == 0
filter = Filter(len(steps), ctypes.cast(program, ctypes.c_void_p))
if library.prctl(22, 2, ctypes.byref(filter), 0, 0) != 0: sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
";

/// Returns the output of `bench`, started by that program; `None`, with a report, if the program cannot do that here.
fn below(program: &str, words: &[&str], args: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(words).arg(pipewright(&[]).get_program()).arg("bench").args(args).args(TINY);
    match command.output() {
        Ok(output) if output.status.code() != Some(77) => Some(output),
        other => {
            pace::skipped(pace::Need::Program(program), format_args!("{other:?}"));
            None
        }
    }
}

fn on_one_processor(args: &[&str]) -> Option<Output> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first = allowed.trim().split([',', '-']).next().unwrap();
    below("taskset", &["-c", first], args)
}

fn refused(args: &[&str]) -> Option<Output> {
    below("python3", &["-c", REFUSE], args)
}

const PIPES: [&str; 5] = ["pipes", "--bs", "4k", "--topology", "threads,processes"];

#[track_caller]
fn warning<'a>(report: &'a Value, kind: &str) -> &'a str {
    let warnings = report["warnings"].as_array().unwrap();
    let found = warnings.iter().find(|it| it["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}: {warnings:?}"))["message"].as_str().unwrap()
}

/// Returns the pinning of each curve's first cell, and true if that cell was measured.
fn pins(report: &Value) -> Vec<(&str, bool)> {
    let charts = report["charts"].as_array().unwrap();
    let curves = charts.iter().flat_map(|chart| chart["curves"].as_array().unwrap());
    let measured = |curve: &Value| curve["cells"][0]["median"].as_f64().is_some();
    curves.map(|curve| (curve["facts"]["pin"].as_str().unwrap(), measured(curve))).collect()
}

#[track_caller]
fn is_refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(125), "{}", err(output));
    assert!(err(output).contains(words), "{}", err(output));
    assert_eq!(err(output).lines().count(), 1, "{}", err(output));
    assert_eq!(out(output), "");
}

#[test]
fn one_processor_is_reported_and_measured() {
    let Some(output) = on_one_processor(&[&PIPES[..], &["--json"]].concat()) else { return };
    let measured = json(&output);
    assert_eq!(measured["machine"]["processors"], 1);
    assert!(warning(&measured, "one_processor").contains("take turns"));
    assert_eq!(pins(&measured), [("none", true); 2]);
    // A requested series that is not possible is an error by itself, and left out beside others.
    let output = on_one_processor(&[&PIPES[..], &["--pin", "other"]].concat()).unwrap();
    is_refused(&output, "--pin other: only one processor is available");
    let pins_wanted = ["--pin", "other,same", "--json"];
    let measured = json(&on_one_processor(&[&PIPES[..], &pins_wanted].concat()).unwrap());
    assert_eq!(
        pins(&measured),
        [("other", false), ("other", false), ("same", true), ("same", true)]
    );
    assert!(warning(&measured, "skipped").contains("only one processor is available"));
}

#[test]
fn a_refused_call_is_reported_and_bench_continues() {
    let Some(output) = refused(&[&PIPES[..], &["--json"]].concat()) else { return };
    let report = json(&output);
    assert_eq!(pins(&report), [("none", true); 2]);
    if report["machine"]["processors"] == 1 {
        pace::skipped(pace::Need::Processors, "with one processor no other one can be requested");
        return;
    }
    let words = warning(&report, "not_pinned");
    assert!(words.contains("not pinned to processors: "), "{words}");
    for part in [words, report["machine"]["not_pinned"].as_str().unwrap()] {
        assert!(part.contains("cannot pin a thread to processor "), "{part}");
        assert!(part.contains("Operation not permitted"), "{part}");
    }
    for benchmark in [&PIPES[..], &["ipc", "--bs", "4k"]] {
        let output = refused(&[benchmark, &["--pin", "same"]].concat()).unwrap();
        is_refused(&output, "--pin same: cannot pin a thread to processor ");
    }
}

#[test]
fn nothing_is_wider_than_a_narrow_terminal() {
    let Some(mut shell) = Shell::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let script =
        "$PW bench pipes --bs 64,4k --pin none --color never --time 40ms --runs 5; echo code=$?";
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
    for args in ["disk . --bs 4k", "ipc --bs 4k", all] {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("bench-ctrl-c-{}", args.len());
        let report = dir.path().join("report.json");
        let before = named_memory();
        shell.types(&format!("cd {}\n", dir.path().display()));
        shell.types(&format!(
            "{MARK}={} TMPDIR=. $PW bench {args} --runs 1000 --time 2ms --json report.json\n",
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
