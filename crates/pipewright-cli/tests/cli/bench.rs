//! `bench`: its measurements are complete, as text and as data. No test here judges speed.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::{err, out, pace, pipewright};

/// Options for cells that take a moment.
pub(super) const TINY: [&str; 5] = ["--quiet", "--time", "1ms", "--seed", "7"];

pub(super) fn bench(args: &[&str]) -> Output {
    let mut all = vec!["bench"];
    all.extend(args);
    all.extend(TINY);
    pipewright(&all).output().expect("the tool starts")
}

#[track_caller]
pub(super) fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    serde_json::from_str(out(output)).unwrap()
}

fn cells(report: &Value) -> Vec<&Value> {
    let list = |value: &'_ Value, name: &str| value[name].as_array().unwrap().len();
    let mut cells = Vec::new();
    for chart in 0..list(report, "charts") {
        let chart = &report["charts"][chart];
        for curve in 0..list(chart, "curves") {
            cells.extend(chart["curves"][curve]["cells"].as_array().unwrap());
        }
    }
    cells
}

/// Returns true, and reports it, if a cell has no figure because this system lacks the facility.
fn is_left_out(cell: &Value) -> bool {
    let reason = cell["skipped"].as_str();
    if let Some(reason) = reason {
        pace::skipped(pace::Need::Linux, format_args!("{}: {reason}", cell["label"]));
    }
    reason.is_some()
}

#[test]
fn misuse_is_125_and_one_line_and_nothing_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other.json");
    fs::write(&other, "{\"schema\":\"pipewright.run/1\"}").unwrap();
    let other = other.to_str().unwrap();
    let missing = dir.path().join("missing").join("file");
    let missing = missing.to_str().unwrap();
    for (args, stderr) in [
        (&["pipes", "--bs", "0"][..], "a block must have at least 1 byte"),
        (&["pipes", "--bs", "1G"], "at most 256 MiB"),
        (&["pipes", "--bs", "many"], "\"many\" is not a size"),
        (&["pipes", "--runs", "0"], "--runs"),
        (&["pipes", "--preset", "nope"], "nope"),
        (&["pipes", "--only", "nope"], "there is no chart \"nope\""),
        (&["pipes", "--html", missing], "cannot write"),
        (&["pipes", "--compare", missing], "cannot compare with"),
        (&["pipes", "--compare", other], "its schema is pipewright.run/1"),
        (&["pipes", "--json", "--csv", "-"], "two reports would go to \"-\""),
        (&["spawn", "--bs", "1"], "--bs"),
        (&["disk", "--bs", "0"], "a block must have at least 1 byte"),
        (&["disk", "--depth", "0"], "--depth"),
        (&["ipc", "--bs", "1G"], "at most 256 MiB"),
    ] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(stderr), "{args:?}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{args:?}: {}", err(&output));
        assert_eq!(out(&output), "", "{args:?}");
    }
    assert_eq!(pipewright(&["bench"]).output().unwrap().status.code(), Some(125));
}

#[test]
fn the_time_limit_of_a_preset_is_printed_before_and_in_the_report() {
    // A part of the charts, and so a part of the time for all.
    let output = pipewright(&["bench", "spawn", "--only", "spawn", "--json"]).output().unwrap();
    let stderr = err(&output);
    let printed = stderr.strip_prefix("pipewright: this takes at most ").unwrap();
    let limit: f64 = printed.strip_suffix(" s\n").unwrap().parse().unwrap();
    let report = json(&output);
    let settings = &report["settings"];
    assert_eq!(settings["time_limit_seconds"].as_f64().map(f64::ceil), Some(limit));
    // That it is kept is tested with clocks of its own. On a busy machine there are fewer series.
    let series = settings["measured_series"].as_u64().unwrap();
    assert!((1..=3).contains(&series), "{settings}");
    let is_short = |warning: &Value| warning["kind"] == "short";
    let warned = report["warnings"].as_array().unwrap().iter().any(is_short);
    assert!(series == 3 || warned, "{report}");
}

#[test]
fn with_given_series_there_is_no_time_limit() {
    let args = ["bench", "spawn", "--only", "spawn", "--time", "1ms", "--runs", "1", "--json"];
    let output = pipewright(&args).output().unwrap();
    assert_eq!(err(&output), "");
    let report = json(&output);
    assert!(report["settings"]["time_limit_seconds"].is_null(), "{report}");
}

