//! `bench` if threads cannot be pinned: on one processor, and below a filter that refuses the call.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use super::bench::TINY;
use super::{err, out, pace, pipewright};

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

const PIPES: [&str; 5] = ["pipes", "--blocks", "4k", "--topology", "threads,processes"];

#[track_caller]
fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    serde_json::from_str(out(output)).unwrap()
}

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
    let measured = report(&output);
    assert_eq!(measured["machine"]["processors"], 1);
    assert!(warning(&measured, "one_processor").contains("take turns"));
    assert_eq!(pins(&measured), [("none", true); 2]);
    // A requested series that is not possible is an error by itself, and left out beside others.
    let output = on_one_processor(&[&PIPES[..], &["--pin", "other"]].concat()).unwrap();
    is_refused(&output, "--pin other: only one processor is available");
    let pins_wanted = ["--pin", "other,same", "--json"];
    let measured = report(&on_one_processor(&[&PIPES[..], &pins_wanted].concat()).unwrap());
    assert_eq!(
        pins(&measured),
        [("other", false), ("other", false), ("same", true), ("same", true)]
    );
    assert!(warning(&measured, "skipped").contains("only one processor is available"));
}

#[test]
fn a_refused_call_is_reported_and_bench_continues() {
    let Some(output) = refused(&[&PIPES[..], &["--json"]].concat()) else { return };
    let report = report(&output);
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
    for benchmark in [&PIPES[..], &["ipc", "--blocks", "4k"]] {
        let output = refused(&[benchmark, &["--pin", "same"]].concat()).unwrap();
        is_refused(&output, "--pin same: cannot pin a thread to processor ");
    }
}
