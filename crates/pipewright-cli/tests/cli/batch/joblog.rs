//! Files and tags for those who come from GNU parallel or read JUnit XML, and starts that are held back.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Place, err, out, refused, sorted, version};
use crate::{Watchdog, send_signal, with_default_stop_signals};

/// Returns the columns of the lines of a job log, sorted by job. The times are checked, and not among them.
fn joblog(text: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines();
    let header = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";
    assert_eq!(lines.next(), Some(header));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let mut columns: Vec<String> = line.split('\t').map(ToOwned::to_owned).collect();
        assert_eq!(columns.len(), 9, "{line:?}");
        for time in columns.drain(2..4) {
            let (seconds, millis) = time.trim_start().split_once('.').unwrap();
            assert!(seconds.parse::<u64>().is_ok() && millis.len() == 3, "{line:?}");
        }
        rows.push(columns);
    }
    rows.sort();
    rows
}

#[test]
fn the_joblog_is_that_of_gnu_parallel() {
    let place = Place::new();
    let words = ["sh", "-c", "echo {}; exit {}", ":::", "0", "3"];
    let ours = place.batch(&[&["--joblog", "ours", "--"], &words[..]].concat());
    assert_eq!(ours.status.code(), Some(123), "{}", err(&ours));
    let ours = joblog(&place.read("ours"));
    let row = |job: &str, code: &str, script: &str| {
        [job, ":", "0", "2", code, "0", script].map(ToOwned::to_owned).to_vec()
    };
    let expected =
        [row("1", "0", "sh -c 'echo 0; exit 0'"), row("2", "3", "sh -c 'echo 3; exit 3'")];
    assert_eq!(ours, expected);
    if version("parallel").is_none() {
        return;
    }
    let script = "parallel --joblog theirs \"sh -c 'echo {}; exit {}'\" ::: 0 3";
    place.sh(script);
    assert_eq!(joblog(&place.read("theirs")), ours);
}

#[test]
fn the_name_of_a_job_is_wherever_its_number_is() {
    let place = Place::new();
    let jobs = [
        r#"{"id":"lib","argv":["sh","-c","echo why >&2; exit 3"]}"#,
        r#"{"id":"app","argv":["true"],"after":["lib"]}"#,
        r#"{"id":"end","argv":["true"],"after":["app"]}"#,
    ];
    place.write("jobs", &jobs.join("\n"));
    let files = ["--log", "run.db", "--events", "events", "--trace", "trace", "--junit", "junit"];
    let pages = ["--html", "page.html", "--joblog", "joblog", "--output-dir", "dir"];
    let run = place.batch(&[&files[..], &pages, &["-t", "--jsonl", "--from", "jobs"]].concat());
    assert!(err(&run).contains("job 1 [lib] failed: exit code 3"), "{}", err(&run));
    let listed = place.tool(&["jobs", "run.db"]).output().unwrap();
    let page = place.tool(&["jobs", "run.db", "--html", "later.html"]).status().unwrap();
    assert!(page.success());
    let because = ["job 1 [lib] did not succeed", "job 2 [app] did not succeed"];
    for (what, text) in [
        ("jobs", out(&listed).to_owned()),
        ("events", place.read("events")),
        ("junit", place.read("junit")),
        ("page", place.read("page.html")),
        ("page of a log", place.read("later.html")),
    ] {
        for word in because {
            assert!(text.contains(word), "{what} has not {word:?}: {text}");
        }
    }
    for (what, text) in [("trace", place.read("trace")), ("junit", place.read("junit"))] {
        assert!(text.contains("[lib] sh -c"), "{what}: {text}");
    }
    assert!(place.read("junit").contains("name=\"[app] true\""), "{}", place.read("junit"));
    assert!(place.read("events").contains("\"id\":\"app\""));
    let named = place.tool(&["jobs", "run.db", "--output", "lib"]).output().unwrap();
    assert_eq!(out(&named), "");
    assert!(err(&named).contains("why"), "{}", err(&named));
    // Programs run the commands of a job log, as `parallel --retry-failed` does.
    assert_eq!(joblog(&place.read("joblog"))[0][6], "sh -c 'echo why >&2; exit 3'");
}

#[test]
fn a_joblog_with_a_plus_goes_on() {
    let place = Place::new();
    place.write("jobs.tsv", "old\n");
    for (option, jobs) in [("jobs.tsv", 1), ("+jobs.tsv", 2), ("+jobs.tsv", 3), ("+new.tsv", 1)] {
        let run = place.batch(&["--joblog", option, "--", "true", ":::", "x"]);
        assert_eq!(run.status.code(), Some(0), "{}", err(&run));
        let rows = joblog(&place.read(option.trim_start_matches('+')));
        assert_eq!(rows.len(), jobs, "{option}");
        // The last line may lack its end, as after a kill.
        let name = option.trim_start_matches('+');
        place.write(name, place.read(name).trim_end_matches('\n'));
    }
    for words in [&["--joblog", "+"][..], &["--private", "--joblog", "+jobs.tsv"]] {
        refused(&place.batch(&[words, &["--", "true", ":::", "x"]].concat()), &["--joblog +"]);
    }
}

