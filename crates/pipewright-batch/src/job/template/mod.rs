//! Commands with placeholders, which the values of a record replace.

use std::ffi::OsString;
use std::sync::Arc;
use std::{fmt, mem};

use pipewright_os::base::error::OneLine;
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
/// They are those of GNU parallel, with the same results. They are replaced inside words and never through a shell, so
/// a value needs no quoting and cannot become two words. A `{}`, `{.}`, `{/}`, `{//}` or `{/.}` that is a whole word
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

    /// Parses the words of a command in which that text stands for the value, instead of `{}`: `-I` of `xargs`. The
    /// other placeholders are as ever.
    ///
    /// ```
    /// # use pipewright_batch::{Record, Template};
    /// let template = std::sync::Arc::new(Template::parse_replacing(["mv", "%", "{}/%"], "%")?);
    /// assert_eq!(template.job(1, Record::new("a"))?.argv(1)?, ["mv", "a", "{}/a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no word, or a placeholder is wrong.
    pub fn parse_replacing<I>(words: I, text: &str) -> Result<Template, TemplateError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Template::parse_all(words, &Record::default(), Some(text.as_bytes()))
    }

    /// Parses the words of a command that gets no value.
    pub(crate) fn parse_without_value(words: Vec<OsString>) -> Result<Template, TemplateError> {
        let mut template = Template::parse(words.iter().cloned())?;
        template.words.truncate(words.len());
        Ok(template)
    }

    /// Parses one text in which all values of a record are one text too, such as a tag.
    ///
    /// # Errors
    /// A placeholder is wrong.
    pub fn parse_text(text: impl Into<OsString>) -> Result<Template, TemplateError> {
        Template::parse_text_replacing(text, "{}")
    }

    /// Parses one text in which `replaced` stands for the value, as in [`parse_replacing`](Self::parse_replacing).
    ///
    /// # Errors
    /// A placeholder is wrong.
    pub fn parse_text_replacing(
        text: impl Into<OsString>,
        replaced: &str,
    ) -> Result<Template, TemplateError> {
        let replaced = Some(replaced.as_bytes()).filter(|it| !it.is_empty() && **it != *b"{}");
        let word = match parse_word(text.into(), &Record::default(), replaced)? {
            Word::Values(path_part) => Word::Parts(vec![Part::Value(Values::All, path_part)]),
            word => word,
        };
        let min_columns = word.min_columns();
        Ok(Template { words: vec![word], min_columns })
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
        Template::parse_all(words, names, None)
    }

    /// Parses words. `text` stands for the value instead of `{}`.
    fn parse_all<I>(
        words: I,
        names: &Record,
        text: Option<&[u8]>,
    ) -> Result<Template, TemplateError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let text = text.filter(|text| !text.is_empty() && *text != b"{}");
        let words = words.into_iter().map(|word| parse_word(word.into(), names, text));
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

    /// Returns true if the words are the same for each job.
    pub(crate) fn is_literal(&self) -> bool {
        self.words.iter().all(|word| matches!(word, Word::Literal(_)))
    }

    /// Repeats a word for each value of the record, if the value is a part of it: `pic{}.jpg` becomes `pic1.jpg
    /// pic2.jpg`, as with `-X` of GNU parallel. Otherwise the values are joined by spaces there.
    pub fn repeat_words(mut self) -> Template {
        for word in &mut self.words {
            if let Word::Parts(parts) = word {
                if parts.iter().any(|part| matches!(part, Part::Value(Values::All, _))) {
                    *word = Word::Repeated(std::mem::take(parts));
                }
            }
        }
        self
    }

    /// Returns the bytes of the words without any value, each with the byte that ends it.
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.words.iter().map(Word::fixed_bytes).sum()
    }

    /// Returns the bytes that these columns add to the words. `before`: the columns before them.
    pub(crate) fn value_bytes(&self, before: Option<&Record>, columns: &Record) -> usize {
        let first = before.map_or(0, Record::column_count);
        let of_column = |(index, value)| {
            let words = self.words.iter();
            words.map(|word| word.value_bytes(before, first + index, value)).sum::<usize>()
        };
        columns.columns().enumerate().map(of_column).sum()
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
        self.job_of(number, record, true)
    }

    /// Makes a job of a record. Not `is_whole`: columns that it lacks are empty.
    pub(crate) fn job_of(
        self: &Arc<Self>,
        number: u64,
        record: Record,
        is_whole: bool,
    ) -> Result<Job, TemplateError> {
        let count = record.column_count();
        if is_whole && count < self.min_columns {
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

// Finds the placeholders in a word.

/// Parses a word. `names` are the names of the columns; `text` stands for the value instead of `{}`.
fn parse_word(word: OsString, names: &Record, text: Option<&[u8]>) -> Result<Word, TemplateError> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = word.as_encoded_bytes();
    let find = |text: &[u8], rest: &[u8]| rest.windows(text.len()).position(|it| it == text);
    while let Some((text, at)) = text.and_then(|text| Some((text, find(text, rest)?))) {
        let (before, after) = rest.split_at(at);
        parse_part(before, names, false, &mut parts, &mut literal)?;
        push_literal(&mut parts, &mut literal)?;
        parts.push(Part::Value(Values::All, PathPart::Whole));
        rest = after.get(text.len()..).unwrap_or_default();
    }
    parse_part(rest, names, text.is_none(), &mut parts, &mut literal)?;
    if parts.is_empty() {
        return Ok(Word::Literal(word));
    }
    push_literal(&mut parts, &mut literal)?;
    Ok(match parts[..] {
        [Part::Value(Values::All, path_part)] => Word::Values(path_part),
        _ => Word::Parts(parts),
    })
}

/// Parses a part of a word, and adds what it finds to the parts and to the literal after them.
fn parse_part(
    mut rest: &[u8],
    names: &Record,
    has_braces: bool,
    parts: &mut Vec<Part>,
    literal: &mut Vec<u8>,
) -> Result<(), TemplateError> {
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
        match placeholder(inside, names)?.filter(|_| has_braces || !inside.is_empty()) {
            Some(part) => {
                push_literal(parts, literal)?;
                parts.push(part);
            }
            None => literal.extend([b"{", inside, b"}"].concat()),
        }
    }
    literal.extend_from_slice(rest);
    Ok(())
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

// The parts of a word with placeholders.

/// A word of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A word without placeholders.
    Literal(OsString),
    /// A word for each column: `{}` alone.
    Values(PathPart),
    /// One word of several parts.
    Parts(Vec<Part>),
    /// Such a word for each column.
    Repeated(Vec<Part>),
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
        let (Word::Parts(parts) | Word::Repeated(parts)) = self else { return 0 };
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
            Word::Repeated(parts) => {
                for value in record.columns() {
                    for part in parts {
                        match part {
                            Part::Value(Values::All, path_part) => {
                                each(Piece::Bytes(path_part.of(value)));
                            }
                            part => part.pieces(record, each),
                        }
                    }
                    each(Piece::EndOfWord);
                }
            }
        }
    }

    /// Returns the bytes without any value, with the byte that ends a word.
    fn fixed_bytes(&self) -> usize {
        match self {
            Word::Literal(literal) => literal.len() + 1,
            Word::Values(_) | Word::Repeated(_) => 0,
            Word::Parts(parts) => parts.iter().map(Part::fixed_bytes).sum::<usize>() + 1,
        }
    }

    /// Returns the bytes that a value adds, which is the column of that index. `before`: columns before it.
    fn value_bytes(&self, before: Option<&Record>, index: usize, value: &[u8]) -> usize {
        match self {
            Word::Literal(_) => 0,
            Word::Values(path_part) => path_part.of(value).len() + 1,
            Word::Parts(parts) => {
                // With the space between two values.
                let bytes = |part: &Part| match part {
                    Part::Value(Values::All, path_part) => path_part.of(value).len() + 1,
                    Part::Value(Values::Column(column), path_part) if *column == index => {
                        path_part.of(value).len()
                    }
                    _ => 0,
                };
                parts.iter().map(bytes).sum()
            }
            Word::Repeated(parts) => {
                let bytes = |part: &Part| match part {
                    Part::Value(Values::All, path_part) => path_part.of(value).len(),
                    Part::Value(Values::Column(column), path_part) => {
                        let found = before.and_then(|before| before.column(*column));
                        path_part.of(found.unwrap_or(value)).len()
                    }
                    part => part.fixed_bytes(),
                };
                parts.iter().map(bytes).sum::<usize>() + 1
            }
        }
    }
}

