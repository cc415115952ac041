//! Everything that a command starts with: its attributes, marks, closed streams, and the limits of its resources.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{Place, err, out, pace, pipewright, run_sh};

#[test]
fn a_variable_without_a_value_is_passed_on() {
    for tool in ["run", "pipe"] {
        let words = [tool, "--clear-env", "--env", "KEPT", "--env", "NEW=1", "--", "/usr/bin/env"];
        let output = pipewright(&words).env("KEPT", "old").env("LEFT", "x").output().unwrap();
        let mut lines: Vec<&str> = out(&output).lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["KEPT=old", "NEW=1"], "{tool}: {}", err(&output));
    }
    let batch = ["batch", "--quiet", "--env", "NO_SUCH_VARIABLE", "--", "true", ":::", "a"];
    let output = pipewright(&batch).output().unwrap();
    assert!(err(&output).contains("the variable is not set"), "{}", err(&output));
}

#[test]
fn variables_are_read_from_files() {
    let place = Place::new();
    place.write("one", "# comment\n\nA=1\nB=\"quoted\" #x\r\n  C=x=y\nKEPT\nUNSET_HERE\n");
    place.write("two", "A=2");
    let files = ["--env-file", "one", "--env-file", "two", "--env", "C=3"];
    let words = [&["run", "--clear-env"], &files[..], &["--", "/usr/bin/env"]].concat();
    let output = place.tool(&words).env("KEPT", "old").output().unwrap();
    let mut lines: Vec<&str> = out(&output).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=2", "B=\"quoted\" #x", "C=3", "KEPT=old"], "{}", err(&output));
    place.write("three", "\u{feff}A=1\nexport B=2\nexport\tC= 3 \nexported=4\n");
    let words = ["run", "--clear-env", "--env-file", "three", "--", "/usr/bin/env"];
    let output = place.tool(&words).output().unwrap();
    assert_eq!(out(&output), "A=1\nB=2\nC= 3 \nexported=4\n", "{}", err(&output));
    place.write("bad", "A=1\n=x\n");
    place.write("spaces", "A B=1\n");
    for (file, words) in [
        ("bad", "line 2 of \"bad\": the name is missing"),
        ("spaces", "line 1 of \"spaces\": a name has no spaces"),
        ("/dev/zero", "it has more than 4 MiB"),
        ("none", "cannot read the --env-file"),
    ] {
        let output = place.tool(&["run", "--env-file", file, "--", "true"]).output().unwrap();
        assert!(err(&output).contains(words), "{}", err(&output));
        assert_eq!(output.status.code(), Some(125));
    }
}

#[test]
fn every_line_of_the_table_gives_its_variable() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gotchas.md");
    let Ok(text) = std::fs::read_to_string(page) else {
        pace::skipped(pace::Need::File("docs/gotchas.md"), "the package has no documents");
        return;
    };
    let place = Place::new();
    let (_, table) = text.split_once("## Files of variables").unwrap();
    let mut rows = 0;
    for row in table.lines().skip_while(|it| !it.starts_with("| `")).take_while(|it| !it.is_empty())
    {
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_start_matches("| ")).collect();
        let [line, variable, _] = cells[..] else { panic!("{row}") };
        place.write("file", &format!("{}\n", line.trim_matches('`')));
        let words = ["run", "--clear-env", "--env-file", "file", "--", "/usr/bin/env"];
        let output = place.tool(&words).env("A", "old").output().unwrap();
        if let Some(words) = variable.strip_prefix("an error: ") {
            assert!(err(&output).contains(words.trim_matches('`')), "{row}: {}", err(&output));
        } else {
            let given = match variable {
                "none" => String::new(),
                "the value that this process has, if it has one" => "A=old\n".to_owned(),
                words => format!("{}\n", words.trim_matches('`')),
            };
            assert_eq!(out(&output), given, "{row}: {}", err(&output));
        }
        rows += 1;
    }
    assert!(rows >= 16, "{rows}");
}

