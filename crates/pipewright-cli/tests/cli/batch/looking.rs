//! `jobs`, the reports, and the bar.

use serde_json::Value;

use super::super::terminal::Shell;
use super::{Place, err, out, refused};
use crate::trees::until;

/// Returns a place with the log of two jobs, of which one has failed.
fn with_log() -> Place {
    let place = Place::new();
    let script = "echo out{}; echo err{} >&2; exit {}";
    let args = [
        "-j1",
        "--log",
        "run.db",
        "--output-dir",
        "all",
        "--",
        "sh",
        "-c",
        script,
        ":::",
        "0",
        "7",
    ];
    assert_eq!(place.batch(&args).status.code(), Some(123));
    place
}

fn jobs(place: &Place, options: &[&str]) -> std::process::Output {
    place.tool(&[&["jobs", "run.db"], options].concat()).output().unwrap()
}

#[test]
fn the_page_of_a_running_batch_is_there_at_once_and_says_that_it_runs() {
    let place = Place::new();
    let script = "[ {} = 1 ] || { echo why {} >&2; exit 3; }; until [ -e go ]; do sleep 0.05; done";
    let words = ["--html", "page.html", "--log", "run.db", "--", "sh", "-c", script, ":::"];
    let args = [&["batch", "-q", "-j1", "-k"], &words[..], &["2", "3", "1", "4"]].concat();
    let mut batch = place.tool(&args).spawn().unwrap();
    let page = || std::fs::read_to_string(place.path("page.html")).unwrap_or_default();
    until("the page says what runs", || page().contains("1 running · 1 left"));
    let text = page();
    assert!(text.ends_with("</html>\n") && text.contains("<body data-reload="), "{text}");
    assert!(text.contains("<h1>Running: 0 ok, 2 failed") && text.contains("2 jobs</b>"), "{text}");
    // A page of the log is one look at it. The log may hear of the job after the page.
    until("the log says what runs", || {
        assert_eq!(jobs(&place, &["--html", "look.html"]).status.code(), Some(0));
        place.read("look.html").contains("1 running · 1 left")
    });
    let look = place.read("look.html");
    assert!(look.contains("<h1>Running: 0 ok, 2 failed"), "{look}");
    assert!(look.contains("1 running · 1 left") && !look.contains("data-reload="), "{look}");
    place.write("go", "");
    assert_eq!(batch.wait().unwrap().code(), Some(123));
    let text = page();
    assert!(text.contains("<h1>1 ok, 3 failed in") && !text.contains("data-reload="), "{text}");
}

#[test]
fn a_batch_that_cannot_start_leaves_the_reports_of_another_as_they_are() {
    // Each with what it begins with.
    const REPORTS: [(&str, &str, &str); 5] = [
        ("--html", "page.html", "<!doctype html>\n"),
        ("--events", "events", "{\"schema\":"),
        ("--trace", "trace", "[\n{"),
        ("--junit", "junit", "<?xml "),
        ("--joblog", "joblog", "Seq\t"),
    ];
    let place = Place::new();
    REPORTS.iter().for_each(|(_, file, _)| place.write(file, &"an old report\n".repeat(1000)));
    let wait = "until [ -e go ]; do sleep 0.05; done";
    let reports: Vec<&str> =
        REPORTS.iter().flat_map(|(option, file, _)| [*option, *file]).collect();
    let args = ["-q", "-j1", "--log", "run.db", "--", "sh", "-c", wait];
    let args = [&["batch"], &reports[..], &args].concat();
    let mut batch = place.tool(&[&args[..], &[":::", "1"]].concat()).spawn().unwrap();
    let page = || place.read("page.html");
    until("the page says what runs", || page().contains("1 running · 0 left"));
    let is_written = |(_, file, begin): &(&str, &str, &str)| place.read(file).starts_with(begin);
    until("the others have begun", || REPORTS.iter().all(is_written));
    // By mistake the same again. The first batch may replace its page once more meanwhile.
    let again = || place.tool(&[&args[..], &[":::", "1"]].concat()).output().unwrap();
    let look = |_| (page(), again(), page());
    let mut looks = (0..3).map(look).skip_while(|(before, _, after)| before != after);
    let (before, second, _) = looks.next().expect("another page each time");
    assert!(before.contains("1 running · 0 left"), "another page: {before}");
    place.write("go", "");
    assert_eq!(batch.wait().unwrap().code(), Some(0));
    refused(&second, &["run.db"]);
    let all = || REPORTS.map(|(_, file, _)| place.read(file));
    let before = all();
    assert!(before[0].contains("<h1>1 ok, 0 failed"), "{}", before[0]);
    for (report, text) in REPORTS.iter().zip(&before) {
        assert!(is_written(report) && !text.contains("an old report"), "{report:?}: {text}");
    }
    refused(&again(), &["run.db"]);
    assert!(all() == before, "other reports: {:?}", all());
    // A page that cannot be written is known before anything runs, and there is no log.
    let args = ["batch", "-q", "--html", "no/page", "--log", "other.db", "--", "touch", "ran"];
    refused(&place.tool(&[&args[..], &[":::", "1"]].concat()).output().unwrap(), &["no/page"]);
    assert!(!place.path("other.db").exists() && !place.path("ran").exists());
}