impl Part {
    fn fixed_bytes(&self) -> usize {
        match self {
            Part::Literal(bytes) => bytes.len(),
            Part::Value(..) => 0,
            // The most digits of a number, and of a slot.
            Part::Number => 20,
            Part::Slot => 10,
        }
    }

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

// The parts of a path that a placeholder can ask for, with the results of GNU parallel.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathPart {
    /// The value as it is.
    Whole,
    /// Without the extension: `{.}`.
    WithoutExtension,
    /// After the last separator: `{/}`.
    FileName,
    /// The directory: `{//}`.
    Directory,
    /// After the last separator, without the extension: `{/.}`.
    FileStem,
}

impl PathPart {
    /// The ends of a placeholder, and the parts that they ask for. None is the end of a later one.
    pub(super) const ENDS: [(&'static [u8], PathPart); 5] = [
        (b"/.", PathPart::FileStem),
        (b"//", PathPart::Directory),
        (b"/", PathPart::FileName),
        (b".", PathPart::WithoutExtension),
        (b"", PathPart::Whole),
    ];

    /// Returns this part of a path.
    pub(super) fn of(self, path: &[u8]) -> &[u8] {
        match self {
            PathPart::Whole => path,
            PathPart::WithoutExtension => without_extension(path),
            PathPart::FileName => split(path).1,
            PathPart::Directory => directory(path),
            PathPart::FileStem => without_extension(split(path).1),
        }
    }
}

fn is_separator(byte: u8) -> bool {
    byte.is_ascii() && std::path::is_separator(byte.into())
}

/// Splits after the last separator.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let last = path.iter().rposition(|byte| is_separator(*byte));
    path.split_at(last.map_or(0, |last| last + 1))
}

/// Returns the path up to the last dot of its last part. A leading dot counts, as in GNU parallel: of `.bashrc`
/// nothing is left.
fn without_extension(path: &[u8]) -> &[u8] {
    let (directory, name) = split(path);
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => path.get(..directory.len() + dot).unwrap_or(path),
        None => path,
    }
}

/// Returns what `dirname` of Perl and of the shell returns.
fn directory(path: &[u8]) -> &[u8] {
    let (parent, name) = split(path);
    let parent = trimmed(parent);
    // A separator at the end does not count.
    let parent = if name.is_empty() { trimmed(split(parent).0) } else { parent };
    if parent.is_empty() { b"." } else { parent }
}

/// Returns the path without the separators at its end, except that of a root.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| !is_separator(*byte));
    let end = end.map_or(path.len().min(1), |last| last + 1);
    // `C:\` is a root, and `C:` is not. There are drives where `\` is a separator.
    let is_drive = is_separator(b'\\') && end == 2 && path.get(1) == Some(&b':');
    path.get(..end + usize::from(is_drive)).unwrap_or(path)
}

// The errors of a template and of the records for it.

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

#[cfg(test)]
mod tests;
