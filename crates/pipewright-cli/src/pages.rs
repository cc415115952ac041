//! Completion scripts and manual pages, in the language of man(7), made from the definition of the command line.
//!
//! The options come from clap; description, exit codes, environment variables and examples come from the text below the
//! options of `--help`, so that each fact is written once.

use std::fmt::Write as _;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_complete_nushell::Nushell;

use crate::Failure;
use crate::args::{Args, CompletionShell};
use crate::print::print;

/// Prints a completion script.
pub(crate) fn completions(shell: CompletionShell) -> Result<i32, Failure> {
    print(completion_script(shell)?)?;
    Ok(crate::exit_code::SUCCESS)
}

/// Prints a manual page.
pub(crate) fn man(names: &[String]) -> Result<i32, Failure> {
    let mut command = Args::command();
    command.build();
    for name in names {
        let found = command.find_subcommand(name);
        let found = found
            .ok_or_else(|| Failure(format!("unknown command \"{name}\": see pipewright --help")))?;
        command = found.clone();
    }
    print(man_page(&mut command))?;
    Ok(crate::exit_code::SUCCESS)
}

/// Returns the script of clap, and below it the completion of the command after the options: clap does not know how a
/// shell completes another program's command line, and each shell has a way of its own, in the scripts beside this
/// file.
fn completion_script(shell: CompletionShell) -> Result<String, Failure> {
    let mut command = offered(&Args::command());
    let mut script = Vec::new();
    let mut generate =
        |shell| clap_complete::generate(shell, &mut command, "pipewright", &mut script);
    match shell {
        CompletionShell::Bash => generate(Shell::Bash),
        CompletionShell::Elvish => generate(Shell::Elvish),
        CompletionShell::Fish => generate(Shell::Fish),
        CompletionShell::Nushell => {
            clap_complete::generate(Nushell, &mut command, "pipewright", &mut script);
        }
        CompletionShell::PowerShell => generate(Shell::PowerShell),
        CompletionShell::Zsh => generate(Shell::Zsh),
    }
    let script = String::from_utf8(script).map_err(Failure::cannot("make the script"))?;
    let options = options_with_value(&command);
    Ok(match shell {
        CompletionShell::Bash => {
            script
                + &include_str!("pages/completion.bash").replace("@OPTIONS@", &options.join(" | "))
        }
        CompletionShell::Fish => {
            script + &include_str!("pages/completion.fish").replace("@OPTIONS@", &options.join(" "))
        }
        CompletionShell::Zsh => {
            let script = script.replace("_cmdambivalent", "_pipewright_command_words");
            // The last lines run the script, and so the function has to stand before them.
            let last = script.rfind("\nif [ \"$funcstack[1]\"").map_or(script.len(), |at| at + 1);
            let (functions, run) = script.split_at(last);
            [functions, include_str!("pages/completion.zsh"), run].concat()
        }
        _ => script,
    })
}

/// Returns the definition that a script is made of: without hidden commands, and with the names that `man` takes.
fn offered(command: &Command) -> Command {
    let shown: Vec<&Command> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    // The definition takes static words only, and a process makes one script.
    let name_of = |command: &&Command| -> &'static str { command.get_name().to_owned().leak() };
    let names: Vec<&'static str> = shown.iter().map(name_of).collect();
    let subcommands = shown.into_iter().cloned().map(|command| match command.get_name() {
        "man" => {
            command.mut_arg("command", |word| word.value_parser(PossibleValuesParser::new(&names)))
        }
        _ => command,
    });
    let offered = Command::new("pipewright").version(env!("CARGO_PKG_VERSION"));
    offered.args(command.get_arguments()).subcommands(subcommands)
}

