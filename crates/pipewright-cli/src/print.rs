//! Output on stdout.

use std::borrow::Cow;
use std::io::{self, Write as _};

use pipewright::{CaughtSignals, Signal};
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

/// Returns the text with its control characters escaped: on a terminal, those of a job's words or of a file's name would be commands
/// to it. Newlines and tabs stay.
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

#[cfg(test)]
mod tests {
    use super::without_controls;

    #[test]
    fn controls_are_escaped_and_lines_stay() {
        assert_eq!(without_controls("a\tb\n"), "a\tb\n");
        assert_eq!(without_controls("a\x1b[2Jb\r\u{9b}ä"), "a\\u{1b}[2Jb\\r\\u{9b}ä");
    }
}
