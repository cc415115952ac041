//! The error of an input: its name, the line and the problem.

use std::{fmt, io};

use pipewright_os::base::error::OneLine;

use super::InputName;
use crate::job::{NotUnicode, TemplateError};

/// An error of an input that jobs are read from.
///
/// Prints as one line, with the name of the input and the number of the line.
///
/// ```
/// use pipewright_batch::Source;
/// let mut jobs = Source::new(&b"true\necho 'it\n"[..]).commands();
/// assert!(jobs.next().unwrap().is_ok());
/// let error = jobs.next().unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "line 2 of the input: the quote ' is not closed");
/// assert_eq!(error.line(), Some(2));
/// ```
pub struct InputError(Box<ErrorFacts>);

struct ErrorFacts {
    name: InputName,
    position: Position,
    kind: InputErrorKind,
    source: Option<io::Error>,
}

/// A place in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Unknown,
    /// A line, from 1.
    Line(u64),
    /// A record that does not end with a line, from 1.
    Record(u64),
}

/// The kind of an [`InputError`], with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputErrorKind {
    /// The input cannot be opened.
    Open,
    /// The input cannot be read.
    Read,
    /// A record is longer than the limit.
    TooLong {
        /// The limit.
        max_bytes: usize,
    },
    /// A value has a NUL byte, which no argument can have.
    NulByte,
    /// A value cannot be an argument on this system.
    NotUnicode(NotUnicode),
    /// The template is wrong, or does not fit the record.
    Template(TemplateError),
    /// A quote in a command is not closed.
    UnclosedQuote {
        /// The quote.
        quote: char,
    },
    /// A command ends with a backslash that escapes nothing.
    TrailingBackslash,
    /// The first word of a command is empty.
    EmptyProgram,
    /// A line is no JSON object.
    Json {
        /// The parser's words.
        message: String,
        /// The column of the line, from 1.
        column: usize,
    },
    /// No field has that name.
    UnknownField {
        /// The name.
        field: String,
    },
    /// A field occurs twice.
    RepeatedField {
        /// The name, with those of the objects around it.
        field: String,
    },
    /// Neither `argv` nor `shell` is there.
    MissingCommand,
    /// Two fields exclude each other.
    ConflictingFields {
        /// The fields.
        fields: [&'static str; 2],
    },
    /// A field has a wrong value.
    WrongField {
        /// The name, with those of the objects and the indices of the arrays around it.
        field: String,
        /// The expected value.
        expected: &'static str,
        /// The value that is there.
        found: String,
    },
    /// The CSV has no row with the names of the columns.
    NoHeader,
    /// A field of CSV has a quote that is not closed.
    UnclosedField,
    /// A field of CSV has a quote, and no quotes around it.
    QuoteInField,
    /// Text follows the closing quote of a field of CSV.
    TextAfterQuote,
    /// A carriage return in a field of CSV has no quotes around it, and no line feed after it.
    LoneCarriageReturn,
    /// A row of CSV has more or fewer fields than the first row.
    FieldCount {
        /// The number of fields.
        count: usize,
        /// The number of fields in the first row.
        expected: usize,
    },
    /// A list of the command line stands beside the one before, and is the first.
    FirstList {
        /// The word that begins the list.
        separator: String,
    },
}

impl InputError {
    pub(super) fn new(name: &InputName, position: Position, kind: InputErrorKind) -> InputError {
        InputError(Box::new(ErrorFacts { name: name.clone(), position, kind, source: None }))
    }

    pub(super) fn io(
        name: &InputName,
        kind: InputErrorKind,
        position: Position,
        source: io::Error,
    ) -> InputError {
        let mut error = InputError::new(name, position, kind);
        error.0.source = Some(source);
        error
    }

    /// Returns the kind of the error, with its facts.
    #[must_use]
    pub fn kind(&self) -> &InputErrorKind {
        &self.0.kind
    }

    /// Returns the name of the input.
    #[must_use]
    pub fn input(&self) -> &InputName {
        &self.0.name
    }

