//! Help, manual pages, completions, `handles` and `doctor`.

use serde_json::Value;

use super::{err, out, pipewright};

#[test]
fn the_help_of_every_command_ends_with_two_examples() {
    for command in [
        None,
        Some("run"),
        Some("pipe"),
        Some("disk"),
        Some("bench"),
        Some("bench pipes"),
        Some("bench spawn"),
        Some("bench capture"),
        Some("bench all"),
        Some("handles"),
        Some("doctor"),
        Some("completions"),
        Some("man"),
    ] {
        let mut args: Vec<&str> = command.into_iter().flat_map(|words| words.split(' ')).collect();
        args.push("--help");
        let output = pipewright(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let (_, examples) = out(&output).rsplit_once("Examples:\n").unwrap();
        let lines = examples.lines().filter(|line| line.starts_with("  "));
        assert!(lines.count() >= 2, "{args:?}: {examples}");
    }
}

#[test]
fn a_command_has_one_description_everywhere() {
    let listed = pipewright(&["--help"]).output().unwrap();
    let listed = out(&listed);
    for command in ["run", "pipe", "disk", "bench", "handles", "doctor", "completions", "man"] {
        let help = pipewright(&[command, "--help"]).output().unwrap();
        let first = out(&help).lines().next().unwrap();
        let line = listed.lines().find(|line| line.trim_start().starts_with(command)).unwrap();
        assert!(line.ends_with(first), "{command}: {first:?}, and in the list {line:?}");
    }
}

#[test]
fn man_pages_and_completions_are_made() {
    for command in ["run", "pipe", "disk", "bench", "bench pipes", "handles", "doctor"] {
        let mut args = vec!["man"];
        args.extend(command.split(' '));
        let output = pipewright(&args).output().unwrap();
        let name = format!("pipewright-{command}").replace([' ', '-'], "\\-");
        assert!(out(&output).contains(&name), "{command}");
    }
    assert!(out(&pipewright(&["man"]).output().unwrap()).contains(".TH PIPEWRIGHT 1 "));
    let output = pipewright(&["man", "nope"]).output().unwrap();
    let words = "pipewright: unknown command \"nope\": see pipewright --help\n";
    assert_eq!((output.status.code(), err(&output)), (Some(125), words));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = pipewright(&["completions", shell]).output().unwrap();
        assert!(out(&output).contains("pipewright"), "{shell}");
    }
}

/// Checks the pages; `ci/pages.sh` also checks them with mandoc.
#[test]
fn man_pages_have_the_sections_that_readers_look_for() {
    let page = |command: &str| {
        let args = ["man"].into_iter().chain(command.split_whitespace());
        let output = pipewright(&args.collect::<Vec<_>>()).output().unwrap();
        out(&output).to_owned()
    };
    let usual =
        ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"];
    for command in ["", "run", "pipe", "disk", "bench", "bench pipes", "handles", "man"] {
        let page = page(command);
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let headings: Vec<_> = headings.map(|heading| heading.trim_matches('"')).collect();
        let places = usual.map(|usual| headings.iter().position(|heading| *heading == usual));
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{command}: {headings:?}"
        );
        assert!(page.lines().all(|line| !line.ends_with(' ')), "{command}");
    }
    for command in ["", "run", "pipe", "bench pipes", "bench disk", "bench spawn"] {
        assert!(page(command).contains("\n.SH ENVIRONMENT\n"), "{command}");
    }
    let run = page("run");
    for line in [
        "pipewright\\-run \\- Run a command",
        "\\fBpipewright\\fR \\fBrun\\fR [\\fIOPTIONS\\fR] [\\-\\-] \\fICMD\\fR [\\fIARGS\\fR]...",
        "\\fB\\-\\-timeout\\fR \\fIDUR\\fR\nStop after DUR.",
        "\\fB\\-\\-stop\\-signal\\fR \\fISIGNAL\\fR",
        "\\fB128+N\\fR\n",
        ".BR timeout (1),\n",
    ] {
        assert!(run.contains(line), "{line}: {run}");
    }
}

#[test]
fn doctor_prints_a_line_for_each_facility_or_json() {
    let output = pipewright(&["doctor"]).output().unwrap();
    let text = out(&output).to_owned();
    assert!(text.lines().count() >= 8, "{text}");
    let output = pipewright(&["doctor", "--json"]).output().unwrap();
    let findings: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(findings["schema"], "pipewright.doctor/1");
    let facilities = findings["facilities"].as_array().unwrap();
    let name = if cfg!(windows) { "job object" } else { "pidfd" };
    assert!(facilities.iter().any(|facility| facility["name"] == name));
    let first = text.lines().next().unwrap();
    assert!(first.contains("features are available"), "{first}");
    for facility in facilities.iter().filter(|facility| facility["state"] == "missing") {
        assert!(first.contains(facility["name"].as_str().unwrap()), "{first}: {facility}");
    }
    for facility in facilities {
        let state = facility["state"].as_str().unwrap();
        assert!(["available", "missing", "value"].contains(&state), "{facility}");
        let texts = ["without", "needs"].map(|text| facility[text].as_str().unwrap());
        assert!(texts.iter().all(|text| text.is_empty() == (state == "value")), "{facility}");
    }
}

#[cfg(unix)]
#[test]
fn handles_lists_the_inherited_handles() {
    let output = pipewright(&["handles", "--json"]).output().unwrap();
    let list: Value = serde_json::from_str(out(&output)).unwrap();
    let numbers: Vec<i64> = list["handles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["number"].as_i64().unwrap())
        .collect();
    assert_eq!(&numbers[..3], [0, 1, 2]);
    assert_eq!(list["handles"][0]["kind"], "char device");
}

/// Commands that print output of their own.
#[cfg(unix)]
const PRINTING: [&[&str]; 9] = [
    &["--help"],
    &["--version"],
    &["run", "--help"],
    &["man"],
    &["man", "bench"],
    &["completions", "bash"],
    &["doctor"],
    &["handles"],
    &["handles", "--json"],
];

#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_to_stdout_is_a_failure() {
    for args in PRINTING {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = pipewright(args).stdout(full).output().unwrap();
        let words = "pipewright: cannot write to stdout: No space left on device (os error 28)\n";
        assert_eq!((output.status.code(), err(&output)), (Some(125), words), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for args in PRINTING {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let output = pipewright(args).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), err(&output)), (Some(0), ""), "{args:?}");
    }
}