#[test]
fn a_page_of_a_log_has_the_jobs_of_the_last_input() {
    let place = Place::new();
    let input = |of_apps: &str| {
        let app = |number| {
            format!(
                "{{\"id\":\"app{number}\",\"shell\":\"{of_apps} {number}\",\"after\":[\"lib\"]}}\n"
            )
        };
        let apps: String = (1..=3).map(app).collect();
        format!("{{\"id\":\"lib\",\"shell\":\"exit 3\"}}\n{apps}")
    };
    let args = ["-j1", "--log", "run.db", "--jsonl"];
    assert_eq!(place.batch_of(&input("echo"), &args).status.code(), Some(123));
    let args = [&args[..], &["--resume", "--retry-failed"]].concat();
    assert_eq!(place.batch_of(&input("exit"), &args).status.code(), Some(123));
    let page = jobs(&place, &["--html", "page.html"]);
    assert_eq!((page.status.code(), err(&page)), (Some(0), ""));
    let text = place.read("page.html");
    assert!(text.contains("<h1>0 ok, 1 failed, 3 skipped in"), "{text}");
    assert!(text.contains("3 jobs that the last input does not have are left out"), "{text}");
    assert!(text.contains("exit 2") && !text.contains("echo 2"), "{text}");
}

#[test]
fn a_page_of_a_resumed_batch_that_runs_counts_what_is_over() {
    let place = Place::new();
    let script = "case {} in 1) ;; 2) [ -e again ] || exit 2; until [ -e go ]; do sleep 0.05; done ;; 3) exit 3 ;; \
                  esac";
    let words = ["batch", "-q", "-j1", "--halt", "soon,fail=2", "--log", "run.db"];
    let input = ["--", "sh", "-c", script, ":::", "1", "2", "3", "4", "5"];
    let first = place.tool(&[&words[..], &input].concat()).output().unwrap();
    assert_eq!(first.status.code(), Some(123), "{}", err(&first));
    place.write("again", "");
    let again = ["--resume", "--retry-failed"];
    let mut batch = place.tool(&[&words[..], &again, &input].concat()).spawn().unwrap();
    let page = || {
        assert_eq!(jobs(&place, &["--html", "page.html"]).status.code(), Some(0));
        place.read("page.html")
    };
    until("the first retry runs", || page().contains("1 running · 3 left"));
    let text = page();
    place.write("go", "");
    assert_eq!(batch.wait().unwrap().code(), Some(123));
    // Neither the job that failed nor those that did not run are over: this run does them again.
    assert!(text.contains("<h1>Running: 1 ok, 0 failed in"), "{text}");
    assert!(text.contains("1 running · 3 left"), "{text}");
    // Nothing of this run has ended, so nobody knows how long it takes.
    assert!(text.contains("\"left_seconds\":null"), "{text}");
    assert!(page().contains("<h1>4 ok, 1 failed in"));
}

#[test]
fn jobs_lists_what_its_options_ask_for() {
    let place = with_log();
    let all = jobs(&place, &[]);
    assert_eq!((all.status.code(), err(&all)), (Some(0), ""));
    for words in ["exit 0'", "exit 7'", "2 jobs: 1 succeeded, 1 failed", "run 1: finished"] {
        assert!(out(&all).contains(words), "{words}: {}", out(&all));
    }
    for options in [&["--failed"][..], &["--state", "failed"]] {
        let failed = jobs(&place, options);
        assert!(
            out(&failed).contains("exit 7'") && !out(&failed).contains("exit 0'"),
            "{}",
            out(&failed)
        );
    }
    let json = jobs(&place, &["--json"]);
    let objects: Vec<Value> =
        out(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2);
    assert!(
        objects
            .iter()
            .any(|job| job["job"] == 2 && job["state"] == "failed" && job["exit"] == "exit 7")
    );
    let slowest = jobs(&place, &["--slowest", "1", "--json"]);
    assert_eq!(out(&slowest).lines().count(), 1);
    let summary = jobs(&place, &["--summary"]);
    assert!(
        out(&summary).starts_with("2 jobs: ") && !out(&summary).contains("echo"),
        "{}",
        out(&summary)
    );
    let output = jobs(&place, &["--output", "2"]);
    assert_eq!((out(&output), err(&output)), ("out7\n", "err7\n"));
    assert_eq!(jobs(&place, &["--follow"]).status.code(), Some(0));
    let page = jobs(&place, &["--html", "page.html"]);
    assert_eq!(page.status.code(), Some(0), "{}", err(&page));
    assert!(place.read("page.html").contains("exit 7"));
}

