//! The jobs that the options describe, or the log that takes the place of an input: `--resume LOG`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_batch::{
    Batch, CheckError, InputError, Job, ListWords, LogView, Packing, Record, Records, Source,
    Template, split_lists,
};
use pipewright_os::base::os_text::from_encoded_bytes;
use pipewright_os::base::stdio;
use regex::bytes::Regex;
use serde_json::{Value, json};

use crate::args::{BatchOptions, InputOptions};
use crate::print::is_reader_gone;
use crate::{Failure, exit_code};

/// The size of a block by default, as in GNU parallel.
const DEFAULT_BLOCK_BYTES: usize = 1 << 20;

/// The longest line in a block, which grows to hold it. With larger blocks it is a block's length.
const MOST_LINE_BYTES: usize = 64 << 20;

/// The jobs, read when they are asked for.
pub(super) type AllJobs = Box<dyn Iterator<Item = Result<Job, InputError>> + Send>;

pub(super) fn jobs(options: &BatchOptions) -> Result<AllJobs, Failure> {
    let (command, lists) = split_lists(options.words.clone()).map_err(Failure::from_error)?;
    if !lists.is_empty() {
        return combinations(options, command, lists);
    }
    let source = source(options)?;
    let input = &options.input;
    if input.pipe && !command.is_empty() {
        let bytes = input.block.unwrap_or(DEFAULT_BLOCK_BYTES);
        return Ok(Box::new(source.max_record_bytes(MOST_LINE_BYTES).blocks(command, bytes)));
    }
    if input.jsonl {
        return match command.first() {
            Some(_) => Err(Failure(
                "with --jsonl, each line has its own command: remove the one after the options"
                    .to_owned(),
            )),
            None => Ok(Box::new(source.json_lines())),
        };
    }
    if input.csv {
        return match command.first() {
            Some(_) => Ok(Box::new(source.csv(command))),
            None => Err(Failure(
                "with --csv, write a command with {1} or {name} for columns".to_owned(),
            )),
        };
    }
    if command.is_empty() {
        if let Some(name) = input.of_values() {
            return Err(Failure(format!("{name} needs a command that takes the values")));
        }
    } else if input.link {
        return Err(Failure("--link is for lists after ::: or ::::".to_owned()));
    }
    Ok(match (command.is_empty(), input.shell) {
        (true, true) => Box::new(source.shell_lines()),
        (true, false) => Box::new(source.commands()),
        (false, true) => return Err(shell_with_command()),
        (false, false) => fill(input, source.records(), command)?,
    })
}

/// Makes jobs of records, as the options say.
fn fill(
    input: &InputOptions,
    records: Records,
    command: Vec<OsString>,
) -> Result<AllJobs, Failure> {
    let template = template(input, command)?;
    let records = match &input.colsep {
        Some(separator) => records.columns(split_columns(separator)?),
        None => records,
    };
    let is_packed = input.xargs || input.xargs_context || input.max_args.is_some();
    if !is_packed {
        return match input.max_chars {
            Some(_) => Err(Failure("-s needs -n, -m or -X".to_owned())),
            None => Ok(Box::new(records.fill(template))),
        };
    }
    let mut packing = Packing::default();
    if let Some(count) = input.max_args {
        packing = packing.most_values(count.into());
    }
    if let Some(bytes) = input.max_chars {
        packing = packing.most_bytes(bytes);
    }
    Ok(Box::new(records.pack(template, packing)))
}

/// Returns the function that splits a value into columns.
fn split_columns(separator: &str) -> Result<impl FnMut(&[u8]) -> Record + use<>, Failure> {
    let separator = Regex::new(separator).map_err(|error| {
        // The error shows the place below the pattern, on lines of its own.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default();
        Failure(format!("--colsep {separator:?}: {}", reason.trim_start_matches("error: ")))
    })?;
    Ok(move |value: &[u8]| {
        let mut columns = separator.split(value).map(<[u8]>::trim_ascii);
        let first = Record::new(columns.next().unwrap_or_default());
        columns.fold(first, Record::and)
    })
}