    /// Returns the number of the line, from 1, if the input has lines and the error belongs to one.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        match self.0.position {
            Position::Line(line) => Some(line),
            Position::Unknown | Position::Record(_) => None,
        }
    }

    fn io_kind(&self) -> io::ErrorKind {
        self.0.source.as_ref().map_or(io::ErrorKind::InvalidData, io::Error::kind)
    }
}

pipewright_os::impl_error!(InputError);

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorFacts { name, position, kind, source } = &*self.0;
        if let Some(source) = source {
            let operation = if *kind == InputErrorKind::Open { "open" } else { "read" };
            write!(f, "cannot {operation} {name}")?;
            match position {
                Position::Line(line) => write!(f, " at line {line}")?,
                Position::Record(record) => write!(f, " at record {record}")?,
                Position::Unknown => {}
            }
            return write!(f, ": {}", OneLine(&source.to_string()));
        }
        match position {
            Position::Line(line) => write!(f, "line {line} of {name}: {kind}"),
            Position::Record(record) => write!(f, "record {record} of {name}: {kind}"),
            Position::Unknown => write!(f, "in {name}: {kind}"),
        }
    }
}

impl fmt::Display for InputErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputErrorKind::Open => f.write_str("cannot be opened"),
            InputErrorKind::Read => f.write_str("cannot be read"),
            InputErrorKind::TooLong { max_bytes } => {
                write!(f, "longer than {max_bytes} bytes; is another separator meant?")
            }
            InputErrorKind::NulByte => write!(f, "{}", TemplateError::NulByte),
            InputErrorKind::NotUnicode(error) => write!(f, "{error}"),
            InputErrorKind::Template(error) => write!(f, "{error}"),
            InputErrorKind::UnclosedQuote { quote } => {
                write!(f, "the quote {quote} is not closed")
            }
            InputErrorKind::TrailingBackslash => {
                f.write_str(r"a backslash at the end; write \\ for a backslash")
            }
            InputErrorKind::EmptyProgram => f.write_str("the first word is empty"),
            InputErrorKind::Json { message, column } => {
                write!(f, "not valid JSON at column {column}: {}", OneLine(message))
            }
            InputErrorKind::UnknownField { field } => write!(
                f,
                "unknown field \"{}\"; the fields are {}",
                OneLine(field),
                super::json::FIELDS.join(", ")
            ),
            InputErrorKind::RepeatedField { field } => {
                write!(f, "field \"{}\" occurs twice", OneLine(field))
            }
            InputErrorKind::MissingCommand => {
                f.write_str("no command: write \"argv\" or \"shell\"")
            }
            InputErrorKind::ConflictingFields { fields: [one, other] } => {
                write!(f, "both \"{one}\" and \"{other}\"; write one of them")
            }
            InputErrorKind::WrongField { field, expected, found } => {
                let (field, found) = (OneLine(field), OneLine(found));
                write!(f, "field \"{field}\": expected {expected}, found {found}")
            }
            InputErrorKind::NoHeader => f.write_str("no first row with the names of the columns"),
            InputErrorKind::UnclosedField => f.write_str("a quote is opened and never closed"),
            InputErrorKind::QuoteInField => {
                f.write_str("a quote inside a field: put the field in quotes, and double the quote")
            }
            InputErrorKind::TextAfterQuote => {
                f.write_str("text after a closing quote: double a quote that is part of the field")
            }
            InputErrorKind::LoneCarriageReturn => {
                f.write_str("a carriage return without a line feed: put the field in quotes")
            }
            InputErrorKind::FieldCount { count, expected } => {
                let fields = if *count == 1 { "field" } else { "fields" };
                write!(f, "{count} {fields}, and the first row has {expected}")
            }
            InputErrorKind::FirstList { separator } => {
                write!(f, "no list before \"{separator}\"")
            }
        }
    }
}

impl From<TemplateError> for InputErrorKind {
    fn from(error: TemplateError) -> InputErrorKind {
        match error {
            TemplateError::NulByte => InputErrorKind::NulByte,
            TemplateError::NotUnicode(error) => InputErrorKind::NotUnicode(error),
            error => InputErrorKind::Template(error),
        }
    }
}

impl From<NotUnicode> for InputErrorKind {
    fn from(error: NotUnicode) -> InputErrorKind {
        InputErrorKind::NotUnicode(error)
    }
}
