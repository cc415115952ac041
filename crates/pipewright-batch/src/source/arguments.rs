//! The lists of a command line: `COMMAND ::: a b :::: FILE`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::{InputError, InputErrorKind, Position};
use super::input::InputName;
use super::{List, Source};

/// A list of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListWords {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// A file after `::::`. Each of several files is a list.
    File(PathBuf),
}

impl ListWords {
    /// Opens the file, if the list is in one. `-` is the standard input.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(self) -> Result<List, InputError> {
        Ok(match self {
            ListWords::Values(values) => List::Values(values),
            ListWords::File(path) if path.as_os_str() == "-" => List::Lines(Source::stdin()),
            ListWords::File(path) => List::Lines(Source::open(path)?),
        })
    }
}

/// Splits the words of a command line into the command and its lists.
///
/// ```
/// use pipewright_batch::{ListWords, split_lists};
/// let words = ["gzip", "-9", ":::", "a", "b"].map(Into::into);
/// let (command, lists) = split_lists(words)?;
/// assert_eq!(command, ["gzip", "-9"]);
/// assert_eq!(lists, [ListWords::Values(vec!["a".into(), "b".into()])]);
/// # Ok::<(), pipewright_batch::InputError>(())
/// ```
///
/// # Errors
/// A list is linked to the one before (`:::+`, `::::+`), which is not supported.
pub fn split_lists<I>(words: I) -> Result<(Vec<OsString>, Vec<ListWords>), InputError>
where
    I: IntoIterator<Item = OsString>,
{
    let mut command = Vec::new();
    let mut lists = Vec::new();
    let mut are_files = None;
    for word in words {
        match word.to_str() {
            Some(":::") => {
                are_files = Some(false);
                lists.push(ListWords::Values(Vec::new()));
            }
            Some("::::") => are_files = Some(true),
            Some(":::+") => return Err(unsupported(":::+")),
            Some("::::+") => return Err(unsupported("::::+")),
            _ => match (are_files, lists.last_mut()) {
                (None, _) => command.push(word),
                (Some(false), Some(ListWords::Values(values))) => values.push(word),
                (Some(_), _) => lists.push(ListWords::File(word.into())),
            },
        }
    }
    Ok((command, lists))
}

fn unsupported(separator: &'static str) -> InputError {
    let kind = InputErrorKind::UnsupportedList { separator };
    InputError::new(&InputName::Arguments, Position::Unknown, kind)
}
