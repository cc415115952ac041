//! The words of a pipeline: which are commands, and which say where it reads and writes.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::Failure;

/// A pipeline as it was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) stages: Vec<Vec<OsString>>,
    pub(super) input: Option<PathBuf>,
    pub(super) output: Option<Output>,
}

/// Where it writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    Create(PathBuf),
    Append(PathBuf),
}

const MEANINGFUL: [&str; 4] = ["|", "<", ">", ">>"];

impl Typed {
    pub(super) fn parse(words: &[OsString]) -> Result<Typed, Failure> {
        let mut rest = words;
        let mut typed = Typed::default();
        if let [sign, more @ ..] = rest {
            if sign == "<" {
                let [file, more @ ..] = more else { return Err(no_file("<")) };
                typed.input = Some(file.into());
                rest = more;
            }
        }
        if let [before @ .., sign, file] = rest {
            typed.output = match sign.to_str() {
                Some(">") => Some(Output::Create(file.into())),
                Some(">>") => Some(Output::Append(file.into())),
                _ => None,
            };
            if typed.output.is_some() {
                rest = before;
            }
        }
        let stages: Vec<&[OsString]> = rest.split(|word| word == "|").collect();
        let count = stages.len();
        for (index, stage) in stages.into_iter().enumerate() {
            if stage.first().is_none_or(|program| program.is_empty()) {
                let number = index + 1;
                return Err(Failure(format!(
                    "stage {number} of {count} has no command; to pass '|' as an argument, write '\\|'"
                )));
            }
            let words: Result<Vec<_>, _> = stage.iter().map(plain).collect();
            typed.stages.push(words?);
        }
        Ok(typed)
    }
}

/// The word without the mark that it means nothing.
fn plain(word: &OsString) -> Result<OsString, Failure> {
    match word.to_str() {
        Some("<") => Err(misplaced("<", "before the first command")),
        Some(sign @ (">" | ">>")) => {
            Err(misplaced(sign, "after the last command, before its file"))
        }
        // More of them than one: the word has one less, so that each word can be written.
        Some(marked) => match marked.strip_prefix('\\') {
            Some(word) if MEANINGFUL.contains(&word.trim_start_matches('\\')) => Ok(word.into()),
            _ => Ok(marked.into()),
        },
        None => Ok(word.clone()),
    }
}

fn misplaced(sign: &str, place: &str) -> Failure {
    Failure(format!("'{sign}' must stand {place}; to pass it as an argument, write '\\{sign}'"))
}

fn no_file(sign: &str) -> Failure {
    Failure(format!("no file after '{sign}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Typed, String> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        Typed::parse(&words).map_err(|Failure(words)| words)
    }

    fn stages(list: &[&[&str]]) -> Vec<Vec<OsString>> {
        list.iter().map(|words| words.iter().map(OsString::from).collect()).collect()
    }

    #[test]
    fn commands_and_files_are_told_apart() {
        let typed = parse("< in grep -v x | sort | wc -l > out").unwrap();
        let commands: &[&[&str]] = &[&["grep", "-v", "x"], &["sort"], &["wc", "-l"]];
        assert_eq!(typed.stages, stages(commands));
        assert_eq!(typed.input, Some("in".into()));
        assert_eq!(typed.output, Some(Output::Create("out".into())));
        let typed = parse("a >> log").unwrap();
        assert_eq!(typed.output, Some(Output::Append("log".into())));
        assert_eq!(parse("a").unwrap().stages, stages(&[&["a"]]));
    }

    #[test]
    fn a_word_that_is_marked_means_nothing() {
        let typed = parse(r"grep \| x | grep \>> \> y | \< \x").unwrap();
        let commands: &[&[&str]] = &[&["grep", "|", "x"], &["grep", ">>", ">", "y"], &["<", r"\x"]];
        assert_eq!(typed.stages, stages(commands));
        assert_eq!((typed.input, typed.output), (None, None));
    }

    #[test]
    fn a_word_with_the_mark_can_be_written_too() {
        let typed = parse(r"echo \\| \\\>> \\ \\x \| | cat").unwrap();
        let commands: &[&[&str]] = &[&["echo", r"\|", r"\\>>", r"\\", r"\\x", "|"], &["cat"]];
        assert_eq!(typed.stages, stages(commands));
    }

    #[test]
    fn what_is_no_pipeline_is_refused_in_words() {
        for (text, words) in [
            ("|", r"stage 1 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("a | | b", r"stage 2 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | b |", r"stage 3 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | > f", r"stage 2 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("< f", r"stage 1 of 1 has no command; to pass '|' as an argument, write '\|'"),
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