/// Checks all jobs of a file before anything starts. A stream cannot be read twice: it is refused at the bad line.
pub(super) fn check_file(options: &BatchOptions, batch: &Batch) -> Result<(), Failure> {
    let is_structured = options.input.jsonl || options.input.csv;
    let file = options.input.from.as_deref().filter(|path| is_structured && path.is_file());
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
    let input = &options.input;
    let other = [
        ("--from", input.from.is_some()),
        ("--jsonl", input.jsonl),
        ("--csv", input.csv),
        ("--null", input.null),
        ("--delimiter", input.delimiter.is_some()),
        ("--pipe", input.pipe),
    ];
    if let Some((name, _)) = other.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Failure(format!("{name} does not fit lists after ::: or ::::")));
    }
    if input.shell {
        return Err(shell_with_command());
    }
    let lists = lists.into_iter().map(ListWords::open).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(Failure::from_error)?;
    let records = if input.link { Records::linked(lists) } else { Records::combined(lists) };
    fill(input, records, command)
}

fn shell_with_command() -> Failure {
    Failure(
        "--shell runs the lines themselves: write sh -c '...' {} as the command instead".to_owned(),
    )
}

fn template(input: &InputOptions, command: Vec<OsString>) -> Result<Template, Failure> {
    if command.is_empty() {
        return Err(Failure("the command is missing before the first :::".to_owned()));
    }
    let template = match &input.replace {
        Some(text) => Template::parse_replacing(command, text),
        None => Template::parse(command),
    };
    let template = template.map_err(Failure::from_error)?;
    Ok(if input.xargs_context { template.repeat_words() } else { template })
}

fn source(options: &BatchOptions) -> Result<Source, Failure> {
    let input = &options.input;
    let source = match input.from.as_deref() {
        Some(path) if path.as_os_str() != "-" => Source::open(path).map_err(Failure::from_error)?,
        _ => {
            hint_at_terminal(options);
            Source::stdin()
        }
    };
    let end = if input.null { Some(0) } else { input.delimiter };
    Ok(match end {
        Some(end) => source.separated_by(end),
        None => source,
    })
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
    let input = &options.input;
    let other = [
        ("--from", input.from.is_some()),
        ("--null", input.null),
        ("--delimiter", input.delimiter.is_some()),
        ("--jsonl", input.jsonl),
        ("--csv", input.csv),
        ("--shell", input.shell),
    ];
    let other = other.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
    let other = other.or(input.of_values());
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
    let BatchOptions { input, words, .. } = options;
    let is_list = |word: &&OsString| matches!(word.to_str(), Some(":::" | ":::+"));
    let is_file = |word: &&OsString| matches!(word.to_str(), Some("::::" | "::::+"));
    let can_be_repeated = match &input.from {
        Some(path) => path.is_file(),
        // The files after `::::` may be streams.
        None => words.iter().any(|word| is_list(&word)) && !words.iter().any(|word| is_file(&word)),
    };
    can_be_repeated.then(|| {
        let words: Vec<Value> = words.iter().map(|word| value_of(word)).collect();
        let from = input.from.as_ref().map(|path| value_of(path.as_os_str()));
        let note = json!({
            "words": words, "from": from, "null": input.null, "jsonl": input.jsonl, "csv": input.csv,
            "shell": input.shell, "delimiter": input.delimiter, "colsep": input.colsep, "link": input.link,
            "max_args": input.max_args, "xargs": input.xargs, "xargs_context": input.xargs_context,
            "max_chars": input.max_chars, "replace": input.replace, "pipe": input.pipe, "block": input.block,
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
    // Logs of earlier versions lack the others.
    let number = |name: &str| note.get(name).and_then(Value::as_u64);
    let text = |name: &str| note.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let words = note.get("words")?.as_array()?.iter().map(os_string);
    let from = match note.get("from")? {
        Value::Null => None,
        path => Some(os_string(path)?.into()),
    };
    let input = InputOptions {
        from,
        null: flag("null")?,
        delimiter: number("delimiter").and_then(|byte| u8::try_from(byte).ok()),
        jsonl: flag("jsonl")?,
        csv: flag("csv")?,
        shell: flag("shell")?,
        colsep: text("colsep"),
        link: flag("link").unwrap_or(false),
        max_args: number("max_args").and_then(|count| u32::try_from(count).ok()),
        xargs: flag("xargs").unwrap_or(false),
        xargs_context: flag("xargs_context").unwrap_or(false),
        max_chars: number("max_chars").and_then(|bytes| usize::try_from(bytes).ok()),
        replace: text("replace"),
        pipe: flag("pipe").unwrap_or(false),
        block: number("block").and_then(|bytes| usize::try_from(bytes).ok()),
    };
    let words = words.collect::<Option<_>>()?;
    Some(BatchOptions { words, input, log: Some(log.to_owned()), ..options })
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
