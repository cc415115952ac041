//! Standard streams that are closed when the tool starts.

use std::process::{Command, Output};

use super::{err, out};

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
        "run --tee -- echo hi",
        "run --capture -- sh -c 'echo hi; exit 3'",
        "run --json -- true",
        "pipe --limit 10 -- echo hi",
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
