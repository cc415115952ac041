//! The help of every command and option reads like that of other tools; manual pages, `handles` and `doctor`.

use serde_json::Value;

use crate::{err, out, pipewright};

/// First words of a help text that is neither an imperative nor a noun phrase.
const REFUSED_OPENINGS: [&str; 14] = [
    "As", "How", "It", "Let", "Of", "Say", "That", "The", "What", "Where", "Whether", "Who",
    "Whom", "Why",
];

/// Words that a help text avoids, because readers do not search for them.
const REFUSED_WORDS: [&str; 14] = [
    "as well",
    "came",
    "heed",
    "in the place of",
    "nobody",
    "of our own",
    "said",
    "says",
    "so many",
    "somebody",
    "told",
    "who",
    "whoever",
    "whom",
];

/// Returns the names of all commands, found by walking the tree of commands from the top.
fn commands() -> Vec<String> {
    let mut found = vec![String::new()];
    let mut next = 0;
    while let Some(command) = found.get(next).cloned() {
        next += 1;
        let page = help(&command, "-h");
        let listing = page.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = listing.take_while(|line| !line.is_empty()).filter_map(|line| {
            let is_entry = line.starts_with("  ") && !line.starts_with("   ");
            line.split_whitespace().next().filter(|name| is_entry && *name != "help")
        });
        found.extend(names.map(|name| format!("{command} {name}").trim_start().to_owned()));
    }
    found
}

/// Returns the output of `-h` or `--help` for a command.
fn help(command: &str, flag: &str) -> String {
    let mut args: Vec<&str> = command.split_whitespace().collect();
    args.push(flag);
    let output = pipewright(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    out(&output).to_owned()
}

/// Returns the entries of a help page: the name of an option, command, argument or value, and its one line of help.
///
/// In `-h`, a name and its help are on one line; in `--help`, only a value and its help are.
fn entries(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut is_listing = false;
    for line in page.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if indent == 0 {
            let prose = ["Exit codes:", "Examples:", "Environment variables:"];
            is_listing = text.ends_with(':') && !prose.contains(&text);
            continue;
        }
        if !is_listing {
            continue;
        }
        let text = text.strip_prefix("- ").unwrap_or(text);
        let is_new = indent < 8 || (indent == 10 && line.trim_start().starts_with("- "));
        let split = text.split_once("  ").or_else(|| text.split_once(": "));
        match (is_new, split, found.last_mut()) {
            (true, Some((name, help)), _) => found.push((name.to_owned(), help.trim().to_owned())),
            // A help text too long for one line continues below.
            (false, _, Some((_, help))) if indent > 12 => *help = format!("{help} {text}"),
            _ => {}
        }
    }
    found
}

/// Returns true if a help text opens with a refused word, has one in it, is empty or ends with a full stop.
fn is_refused(help: &str) -> bool {
    // clap appends values in brackets, as in `[default: 0]`.
    let text = help.split(" [").next().unwrap_or_default();
    let first = text.split([' ', ',', ':']).next().unwrap_or_default();
    let words = text.to_lowercase().replace(|letter: char| !letter.is_alphanumeric(), " ");
    let has = |word: &&str| format!(" {words} ").contains(&format!(" {word} "));
    REFUSED_OPENINGS.contains(&first)
        || REFUSED_WORDS.iter().any(has)
        || text.is_empty()
        || text.ends_with('.')
}

#[test]
fn each_line_of_help_is_a_short_imperative_or_noun_phrase() {
    let mut offenders = Vec::new();
    let mut count = 0;
    for command in commands() {
        for flag in ["-h", "--help"] {
            let page = help(&command, flag);
            let about = page.lines().next().unwrap_or_default();
            let about = ("about".to_owned(), about.to_owned());
            for (name, help) in entries(&page).into_iter().chain([about]) {
                count += 1;
                if is_refused(&help) {
                    offenders.push(format!("{command} {flag}: {name}: {help}"));
                }
            }
        }
    }
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
    assert!(count > 200, "{count}");
}

#[test]
fn refused_help_is_recognized() {
    for help in [
        "Whom a stop reaches",
        "Say nothing of our own but errors",
        "Stop it when it has said nothing for that long",
        "Retry up to N times. [default: 0]",
        "",
    ] {
        assert!(is_refused(help), "{help}");
    }
    for help in ["Retry up to N times [default: 0]", "Signal that requests a stop", "Whole report"]
    {
        assert!(!is_refused(help), "{help}");
    }
}

#[test]
fn commands_are_found_at_every_depth() {
    let found = commands();
    for command in ["", "run", "pipe", "bench", "bench pipes", "bench all", "man"] {
        assert!(found.iter().any(|it| it == command), "{command:?}: {found:?}");
    }
    assert!(found.len() >= 15, "{found:?}");
}

#[test]
fn no_help_of_an_option_takes_more_than_two_lines() {
    for command in commands() {
        for line in help(&command, "-h").lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
        for (name, help) in entries(&help(&command, "-h")) {
            let words = help.split(" [").next().unwrap_or_default();
            assert!(words.len() <= 80, "{command}: {name}: {words}");
        }
    }
}

#[test]
fn the_name_alone_prints_help_and_fails() {
    let output = pipewright(&[]).output().unwrap();
    assert_eq!((output.status.code(), out(&output)), (Some(125), ""));
    assert_eq!(err(&output), help("", "-h"));
}

#[test]
fn options_of_run_and_pipe_are_grouped() {
    let groups = ["Limits:", "Stopping:", "Output:", "Environment:", "Reporting:"];
    for command in ["run", "pipe"] {
        for flag in ["-h", "--help"] {
            let page = help(command, flag);
            let at: Vec<_> =
                groups.iter().map(|group| page.lines().position(|it| it == *group)).collect();
            assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{command} {flag}: {at:?}");
            let plain: Vec<_> = page.lines().skip_while(|it| *it != "Options:").skip(1).collect();
            let plain = plain.iter().take_while(|it| !it.is_empty()).filter(|it| it.contains("--"));
            assert_eq!(plain.count(), 1, "only --help is outside of the groups: {page}");
        }
    }
}

#[test]
fn short_help_fits_on_a_screen_and_leads_to_the_long_one() {
    for command in ["run", "pipe", "disk", "bench pipes"] {
        let (short, long) = (help(command, "-h"), help(command, "--help"));
        assert!(short.contains("(see more with '--help')"), "{short}");
        assert!(short.lines().count() <= 50 && !short.contains("Examples:"), "{command}: {short}");
        assert!(long.contains("Examples:"), "{command}: {long}");
    }
}

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
    for shell in ["bash", "zsh", "fish", "powershell", "elvish", "nushell"] {
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
