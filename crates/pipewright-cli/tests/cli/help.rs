//! The help of every command and option reads as that of other tools.
//!
//! It is taken from the tool itself, and so this stands here and not among the rules for the sources.

use super::{out, pipewright};

const COMMANDS: [&str; 15] = [
    "",
    "run",
    "pipe",
    "bench",
    "bench pipes",
    "bench ipc",
    "bench disk",
    "bench spawn",
    "bench capture",
    "bench all",
    "disk",
    "handles",
    "doctor",
    "completions",
    "man",
];

/// Returns what `-h` or `--help` prints for a command.
fn help(command: &str, flag: &str) -> String {
    let mut args: Vec<&str> = command.split_whitespace().collect();
    args.push(flag);
    let output = pipewright(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    out(&output).to_owned()
}

/// Returns the entries of a help page: the name of an option, command, argument or value, and its one line of help.
///
/// In `-h` a name and its help stand on one line; in `--help` values do.
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
            // A line of help that the terminal is too narrow for goes on below.
            (false, _, Some((_, help))) if indent > 12 => *help = format!("{help} {text}"),
            _ => {}
        }
    }
    found
}

#[test]
fn each_line_of_help_is_a_short_imperative_or_noun_phrase() {
    let openings =
        ["What", "Whether", "Who", "Whom", "How", "Where", "That", "Of", "Why", "It", "The"];
    let mut offenders = Vec::new();
    let mut count = 0;
    for command in COMMANDS {
        for flag in ["-h", "--help"] {
            for (name, help) in entries(&help(command, flag)) {
                count += 1;
                let first = help.split([' ', ',', ':']).next().unwrap_or_default();
                if openings.contains(&first) || help.is_empty() || help.ends_with('.') {
                    offenders.push(format!("{command} {flag}: {name}: {help}"));
                }
            }
        }
    }
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
    assert!(count > 200, "{count}");
}

#[test]
fn no_help_of_an_option_takes_more_than_two_lines() {
    for command in COMMANDS {
        for line in help(command, "-h").lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
        for (name, help) in entries(&help(command, "-h")) {
            let words = help.split(" [").next().unwrap_or_default();
            assert!(words.len() <= 80, "{command}: {name}: {words}");
        }
    }
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
