//! The report: every field has its true value. Messages about wrong values and commands that cannot be started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::{Place, err, out, pace, pipewright, run_sh};

fn report_of(options: &[&str], script: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json").display().to_string();
    let mut all = vec!["--report", &path, "--quiet"];
    all.extend(options);
    run_sh(&all, script);
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn every_documented_field_is_there() {
    let report = report_of(&["--tee=null"], "printf 12345; printf 123 >&2; exit 3");
    let object = report.as_object().unwrap();
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut documented = vec![
        "schema",
        "command",
        "pid",
        "outcome",
        "exit_code",
        "signal",
        "elapsed_seconds",
        "user_seconds",
        "system_seconds",
        "peak_rss_bytes",
        "context_switches",
        "stdout_bytes",
        "stderr_bytes",
        "held_open",
        "truncated",
        "containment",
        "leftovers_killed",
        "limits",
        "tree",
        "out_of_memory",
        "attempts",
        "total_seconds",
        "error",
    ];
    documented.sort_unstable();
    assert_eq!(names, documented);
    assert_eq!(report["schema"], "pipewright.run/1");
    assert_eq!(report["command"][0], "sh");
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"exited".into(), &3.into()));
    assert_eq!((&report["stdout_bytes"], &report["stderr_bytes"]), (&5.into(), &3.into()));
    assert_eq!((&report["signal"], &report["error"]), (&Value::Null, &Value::Null));
    assert!(report["elapsed_seconds"].as_f64().unwrap() > 0.0);
    assert!(report["user_seconds"].as_f64().is_some());
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_past_the_file_size_limit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &str| {
        let script = format!("ulimit -f 0; cd \"$1\"; exec \"$0\" run {words}");
        let program = env!("CARGO_BIN_EXE_pipewright");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, program]).arg(folder.path()).output().unwrap()
    };
    for (words, cannot) in [
        ("--report it -- true", "cannot write the report to \"it\""),
        ("--tee=null -- echo hi > it", "cannot write to stdout"),
        (
            "--show-output on-failure -- sh -c 'echo hi; exit 3' > it",
            "cannot print the captured output",
        ),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(125), "{words}: {}", err(&output));
        assert!(err(&output).contains(cannot), "{words}: {}", err(&output));
        assert!(err(&output).contains("(os error 27)"), "{words}: {}", err(&output));
    }
    // The command still gets the signal.
    assert_eq!(run("--quiet -- sh -c 'echo hi > it'").status.code(), Some(128 + 25));
}

#[test]
fn streams_that_do_not_pass_through_the_tool_are_not_counted() {
    let report = report_of(&[], "echo hi >/dev/null");
    assert_eq!((&report["stdout_bytes"], &report["stderr_bytes"]), (&Value::Null, &Value::Null));
}

#[test]
fn every_outcome_has_its_name() {
    let of = |options: &[&str], script: &str| {
        let report = report_of(options, script);
        (report["outcome"].as_str().unwrap().to_owned(), report["signal"].clone())
    };
    assert_eq!(of(&[], "kill -9 $$"), ("signaled".into(), "SIGKILL".into()));
    assert_eq!(of(&["--timeout", "50ms"], "sleep 60"), ("timed_out".into(), "SIGTERM".into()));
    assert_eq!(of(&["--idle-timeout", "50ms"], "sleep 60").0, "idle_timed_out");
    assert_eq!(of(&["--max-output", "1"], "echo much; sleep 60").0, "limit_exceeded");
    let ignores_term = "trap '' TERM; while :; do sleep 1; done";
    let place = Place::new();
    let ready = place.path("ready");
    let ignores_term = ignores_term.replace("while", &format!(": > {}; while", ready.display()));
    let killed = pace::in_time(300, |millis| {
        let options = ["--timeout", &pace::option(millis), "--kill-after", "50ms"];
        let killed = of(&options, &ignores_term);
        ready.exists().then_some(killed)
    });
    assert_eq!(killed, ("timed_out".into(), "SIGKILL".into()));
}

#[test]
fn a_failed_start_is_reported() {
    let output = pipewright(&["run", "--report", "-", "--", "no-such-program"]).output().unwrap();
    let report: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!((&report["outcome"], &report["pid"]), (&"not_started".into(), &Value::Null));
    assert_eq!(report["error"]["kind"], "not_found");
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(err(&output), format!("pipewright: {message}\n"));
}

