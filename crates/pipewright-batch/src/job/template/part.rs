//! The parts of a word with placeholders.

use std::ffi::OsString;

use super::path_part::PathPart;
use crate::job::Record;

/// A word of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A word without placeholders.
    Literal(OsString),
    /// A word for each column: `{}` alone.
    Values(PathPart),
    /// One word of several parts.
    Parts(Vec<Part>),
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Vec<u8>),
    Value(Values, PathPart),
    Number,
    Slot,
}

/// The values that a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    All,
    /// One column, numbered from 0.
    Column(usize),
}

/// A piece of a filled template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::job) enum Piece<'a> {
    Bytes(&'a [u8]),
    Number,
    Slot,
    EndOfWord,
}

/// A piece of a filled template, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::job) enum OwnedPiece {
    Bytes(Vec<u8>),
    Number,
    Slot,
}

impl Word {
    /// Returns the number of columns that the word needs.
    pub(super) fn min_columns(&self) -> usize {
        let Word::Parts(parts) = self else { return 0 };
        let needed = parts.iter().map(|part| match part {
            Part::Value(Values::Column(index), _) => index.saturating_add(1),
            _ => 0,
        });
        needed.max().unwrap_or(0)
    }

    /// Passes on the pieces of the words that this one becomes.
    pub(super) fn pieces(&self, record: &Record, each: &mut dyn FnMut(Piece<'_>)) {
        match self {
            Word::Literal(literal) => {
                each(Piece::Bytes(literal.as_encoded_bytes()));
                each(Piece::EndOfWord);
            }
            Word::Values(path_part) => {
                for value in record.columns() {
                    each(Piece::Bytes(path_part.of(value)));
                    each(Piece::EndOfWord);
                }
            }
            Word::Parts(parts) => {
                parts.iter().for_each(|part| part.pieces(record, each));
                each(Piece::EndOfWord);
            }
        }
    }
}

impl Part {
    fn pieces(&self, record: &Record, each: &mut dyn FnMut(Piece<'_>)) {
        match self {
            Part::Literal(bytes) => each(Piece::Bytes(bytes)),
            Part::Value(Values::Column(index), path_part) => {
                // A record that lacks the column was refused when the job was made.
                each(Piece::Bytes(path_part.of(record.column(*index).unwrap_or_default())));
            }
            Part::Value(Values::All, path_part) => {
                for (index, value) in record.columns().enumerate() {
                    if index > 0 {
                        each(Piece::Bytes(b" "));
                    }
                    each(Piece::Bytes(path_part.of(value)));
                }
            }
            Part::Number => each(Piece::Number),
            Part::Slot => each(Piece::Slot),
        }
    }
}
