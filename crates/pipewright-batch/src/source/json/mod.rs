//! JSON lines: an object a line is a job.
//!
//! | file | contents |
//! |---|---|
//! | `value.rs` | JSON with all its fields, also repeated ones |
//! | `fields.rs` | the fields of a job |
//! | `convert.rs` | JSON values as texts, numbers and names |

mod convert;
mod fields;
mod value;

use serde_json::error::Category;

use super::ReadJobs;
use super::csv::BYTE_ORDER_MARK;
use super::error::{InputError, InputErrorKind};
use super::lines::Delimited;
use crate::job::Job;

pub(super) use fields::FIELDS;
use value::Value;

/// Lines that are JSON objects.
pub(super) struct JsonLines(Delimited);

impl JsonLines {
    pub(super) fn new(records: Delimited) -> JsonLines {
        JsonLines(records)
    }
}

impl ReadJobs for JsonLines {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let mut is_first = self.0.count() == 0;
        while let Some(line) = self.0.next_record()? {
            let mark = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first);
            is_first = false;
            let line = mark.unwrap_or(line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return match parse(line).and_then(fields::job) {
                Ok(job) => Ok(Some(job.on_line(self.0.line()))),
                Err(kind) => Err(self.0.error(kind)),
            };
        }
        Ok(None)
    }
}

fn parse(line: &[u8]) -> Result<Value, InputErrorKind> {
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // A line is one line: its number would be 1 in every message.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = match error.classify() {
            Category::Eof => "the line ends too early".to_owned(),
            _ => text.strip_suffix(&place).unwrap_or(&text).to_owned(),
        };
        InputErrorKind::Json { message, column: error.column() }
    })
}

#[cfg(test)]
mod tests;
