//! The jobs of every kind of input, their identity and exit codes, and bad input: nothing of it is started.

use super::{NOTE, Place, err, note, out, pace, refused, sorted};
use crate::random::{Random, seed};

#[track_caller]
fn prints(place: &Place, input: &str, args: &[&str], expected: &[&str]) {
    let output = place.batch_of(input, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
    assert_eq!(sorted(out(&output)), expected, "{args:?}");
}

/// Prints each of its arguments in brackets, on one line.
const WORDS: [&str; 4] = ["sh", "-c", "printf '[%s]' \"$@\"; echo", "words"];

#[test]
fn lines_replace_placeholders_or_are_appended_and_meet_no_shell() {
    let place = Place::new();
    let with = |words: &[&'static str]| [&["--"], &WORDS[..], words].concat();
    prints(&place, "a b\n$HOME;\n", &with(&[]), &["[$HOME;]", "[a b]"]);
    prints(&place, "a b\n", &with(&["x{}y", "z"]), &["[xa by][z]"]);
    let parts = with(&["{.}", "{/}", "{//}", "{/.}", "{#}"]);
    prints(&place, "d/e.txt\n", &parts, &["[d/e][e.txt][d][e][1]"]);
    prints(&place, "last line has no end", &with(&[]), &["[last line has no end]"]);
    prints(&place, "", &with(&[]), &[]);
    prints(&place, "a\nb\0c\0", &[&["-0"], &with(&[])[..]].concat(), &["[a", "[c]", "b]"]);
    place.write("file", "from a file\n");
    prints(&place, "", &[&["--from", "file"], &with(&[])[..]].concat(), &["[from a file]"]);
}

#[test]
fn lines_without_a_command_are_commands_and_a_shell_is_asked_for() {
    let place = Place::new();
    let lines = "printf '%s\\n' 'a  b' \"c d\"\necho '$x' '|' cat\n";
    prints(&place, lines, &[], &["$x | cat", "a  b", "c d"]);
    prints(&place, "x=1; echo $x | tr 1 2\n", &["--shell"], &["2"]);
    refused(&place.batch_of("echo 'open\n", &[]), &["line 1 of stdin"]);
}

#[test]
fn json_and_csv_describe_jobs() {
    let place = Place::new();
    let json = r#"{"id":"b","argv":["cat","made"],"after":["a"]}
{"id":"a","shell":"printf \"$X\" > made; cat","env":{"X":"from a\n"},"stdin":"input\n"}
{"shell":"pwd | sed 's|.*/||'","cwd":"sub"}
"#;
    std::fs::create_dir(place.path("sub")).unwrap();
    prints(&place, json, &["--jsonl"], &["from a", "input", "sub"]);
    let csv = "name,size\n\"a, b\",1\nc,2\n";
    prints(&place, csv, &["--csv", "--", "echo", "{size}:{name}:{1}"], &["1:a, b:a, b", "2:c:c"]);
}

#[test]
fn lists_are_combined() {
    let place = Place::new();
    place.write("list", "x\ny\n");
    let words = ["-k", "--", "echo", "{2}-{1}", ":::", "1", "2", "::::", "list"];
    let output = place.batch(&words);
    assert_eq!(out(&output), "x-1\ny-1\nx-2\ny-2\n");
    let appended = place.batch(&["-k", "--", "echo", ":::", "1", "2", ":::", "a"]);
    assert_eq!(out(&appended), "1 a\n2 a\n");
    refused(&place.batch(&["--", "echo", "::::", "none"]), &["none"]);
}

#[test]
fn a_dry_run_prints_commands_that_a_shell_reads_as_the_same_words() {
    let place = Place::new();
    let values =
        ["a'b", "*", "$HOME", "", "`id`", "two  spaces", "-n", "\\", "ü\u{1}\t", "#x", "~", "!"];
    let words = [&["-k", "--"], &WORDS[..], &[":::"], &values[..]].concat();
    let ran = place.batch(&words);
    let dry = place.batch(&[&["--dry-run"], &words[..]].concat());
    assert_eq!(out(&dry).lines().count(), values.len());
    let shell = place.sh(out(&dry));
    assert_eq!(out(&shell), out(&ran));
    let expected: String = values.map(|value| format!("[{value}]\n")).concat();
    assert_eq!(out(&ran), expected);
    let nothing = place.batch(&["--dry-run", "--log", "run.db", "--", "touch", ":::", "started"]);
    assert_eq!(out(&nothing), "touch started\n");
    assert!(!place.path("started").exists() && !place.path("run.db").exists());
}

#[test]
fn a_bad_file_is_refused_with_its_line_and_nothing_is_started() {
    let place = Place::new();
    let touch = r#""argv":["touch","started"]"#;
    for (bad, words) in [
        (format!(r#"{{"id":"a",{touch},"after":["b"]}}"#), &["\"a\" after \"b\""][..]),
        (format!(r#"{{"id":"b",{touch}}}"#), &["lines 1 and 2", "\"b\""]),
        (format!(r#"{{{touch},"after":["nobody"]}}"#), &["line 2", "\"nobody\""]),
        (format!(r#"{{{touch},"tiemout":3}}"#), &["line 2", "unknown field \"tiemout\""]),
        (format!(r#"{{{touch},"cpus":100000}}"#), &["line 2", "100000 CPUs"]),
        (format!(r#"{{{touch},"cpus":-1}}"#), &["line 2", "\"cpus\""]),
        (format!(r#"{{{touch},"mem":"lots"}}"#), &["line 2", "\"mem\"", "\"lots\""]),
        (format!(r#"{{{touch},"resources":{{"link":1}}}}"#), &["line 2", "\"link\""]),
        (format!(r#"{{{touch},"shell":"x"}}"#), &["line 2", "both"]),
        (r#"{"argv":[]}"#.to_owned(), &["line 2"]),
        ("not json".to_owned(), &["line 2", "JSON"]),
    ] {
        let first = format!(r#"{{"id":"b",{touch},"after":["a"]}}"#);
        let plain = format!(r#"{{"id":"b",{touch}}}"#);
        let first = if bad.contains(r#"after":["b"]"#) { first } else { plain };
        place.write("bad.jsonl", &format!("{first}\n{bad}\n"));
        let output = place.batch(&["--jsonl", "--from", "bad.jsonl"]);
        refused(&output, &[words, &["\"bad.jsonl\""]].concat());
        assert!(!place.path("started").exists(), "{bad}");
    }
    place.write("bad.csv", "a,b\n1,2\n3\n");
    let output = place.batch(&["--csv", "--from", "bad.csv", "--", "touch", "started"]);
    refused(&output, &["line 3 of \"bad.csv\""]);
    let output = place.batch(&["--csv", "--from", "bad.csv", "--", "touch", "{nobody}"]);
    refused(&output, &["\"nobody\"", "a, b"]);
    assert!(!place.path("started").exists());
}

#[test]
fn a_stream_is_refused_at_its_bad_line_and_what_runs_ends() {
    let place = Place::new();
    let input = "{\"shell\":\"echo first\"}\n{\"bad\":1}\n{\"shell\":\"echo third\"}\n";
    let output = place.batch_of(input, &["--jsonl"]);
    refused(&output, &["line 2 of stdin", "\"bad\""]);
    assert!(!out(&output).contains("third"), "{}", out(&output));
}

/// Appends its argument to a file.
#[test]
fn a_resumed_batch_runs_only_what_is_missing() {
    let place = Place::new();
    assert_eq!(note(&place, &[], &["a", "b"]).status.code(), Some(0));
    // Added in front and changed in between: positions mean nothing.
    let output = note(&place, &["--resume"], &["new", "a", "changed"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(place.lines("ran"), ["a", "b", "changed", "new"]);
    assert!(err(&output).contains("3 ok (1 before)"), "{}", err(&output));
    assert!(err(&output).contains("1 job of the log not in the input"), "{}", err(&output));
    // The second of two equal jobs is new.
    assert_eq!(note(&place, &["--resume"], &["a", "a"]).status.code(), Some(0));
    assert_eq!(place.lines("ran"), ["a", "a", "b", "changed", "new"]);
    assert_eq!(note(&place, &["--resume"], &["a", "a"]).status.code(), Some(0));
    assert_eq!(place.lines("ran"), ["a", "a", "b", "changed", "new"]);
}

#[test]
fn a_job_that_does_something_else_is_a_new_job() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    let ran = place.path("ran");
    let echo = format!(r#""argv":["sh","-c","echo x >> {}"]"#, ran.display());
    let base = format!("{{{echo}}}");
    let run = |line: &str, log: &str| {
        place.write("jobs", &format!("{line}\n"));
        let resume: &[&str] = if place.path(log).exists() { &["--resume"] } else { &[] };
        let args = ["--jsonl", "--from", "jobs", "--log", log];
        let output = place.batch(&[&args, resume].concat());
        assert_eq!(output.status.code(), Some(0), "{line}: {}", err(&output));
        let runs = place.read("ran").lines().count();
        place.write("ran", "");
        runs
    };
    // What it does.
    let others = [
        r#""cwd":"sub""#,
        r#""env":{"A":"1"}"#,
        r#""env":{"A":"2"}"#,
        r#""stdin":"text""#,
        r#""stdin_file":"jobs""#,
    ];
    assert_eq!(run(&base, "run.db"), 1);
    for other in others {
        let line = format!("{{{echo},{other}}}");
        assert_eq!((run(&line, "run.db"), run(&line, "run.db")), (1, 0), "{other}");
    }
    assert_eq!(run(&base, "run.db"), 0, "the log knows all of them");
    // How it is run.
    for same in
        [r#""id":"name""#, r#""timeout":"1h""#, r#""retries":3"#, r#""cpus":1"#, r#""once":true"#]
    {
        assert_eq!(run(&format!("{{{echo},{same}}}"), "run.db"), 0, "{same}");
    }
}

#[test]
fn random_changes_of_the_input_run_exactly_what_is_new() {
    let seed = seed(20_261_125);
    let mut random = Random::of(seed);
    let place = Place::new();
    // How often each value has run, and so how many jobs of it the log has.
    let mut known = [0_usize; 6];
    for round in 0..12 {
        let values: Vec<usize> = (0..random.below(9)).map(|_| random.below(6) as usize).collect();
        let words: Vec<String> = values.iter().map(ToString::to_string).collect();
        place.write("list", &words.iter().map(|word| format!("{word}\n")).collect::<String>());
        let options: &[&str] = if round == 0 { &[] } else { &["--resume"] };
        let args = ["--log", "run.db", "--from", "list", "--", "sh", "-c", NOTE];
        let output = place.batch(&[options, &args[..]].concat());
        assert_eq!(output.status.code(), Some(0), "seed {seed}: {}", err(&output));
        let lines = place.lines("ran");
        for (value, before) in known.iter_mut().enumerate() {
            let wanted = values.iter().filter(|other| **other == value).count();
            *before = wanted.max(*before);
            let ran = lines.iter().filter(|line| **line == value.to_string()).count();
            assert_eq!(ran, *before, "seed {seed}, round {round}, value {value}");
        }
        assert_eq!(out(&output), "");
    }
}

#[test]
fn exit_codes_are_those_of_xargs_and_timeout() {
    let place = Place::new();
    for (script, code) in [("exit 0", 0), ("exit 1", 123), ("exit 255", 123), ("kill -9 $$", 123)] {
        let output = place.batch(&["--", "sh", "-c", script, ":::", "1"]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", err(&output));
    }
    let output = place.batch(&["--", "no-such-program", ":::", "1"]);
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("no-such-program"), "{}", err(&output));
    let late = place.batch(&["--batch-timeout", &pace::option(200), "--", "sleep", ":::", "60"]);
    assert_eq!(late.status.code(), Some(124), "{}", err(&late));
    let slow = place.batch(&["--timeout", &pace::option(200), "--", "sleep", ":::", "60"]);
    assert_eq!(slow.status.code(), Some(123), "{}", err(&slow));
    for wrong in [
        &["--jobs", "0", "--", "echo"][..],
        &["--resume", "--", "echo"],
        &["--from", "no-such-file", "--", "echo"],
        &["--jsonl", "--", "echo"],
        &["--csv"],
        &["--env", "NOVALUE", "--", "echo", ":::", "1"],
    ] {
        refused(&place.batch(wrong), &[]);
    }
    let output = place.batch_of("", &["--", "echo", "{99}", ":::", "1"]);
    refused(&output, &["column 99"]);
}

#[test]
fn a_reader_that_is_gone_ends_the_batch_with_141() {
    let place = Place::new();
    let script = "{ seq 100000 | $PW batch --quiet -- echo; echo $? >&2; } | head -n 1";
    let output = place.sh(script);
    assert_eq!(err(&output), "141\n");
    assert_eq!(out(&output).lines().count(), 1);
}

#[test]
fn the_summary_counts_every_job() {
    let place = Place::new();
    let json = r#"{"id":"bad","argv":["false"]}
{"argv":["true"],"after":["bad"]}
{"argv":["true"]}"#;
    place.write("jobs", json);
    let output = place.batch(&["--jsonl", "--from", "jobs"]);
    assert_eq!(output.status.code(), Some(123));
    assert!(err(&output).contains("1 ok, 1 failed, 1 skipped, 0 unknown"), "{}", err(&output));
    let fast = place.batch(&[
        "-j1",
        "--halt=soon,fail=1",
        "--",
        "sh",
        "-c",
        "echo {} >> ran; exit {}",
        ":::",
        "1",
        "0",
        "0",
    ]);
    assert_eq!((fast.status.code(), place.read("ran")), (Some(123), "1\n".to_owned()));
    assert!(err(&fast).contains("(the limit of failures is reached)"), "{}", err(&fast));
}

#[test]
fn what_cannot_start_and_what_jobs_left_running_is_said() {
    let place = Place::new();
    let missing = place.batch(&["--quiet", "--", "no-such-program", ":::", "1"]);
    assert_eq!(missing.status.code(), Some(123));
    let words = "pipewright: job 1: cannot start \"no-such-program\": not found in PATH";
    assert!(err(&missing).starts_with(words), "{}", err(&missing));
    let left = place.batch(&["--", "sh", "-c", "sleep 60 & :", ":::", "1", "2"]);
    let words = "2 processes that jobs left running were killed; --contain group keeps them\n";
    let has_trees = !err(&left).contains("process groups only");
    assert!(err(&left).contains(words) || !has_trees, "{}", err(&left));
}

#[test]
fn only_the_failures_of_the_classes_are_retried() {
    let place = Place::new();
    // Only the scripts that sleep have the short limit: any other one may take longer to begin.
    let (soon, late) = (pace::option(200), pace::option(60_000));
    for (on, script, tries) in [
        ("code", "exit 1", 3),
        ("signal", "exit 1", 1),
        ("signal", "kill -9 $$", 3),
        ("code", "kill -9 $$", 1),
        ("timeout", "sleep 60", 3),
        ("code,signal", "sleep 60", 1),
        ("75", "exit 75", 3),
        ("75,timeout", "exit 1", 1),
        ("limit", "echo much", 3),
        ("timeout", "echo much", 1),
    ] {
        let sleeps = script.starts_with("sleep");
        let script = format!("echo $PIPEWRIGHT_ATTEMPT >> ran; {script}");
        let timeout = if sleeps { &soon } else { &late };
        let limits = ["--timeout", timeout, "--max-output", "1", "--events", "events"];
        let retries = ["--retries", "2", "--retry-delay", "1ms", "--retry-on", on];
        let command = ["--", "sh", "-c", &script, ":::", "1"];
        let output = place.batch(&[&limits[..], &retries, &command].concat());
        assert_eq!(output.status.code(), Some(123), "{on} {script}");
        let ends = place.read("events").matches("\"event\":\"ended\"").count();
        assert_eq!(ends, tries, "{on} {script}: {}", place.read("events"));
        // The limit may come before the first line.
        if !sleeps {
            let ran = ["1\n", "2\n", "3\n"][..tries].concat();
            assert_eq!(place.read("ran"), ran, "{on} {script}");
        }
        let _ = std::fs::remove_file(place.path("ran"));
    }
    let script = "test $PIPEWRIGHT_ATTEMPT = 2";
    let args = ["--retries", "1", "--retry-delay", "1ms", "--", "sh", "-c", script, ":::", "1"];
    assert_eq!(place.batch(&args).status.code(), Some(0));
    // What cannot be started is not tried again without a choice.
    for (on, tries) in [(&[][..], 1), (&["--retry-on", "start"], 3)] {
        let options = ["--events", "events", "--retries", "2", "--retry-delay", "1ms"];
        place.batch(&[&options[..], on, &["--", "no-such-program", ":::", "1"]].concat());
        let ends = place.read("events").matches("\"event\":\"ended\"").count();
        assert_eq!(ends, tries, "{}", place.read("events"));
    }
}

#[test]
fn a_full_stdout_is_125() {
    if pace::lacks("/dev/full") {
        return;
    }
    let place = Place::new();
    let script = "$PW batch --quiet --log run.db -- echo ::: 1 2 > /dev/full";
    refused(&place.sh(script), &["cannot write to stdout", "No space left"]);
}

#[test]
fn closed_streams_do_not_hinder_the_jobs() {
    let place = Place::new();
    // The jobs run, and output that cannot be printed is an error.
    for (closed, code) in [("<&-", 0), (">&-", 125), ("2>&-", 0), ("<&- >&- 2>&-", 125)] {
        let script = format!(
            "$PW batch --log run.db -- sh -c 'echo out; echo err >&2; echo {{}} >> ran' ::: 1 2 3 {closed}"
        );
        let output = place.sh(&script);
        assert_eq!(output.status.code(), Some(code), "{closed}: {}", err(&output));
        assert_eq!(place.lines("ran"), ["1", "2", "3"], "{closed}");
        // A log that got the number of a closed stream would have messages in it.
        if let Some(rows) = place.rows("run.db", "select count(*) from attempts") {
            assert_eq!(rows, ["3"], "{closed}");
        }
        for file in ["ran", "run.db"] {
            std::fs::remove_file(place.path(file)).unwrap();
        }
    }
}

#[test]
fn reports_that_cannot_be_written_fail_before_any_job_starts() {
    let place = Place::new();
    place.write("file", "");
    for option in ["--events", "--html", "--trace", "--log"] {
        let output = place.batch(&[option, "no/such/file", "--", "touch", ":::", "started"]);
        refused(&output, &["no/such/file"]);
        assert!(!place.path("started").exists(), "{option}");
    }
    let output = place.batch(&["--output-dir", "file/dir", "--", "touch", ":::", "started"]);
    refused(&output, &["file/dir"]);
    assert!(!place.path("started").exists());
}