/// Returns the options of `run` and `pipe` whose value is the next word.
fn options_with_value(command: &Command) -> Vec<String> {
    let commands = ["run", "pipe"].iter().filter_map(|name| command.find_subcommand(name));
    let options = commands.flat_map(Command::get_opts);
    let names = options.flat_map(|option| {
        let long = option.get_long_and_visible_aliases().into_iter().flatten();
        let long = long.chain(option.get_all_aliases().into_iter().flatten());
        let short = option.get_short().map(|letter| format!("-{letter}"));
        long.map(|name| format!("--{name}")).chain(short)
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Date of the last change to the pages.
const DATE: &str = "2026-11-23";

/// Titles in `--help`, and the sections that they become.
const SECTIONS: [(&str, &str); 3] = [
    ("Exit codes:", "EXIT STATUS"),
    ("Environment variables:", "ENVIRONMENT"),
    ("Examples:", "EXAMPLES"),
];

/// Pages of other tools that belong to a command.
const RELATED: [(&str, &[(&str, &str)]); 5] = [
    ("pipewright-run", &[("timeout", "1"), ("nohup", "1"), ("kill", "1"), ("signal", "7")]),
    ("pipewright-pipe", &[("sh", "1"), ("timeout", "1"), ("pipe", "7")]),
    ("pipewright-disk", &[("fio", "1"), ("io_uring", "7"), ("aio", "7")]),
    ("pipewright-handles", &[("lsof", "8"), ("proc", "5")]),
    ("pipewright-doctor", &[("uname", "1"), ("ulimit", "1")]),
];

/// Returns the manual page of a command that has been built.
fn man_page(command: &mut Command) -> Vec<u8> {
    let mut roff = Roff::default();
    let name = page_name(command);
    let notes = Notes::of(command);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let version = concat!("pipewright ", env!("CARGO_PKG_VERSION"));
    roff.title(&name, DATE, version);
    roff.control("SH", &["NAME"]);
    roff.text(&format!("{name} - {about}"));
    roff.control("SH", &["SYNOPSIS"]);
    roff.text(&synopsis(command));
    roff.control("SH", &["DESCRIPTION"]);
    roff.text(&sentence(&about));
    for block in &notes.description {
        roff.control("PP", &[]);
        write_block(&mut roff, block);
    }
    write_options(&mut roff, command);
    write_commands(&mut roff, command, &name);
    for (_, section) in SECTIONS {
        if let Some(lines) = notes.section(section) {
            roff.control("SH", &[section]);
            match section {
                "EXAMPLES" => roff.example(&lines),
                _ => write_block(&mut roff, &lines),
            }
        } else if section == "EXIT STATUS" {
            roff.control("SH", &[section]);
            roff.entry(&bold("0"), "Success.");
            roff.entry(&bold("125"), "Failure: wrong usage, or an error in pipewright.");
        }
    }
    roff.control("SH", &["SEE ALSO"]);
    write_related(&mut roff, &name);
    roff.into_bytes()
}

/// `pipewright-bench-pipes`.
fn page_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or("pipewright").replace(' ', "-")
}

/// Text below the options of `--help`, in blocks of lines.
struct Notes {
    description: Vec<Vec<String>>,
    sections: Vec<(&'static str, Vec<String>)>,
}

impl Notes {
    fn of(command: &Command) -> Notes {
        let text = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let mut notes = Notes { description: Vec::new(), sections: Vec::new() };
        for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
            let mut lines: Vec<String> = block.lines().map(str::to_owned).collect();
            match SECTIONS.iter().find(|(title, _)| lines[0] == *title) {
                Some((_, section)) => {
                    lines.remove(0);
                    notes.sections.push((section, lines));
                }
                None => notes.description.push(lines),
            }
        }
        notes
    }

    fn section(&self, wanted: &str) -> Option<Vec<&str>> {
        let (_, lines) = self.sections.iter().find(|(section, _)| *section == wanted)?;
        Some(lines.iter().map(|line| line.trim_start()).collect())
    }
}

/// Writes prose, and lines of a term and its text, which are two spaces apart.
fn write_block(roff: &mut Roff, lines: &[impl AsRef<str>]) {
    let mut prose = String::new();
    for line in lines.iter().map(AsRef::as_ref) {
        match line.trim_start().split_once("  ") {
            Some((term, text)) => {
                write_prose(roff, &mut prose);
                roff.entry(&bold(term), &sentence(text.trim_start()));
            }
            None => {
                prose.push_str(line);
                prose.push(' ');
            }
        }
    }
    write_prose(roff, &mut prose);
}

fn write_prose(roff: &mut Roff, prose: &mut String) {
    if !prose.is_empty() {
        roff.text(prose);
        prose.clear();
    }
}

/// Writes the options, each group below its heading.
fn write_options(roff: &mut Roff, command: &Command) {
    let args: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    roff.control("SH", &["OPTIONS"]);
    let (positionals, options): (Vec<_>, Vec<_>) =
        args.into_iter().partition(|arg| arg.is_positional());
    for arg in positionals {
        write_option(roff, arg);
    }
    let mut headings = vec![None];
    for arg in &options {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            roff.control("SS", &[heading]);
        }
        for arg in options.iter().filter(|arg| arg.get_help_heading() == heading) {
            write_option(roff, arg);
        }
    }
}

fn write_option(roff: &mut Roff, arg: &Arg) {
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|short| bold(&format!("-{short}"))));
    names.extend(arg.get_long().map(|long| bold(&format!("--{long}"))));
    let mut term = names.join(", ");
    if arg.get_action().takes_values() {
        let value = arg.get_value_names().and_then(<[_]>::first).map_or("VALUE", |it| it.as_str());
        let is_optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
        let value = italic(value);
        let value = if is_optional && !arg.is_positional() { format!("[{value}]") } else { value };
        term = if term.is_empty() { value } else { format!("{term} {value}") };
        if arg.is_positional() && arg.get_num_args().is_some_and(|range| range.max_values() > 1) {
            term.push_str(" ...");
        }
    }
    let help = match arg.get_id().as_str() {
        // The parser's words for these say which page the reader is on.
        "help" => "Print help: -h for a summary, --help for all".to_owned(),
        _ => {
            let help = arg.get_long_help().or_else(|| arg.get_help());
            help.map(ToString::to_string).unwrap_or_default()
        }
    };
    let mut paragraphs = help.split("\n\n");
    roff.entry(&term, &sentence(paragraphs.next().unwrap_or_default()));
    for paragraph in paragraphs {
        roff.control("IP", &[]);
        roff.text(&sentence(paragraph));
    }
    write_values(roff, arg);
}

