//! Finds the placeholders in a word.

use std::ffi::OsString;
use std::mem;

use super::{Part, PathPart, TemplateError, Values, Word};
use crate::job::{Record, os_string};

/// Parses a word. `names` are the names of the columns.
pub(super) fn word(word: OsString, names: &Record) -> Result<Word, TemplateError> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = word.as_encoded_bytes();
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let (before, from_brace) = rest.split_at(open);
        literal.extend_from_slice(before);
        let inside = from_brace.get(1..).unwrap_or_default();
        // Of `{{}` the second brace begins a placeholder.
        let end = inside.iter().position(|byte| matches!(byte, b'{' | b'}'));
        let Some(end) = end.filter(|end| inside.get(*end) == Some(&b'}')) else {
            let end = end.map_or(from_brace.len(), |end| end + 1);
            let (kept, after) = from_brace.split_at(end);
            literal.extend_from_slice(kept);
            rest = after;
            continue;
        };
        let (inside, after) = inside.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        match placeholder(inside, names)? {
            Some(part) => {
                push_literal(&mut parts, &mut literal)?;
                parts.push(part);
            }
            None => literal.extend([b"{", inside, b"}"].concat()),
        }
    }
    if parts.is_empty() {
        return Ok(Word::Literal(word));
    }
    literal.extend_from_slice(rest);
    push_literal(&mut parts, &mut literal)?;
    Ok(match parts[..] {
        [Part::Value(Values::All, path_part)] => Word::Values(path_part),
        _ => Word::Parts(parts),
    })
}

/// Moves what was collected to the parts.
fn push_literal(parts: &mut Vec<Part>, literal: &mut Vec<u8>) -> Result<(), TemplateError> {
    if !literal.is_empty() {
        // Refuses here what could not be a part of a word later.
        os_string(literal.clone())?;
        parts.push(Part::Literal(mem::take(literal)));
    }
    Ok(())
}

/// Returns the placeholder with this text between its braces. `None`: it is none.
fn placeholder(inside: &[u8], names: &Record) -> Result<Option<Part>, TemplateError> {
    match inside {
        b"#" => return Ok(Some(Part::Number)),
        b"%" => return Ok(Some(Part::Slot)),
        _ => {}
    }
    let value = |values, path_part| Ok(Some(Part::Value(values, path_part)));
    if let Some((_, path_part)) = PathPart::ENDS.iter().find(|(end, _)| *end == inside) {
        return value(Values::All, *path_part);
    }
    let mut unknown = None;
    // From the longest name to the shortest, so that a column `a.` is found before the extension of a column `a`.
    for (end, path_part) in PathPart::ENDS.iter().rev() {
        let Some(column) = inside.strip_suffix(*end) else { continue };
        if column.iter().all(u8::is_ascii_digit) {
            return value(Values::Column(number(column)?), *path_part);
        }
        if let Some(index) = named(column, names)? {
            return value(Values::Column(index), *path_part);
        }
        if is_name(column) {
            unknown = Some(column);
        }
    }
    match unknown {
        Some(name) if has_names(names) => {
            let lossy = |name| String::from_utf8_lossy(name).into_owned();
            Err(TemplateError::UnknownColumn {
                name: lossy(name),
                known: names.columns().map(lossy).collect(),
            })
        }
        _ => Ok(None),
    }
}

/// Returns the index of a column from the digits of its number.
fn number(digits: &[u8]) -> Result<usize, TemplateError> {
    let number = digits.iter().fold(0_usize, |number, digit| {
        number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    });
    number.checked_sub(1).ok_or(TemplateError::ColumnZero)
}

/// Returns the index of the column with that name.
fn named(name: &[u8], names: &Record) -> Result<Option<usize>, TemplateError> {
    let mut found = names.columns().enumerate().filter(|(_, known)| *known == name);
    let index = found.next().map(|(index, _)| index);
    match found.next() {
        Some(_) => {
            Err(TemplateError::TwoColumns { name: String::from_utf8_lossy(name).into_owned() })
        }
        None => Ok(index),
    }
}

fn has_names(names: &Record) -> bool {
    names.columns().any(|name| !name.is_empty())
}

/// Returns true for a word that is meant as a name. Braces around anything else belong to another language, as those
/// of `awk '{print $1}'`.
fn is_name(text: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_' || !byte.is_ascii();
    let is_inner = |byte: &u8| is_letter(byte) || byte.is_ascii_digit() || *byte == b'-';
    text.first().is_some_and(is_letter) && text.iter().all(is_inner)
}
