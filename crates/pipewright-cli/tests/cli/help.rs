//! The help of every command and option reads like that of other tools.
//!
//! The tests read the help that the tool prints, and find the commands in it, so that new ones are checked too.

use super::{out, pipewright};

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
