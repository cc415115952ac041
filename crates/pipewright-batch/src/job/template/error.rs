//! The errors of a template and of the records for it.

use std::fmt;

use pipewright_os::base::error::OneLine;

use crate::job::NotUnicode;

/// An error of a template, or of a record for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template has no words.
    NoCommand,
    /// A placeholder asks for column 0.
    ColumnZero,
    /// No column has this name.
    UnknownColumn {
        /// The name in the placeholder.
        name: String,
        /// The names of the columns.
        known: Vec<String>,
    },
    /// Several columns have the name that a placeholder asks for.
    TwoColumns {
        /// The name in the placeholder.
        name: String,
    },
    /// The record lacks a column.
    MissingColumn {
        /// The number of the column, from 1.
        column: usize,
        /// The number of columns of the record.
        count: usize,
    },
    /// A value has a NUL byte, which no argument can have.
    NulByte,
    /// A value, or a word of the template, cannot be an argument on this system.
    NotUnicode(NotUnicode),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::NoCommand => f.write_str("the command is empty"),
            TemplateError::ColumnZero => {
                f.write_str("columns are numbered from 1: there is no {0}")
            }
            TemplateError::UnknownColumn { name, known } => {
                let (name, known) = (OneLine(name), known.join(", "));
                write!(f, "no column is named \"{name}\"; the columns are {}", OneLine(&known))
            }
            TemplateError::TwoColumns { name } => {
                let name = OneLine(name);
                write!(f, "several columns are named \"{name}\": use the number of the column")
            }
            TemplateError::MissingColumn { column, count } => {
                let columns = if *count == 1 { "column" } else { "columns" };
                write!(f, "the command uses column {column}, and the record has {count} {columns}")
            }
            TemplateError::NulByte => {
                f.write_str("a value has a NUL byte, which no argument can have")
            }
            TemplateError::NotUnicode(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TemplateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TemplateError::NotUnicode(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NotUnicode> for TemplateError {
    fn from(error: NotUnicode) -> TemplateError {
        TemplateError::NotUnicode(error)
    }
}
