//! The parts that the error types of all crates share: one-line texts, and the traits of an error.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Text from elsewhere on one bounded line, without commands for a terminal.
///
/// Trailing white space is dropped, every control character is escaped, and text beyond 500 characters is
/// replaced by `...`.
///
/// ```
/// # use pipewright_os::base::error::OneLine;
/// assert_eq!(OneLine("no\tdisk\r\n\x1b[31mat all\n").to_string(), r"no\tdisk\r\n\u{1b}[31mat all");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_CHARS: usize = 500;
        let text = self.0.trim_end();
        let cut = text.char_indices().nth(MAX_CHARS);
        let kept = cut.and_then(|(end, _)| text.get(..end));
        write_escaped(kept.unwrap_or(text), f)?;
        if kept.is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// A file name or path in quotes, with its control characters escaped. Of a long one, `...` replaces the middle: the start and
/// the end of a path say most, and at most 500 characters remain.
///
/// ```
/// # use pipewright_os::base::error::Quoted;
/// assert_eq!(Quoted("a\nb".as_ref()).to_string(), r#""a\nb""#);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a OsStr);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The characters that remain at each end of a long name.
        const END_CHARS: usize = 248;
        let name = self.0.to_string_lossy();
        let starts = || name.char_indices().map(|(start, _)| start);
        f.write_str("\"")?;
        match (starts().nth(END_CHARS), starts().rev().nth(END_CHARS - 1)) {
            (Some(head), Some(tail)) if name.get(head..tail).is_some_and(is_long) => {
                write_escaped(name.get(..head).unwrap_or_default(), f)?;
                f.write_str("...")?;
                write_escaped(name.get(tail..).unwrap_or_default(), f)?;
            }
            _ => write_escaped(&name, f)?,
        }
        f.write_str("\"")
    }
}

/// Returns true if `...` is shorter.
fn is_long(middle: &str) -> bool {
    middle.chars().count() > "...".len()
}

fn write_escaped(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|character| match character.is_control() {
        true => write!(f, "{}", character.escape_default()),
        false => fmt::Write::write_char(f, character),
    })
}

/// Writes a message and, in parentheses, the number of the system's error.
///
/// # Errors
/// The formatter's.
pub fn write_numbered(
    message: &str,
    source: Option<&io::Error>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.write_str(message)?;
    match source.and_then(io::Error::raw_os_error) {
        Some(number) => write!(f, " (os error {number})"),
        None => Ok(()),
    }
}

/// A value that an error type keeps as its source.
pub trait AsSource {
    /// Returns the error itself, so that callers can downcast it.
    fn as_source(&self) -> &(dyn Error + 'static);
}

impl AsSource for io::Error {
    fn as_source(&self) -> &(dyn Error + 'static) {
        self
    }
}

impl AsSource for Arc<dyn Error + Send + Sync> {
    fn as_source(&self) -> &(dyn Error + 'static) {
        &**self
    }
}

/// Implements `Debug`, `std::error::Error` and the conversion to `io::Error` for a crate's error type.
///
/// The type is a struct around a pointer to its facts, among them `kind` and `source: Option<impl AsSource>`. It
/// has a method `io_kind(&self) -> io::ErrorKind`, which chooses the kind of the converted error.
#[macro_export]
macro_rules! impl_error {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct("Error")
                    .field("message", &::std::format_args!("{self}"))
                    .field("kind", &self.0.kind)
                    .field("source", &self.0.source)
                    .finish()
            }
        }

        impl ::std::error::Error for $error {
            fn source(&self) -> Option<&(dyn ::std::error::Error + 'static)> {
                self.0.source.as_ref().map($crate::base::error::AsSource::as_source)
            }
        }

        impl From<$error> for ::std::io::Error {
            /// Wraps the whole error, under the kind of std that is closest.
            fn from(error: $error) -> ::std::io::Error {
                ::std::io::Error::new(error.io_kind(), error)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_control_characters_stays_on_one_line() {
        let name = OsStr::new("a\nb\0\x1b[31m\u{e9}\"");
        assert_eq!(Quoted(name).to_string(), "\"a\\nb\\u{0}\\u{1b}[31m\u{e9}\"\"");
    }

    #[test]
    fn the_middle_of_a_long_name_is_left_out() {
        let name = |characters: usize| format!("/{}", "\u{e9}".repeat(characters - 1));
        for fits in [1, 247, 248, 249, 499] {
            let name = name(fits);
            assert_eq!(Quoted(name.as_ref()).to_string(), format!("\"{name}\""));
        }
        for long in [500, 501, 5000, 100_000] {
            let (start, end) = (name(248), "\u{e9}".repeat(248));
            let shown = Quoted(name(long).as_ref()).to_string();
            assert_eq!(shown, format!("\"{start}...{end}\""), "{long}");
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(OneLine(&"\u{e9}".repeat(500)).to_string(), "\u{e9}".repeat(500));
        let long = OneLine(&"\u{e9}".repeat(501)).to_string();
        assert_eq!(long, format!("{}...", "\u{e9}".repeat(500)));
    }

    #[test]
    fn a_shared_source_can_be_downcast() {
        let source: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::from_raw_os_error(2));
        assert!(source.as_source().downcast_ref::<io::Error>().is_some());
    }
}