#[test]
fn words_of_others_that_are_not_offered_say_what_is() {
    let place = Place::new();
    refused(&place.batch(&["-P0", "--", "true", ":::", "x"]), &["as many as possible", "400%"]);
    for other in [&["--retries", "1"][..], &["--report", "x.json"], &["--json"]] {
        let words = [&["run", "--time", "--runs", "3"], other, &["--", "true"]].concat();
        refused(&place.tool(&words).output().unwrap(), &["--runs", other[0], "cannot be used"]);
    }
}

#[test]
fn tags_on_a_terminal_are_aligned_and_coloured_unless_somebody_minds() {
    let place = Place::new();
    let jobs = "{\"id\":\"build\",\"shell\":\"echo one\"}\n{\"argv\":[\"echo\",\"2\"]}\n";
    place.write("jobs", jobs);
    let batch = "batch -q -j1 -k --tag --jsonl --from jobs";
    for (environment, is_colored) in [
        ("-u NO_COLOR TERM=xterm", true),
        ("-u NO_COLOR TERM=dumb", false),
        ("TERM=xterm NO_COLOR=1", false),
    ] {
        let run = place.sh(&format!("env {environment} $PW run --pty -- $PW {batch}"));
        let text = out(&run);
        assert_eq!(text.contains("\u{1b}[33mbuild\u{1b}[0m  one"), is_colored, "{text:?}");
        assert_eq!(text.contains("build  one\r\necho 2  2"), !is_colored, "{text:?}");
    }
    // A pipe has the tab that programs look for.
    let run = place.sh(&format!("$PW {batch} | cat"));
    assert_eq!(out(&run), "build\tone\necho 2\t2\n");
}

#[test]
fn each_job_is_a_test_case_of_the_junit_file_which_is_whole_while_the_batch_runs() {
    let place = Place::new();
    let script = "echo why >&2; exit {}";
    let run =
        place.batch(&["-j1", "--junit", "out.xml", "--", "sh", "-c", script, ":::", "0", "3"]);
    assert_eq!(run.status.code(), Some(123), "{}", err(&run));
    let text = place.read("out.xml");
    let counts = "tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\"";
    assert!(text.contains(counts) && text.ends_with("</testsuite>\n</testsuites>\n"), "{text}");
    assert!(text.contains("<failure message=\"exit code 3\" type=\"exited\">why"), "{text}");
    // The second job looks at the file after the first has ended.
    let wait = "until grep -q 'tests=\"1\"' whole.xml; do sleep 0.01; done; cp whole.xml copy.xml";
    let script = format!("[ {{}} = 1 ] || {{ {wait}; }}");
    let run =
        place.batch(&["-j1", "--junit", "whole.xml", "--", "sh", "-c", &script, ":::", "1", "2"]);
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    let copy = place.read("copy.xml");
    assert!(copy.ends_with("</testsuite>\n</testsuites>\n"), "{copy}");
}

#[test]
fn a_tag_has_the_values_of_its_job() {
    let place = Place::new();
    let tagged = |args: &[&str], input: &str| {
        let output = place.batch_of(input, &[&["--tagstring"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
        sorted(out(&output)).join("\n")
    };
    let words = ["{#}-{/.}", "--", "echo", "x", ":::", "d/a.c", "b.c"];
    assert_eq!(tagged(&words, ""), "1-a\tx d/a.c\n2-b\tx b.c");
    assert_eq!(tagged(&["{2}{1}", "--", "echo", ":::", "a", ":::", "b"], ""), "ba\ta b");
    assert_eq!(tagged(&["{}", "--", "echo", ":::", "a", ":::", "b"], ""), "a b\ta b");
    assert_eq!(tagged(&["same", "--", "echo", ":::", "a"], ""), "same\ta");
    assert_eq!(tagged(&["<{}>"], "echo 1\n"), "<echo 1>\t1");
    let wrong = place.batch(&["--tagstring", "{0}", "--", "echo", ":::", "a"]);
    refused(&wrong, &["--tagstring: columns are numbered from 1"]);
}

#[test]
fn starts_are_held_back_by_a_delay_and_by_the_machine() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    let began = Instant::now();
    let delayed = place.batch(&["-j8", "--delay", "0.1", "--", "true", ":::", "1", "2", "3"]);
    assert_eq!(delayed.status.code(), Some(0), "{}", err(&delayed));
    assert!(began.elapsed() >= Duration::from_millis(200));
    // No machine has so much memory: nothing starts, and the batch says why.
    let words = ["--memfree", "8000000GiB", "--", "touch", ":::", "ran"];
    let mut held = with_default_stop_signals();
    held.args(["batch", "--progress", "none"]).args(words).current_dir(place.path(""));
    held.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut held = held.spawn().unwrap();
    let mut lines = BufReader::new(held.stderr.take().unwrap()).lines().map(Result::unwrap);
    let reason = lines.next().expect("it says why");
    assert!(
        reason.contains("no job starts: ") && reason.contains("MiB of memory are free"),
        "{reason}"
    );
    // It may be the first of several lines: the figure changes.
    send_signal(&held, "TERM");
    lines.for_each(drop);
    assert_eq!(held.wait().unwrap().code(), Some(143));
    assert!(!place.path("ran").exists());
    refused(&place.batch(&["--load", "0", "--", "true", ":::", "1"]), &["must be more than 0"]);
    refused(&place.batch(&["--load", "x", "--", "true", ":::", "1"]), &["write 4, 1.5 or 80%"]);
}
