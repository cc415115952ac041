//! Patterns, and what was found.

use std::fmt;
use std::ops::Range;

#[cfg(feature = "screen")]
use super::screen::{Screen, ScreenTest};
#[cfg(feature = "regex")]
use crate::error::{Error, ErrorKind, FailedOperation};

/// Something to wait for in the output of a [`Session`](super::Session). Text and bytes convert to it.
#[non_exhaustive]
pub enum Pattern {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The end of the output: no process has the terminal open any more.
    End,
    /// The end of the time. The match takes no output.
    Timeout,
    /// A match of a regular expression: [`Pattern::regex`].
    #[cfg(feature = "regex")]
    #[doc(hidden)]
    Regex(Box<regex::bytes::Regex>),
    /// A screen: [`Pattern::screen`].
    #[cfg(feature = "screen")]
    #[doc(hidden)]
    Screen(ScreenTest),
}

impl Pattern {
    /// Returns a pattern for a regular expression, in the syntax of the crate `regex` (feature `regex`).
    ///
    /// The expression sees the output so far, so one that ends with a repetition can match a part of what the program is
    /// about to write: let it end with a text that comes after it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an expression that is not valid.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, Pattern, Session};
    /// let mut session = Session::spawn(Command::new("echo").arg("version 1.85.0"))?;
    /// let found = session.expect(Pattern::regex(r"version (\d+)\.(\d+)\.")?)?;
    /// assert_eq!(found.group(2), Some(&b"85"[..]));
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[cfg(feature = "regex")]
    pub fn regex(expression: &str) -> Result<Pattern, Error> {
        let made = regex::bytes::Regex::new(expression).map_err(|error| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, error);
            let operation = FailedOperation::Child("search the output with");
            Error::new(expression.as_ref(), operation, ErrorKind::InvalidInput, Some(source))
        });
        Ok(Pattern::Regex(Box::new(made?)))
    }

    /// Returns a pattern for a screen that passes the test (feature `screen`). The match takes all output.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, Pattern, Session};
    /// // Written from right to left: no text in the output is "hello".
    /// let mut session = Session::spawn(Command::new("printf").arg(r"\033[1;4Hlo\033[1;1Hhel"))?;
    /// session.expect(Pattern::screen(|screen| screen.contains("hello")))?;
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[cfg(feature = "screen")]
    #[must_use]
    pub fn screen(test: impl Fn(&Screen<'_>) -> bool + Send + Sync + 'static) -> Pattern {
        Pattern::Screen(ScreenTest(Box::new(test)))
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Pattern {
        Pattern::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Pattern {
        Pattern::Bytes(text.into_bytes())
    }
}

impl From<&[u8]> for Pattern {
    fn from(bytes: &[u8]) -> Pattern {
        Pattern::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Pattern {
    fn from(bytes: Vec<u8>) -> Pattern {
        Pattern::Bytes(bytes)
    }
}

impl fmt::Display for Pattern {
    /// Writes the pattern as an error names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Bytes(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Pattern::End => f.write_str("the end of the output"),
            Pattern::Timeout => f.write_str("the end of the time"),
            #[cfg(feature = "regex")]
            Pattern::Regex(expression) => write!(f, "/{}/", expression.as_str()),
            #[cfg(feature = "screen")]
            Pattern::Screen(_) => f.write_str("a screen"),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({self})")
    }
}

/// Returns the patterns in the words of an error.
pub(super) fn describe(patterns: &[Pattern]) -> String {
    let all: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    all.join(" or ")
}

/// The output that a wait has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// The place of the pattern in its list.
    pub index: usize,
    /// The output before the match, from the end of the previous one.
    pub before: Vec<u8>,
    /// The output that matched. Empty for the end, the timeout and a screen.
    pub matched: Vec<u8>,
    /// The number of bytes before `before` that were dropped, because more than 4 MiB were unread.
    pub dropped: u64,
    /// The groups of a regular expression in it.
    pub(super) groups: Vec<Option<Range<usize>>>,
}

impl Match {
    /// Returns the output before the match as text. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn before_text(&self) -> String {
        String::from_utf8_lossy(&self.before).into_owned()
    }

    /// Returns the output that matched as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.matched).into_owned()
    }

    /// Returns a group of a regular expression; 0 is the whole match.
    #[must_use]
    pub fn group(&self, number: usize) -> Option<&[u8]> {
        if number == 0 {
            return Some(&self.matched);
        }
        self.matched.get(self.groups.get(number - 1)?.clone()?)
    }
}