#[test]
fn context_switches_are_those_of_the_command_however_it_is_held() {
    for contain in ["tree", "none"] {
        let report = report_of(&["--contain", contain], "sleep 0.01; sleep 0.01");
        assert!(report["context_switches"].as_u64() >= Some(2), "{contain}: {report}");
        assert!(report["user_seconds"].is_number() && report["exit_code"] == 0, "{report}");
    }
}

#[test]
fn time_is_a_line_and_several_runs_are_a_table() {
    let output = crate::run_sh(&["--time"], "echo out; sleep 0.05; exit 3");
    assert_eq!((out(&output), output.status.code()), ("out\n", Some(3)));
    let line = err(&output);
    assert_eq!(line.lines().count(), 1, "{line}");
    for words in [" wall, ", " user, ", " system, ", " context switches"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    let [_, wall, unit, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    // A busy machine may take seconds.
    let wall = wall.parse::<f64>().unwrap() * if unit == "s" { 1000.0 } else { 1.0 };
    assert!(["s", "ms"].contains(&unit) && wall >= 50.0, "{line}");
    let output = crate::run_sh(&["--time", "--runs", "3"], "echo out");
    assert_eq!((out(&output), output.status.code()), ("out\nout\nout\n", Some(0)));
    let lines: Vec<_> = err(&output).lines().collect();
    assert!(lines[0].starts_with("pipewright: 3 runs ") && lines[0].ends_with(" max"), "{lines:?}");
    assert!(lines[1].starts_with("pipewright: wall "), "{lines:?}");
    // A run that fails is the last.
    let script = "echo >> ran; test $(wc -l < ran) -lt 2";
    let place = Place::new();
    let words = ["run", "--time", "--runs", "5", "--", "sh", "-c", script];
    let output = place.tool(&words).output().unwrap();
    assert_eq!((output.status.code(), place.read("ran").as_str()), (Some(1), "\n\n"));
    let output = crate::pipewright(&["run", "--runs", "5", "--", "true"]).output().unwrap();
    assert!(err(&output).contains("--time"), "{}", err(&output));
}

#[test]
fn a_report_that_cannot_be_written_is_found_out_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    for target in ["/no/such/x", "/", "/etc/passwd/x"] {
        for command in ["run", "pipe"] {
            let words = [&[command, "--report", target][..], &touch].concat();
            let output = pipewright(&words).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{words:?}");
            let start = format!("pipewright: cannot write the report to \"{target}\": ");
            assert!(err(&output).starts_with(&start), "{}", err(&output));
            assert!(!mark.exists(), "{words:?}: the command has run");
        }
    }
    // A page of a batch too.
    let words = [&["batch", "--html", "/no/such/x"][..], &touch, &[":::", "a"]].concat();
    let output = pipewright(&words).output().unwrap();
    assert_eq!((output.status.code(), mark.exists()), (Some(125), false), "{}", err(&output));
}

/// The reader of a FIFO may come later than the command.
#[test]
fn a_report_to_a_fifo_does_not_wait_for_its_reader_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mkfifo f; \"$0\" run --report f -- touch mark & \
                  until [ -e mark ]; do sleep 0.05; done; cat f; wait";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_pipewright")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(report["outcome"], "exited");
}

/// A reader that has gone is no failure of the tool, as for all its other output.
#[test]
fn a_report_on_stdout_whose_reader_has_gone_is_no_failure() {
    for tool in ["run --json", "run --report -", "pipe --json"] {
        let script = format!(
            "mkfifo f; exec 3>&1; (: < f) & exec 4> f; wait; \"$0\" {tool} -- sh -c 'exit 3' >&4; echo $?"
        );
        let folder = tempfile::tempdir().unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_pipewright")])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!((out(&output), err(&output)), ("3\n", ""), "{tool}");
    }
}

