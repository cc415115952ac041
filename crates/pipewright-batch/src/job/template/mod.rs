//! Commands with placeholders, which the values of a record replace.
//!
//! | file | contents |
//! |---|---|
//! | `parse.rs` | placeholders in the words of a command |
//! | `part.rs` | the parts of a word |
//! | `path_part.rs` | the parts of a path: `{.}`, `{/}`, `{//}`, `{/.}` |
//! | `error.rs` | the error type |

mod error;
mod parse;
mod part;
mod path_part;

use std::ffi::OsString;
use std::sync::Arc;

pub use error::TemplateError;
pub(super) use part::{OwnedPiece, Piece};
use part::{Part, Values, Word};
use path_part::PathPart;
use pipewright_os::base::os_text::from_encoded_bytes;

use super::{Job, NotUnicode, Record, os_string};

/// A command with placeholders, from which many jobs are made.
///
/// | placeholder | replaced by |
/// |---|---|
/// | `{}` | the value |
/// | `{.}` | the value without its extension |
/// | `{/}` | the part after the last `/` |
/// | `{//}` | the directory, `.` if there is none |
/// | `{/.}` | the part after the last `/`, without its extension |
/// | `{#}` | the number of the job, from 1 |
/// | `{%}` | the number of the slot that the job runs in, from 1 |
/// | `{2}`, `{2.}`, `{2/}`, `{2//}`, `{2/.}` | the same for the second column, numbered from 1 |
/// | `{name}`, `{name.}`, … | the same for the column of that name, where columns have names |
///
/// They are those of GNU parallel, with the same results. They are replaced inside words and never through a shell, so a
/// value needs no quoting and cannot become two words. A `{}`, `{.}`, `{/}`, `{//}` or `{/.}` that is a whole word
/// becomes one word for each column; inside a word the values are joined by spaces. A command without placeholders gets
/// the values as its last arguments.
///
/// Digits always mean the number of a column, also where a column has digits as its name. A brace that belongs to no
/// placeholder stays as it is, and so does `{name}` if columns have no names. On Windows, `\` separates paths too.
///
/// ```
/// use pipewright_batch::{Record, Template};
/// use std::sync::Arc;
///
/// let template = Arc::new(Template::parse(["convert", "{}", "small/{/.}.png"])?);
/// let job = template.job(1, Record::new("photos/cat.jpg"))?;
/// assert_eq!(job.argv(1)?, ["convert", "photos/cat.jpg", "small/cat.png"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    words: Vec<Word>,
    /// The largest number of a column that a placeholder asks for.
    min_columns: usize,
}

impl Template {
    /// Parses the words of a command whose columns have no names.
    ///
    /// # Errors
    /// There is no word, or a placeholder is wrong.
    pub fn parse<I>(words: I) -> Result<Template, TemplateError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Template::parse_with_names(words, &Record::default())
    }

    /// Parses the words of a command whose columns have these names. A column with an empty name has none.
    ///
    /// # Errors
    /// There is no word, or a placeholder is wrong, or it names a column that is not there.
    pub fn parse_with_names<I>(words: I, names: &Record) -> Result<Template, TemplateError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let words = words.into_iter().map(|word| parse::word(word.into(), names));
        let mut words = words.collect::<Result<Vec<Word>, TemplateError>>()?;
        if words.is_empty() {
            return Err(TemplateError::NoCommand);
        }
        if words.iter().all(|word| matches!(word, Word::Literal(_))) {
            words.push(Word::Values(PathPart::Whole));
        }
        let min_columns = words.iter().map(Word::min_columns).max().unwrap_or(0);
        Ok(Template { words, min_columns })
    }

    /// Makes a template of these words, in which nothing is replaced.
    pub(super) fn of_literals(words: Vec<OsString>) -> Template {
        Template { words: words.into_iter().map(Word::Literal).collect(), min_columns: 0 }
    }

    /// Makes a template of the pieces of words. `None`: a word cannot be one on this system.
    pub(super) fn of_pieces(words: Vec<Vec<OwnedPiece>>) -> Option<Template> {
        let word = |pieces: Vec<OwnedPiece>| {
            let mut bytes = Vec::new();
            let is_literal = pieces.iter().all(|piece| match piece {
                OwnedPiece::Bytes(more) => {
                    bytes.extend_from_slice(more);
                    true
                }
                OwnedPiece::Number | OwnedPiece::Slot => false,
            });
            if is_literal {
                return from_encoded_bytes(bytes).ok().map(Word::Literal);
            }
            let parts = pieces.into_iter().map(|piece| match piece {
                OwnedPiece::Bytes(bytes) => Part::Literal(bytes),
                OwnedPiece::Number => Part::Number,
                OwnedPiece::Slot => Part::Slot,
            });
            Some(Word::Parts(parts.collect()))
        };
        let words = words.into_iter().map(word).collect::<Option<Vec<Word>>>()?;
        (!words.is_empty()).then_some(Template { words, min_columns: 0 })
    }

    /// Makes a job of a record. `number` replaces `{#}`.
    ///
    /// # Errors
    /// The record lacks a column, or a value cannot be an argument.
    pub fn job(self: &Arc<Self>, number: u64, record: Record) -> Result<Job, TemplateError> {
        let count = record.column_count();
        if count < self.min_columns {
            return Err(TemplateError::MissingColumn { column: self.min_columns, count });
        }
        if record.all_bytes().contains(&0) {
            return Err(TemplateError::NulByte);
        }
        // Each value alone, so that one with half a character is refused here and not at the job's start.
        for value in record.columns() {
            os_string(value.to_vec())?;
        }
        Ok(Job::from_template(Arc::clone(self), number, record))
    }

    /// Returns the words of a job.
    pub(super) fn words(
        &self,
        number: u64,
        slot: u32,
        record: &Record,
    ) -> Result<Vec<OsString>, NotUnicode> {
        let mut words = Vec::with_capacity(self.words.len() + record.column_count() - 1);
        for word in &self.words {
            if let Word::Literal(literal) = word {
                // Not as bytes: any word of the user's survives.
                words.push(literal.clone());
                continue;
            }
            let mut result = Ok(());
            let mut bytes = Vec::new();
            word.pieces(record, &mut |piece| match piece {
                Piece::Bytes(more) => bytes.extend_from_slice(more),
                Piece::Number => bytes.extend_from_slice(number.to_string().as_bytes()),
                Piece::Slot => bytes.extend_from_slice(slot.to_string().as_bytes()),
                Piece::EndOfWord => match os_string(std::mem::take(&mut bytes)) {
                    Ok(word) => words.push(word),
                    Err(error) => result = Err(error),
                },
            });
            result?;
        }
        Ok(words)
    }

    /// Passes on the pieces of all words, with the number and the slot as markers.
    pub(super) fn pieces(&self, record: &Record, each: &mut dyn FnMut(Piece<'_>)) {
        self.words.iter().for_each(|word| word.pieces(record, each));
    }
}

#[cfg(test)]
mod tests;