/// Writes the values that an option takes, and its default.
fn write_values(roff: &mut Roff, arg: &Arg) {
    if !arg.get_action().takes_values() {
        return;
    }
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if !values.is_empty() && !arg.is_hide_possible_values_set() {
        roff.control("RS", &[]);
        for value in values {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            if help.is_empty() {
                roff.control("PP", &[]);
                roff.text(&bold(value.get_name()));
            } else {
                roff.entry(&bold(value.get_name()), &sentence(&help));
            }
        }
        roff.control("RE", &[]);
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults: Vec<_> = defaults.collect();
    if !defaults.is_empty() {
        roff.control("IP", &[]);
        roff.text(&format!("Default: {}", bold(&defaults.join(","))));
    }
}

/// Writes the commands below a command.
fn write_commands(roff: &mut Roff, command: &Command, name: &str) {
    let commands: Vec<_> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && it.get_name() != "help")
        .collect();
    if commands.is_empty() {
        return;
    }
    roff.control("SH", &["COMMANDS"]);
    for below in commands {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        let page = format!("{}(1)", bold(&format!("{name}-{}", below.get_name())));
        roff.entry(&page, &sentence(&about));
    }
}

/// Writes references to the page above, its commands, and other tools.
fn write_related(roff: &mut Roff, name: &str) {
    let mut pages: Vec<(&str, &str)> = match name {
        "pipewright" => Vec::new(),
        _ => vec![("pipewright", "1")],
    };
    if let Some((above, _)) = name.rsplit_once('-').filter(|(above, _)| *above != "pipewright") {
        pages.push((above, "1"));
    }
    match name {
        "pipewright" => pages.extend([("pipewright-run", "1"), ("pipewright-pipe", "1")]),
        "pipewright-run" => pages.push(("pipewright-pipe", "1")),
        "pipewright-pipe" => pages.push(("pipewright-run", "1")),
        "pipewright-disk" => pages.push(("pipewright-bench-disk", "1")),
        "pipewright-bench-disk" => pages.push(("pipewright-disk", "1")),
        _ => {}
    }
    let related = RELATED.iter().find(|(page, _)| *page == name);
    pages.extend(related.map(|(_, others)| *others).unwrap_or_default());
    let last = pages.len().saturating_sub(1);
    for (index, (page, section)) in pages.iter().enumerate() {
        let comma = if index < last { "," } else { "" };
        roff.control("BR", &[page, &format!("({section}){comma}")]);
    }
}

