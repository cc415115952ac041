//! A batch that is resumed without its input: `--resume LOG`.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use pipewright_batch::LogView;
use pipewright_os::base::os_text::from_encoded_bytes;
use pipewright_os::base::stdio;
use serde_json::{Value, json};

use crate::args::BatchOptions;
use crate::print::is_reader_gone;
use crate::{Failure, exit_code};

/// The two forms, for errors.
const FORMS: &str =
    "write --resume [OPTIONS] LOG [OPTIONS], or --log LOG --resume with the command and the input";

/// Returns the log, if the options mean this form: `--resume` without `--log`, and the log as the only argument. A command is
/// never taken for a log, nor a log for a command, because the other form has `--log`.
pub(super) fn path(options: &BatchOptions) -> Result<Option<PathBuf>, Failure> {
    if !options.resume || options.log.is_some() {
        return Ok(None);
    }
    let other = [
        ("--from", options.from.is_some()),
        ("--null", options.null),
        ("--jsonl", options.jsonl),
        ("--csv", options.csv),
        ("--shell", options.shell),
    ];
    let other = other.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
    match (&options.words[..], other) {
        ([], _) => Err(Failure(format!("--resume needs a log: {FORMS}"))),
        (_, Some(name)) => Err(Failure(format!("{name} does not fit --resume LOG: {FORMS}"))),
        ([log], None) => Ok(Some(log.into())),
        ([_, extra, ..], None) => {
            Err(Failure(format!("{extra:?} after --resume LOG is not expected: {FORMS}")))
        }
    }
}

/// Prints the commands that would run, one a line.
pub(super) fn dry_run(log: &Path, options: &BatchOptions) -> Result<i32, Failure> {
    let view = LogView::open(log).map_err(Failure::from_error)?;
    let mut stdout = stdio::stdout();
    let written =
        view.write_commands_to_run(options.retry_failed, options.rerun_unknown, &mut stdout);
    match written.and_then(|()| stdout.flush()) {
        Err(error) if is_reader_gone(&error) => Ok(exit_code::SUCCESS),
        written => written.map(|()| exit_code::SUCCESS).map_err(Failure::from_error),
    }
}

/// Returns a note for the log about the input. `None`: it cannot be read again, because it is a stream.
pub(super) fn note(options: &BatchOptions) -> Option<String> {
    let BatchOptions { from, jsonl, csv, shell, words, .. } = options;
    let is_separator = |separator: &str| words.iter().any(|word| word == separator);
    let can_be_repeated = match from {
        Some(path) => path.is_file(),
        // The files after `::::` may be streams.
        None => is_separator(":::") && !is_separator("::::"),
    };
    can_be_repeated.then(|| {
        let words: Vec<Value> = words.iter().map(|word| value_of(word)).collect();
        let from = from.as_ref().map(|path| value_of(path.as_os_str()));
        let note = json!({
            "words": words, "from": from, "null": options.null, "jsonl": jsonl, "csv": csv, "shell": shell,
        });
        note.to_string()
    })
}

/// Returns the options with the log, and with the input of its last run. `None`: that cannot be read again.
pub(super) fn with_input(options: BatchOptions, log: &Path) -> Option<BatchOptions> {
    // An input that cannot be found out about is asked for.
    let note = LogView::open(log).ok()?.input().ok()??;
    let note: Value = serde_json::from_str(&note).ok()?;
    let flag = |name: &str| note.get(name)?.as_bool();
    let words = note.get("words")?.as_array()?.iter().map(os_string);
    let from = match note.get("from")? {
        Value::Null => None,
        path => Some(os_string(path)?.into()),
    };
    Some(BatchOptions {
        words: words.collect::<Option<_>>()?,
        from,
        null: flag("null")?,
        jsonl: flag("jsonl")?,
        csv: flag("csv")?,
        shell: flag("shell")?,
        log: Some(log.to_owned()),
        ..options
    })
}

/// Returns a string, or the bytes of a word that is not Unicode.
fn value_of(word: &OsStr) -> Value {
    match word.to_str() {
        Some(text) => text.into(),
        None => word.as_encoded_bytes().into(),
    }
}

fn os_string(value: &Value) -> Option<OsString> {
    if let Some(text) = value.as_str() {
        return Some(text.into());
    }
    let bytes = value.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok());
    from_encoded_bytes(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_from_the_note() {
        for word in ["", "a b\n", "\u{e9}"] {
            assert_eq!(os_string(&value_of(word.as_ref())).as_deref(), Some(word.as_ref()));
        }
        // Words that are not Unicode are bytes.
        assert_eq!(os_string(&json!([97, 98])).as_deref(), Some("ab".as_ref()));
        assert_eq!(os_string(&json!([256])), None);
    }
}
