//! The words of the tool: output on stdout, and the messages of errors, with a hint where the words of the user explain
//! one.

use std::borrow::Cow;
use std::io::{self, Write as _};

use pipewright::{CaughtSignals, Error, ErrorKind, Signal};
use pipewright_os::base::stdio;
use serde::Serialize;

use crate::Failure;

/// Turns a write past `RLIMIT_FSIZE` into an error; the signal would kill this process without a message.
///
/// Call it before any thread starts.
pub(crate) fn report_large_files_as_errors() {
    // Ignored: a system without this signal reports an error anyway.
    let _ = "XFSZ".parse().map(|signal: Signal| CaughtSignals::new(&[signal]));
}

pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = stdio::stdout();
    check(stdout.write_all(bytes.as_ref()).and_then(|()| stdout.flush()))
}

/// Returns the text with its control characters escaped: on a terminal, those of a job's words or of a file's name
/// would be commands to it. Newlines and tabs stay.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    let is_command = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_command(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Turns the result of printing into that of the tool: a reader that has gone is no failure.
pub(crate) fn check(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if !is_reader_gone(&error) => Err(Failure::cannot("write to stdout")(error)),
        _ => Ok(()),
    }
}

/// Returns true if the reader has gone: `head`, for example, exits once it has read enough.
pub(crate) fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints an object on one line.
pub(crate) fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    print(serde_json::to_string(object).map_err(Failure::cannot("write JSON"))? + "\n")
}

/// Words that only a shell knows.
const BUILTINS: [&str; 8] = ["cd", "export", "source", ".", "alias", "ulimit", "umask", "set"];

/// Returns the error as a message, with a hint if the program's name tells what was meant.
pub(crate) fn message_of(error: &Error, program: &str) -> String {
    let is_missing = matches!(error.kind(), ErrorKind::NotFound { .. });
    if matches!(error.kind(), ErrorKind::LimitUnavailable { .. }) {
        return format!("{error}; or run without it: --best-effort");
    }
    match hint(program).filter(|_| is_missing) {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

fn hint(program: &str) -> Option<&'static str> {
    let is_line = program.trim().contains(char::is_whitespace);
    let first = program.split_whitespace().next()?;
    if BUILTINS.contains(&first) {
        return Some("that is a word of the shell: use --cwd or --env, or run sh -c '...'");
    }
    if first.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        return Some("set variables with --env");
    }
    if !is_line {
        return None;
    }
    match program.contains(['|', '<', '>', '&', ';', '$', '`', '*', '(']) {
        true => Some("a line for a shell is run by sh -c '...'"),
        false => Some("pass each word apart, without quotes around all of them"),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it == '_' || it.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::{hint, without_controls};

    #[test]
    fn controls_are_escaped_and_lines_stay() {
        assert_eq!(without_controls("a\tb\n"), "a\tb\n");
        assert_eq!(without_controls("a\x1b[2Jb\r\u{9b}ä"), "a\\u{1b}[2Jb\\r\\u{9b}ä");
    }

    #[test]
    fn each_kind_of_line_has_its_hint() {
        for (program, words) in [
            ("ls -la", Some("pass each word apart")),
            ("echo {} | tr a b", Some("sh -c")),
            ("cat < in", Some("sh -c")),
            ("FOO=1 env", Some("--env")),
            ("FOO=1", Some("--env")),
            ("cd /tmp", Some("--cwd")),
            ("cd", Some("--cwd")),
            ("no-such", None),
            ("a=b=c/d", Some("--env")),
            ("./x=y", None),
            ("", None),
        ] {
            let found = hint(program);
            assert_eq!(found.is_some(), words.is_some(), "{program}");
            assert!(found.unwrap_or_default().contains(words.unwrap_or_default()), "{program}");
        }
    }
}