#[test]
fn jobs_refuses_what_is_no_log_or_no_job() {
    let place = with_log();
    refused(&jobs(&place, &["--output", "9"]), &["\"9\""]);
    refused(&jobs(&place, &["--state", "nonsense"]), &["nonsense", "failed"]);
    refused(&jobs(&place, &["--html", "no/such/page"]), &["no/such/page"]);
    refused(&place.tool(&["jobs", "none.db"]).output().unwrap(), &["none.db", "does not exist"]);
    place.write("text", "not a database, and long enough to be looked at as one\n");
    refused(
        &place.tool(&["jobs", "text"]).output().unwrap(),
        &["text", "is not the log of a batch"],
    );
    assert!(!place.path("none.db").exists());
}

#[test]
fn every_event_is_a_line_of_json() {
    let place = Place::new();
    let script = "printf '\"\\n\\377'; printf '\\033[1m' >&2; exit {}";
    let args = [
        "--events", "events", "--trace", "trace", "--", "sh", "-c", script, ":::", "0", "7",
        "\"\n\t",
    ];
    assert_eq!(place.batch(&args).status.code(), Some(123));
    let events = place.read("events");
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!(["began", "started", "ended", "settled"].map(count), [1, 3, 3, 3]);
    let code = |code: i32| {
        events.iter().any(|event| event["event"] == "ended" && event["exit_code"] == code)
    };
    assert!(code(0) && code(7), "{events:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["how"]), (&"finished".into(), &"finished".into()));
    assert_eq!((&last["exit_code"], &last["succeeded"]), (&123.into(), &1.into()), "{last}");
    let trace: Value = serde_json::from_str(&place.read("trace")).unwrap();
    assert!(trace.to_string().contains("exit"), "{trace}");
}

#[test]
fn a_page_has_no_markup_of_a_command_or_its_output() {
    let place = Place::new();
    let evil = "</script><script>evil</script><img src=x onerror=evil>";
    let script = format!("echo '{evil}' >&2; echo '{evil}'; exit 1");
    let args = ["--log", "run.db", "--html", "page", "--", "sh", "-c", &script, ":::", evil];
    assert_eq!(place.batch(&args).status.code(), Some(123));
    assert_eq!(jobs(&place, &["--html", "page-of-log"]).status.code(), Some(0));
    for name in ["page", "page-of-log"] {
        let page = place.read(name);
        assert!(page.contains("evil"), "{name} does not show the command");
        for part in ["<script>evil", "</script><script>", "<img src"] {
            assert!(!page.contains(part), "{name}: {part}");
        }
    }
}

#[test]
fn the_bar_is_erased_before_output_and_at_the_end() {
    let place = Place::new();
    let Some(mut shell) = Shell::start_with(&["bash", "--norc", "--noprofile", "-i"], "xterm")
    else {
        return;
    };
    // The job ends once the bar has been seen.
    let wait = "until [ -e end ]; do sleep 0.05; done; echo line{}";
    shell.types(&format!(
        "cd {}; $PW batch -j1 -- sh -c '{wait}' ::: 1 2; echo co''de=$?\n",
        place.path("").display()
    ));
    shell.shows("0/2");
    place.write("end", "");
    let text = shell.shows("code=0");
    for line in ["line1", "line2"] {
        // What a terminal shows of a line is what comes after the last erasure of it.
        let before = text.split(line).next().unwrap();
        let start = before.rfind(['\n', '\r', 'K', 'J']).map_or(0, |at| at + 1);
        assert_eq!(&before[start..], "", "{line} is mixed with the bar: {text:?}");
        assert!(text.contains(&format!("{line}\r\n")), "{text:?}");
    }
    let summary = text.split("2 ok").next().unwrap();
    let start = summary.rfind(['\n', '\r', 'K', 'J']).map_or(0, |at| at + 1);
    assert_eq!(&summary[start..], "pipewright: ", "{text:?}");
}

#[test]
fn what_follows_output_without_a_newline_is_on_the_next_line() {
    let place = Place::new();
    let Some(mut shell) = Shell::start_with(&["bash", "--norc", "--noprofile", "-i"], "xterm")
    else {
        return;
    };
    shell.types(&format!(
        "cd {}; $PW batch -j1 -- printf part%s ::: 1; echo co''de=$?\n",
        place.path("").display()
    ));
    let text = shell.shows("code=0");
    assert!(text.contains("part1\r\npipewright: 1 ok"), "{text:?}");
}