#[test]
fn every_pipe_variant_is_measured_and_loses_no_byte() {
    let topologies = "thread,threads,processes,library";
    let report = json(&bench(&[
        "pipes",
        "--bs",
        "1,1000,4k",
        "--topology",
        topologies,
        "--via",
        "pipe,fifo,socket",
        "--pin",
        "none",
        "--runs",
        "2",
        "--verify",
        "--json",
    ]));
    assert_eq!(report["schema"], "pipewright.bench/1");
    assert_eq!((&report["benchmark"], &report["complete"]), (&"pipes".into(), &true.into()));
    assert_eq!(
        (&report["settings"]["seed"], &report["settings"]["series"]),
        (&7.into(), &2.into())
    );
    assert!(!report["machine"]["system"].as_str().unwrap().is_empty());
    assert_eq!(report["machine"]["yardstick_bytes_per_second"].as_array().unwrap().len(), 2);
    let cells = cells(&report);
    // The library creates its own pipe, and so has one variant; the others have three.
    assert_eq!(cells.len(), (3 * 3 + 1) * 3);
    let mut measured = 0;
    for cell in cells {
        if is_left_out(cell) {
            continue;
        }
        measured += 1;
        assert_eq!(cell["samples"].as_array().unwrap().len(), 2, "{cell}");
        assert!(cell["median"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["operations"].as_u64().unwrap() >= 2, "{cell}");
        assert!(cell["bytes_per_read"].as_f64().unwrap() >= 1.0, "{cell}");
        assert!(cell["cpu_seconds_per_mib"].as_f64().is_some(), "{cell}");
    }
    // Windows has no FIFO and no socket of this kind.
    assert!(measured >= if cfg!(unix) { 30 } else { 12 }, "{measured}");
}

#[test]
fn the_quick_preset_measures_all_that_this_system_supports() {
    let report = json(&bench(&["pipes", "--preset", "quick", "--runs", "1", "--json"]));
    assert_eq!((&report["preset"], &report["complete"]), (&"quick".into(), &true.into()));
    assert!(cfg!(windows) || report["machine"]["imitation"] == false, "{report}");
    let charts: Vec<&str> =
        report["charts"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(charts[1..], ["one-thread", "round-trip"]);
    assert!(charts[0].starts_with("between-"), "{charts:?}");
    let measured = cells(&report).into_iter().filter(|cell| !is_left_out(cell));
    let measured = measured.filter(|cell| cell["median"].as_f64().is_some_and(|it| it > 0.0));
    // Two threads, two processes and the library at twelve sizes, at least.
    assert!(measured.count() >= 36, "{report}");
    assert!(!report["verdict"].as_str().unwrap().is_empty());
}

#[test]
fn a_count_is_kept_to() {
    let report = json(&bench(&[
        "pipes",
        "--bs",
        "16",
        "--topology",
        "threads,processes",
        "--pin",
        "none",
        "--runs",
        "3",
        "--count",
        "50",
        "--json",
        "-",
    ]));
    for cell in cells(&report) {
        assert_eq!(cell["operations"], 150, "{cell}");
    }
}

#[test]
fn one_report_in_every_shape_and_compared_with_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let args = ["pipes", "--bs", "64,4k", "--pin", "none", "--runs", "3"];
    let names = ["json", "html", "svg", "csv", "markdown"];
    let mut all: Vec<String> = args.map(str::to_owned).to_vec();
    for name in names {
        all.extend([format!("--{name}"), path(name)]);
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let output = bench(&all);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    // It is also printed; without colours, as the output is not a terminal.
    assert!(out(&output).contains("two threads, pipe"), "{}", out(&output));
    assert!(!out(&output).contains('\x1b'));
    let text = |name: &str| fs::read_to_string(path(name)).unwrap();
    let report: Value = serde_json::from_str(&text("json")).unwrap();
    assert_eq!(cells(&report).len(), 2);
    assert!(text("html").starts_with("<!doctype html>"));
    let (_, data) =
        text("html").split_once("id=\"data\">").map(|(a, b)| (a.len(), b.to_owned())).unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data, report);
    assert!(text("svg").starts_with("<svg "));
    assert_eq!(text("csv").lines().count(), 1 + 2 * 3);
    assert!(text("markdown").starts_with("## pipewright bench pipes"));

    let mut again = args.to_vec();
    let old = path("json");
    again.extend(["--compare", &old, "--json"]);
    let report = json(&bench(&again));
    assert_eq!(report["comparison"]["compared"], 2);
    assert!(report["comparison"]["differences"].as_array().unwrap().is_empty());
    let coloured = bench(&["pipes", "--bs", "64", "--pin", "none", "--color", "always"]);
    assert!(out(&coloured).contains("\x1b["));
}

#[test]
fn spawn_and_capture_have_all_of_their_cases() {
    for (benchmark, only, least) in
        [("spawn", "spawn,spawn-options", 10), ("capture", "capture-lines", 4)]
    {
        let report = json(&bench(&[benchmark, "--only", only, "--runs", "1", "--json"]));
        let cells = cells(&report);
        assert!(cells.len() >= least, "{report}");
        for cell in cells {
            // Not every system has limits, groups and trees.
            if !is_left_out(cell) {
                assert_eq!(cell["samples"].as_array().unwrap().len(), 1, "{cell}");
                assert!(cell["median"].as_f64().unwrap() > 0.0, "{cell}");
                // Each of these is one start or more, measured beside bare starts.
                assert_eq!(cell["in_bare_starts"].as_array().unwrap().len(), 1, "{cell}");
            }
        }
        assert!(report["machine"]["yardstick_wake_seconds"][0].as_f64().unwrap() > 0.0, "{report}");
        assert!(!report["verdict"].as_str().unwrap().is_empty());
    }
}

#[test]
fn messages_go_through_memory_and_through_a_socket() {
    let output = bench(&["ipc", "--bs", "100,64k", "--runs", "2", "--json"]);
    if !cfg!(target_os = "linux") && output.status.code() == Some(125) {
        assert!(err(&output).contains("nothing was measured"), "{}", err(&output));
        pace::skipped(pace::Need::Linux, err(&output));
        return;
    }
    let report = json(&output);
    let charts: Vec<&str> =
        report["charts"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(charts, ["ipc-one-way", "ipc-round-trip", "ipc-build"]);
    let cells = cells(&report);
    assert_eq!(cells.len(), 3 * 2 + 3 * 2 + 2);
    for cell in cells {
        assert_eq!(cell["samples"].as_array().unwrap().len(), 2, "{cell}");
    }
    let trip = &report["charts"][1]["curves"][0]["cells"][0];
    let [p50, p99] = ["p50", "p99"].map(|name| trip["percentiles"][name].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{trip}");
    assert!(report["verdict"].as_str().is_some_and(|it| !it.is_empty()));
}

#[test]
fn a_file_is_read_and_written_and_nothing_is_left_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let report = json(&bench(&[
        "disk",
        path,
        "--bs",
        "512,64k",
        "--depth",
        "1,4",
        "--file-size",
        "1M",
        "--runs",
        "2",
        "--json",
    ]));
    let cells = cells(&report);
    // Three kinds of reads, four of writes, and depths with threads and every other backend.
    assert!(cells.len() >= 3 * 2 + 4 * 2 + 2, "{report}");
    let cached = &report["charts"][0]["curves"][0];
    assert_eq!(cached["name"], "through the cache");
    for cell in cached["cells"].as_array().unwrap() {
        assert_eq!(cell["skipped"], Value::Null, "{cell}");
    }
    let mut measured = 0;
    for cell in cells {
        // Not every filesystem can be read past the cache, nor in small blocks.
        if !is_left_out(cell) {
            measured += 1;
            assert!(cell["median"].as_f64().unwrap() > 0.0, "{cell}");
        }
    }
    assert!(measured >= 2 + 4, "{measured}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn bench_disk_reports_that_it_cannot_create_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let output = bench(&["disk", missing.to_str().unwrap(), "--runs", "1"]);
    assert_eq!(output.status.code(), Some(125));
    let stderr = err(&output);
    assert!(
        stderr.starts_with("pipewright: nothing was measured: cannot create a file of"),
        "{stderr}"
    );
    assert!(stderr.contains("missing"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_benchmark_child_with_bad_arguments_fails_with_one_line() {
    for args in [&["__bench-peer"][..], &["__bench-peer", "write", "x", "-", "true"]] {
        let output = pipewright(args).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
}

#[cfg(unix)]
#[test]
fn a_signal_keeps_the_results_so_far() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let args =
        ["bench", "pipes", "--bs", "64,4k", "--pin", "none", "--topology", "threads,processes"];
    let mut command = pipewright(&args);
    command.args(["--runs", "1000", "--time", "20ms", "--quiet"]).arg("--json").arg(&path);
    // Returns the part that exists. The file may be incomplete while it is written.
    let saved = || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        serde_json::from_str::<Value>(&text).ok()
    };
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    // Saved after each series.
    while saved().is_none() {
        assert!(start.elapsed() < pace::millis(60_000), "nothing is saved");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{}", err(&output));
    let report = saved().unwrap();
    assert_eq!(report["complete"], false);
    assert!(report["warnings"].as_array().unwrap().iter().any(|it| it["kind"] == "interrupted"));
    assert!(cells(&report).iter().all(|cell| !cell["samples"].as_array().unwrap().is_empty()));
    // It is also printed.
    assert!(out(&output).contains("interrupted"), "{}", out(&output));
}