#[test]
fn json_is_a_report_on_stdout() {
    for (args, schema) in [
        (&["run", "--json", "--", "sh", "-c", "exit 3"][..], "pipewright.run/1"),
        (&["pipe", "--json", "--", "true", "|", "sh", "-c", "exit 3"], "pipewright.pipe/1"),
    ] {
        let output = pipewright(args).output().unwrap();
        let report: Value = serde_json::from_str(out(&output)).unwrap();
        assert_eq!((&report["schema"], &report["exit_code"]), (&schema.into(), &3.into()));
        assert_eq!((output.status.code(), err(&output)), (Some(3), ""));
    }
    for other in ["--report=-", "--detach"] {
        let output = pipewright(&["run", "--json", other, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{other}");
        assert!(err(&output).contains("cannot be used with"), "{}", err(&output));
    }
}

#[test]
fn held_open_and_attempts_are_reported() {
    let report = report_of(&["--tee=null", "--retries", "1"], "sleep 2 & exit 1");
    assert_eq!((&report["held_open"], &report["attempts"]), (&true.into(), &2.into()));
}

#[test]
fn an_unwritable_report_is_125_and_the_error_names_the_code() {
    if pace::lacks("/dev/full") {
        return;
    }
    let output = run_sh(&["--report", "/dev/full"], "exit 7");
    assert_eq!(output.status.code(), Some(125));
    let message = err(&output);
    assert!(
        message.starts_with("pipewright: cannot write the report to \"/dev/full\": No space left")
    );
    assert!(message.ends_with("; the exit code would have been 7\n"), "{message}");
    assert_eq!(message.lines().count(), 1);
}

#[cfg(unix)]
#[test]
fn private_reports_and_recordings_are_for_their_owner_alone() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name).display().to_string();
    let (report, record) = (name("report"), name("record"));
    // One that was there for all to read.
    fs::write(&report, "old").unwrap();
    fs::set_permissions(&report, fs::Permissions::from_mode(0o644)).unwrap();
    run_sh(&["--private", "--pty", "--record", &record, "--report", &report], "echo text");
    for file in [&report, &record] {
        let found = fs::metadata(file).unwrap();
        assert_eq!((found.mode() & 0o777, found.len() > 3), (0o600, true), "{file}");
    }
    let (events, html, log) = (name("events"), name("html"), name("log"));
    let words =
        ["batch", "--private", "--quiet", "--events", &events, "--html", &html, "--log", &log];
    let output = pipewright(&[&words[..], &["--", "true", ":::", "1"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let page = name("page");
    let jobs = ["jobs", &log, "--private", "--html", &page];
    assert!(pipewright(&jobs).output().unwrap().status.success());
    for file in [&events, &html, &log, &page] {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600, "{file}");
    }
}

#[cfg(unix)]
#[test]
fn no_file_that_another_user_has_chosen_by_a_link_is_written() {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    if !rustix::process::geteuid().is_root() {
        return pace::skipped(pace::Need::Root, "needs root, to make a link of another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    symlink(&target, &link).unwrap();
    lchown(&link, Some(65_533), Some(65_533)).unwrap();
    fs::write(&target, "text").unwrap();
    let (file, log) = (link.display().to_string(), dir.path().join("log").display().to_string());
    let batch = ["batch", "--quiet", "--log", &log, "--", "true", ":::", "1"];
    assert!(pipewright(&batch).output().unwrap().status.success());
    for words in [
        &["run", "--stdout", &file, "--", "echo"][..],
        &["run", "--stderr", &file, "--append", "--", "echo"],
        &["run", "--stdout", &file, "--stderr", &file, "--", "echo"],
        &["run", "--detach", "--stdout", &file, "--", "echo"],
        &["run", "--report", &file, "--", "true"],
        &["run", "--pty", "--record", &file, "--", "true"],
        &["pipe", "--", "echo", ">", &file],
        &["pipe", "--", "echo", ">>", &file],
        &["batch", "--events", &file, "--", "true", ":::", "1"],
        &["batch", "--trace", &file, "--", "true", ":::", "1"],
        &["batch", "--html", &file, "--", "true", ":::", "1"],
        &["jobs", &log, "--html", &file],
        &["bench", "pipes", "--json", &file],
        &["disk", "--html", &file, &log],
    ] {
        let output = pipewright(words).output().unwrap();
        let message = err(&output);
        assert!(message.contains("has a link that user 65533 has made"), "{words:?}: {message}");
        assert_eq!(output.status.code(), Some(125), "{words:?}: {message}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "text", "{words:?}");
    }
    // A folder, too, however its name ends.
    fs::remove_file(&target).unwrap();
    fs::create_dir(&target).unwrap();
    for name in [file.clone(), format!("{file}/"), format!("{file}/.")] {
        for words in [
            &["lock", "--in", &name, "a", "--", "true"][..],
            &["batch", "--output-dir", &name, "--", "true", ":::", "1"],
        ] {
            let output = pipewright(words).output().unwrap();
            let message = err(&output);
            assert!(message.contains("a link that user 65533 has made"), "{words:?}: {message}");
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{words:?}");
        }
    }
}

#[test]
fn a_wrong_value_is_an_error_about_the_value() {
    let duration = "is not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d";
    let count = "is not a whole number: write 0, 1, 2 ...";
    let size = "is not a size: write 4096, 64k, 1MiB or 2GB";
    for command in ["run", "batch"] {
        for (option, value, words) in [
            ("--timeout", "-1", duration),
            ("--timeout", "-1s", duration),
            ("--timeout", "--quiet", duration),
            ("--idle-timeout", "-1", duration),
            ("--kill-after", "-5", duration),
            ("--retry-delay", "-1", duration),
            ("--retries", "abc", count),
            ("--retries", "-1", count),
            ("--retries", "1.5", count),
            ("--max-output", "-1", size),
            ("--max-output", "1 KiB", size),
        ] {
            let output = pipewright(&[command, option, value, "--", "true"]).output().unwrap();
            let quoted = format!(": \"{value}\" {words}\n");
            assert!(err(&output).ends_with(&quoted), "{command} {option}: {}", err(&output));
            assert_eq!(output.status.code(), Some(125), "{command} {option}");
        }
    }
}

#[test]
fn a_misspelt_option_is_corrected() {
    for (command, typed, meant) in [
        ("run", "--timout", "--timeout"),
        ("pipe", "--timout", "--timeout"),
        ("batch", "--timout", "--timeout"),
        ("run", "--timeot=5", "--timeout"),
        ("run", "--retires", "--retries"),
        ("run", "--stdot", "--stdout"),
    ] {
        let output = pipewright(&[command, typed, "5", "--", "true"]).output().unwrap();
        let words = format!("'{meant}'");
        assert!(err(&output).contains(&words), "{command} {typed}: {}", err(&output));
        assert_eq!(output.status.code(), Some(125));
    }
}

#[test]
fn an_option_before_the_command_is_explained() {
    let output = pipewright(&["--timout", "5", "true"]).output().unwrap();
    let words = "'--timout' found; try --help; options follow a command, as in pipewright run --timeout 5s -- CMD\n";
    assert!(err(&output).ends_with(words), "{}", err(&output));
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn durations_and_sizes_are_read_as_people_write_them() {
    for text in ["1min", "1h30m", ".5", "500us", "1w", "2.34e5"] {
        let output = pipewright(&["run", "--timeout", text, "--", "true"]).output().unwrap();
        // 500 microseconds are too short for some starts, and half a second on a busy machine.
        let is_over = ["500us", ".5"].contains(&text) && output.status.code() == Some(124);
        assert!(output.status.success() || is_over, "{text}: {}", err(&output));
    }
    for text in ["1KiB", "2.34e5", ".5k", "1kib"] {
        let output = pipewright(&["run", "--max-output", text, "--", "true"]).output().unwrap();
        assert_eq!((err(&output), output.status.code()), ("", Some(0)), "{text}");
    }
}

#[test]
fn a_script_without_its_first_line_is_explained() {
    let place = Place::new();
    place.write("script", "echo hi\n");
    fs::set_permissions(place.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.tool(&["run", "--", "./script"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(err(&output).contains("the first line of a script"), "{}", err(&output));
    assert!(err(&output).contains("as in #!/bin/sh"), "{}", err(&output));
}

#[test]
fn a_long_path_is_cut_and_has_the_documented_code() {
    let place = Place::new();
    for (command, code) in [
        (format!("./{}", "x".repeat(300)), 126),
        (format!("/{}", "x".repeat(300)), 126),
        (format!("./{}", "x/".repeat(2500)), 126),
        ("x".repeat(5000), 126),
        ("x".repeat(300), 126),
    ] {
        for tool in ["run", "pipe"] {
            let output = place.tool(&[tool, "--", &command]).output().unwrap();
            let start = &command[..10];
            assert_eq!(output.status.code(), Some(code), "{tool} {start}: {}", err(&output));
            assert!(err(&output).len() < 700, "{tool} {start}: {}", err(&output).len());
        }
    }
    for words in [
        &["run", "--stdin", &format!("/{}", "x".repeat(5000)), "--", "cat"][..],
        &["run", "--report", &format!("/{}", "x".repeat(5000)), "--", "true"],
        &["run", "--cwd", &format!("/{}", "x".repeat(5000)), "--", "true"],
        &["run", "--timeout", &"x".repeat(5000), "--", "true"],
        &[&format!("--{}", "x".repeat(5000))],
    ] {
        let output = place.tool(words).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        assert!(err(&output).len() < 700, "{}", err(&output));
    }
}