/// Returns the usage line, with the name in bold and values in italics.
fn synopsis(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let (mut words, mut is_name) = (Vec::new(), true);
    for word in usage.split_whitespace() {
        is_name &= word.starts_with(|first: char| first.is_ascii_lowercase());
        let core = word.trim_matches(['[', ']', '.']);
        let value = core.strip_prefix('<').and_then(|core| core.strip_suffix('>')).unwrap_or(core);
        let is_value =
            !value.is_empty() && !value.contains(|it: char| !it.is_uppercase() && it != '|');
        words.push(match (is_name, is_value) {
            (true, _) => bold(word),
            (false, true) => word.replacen(core, &italic(value), 1),
            (false, false) => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Ends a phrase of help as a sentence.
fn sentence(phrase: &str) -> String {
    let phrase = phrase.trim();
    let mut letters = phrase.chars();
    let first: String = letters.next().map(|it| it.to_uppercase().collect()).unwrap_or_default();
    let end = if phrase.ends_with(['.', ':']) || phrase.is_empty() { "" } else { "." };
    // A term or an option keeps its case.
    format!("{first}{}{end}", letters.as_str())
}

/// The longest line that style checks let pass.
const LINE_BYTES: usize = 79;

/// A manual page that is being written.
#[derive(Debug, Default)]
struct Roff(String);

impl Roff {
    /// Starts a page of section 1. The date stays as it is: no character of it is escaped.
    fn title(&mut self, name: &str, date: &str, source: &str) {
        let name = escaped(&name.to_uppercase());
        let _ = writeln!(self.0, ".TH {name} 1 {date} \"{source}\" \"User Commands\"");
    }

    /// Adds a macro with arguments, which are quoted as needed.
    fn control(&mut self, name: &str, args: &[&str]) {
        let _ = write!(self.0, ".{name}");
        for arg in args {
            let quote = if arg.is_empty() || arg.contains(' ') { "\"" } else { "" };
            let _ = write!(self.0, " {quote}{}{quote}", escaped(arg));
        }
        self.0.push('\n');
    }

    /// Adds text that is filled. Words may hold the marks of [`bold`] and [`italic`].
    fn text(&mut self, text: &str) {
        let mut used = 0;
        for word in text.split_whitespace() {
            let word = escaped(word);
            if used > 0 && used + 1 + word.len() > LINE_BYTES {
                self.0.push('\n');
                used = 0;
            }
            if used > 0 {
                self.0.push(' ');
                used += 1;
            } else if word.starts_with(['.', '\'']) {
                // Else it would be taken for a macro.
                self.0.push_str("\\&");
                used += 2;
            }
            self.0.push_str(&word);
            used += word.len();
        }
        self.0.push('\n');
    }

    /// Adds lines that stay as they are.
    fn example(&mut self, lines: &[&str]) {
        self.control("EX", &[]);
        for line in lines {
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            let _ = writeln!(self.0, "{guard}{}", escaped(line));
        }
        self.control("EE", &[]);
    }

    /// Adds an entry of a list: a term, and the text about it.
    fn entry(&mut self, term: &str, text: &str) {
        self.control("TP", &[]);
        self.text(term);
        self.text(text);
    }

    fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

const BOLD: char = '\u{e000}';
const ITALIC: char = '\u{e001}';
const PLAIN: char = '\u{e002}';

/// Marks text as bold. Each word is marked by itself, so that a line may end between them.
fn bold(text: &str) -> String {
    marked(BOLD, text)
}

/// Marks text as italic.
fn italic(text: &str) -> String {
    marked(ITALIC, text)
}

fn marked(mark: char, text: &str) -> String {
    let words = text.split(' ').map(|word| format!("{mark}{word}{PLAIN}"));
    words.collect::<Vec<_>>().join(" ")
}

/// Escapes what means something to roff, or is shown as another character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '"' => escaped.push_str("\\(dq"),
            BOLD => escaped.push_str("\\fB"),
            ITALIC => escaped.push_str("\\fI"),
            PLAIN => escaped.push_str("\\fR"),
            other if other.is_ascii() => escaped.push(other),
            other => {
                let _ = write!(escaped, "\\[u{:04X}]", u32::from(other));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Roff, bold};

    fn written(write: impl FnOnce(&mut Roff)) -> String {
        let mut roff = Roff::default();
        write(&mut roff);
        String::from_utf8(roff.into_bytes()).unwrap()
    }

    #[test]
    fn text_is_escaped_and_filled() {
        assert_eq!(
            written(|it| it.text(".a --b 'c' \\| \"d\"")),
            "\\&.a \\-\\-b \\(aqc\\(aq \\e| \\(dqd\\(dq\n"
        );
        let long = written(|it| it.text(&"word ".repeat(40)));
        assert!(long.lines().count() > 1 && long.lines().all(|line| line.len() < 80), "{long}");
        assert_eq!(written(|it| it.text(&bold("a b"))), "\\fBa\\fR \\fBb\\fR\n");
    }

    #[test]
    fn other_characters_are_named() {
        assert_eq!(written(|it| it.text("\u{e9}")), "\\[u00E9]\n");
    }

    #[test]
    fn arguments_of_macros_are_quoted() {
        let heading = written(|it| it.control("SH", &["EXIT STATUS", ""]));
        assert_eq!(heading, ".SH \"EXIT STATUS\" \"\"\n");
    }
}
