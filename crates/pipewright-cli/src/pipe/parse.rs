//! Parses the words of a pipeline into commands, input and output.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::Failure;

/// A parsed pipeline.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) stages: Vec<Vec<OsString>>,
    pub(super) input: Option<PathBuf>,
    pub(super) output: Option<OutputFile>,
    /// Words that mean something to a shell, and the program that gets each as an argument.
    pub(super) hints: Vec<(OsString, OsString)>,
}

/// The file that the pipeline writes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputFile {
    Create(PathBuf),
    Append(PathBuf),
}

const OPERATORS: [&str; 4] = ["|", "<", ">", ">>"];

/// Operators of a shell that are arguments here.
const OF_A_SHELL: [&str; 9] = ["||", "&&", ";", "&", "2>&1", "2>", "2>/dev/null", "|&", "&>"];

impl Parsed {
    pub(super) fn parse(words: &[OsString]) -> Result<Parsed, Failure> {
        let mut rest = words;
        let mut parsed = Parsed::default();
        if let [operator, more @ ..] = rest {
            if operator == "<" {
                let [file, more @ ..] = more else { return Err(no_file("<")) };
                parsed.input = Some(file.into());
                rest = more;
            }
        }
        if let [before @ .., operator, file] = rest {
            parsed.output = match operator.to_str() {
                Some(">") => Some(OutputFile::Create(file.into())),
                Some(">>") => Some(OutputFile::Append(file.into())),
                _ => None,
            };
            if parsed.output.is_some() {
                rest = before;
            }
        }
        let stages: Vec<&[OsString]> = rest.split(|word| word == "|").collect();
        let count = stages.len();
        for (index, stage) in stages.into_iter().enumerate() {
            if stage.first().is_none_or(|program| program.is_empty()) {
                let number = index + 1;
                return Err(Failure(match count {
                    1 => "the pipeline has no command".to_owned(),
                    _ => format!(
                        "stage {number} of {count} has no command; to pass '|' as an argument, write '\\|'"
                    ),
                }));
            }
            parsed.hints.extend(shell_words(stage));
            let words: Result<Vec<_>, _> = stage.iter().map(unescape).collect();
            parsed.stages.push(words?);
        }
        Ok(parsed)
    }
}

/// Returns the arguments of a stage that are probably meant for a shell, each with the program that gets it.
fn shell_words(stage: &[OsString]) -> impl Iterator<Item = (OsString, OsString)> {
    let program = stage.first().cloned().unwrap_or_default();
    // find -exec CMD ';'
    let ends_list = stage
        .iter()
        .any(|word| ["-exec", "-execdir", "-ok", "-okdir"].iter().any(|action| word == action));
    let is_of_shell = move |word: &&OsString| {
        OF_A_SHELL.iter().any(|operator| word == operator) && !(ends_list && *word == ";")
    };
    stage.iter().skip(1).filter(is_of_shell).map(move |word| (word.clone(), program.clone()))
}

/// Removes the backslash of an escaped operator.
fn unescape(word: &OsString) -> Result<OsString, Failure> {
    match word.to_str() {
        Some("<") => Err(misplaced("<", "before the first command")),
        Some(operator @ (">" | ">>")) => {
            Err(misplaced(operator, "after the last command, before its file"))
        }
        // Of several backslashes one is removed, so that every word can be written.
        Some(escaped) => match escaped.strip_prefix('\\') {
            Some(word) if is_operator(word.trim_start_matches('\\')) => Ok(word.into()),
            _ => Ok(escaped.into()),
        },
        None => Ok(word.clone()),
    }
}

fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word) || OF_A_SHELL.contains(&word)
}

fn misplaced(operator: &str, place: &str) -> Failure {
    Failure(format!(
        "'{operator}' must stand {place}; to pass it as an argument, write '\\{operator}'"
    ))
}

fn no_file(operator: &str) -> Failure {
    Failure(format!("no file after '{operator}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parsed, String> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        Parsed::parse(&words).map_err(|Failure(words)| words)
    }

    fn stages(list: &[&[&str]]) -> Vec<Vec<OsString>> {
        list.iter().map(|words| words.iter().map(OsString::from).collect()).collect()
    }

    #[test]
    fn commands_and_files_are_separated() {
        let parsed = parse("< in grep -v x | sort | wc -l > out").unwrap();
        let commands: &[&[&str]] = &[&["grep", "-v", "x"], &["sort"], &["wc", "-l"]];
        assert_eq!(parsed.stages, stages(commands));
        assert_eq!(parsed.input, Some("in".into()));
        assert_eq!(parsed.output, Some(OutputFile::Create("out".into())));
        let parsed = parse("a >> log").unwrap();
        assert_eq!(parsed.output, Some(OutputFile::Append("log".into())));
        assert_eq!(parse("a").unwrap().stages, stages(&[&["a"]]));
    }

    #[test]
    fn an_escaped_operator_is_an_argument() {
        let parsed = parse(r"grep \| x | grep \>> \> y | \< \x").unwrap();
        let commands: &[&[&str]] = &[&["grep", "|", "x"], &["grep", ">>", ">", "y"], &["<", r"\x"]];
        assert_eq!(parsed.stages, stages(commands));
        assert_eq!((parsed.input, parsed.output), (None, None));
    }

    #[test]
    fn an_escaped_operator_with_a_backslash_can_be_written() {
        let parsed = parse(r"echo \\| \\\>> \\ \\x \| | cat").unwrap();
        let commands: &[&[&str]] = &[&["echo", r"\|", r"\\>>", r"\\", r"\\x", "|"], &["cat"]];
        assert_eq!(parsed.stages, stages(commands));
    }

    #[test]
    fn words_for_a_shell_are_noticed_unless_they_are_escaped() {
        let hints = |text: &str| -> Vec<String> {
            let hint = |(word, program): (OsString, OsString)| {
                format!("{} {}", program.to_string_lossy(), word.to_string_lossy())
            };
            parse(text).unwrap().hints.into_iter().map(hint).collect()
        };
        assert_eq!(hints("a && b | c 2>&1"), ["a &&", "c 2>&1"]);
        assert_eq!(hints("a ; b || c"), ["a ;", "a ||"]);
        assert!(hints("find . -exec cat {} ; | wc").is_empty());
        assert_eq!(hints("find . -exec cat {} ; && b"), ["find &&"]);
        assert!(hints(r"grep \&& x | grep a;b").is_empty());
        assert_eq!(
            parse(r"grep \&& \\; \x").unwrap().stages,
            stages(&[&["grep", "&&", r"\;", r"\x"]])
        );
    }

    #[test]
    fn an_invalid_pipeline_is_refused_with_a_remedy() {
        for (text, words) in [
            ("|", r"stage 1 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("a | | b", r"stage 2 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | b |", r"stage 3 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | > f", r"stage 2 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("< f", "the pipeline has no command"),
            ("<", "no file after '<'"),
            (
                "a < f",
                r"'<' must stand before the first command; to pass it as an argument, write '\<'",
            ),
            (
                "a > f | b",
                r"'>' must stand after the last command, before its file; to pass it as an argument, write '\>'",
            ),
            (
                "a >>",
                r"'>>' must stand after the last command, before its file; to pass it as an argument, write '\>>'",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), words, "{text}");
        }
    }
}
