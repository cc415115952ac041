//! A job, made again of what the log has.

use std::ffi::OsString;
use std::sync::Arc;

use pipewright_os::base::os_text::from_encoded_bytes;
use serde_json::{Map, Value};

use super::text::{bytes_of, duration, unhex};
use crate::job::quote::words_of_quoted;
use crate::job::template::OwnedPiece;
use crate::job::{Job, JobCommand, JobStdin, Record, Template};

/// The columns of the log that describe a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredJob {
    pub(crate) name: Option<String>,
    /// The words, quoted for a shell.
    pub(crate) command: Vec<u8>,
    pub(crate) current_dir: Option<Vec<u8>>,
    /// JSON.
    pub(crate) settings: Option<String>,
}

impl StoredJob {
    /// Returns the job. `None`: no version of this crate has written that.
    pub(crate) fn job(self) -> Option<Job> {
        let mut fields = match self.settings.as_deref().map(serde_json::from_str) {
            None => Map::new(),
            Some(Ok(Value::Object(fields))) => fields,
            Some(_) => return None,
        };
        let mut job = command(&self.command, &mut fields)?;
        if let Some(name) = self.name {
            job = job.name(name);
        }
        if let Some(dir) = self.current_dir {
            job = job.current_dir(os(dir)?);
        }
        fields.into_iter().try_fold(job, |job, (name, value)| set(job, &name, value))
    }
}

fn command(line: &[u8], fields: &mut Map<String, Value>) -> Option<Job> {
    let is_shell = fields.remove("shell").map_or(Some(false), |value| value.as_bool())?;
    let number = fields.remove("number").map_or(Some(0), |value| value.as_u64())?;
    let values = fields.remove("values").map(|values| record(array(values)?));
    let template = match fields.remove("words") {
        Some(words) => {
            let words = array(words)?.into_iter().map(|word| {
                let pieces = array(word)?.into_iter().map(piece);
                pieces.collect::<Option<Vec<OwnedPiece>>>()
            });
            Template::of_pieces(words.collect::<Option<Vec<_>>>()?)?
        }
        None => {
            let words = words_of_quoted(line)?.into_iter().map(os);
            let words = words.collect::<Option<Vec<OsString>>>()?;
            if is_shell {
                return shell(words);
            }
            if values.is_none() {
                let (program, args) = words.split_first()?;
                return Some(Job::new(program).args(args));
            }
            Template::of_literals(words)
        }
    };
    let record = values.unwrap_or_else(|| Some(Record::default()))?;
    let template = Arc::new(template);
    Some(Job::from_command(JobCommand::Template { template, number, record }))
}

/// Undoes [`Job::argv`] of a line for the shell.
fn shell(words: Vec<OsString>) -> Option<Job> {
    let mut words = words.into_iter().skip(2);
    let job = Job::shell(words.next()?);
    Some(job.args(words.skip(1)))
}

fn set(job: Job, name: &str, value: Value) -> Option<Job> {
    let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
    Some(match name {
        "env" | "env_hex" => object(value)?.into_iter().try_fold(job, |job, (key, value)| {
            let name = if name == "env" { key.into_bytes() } else { unhex(&key)? };
            let name = os(name)?;
            Some(match value {
                Value::Null => job.env_remove(name),
                value => job.env(name, os(bytes_of(value)?)?),
            })
        })?,
        "stdin" => job.stdin(JobStdin::Bytes(bytes_of(value)?)),
        "stdin_file" => job.stdin(JobStdin::file(os(bytes_of(value)?)?)),
        "after" => {
            array(value)?.into_iter().try_fold(job, |job, name| Some(job.after(name.as_str()?)))?
        }
        "cpus" => job.cpus(count(&value)?),
        "mem" => job.mem_bytes(value.as_u64()?),
        "most_mem" => job.most_mem_bytes(value.as_u64()?),
        "tokens" => object(value)?
            .into_iter()
            .try_fold(job, |job, (name, value)| Some(job.tokens(name, count(&value)?)))?,
        "timeout" => job.timeout(duration(value.as_str()?)?),
        "retries" => job.retries(count(&value)?),
        "once" => job.once(value.as_bool()?),
        _ => return None,
    })
}

fn record(values: Vec<Value>) -> Option<Record> {
    let mut values = values.into_iter().map(bytes_of);
    let first = Record::new(values.next()??);
    values.try_fold(first, |record, value| Some(record.and(value?)))
}

fn piece(value: Value) -> Option<OwnedPiece> {
    match value.get("put").and_then(Value::as_str) {
        Some("number") => Some(OwnedPiece::Number),
        Some("slot") => Some(OwnedPiece::Slot),
        Some(_) => None,
        None => bytes_of(value).map(OwnedPiece::Bytes),
    }
}

fn os(bytes: Vec<u8>) -> Option<OsString> {
    from_encoded_bytes(bytes).ok()
}

fn array(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}
