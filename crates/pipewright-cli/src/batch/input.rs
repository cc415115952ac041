//! The jobs that the options describe, or the log that takes the place of an input: `--resume LOG`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_batch::{
    Batch, CheckError, InputError, Job, ListWords, LogView, Source, Template, product, split_lists,
};
use pipewright_os::base::os_text::from_encoded_bytes;
use pipewright_os::base::stdio;
use serde_json::{Value, json};

use crate::args::BatchOptions;
use crate::print::is_reader_gone;
use crate::{Failure, exit_code};

/// The jobs, read when they are asked for.
pub(super) type AllJobs = Box<dyn Iterator<Item = Result<Job, InputError>> + Send>;

pub(super) fn jobs(options: &BatchOptions) -> Result<AllJobs, Failure> {
    let (command, lists) = split_lists(options.words.clone()).map_err(Failure::from_error)?;
    if !lists.is_empty() {
        return combinations(options, command, lists);
    }
    let source = source(options)?;
    if options.jsonl {
        return match command.first() {
            Some(_) => Err(Failure(
                "with --jsonl, each line has its own command: remove the one after the options"
                    .to_owned(),
            )),
            None => Ok(Box::new(source.json_lines())),
        };
    }
    if options.csv {
        return match command.first() {
            Some(_) => Ok(Box::new(source.csv(command))),
            None => Err(Failure(
                "with --csv, write a command with {1} or {name} for columns".to_owned(),
            )),
        };
    }
    Ok(match (command.is_empty(), options.shell) {
        (true, true) => Box::new(source.shell_lines()),
        (true, false) => Box::new(source.commands()),
        (false, true) => return Err(shell_with_command()),
        (false, false) => Box::new(source.lines(template(command)?)),
    })
}

/// Checks all jobs of a file before anything starts. A stream cannot be read twice: it is refused at the bad line.
pub(super) fn check_file(options: &BatchOptions, batch: &Batch) -> Result<(), Failure> {
    let is_structured = options.jsonl || options.csv;
    let file = options.from.as_deref().filter(|path| is_structured && path.is_file());
    let Some(path) = file else { return Ok(()) };
    match batch.check(jobs(options)?) {
        // The other kind names the file itself.
        Err(error @ CheckError::Job { .. }) => Err(Failure(format!("{path:?}: {error}"))),
        checked => checked.map(|_| ()).map_err(Failure::from_error),
    }
}

fn combinations(
    options: &BatchOptions,
    command: Vec<OsString>,
    lists: Vec<ListWords>,
) -> Result<AllJobs, Failure> {
    let other = [
        ("--from", options.from.is_some()),
        ("--jsonl", options.jsonl),
        ("--csv", options.csv),
        ("--null", options.null),
    ];
    if let Some((name, _)) = other.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Failure(format!("{name} does not fit lists after ::: or ::::")));
    }
    if options.shell {
        return Err(shell_with_command());
    }
    let lists = lists.into_iter().map(ListWords::open).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(Failure::from_error)?;
    Ok(Box::new(product(template(command)?, lists)))
}

fn shell_with_command() -> Failure {
    Failure(
        "--shell runs the lines themselves: write sh -c '...' {} as the command instead".to_owned(),
    )
}

fn template(command: Vec<OsString>) -> Result<Template, Failure> {
    if command.is_empty() {
        return Err(Failure("the command is missing before the first :::".to_owned()));
    }
    Template::parse(command).map_err(Failure::from_error)
}

fn source(options: &BatchOptions) -> Result<Source, Failure> {
    let source = match options.from.as_deref() {
        Some(path) if path.as_os_str() != "-" => Source::open(path).map_err(Failure::from_error)?,
        _ => {
            hint_at_terminal(options);
            Source::stdin()
        }
    };
    Ok(if options.null { source.nul_separated() } else { source })
}

/// Tells a user who has forgotten the input why nothing happens.
fn hint_at_terminal(options: &BatchOptions) {
    use io::IsTerminal as _;
    if !options.quiet && io::stdin().is_terminal() {
        crate::print_error("reading jobs from the terminal, one a line; end with Ctrl-D");
    }
}

/// The two forms, for errors.
const FORMS: &str =
    "write --resume [OPTIONS] LOG [OPTIONS], or --log LOG --resume with the command and the input";

/// Returns the log, if the options mean this form: `--resume` without `--log`, and the log as the only argument. A
/// command is never taken for a log, nor a log for a command, because the other form has `--log`.
pub(super) fn resumed_log(options: &BatchOptions) -> Result<Option<PathBuf>, Failure> {
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
pub(super) fn dry_run_of_log(log: &Path, options: &BatchOptions) -> Result<i32, Failure> {
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
pub(super) fn note_for_log(options: &BatchOptions) -> Option<String> {
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
pub(super) fn with_noted_input(options: BatchOptions, log: &Path) -> Option<BatchOptions> {
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
