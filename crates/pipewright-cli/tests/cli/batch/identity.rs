//! The identity of a job: what it does, and how many equal ones came before it. Never its position.

use super::super::random::{Random, seed};
use super::{Place, err, out};

/// Appends its argument to a file.
const NOTE: &str = "echo {} >> ran";

fn note(place: &Place, options: &[&str], values: &[&str]) -> std::process::Output {
    let words = ["--", "sh", "-c", NOTE, ":::"];
    place.batch(&[&["--log", "run.db"], options, &words[..], values].concat())
}

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