#[test]
fn umask_and_niceness_are_set() {
    for tool in ["run", "pipe"] {
        let words = [tool, "--umask", "027", "--nice", "5", "--", "sh", "-c", "umask; nice"];
        let output = pipewright(&words).output().unwrap();
        let own: i32 =
            out(&pipewright(&["run", "--", "nice"]).output().unwrap()).trim().parse().unwrap();
        assert_eq!(out(&output), format!("0027\n{}\n", (own + 5).min(19)), "{}", err(&output));
    }
    let output = pipewright(&["run", "--umask", "8", "--", "true"]).output().unwrap();
    assert!(err(&output).contains("is not a mode: write 022"), "{}", err(&output));
}

/// The options that `run` has for a command, `batch` has for its jobs.
#[test]
fn jobs_of_a_batch_start_with_what_the_options_say() {
    let place = Place::new();
    place.write("file", "A=file\nB=file\n");
    let environment = ["--clear-env", "--env-file", "file", "--env", "B=option"];
    let job = "printf '%s\\n' \"$A $B $LEFT $PIPEWRIGHT_JOB\"; umask; pwd; nice";
    let place_of = ["-C", "/", "--umask", "027", "--nice", "5"];
    let command = ["--", "/bin/sh", "-c", job, ":::", "1"];
    let words = [&environment[..], &place_of, &command].concat();
    let output = place.tool(&[&["batch", "-q"], &words[..]].concat()).env("LEFT", "x").output();
    let output = output.unwrap();
    let own: i32 =
        out(&pipewright(&["run", "--", "nice"]).output().unwrap()).trim().parse().unwrap();
    let nice = (own + 5).min(19);
    assert_eq!(out(&output), format!("file option  1\n0027\n/\n{nice}\n"), "{}", err(&output));
    // A job that has a directory of its own keeps it.
    place.write("jobs", "{\"argv\":[\"pwd\"],\"cwd\":\"/usr\"}\n{\"argv\":[\"pwd\"]}\n");
    let output = place.batch(&["-q", "-k", "-C", "/", "--jsonl", "--from", "jobs"]);
    assert_eq!(out(&output), "/usr\n/\n");
    for (words, error) in [
        (&["--contain", "group", "--cpus", "1"][..], "--cpus needs --contain tree"),
        (&["--user", "nobody", "--via", "sh"], "--user does not fit nodes"),
        (&["--env-file", "none"], "cannot read the --env-file \"none\""),
        (
            &["--show-output", "on-failure", "--line-buffer"],
            "--line-buffer does not fit --show-output on-failure",
        ),
        (&["--show-output", "never", "--tag"], "--tag does not fit --show-output never"),
    ] {
        let output = place.batch(&[words, &["--", "true", ":::", "1"]].concat());
        assert!(err(&output).contains(error), "{words:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(125), "{words:?}");
    }
    if rustix::process::geteuid().is_root() {
        for user in ["nobody:54322", "65534:54322"] {
            let output = place.batch(&["-q", "--user", user, "-C", "/", "--", "id", ":::", "-u"]);
            assert_eq!(out(&output), "65534\n", "{}", err(&output));
        }
        // Nothing outlives a job of another user either.
        let script = "sleep 600 > /dev/null 2>&1 & echo $!";
        place.write("line", &format!("{script}\n"));
        let words = ["-q", "--user", "65534:54322", "-C", "/", "--shell", "--from", "line"];
        let output = place.batch(&words);
        assert!(!crate::is_running(out(&output)), "{}", err(&output));
        assert!(out(&output).trim().parse::<u32>().is_ok(), "{}", err(&output));
    } else {
        pace::skipped(pace::Need::Root, "only root may change the user");
    }
}

#[test]
fn the_limits_of_each_job_are_those_of_the_options() {
    if cannot_limit() {
        return;
    }
    let place = Place::new();
    let limits = ["--memory", "16M", "--swap", "0", "--pids", "50", "--log", "log"];
    let job = format!("if [ {{}} = 2 ]; then {}; fi", hungry());
    let words = [&limits[..], &["--", "sh", "-c", &job, ":::", "1", "2"]].concat();
    let output = place.batch(&words);
    assert!(err(&output).contains("job 2 failed: out of memory"), "{}", err(&output));
    assert!(err(&output).contains("1 ok, 1 failed"), "{}", err(&output));
    // A job's own memory takes its place.
    let own = format!("{{\"shell\":\"{}\",\"mem\":\"1G\"}}\n", hungry());
    place.write("jobs", &own);
    let output = place.batch(&["--memory", "16M", "--jsonl", "--from", "jobs"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn only_the_output_of_failures_is_shown_if_asked_for() {
    let place = Place::new();
    let script = "echo {}.$PIPEWRIGHT_ATTEMPT; echo err >&2; exit {}";
    let retry = ["--retries", "1", "--retry-delay", "0"];
    let words = ["-q", "-k", "--show-output", "on-failure", "--", "sh", "-c", script];
    let output = place.batch(&[&retry, &words[..], &[":::", "0", "3", "0", "4"]].concat());
    assert_eq!((out(&output), err(&output)), ("3.2\n4.2\n", "err\nerr\n"));
}

#[test]
fn the_user_is_found_by_name_and_number() {
    if !rustix::process::geteuid().is_root() {
        pace::skipped(pace::Need::Root, "only root may change the user");
        return;
    }
    for (user, ids) in [("nobody", "65534"), ("54321:54322", "54321"), ("nobody:54322", "65534")] {
        for contain in ["tree", "none"] {
            let words = ["run", "--user", user, "--contain", contain, "--", "id", "-u"];
            let output = pipewright(&words).output().unwrap();
            assert_eq!(out(&output).trim(), ids, "{user} {contain}: {}", err(&output));
        }
    }
    let output = pipewright(&["run", "--user", "nobody:54322", "--", "id", "-G"]).output().unwrap();
    assert_eq!(out(&output), "54322\n");
    let output = pipewright(&["run", "--user", "no-such-user", "--", "true"]).output().unwrap();
    assert!(err(&output).contains("/etc/passwd has no user"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn each_line_of_output_gets_its_mark() {
    let script = "printf 'a\\nb'; sleep 0.05; printf 'c\\n\\n'; echo err >&2";
    let output = run_sh(&["--prefix", "[x] "], script);
    assert_eq!((out(&output), err(&output)), ("[x] a\n[x] bc\n[x] \n", "[x] err\n"));
    let output = run_sh(&["--timestamps", "--prefix", "| ", "--merge"], script);
    for line in out(&output).lines() {
        let (time, _) = line.split_once(" | ").unwrap();
        assert_eq!(
            (time.len(), time.as_bytes()[10], time.as_bytes()[23]),
            (24, b'T', b'Z'),
            "{line}"
        );
    }
    assert_eq!(out(&output).lines().count(), 4);
    // Limits and codes are those of the command's own bytes.
    let output = run_sh(&["--prefix", "[x] ", "--max-output", "3"], "echo ab; exit 3");
    assert_eq!((out(&output), output.status.code()), ("[x] ab\n", Some(3)));
    let shown = pace::in_time(300, |millis| {
        let limit = pace::option(millis);
        let output = run_sh(&["--prefix", "[x] ", "--timeout", &limit], "echo ab; exec sleep 60");
        assert_eq!(output.status.code(), Some(124));
        Some(out(&output).to_owned()).filter(|shown| !shown.is_empty())
    });
    assert_eq!(shown, "[x] ab\n");
}

/// A reader that does not read delays no timeout, as with --tee FILE.
#[test]
fn a_timeout_fires_even_if_marked_output_is_not_read() {
    let words = ["run", "--prefix", "[x] ", "--timeout", "200ms", "--", "yes"];
    let mut tool = pipewright(&words);
    let mut tool = tool
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(tool.wait().unwrap().code(), Some(124));
}

#[test]
fn the_last_lines_of_a_failure_are_shown() {
    let output = run_sh(&["--tail", "2"], "seq 5; seq 10 15 >&2; exit 4");
    assert_eq!((out(&output), err(&output)), ("4\n5\n", "14\n15\n"));
    assert_eq!(output.status.code(), Some(4));
    let output = run_sh(&["--tail", "2"], "seq 5");
    assert_eq!((out(&output), err(&output)), ("", ""));
}

#[test]
fn a_report_goes_to_a_file_descriptor() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_pipewright");
    let sh = |script: &str| {
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", &script.replace("PW", tool)]).current_dir(place.path("")).output().unwrap()
    };
    for words in ["run --report fd:7 -- echo hi", "pipe --report fd:7 -- echo hi"] {
        let output = sh(&format!("PW {words} 7> report"));
        assert_eq!((out(&output), err(&output)), ("hi\n", ""));
        assert!(place.read("report").contains("\"outcome\":\"exited\""), "{words}");
    }
    // It is not passed on to the command, and one that is closed is found out before the run.
    assert_eq!(out(&sh("PW run --report fd:7 -- PW handles 7> report | grep -c report")), "0\n");
    let output = sh("PW run --report fd:7 -- touch mark 7>&-");
    assert_eq!((output.status.code(), place.path("mark").exists()), (Some(125), false));
    assert!(
        err(&output).starts_with("pipewright: cannot write the report to fd:7: "),
        "{}",
        err(&output)
    );
}

/// Runs a script in which `PW` is the tool.
fn sh(script: &str) -> Output {
    let tool = env!("CARGO_BIN_EXE_pipewright");
    Command::new("sh").args(["-c", &script.replace("PW", tool)]).output().unwrap()
}

const BAD_DESCRIPTOR: &str = "Bad file descriptor (os error 9)\n";

/// The command behaves as without the tool: it finds the stream closed, and fails.
#[test]
fn a_closed_stream_is_closed_for_the_command_too() {
    for (command, redirect) in
        [("/bin/echo hi", ">&-"), ("cat", "<&-"), ("ls /no/such", "2>&-"), ("true", "<&- >&- 2>&-")]
    {
        let alone = sh(&format!("{command} {redirect}"));
        for tool in [
            "PW run --",
            "PW run --contain none --",
            "PW run --contain group --",
            "PW pipe --",
            "PW pipe --contain none --",
        ] {
            let output = sh(&format!("{tool} {command} {redirect}"));
            assert_eq!(output, alone, "{tool} {command} {redirect}");
        }
    }
}

#[test]
fn output_for_a_closed_stdout_is_an_error() {
    let script = "PW batch --quiet -- echo ::: hi >&-";
    let output = sh(script);
    assert_eq!(output.status.code(), Some(125), "{}", err(&output));
    assert!(err(&output).ends_with(BAD_DESCRIPTOR), "{}", err(&output));
    for command in [
        "run --tee=null -- echo hi",
        "run --show-output on-failure -- sh -c 'echo hi; exit 3'",
        "run --json -- true",
        "pipe --max-output 10 -- echo hi",
        "batch --dry-run -- echo ::: hi",
        "handles",
        "doctor",
        "--help",
        "--version",
        "man",
        "completions bash",
    ] {
        let output = sh(&format!("PW {command} >&-"));
        assert_eq!(output.status.code(), Some(125), "{command}: {}", err(&output));
        let first = err(&output).lines().next().unwrap_or_default();
        assert!(first.contains("Bad file descriptor (os error 9)"), "{command}: {}", err(&output));
    }
    // Nothing was to be printed.
    let output = sh("PW batch --quiet -- true ::: hi >&-");
    assert_eq!((err(&output), output.status.code()), ("", Some(0)));
}

#[test]
fn a_batch_that_cannot_read_its_input_is_an_error() {
    let output = sh("PW batch --quiet -- echo <&-");
    assert_eq!((out(&output), output.status.code()), ("", Some(125)));
    assert!(err(&output).ends_with(BAD_DESCRIPTOR), "{}", err(&output));
}

#[test]
fn a_closed_stream_is_not_listed_as_inherited() {
    let output = sh("PW handles <&- 2>&-");
    let numbers: Vec<_> =
        out(&output).lines().filter_map(|line| line.split_whitespace().next()).collect();
    // The harness may have left others open.
    let standard: Vec<_> =
        numbers.into_iter().filter(|number| *number < "3").filter(|it| it.len() == 1).collect();
    assert_eq!(standard, ["1"]);
    let output = sh("PW run -- PW handles <&-");
    assert!(!out(&output).contains("    0 "), "{}", out(&output));
}

/// Allocates 200 MiB: a line without an end, all of which `tail` keeps.
const ALLOCATES: [&str; 4] = ["head", "-c", "200M", "/dev/zero"];

fn run(words: &[&str]) -> Output {
    pipewright(&[&["run"], words].concat()).output().unwrap()
}

/// Returns true, and reports it, if this machine cannot hold a limit on memory.
fn cannot_limit() -> bool {
    let tried = run(&["--memory", "64M", "--swap", "0", "--", "true"]);
    if tried.status.success() {
        return false;
    }
    let reason = err(&tried);
    assert_eq!(tried.status.code(), Some(125), "{reason}");
    assert!(reason.contains("memory_max cannot be held: "), "{reason}");
    pace::skipped(pace::Need::TreeLimits, reason);
    true
}

fn hungry() -> String {
    format!("{} | tail > /dev/null; exit 0", ALLOCATES.join(" "))
}

#[test]
fn a_tree_that_needs_more_memory_is_reported_by_message_code_and_report() {
    if cannot_limit() {
        return;
    }
    let done = run(&["--memory", "16M", "--swap", "0", "--json", "--", "sh", "-c", &hungry()]);
    assert_eq!(done.status.code(), Some(0), "its shell has lived on: {}", err(&done));
    assert!(err(&done).contains(" killed: over its memory limit of 16 MiB"), "{}", err(&done));
    let report: Value = serde_json::from_str(out(&done)).unwrap();
    assert_eq!(report["outcome"], "out_of_memory");
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["limits"]["memory_max_bytes"], 16 << 20);
    assert_eq!(report["limits"]["memory_swap_max_bytes"], 0);
    assert_eq!(report["out_of_memory"]["limit"], "command");
    assert_eq!(report["out_of_memory"]["limit_bytes"], 16 << 20);
    assert!(report["out_of_memory"]["killed"].as_u64() >= Some(1));
    // A line without an end.
    let died = run(&["--memory", "16M", "--swap", "0", "--", "tail", "/dev/zero"]);
    assert_eq!(died.status.code(), Some(137), "{}", err(&died));
    assert!(err(&died).contains(" killed: over its memory limit of 16 MiB"), "{}", err(&died));
}

#[test]
fn limits_that_hold_change_nothing_and_are_in_the_report() {
    if cannot_limit() {
        return;
    }
    let limits = ["--memory", "64M", "--cpus", "1.5", "--pids", "50", "--best-effort"];
    let done = run(&[&limits[..], &["--json", "--", "sh", "-c", "exit 3"]].concat());
    assert_eq!(done.status.code(), Some(3), "{}", err(&done));
    let report: Value = serde_json::from_str(out(&done)).unwrap();
    assert_eq!(report["limits"]["memory_max_bytes"], 64 << 20);
    assert_eq!(report["out_of_memory"], Value::Null);
    assert!(report["tree"].is_object(), "{report}");
}

#[test]
fn a_limit_that_cannot_be_meant_is_wrong_usage() {
    for words in [["--memory", "0"], ["--cpus", "0"], ["--cpus", "many"], ["--pids", "0"]] {
        let done = run(&[&words[..], &["--", "true"]].concat());
        assert_eq!(done.status.code(), Some(125), "{words:?}: {}", err(&done));
    }
    let done = run(&["--oom-group", "--", "true"]);
    assert!(err(&done).contains("--memory"), "{}", err(&done));
}

#[test]
fn doctor_says_if_limits_can_be_had_and_what_would_help() {
    let found = pipewright(&["doctor", "--json"]).output().unwrap();
    let found: Value = serde_json::from_str(out(&found)).unwrap();
    let facilities = found["facilities"].as_array().unwrap();
    for name in ["memory limit", "cpu limit", "pids limit"] {
        let entry = facilities.iter().find(|entry| entry["name"] == name).unwrap();
        let detail = entry["detail"].as_str().unwrap();
        match entry["state"].as_str() {
            Some("available") => assert!(detail.starts_with("cgroup v"), "{detail}"),
            state => {
                assert_eq!(state, Some("missing"));
                assert!(detail.contains(" cannot be held: "), "{detail}");
            }
        }
    }
}
