//! Values of options: durations, sizes, counts, modes, signals and names of choices.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};
use pipewright::Signal;
use pipewright_batch::{UnitError, parse_duration, parse_size};

/// A duration, and its text on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) duration: Duration,
    text: String,
}

impl Span {
    /// Returns the duration as a limit; zero is no limit, as in `timeout` of coreutils.
    pub(crate) fn as_limit(&self) -> Option<Duration> {
        Some(self.duration).filter(|duration| !duration.is_zero())
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let duration = parse_duration(text).map_err(|error| wrong(text, error))?;
        Ok(Span { duration, text: text.to_owned() })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        // A bare number is shown as seconds.
        if self.text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
            f.write_str("s")
        } else {
            Ok(())
        }
    }
}

/// Returns the message for a text that has no unit of ours.
pub(super) fn wrong(text: &str, error: UnitError) -> String {
    format!("\"{text}\" is {error}")
}

/// Parses a number of bytes.
pub(super) fn parse_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| wrong(text, error))?;
    usize::try_from(bytes).map_err(|_| wrong(text, UnitError::TooLarge))
}

/// Parses a size of at least one byte.
pub(super) fn parse_some_bytes(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        0 => Err("must be at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a count, such as that of retries.
pub(super) fn parse_count(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(count) if digits => Ok(count),
        _ if digits => Err(format!("\"{text}\" is too large")),
        _ => Err(format!("\"{text}\" is not a whole number: write 0, 1, 2 ...")),
    }
}

/// Parses the permissions of a umask.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| format!("\"{text}\" is not a mode: write 022 or 077"))
}

/// The largest number that can have a name.
const LAST_NAMED: i32 = 64;

/// A parser that takes names, with or without `SIG`, and numbers. It lists the names for completion.
#[derive(Debug, Clone)]
pub(super) struct SignalParser;

impl TypedValueParser for SignalParser {
    type Value = Signal;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Signal, Error> {
        let parse = |text: &str| {
            text.parse::<Signal>().map_err(|error| format!("{error}: write TERM, INT, HUP or 15"))
        };
        TypedValueParser::parse_ref(&parse, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let names = (1..=LAST_NAMED).filter_map(|number| Signal::from_number(number)?.name());
        Some(Box::new(names.map(|name| PossibleValue::new(name.trim_start_matches("SIG")))))
    }
}

/// Returns a parser of names, with a help text for each value.
pub(super) fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let possible =
        choices.iter().map(move |(value, help)| PossibleValue::new(name(*value)).help(*help));
    PossibleValuesParser::new(possible).try_map(move |typed| {
        let found = choices.iter().map(|(value, _)| *value).find(|value| name(*value) == typed);
        // Never: clap has compared the name with these.
        found.ok_or("it is not one of the names")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_text_and_the_forms_that_are_right() {
        let error = "soon".parse::<Span>().unwrap_err();
        assert_eq!(error, "\"soon\" is not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d");
        assert_eq!("9e99d".parse::<Span>().unwrap_err(), "\"9e99d\" is too long");
        assert_eq!(
            parse_bytes("k"),
            Err("\"k\" is not a size: write 4096, 64k, 1MiB or 2GB".to_owned())
        );
        assert_eq!(parse_some_bytes("0"), Err("must be at least 1 byte".to_owned()));
    }

    #[test]
    fn a_bare_number_is_shown_as_seconds() {
        for (text, shown) in [("3", "3s"), ("1.", "1.s"), ("1h30m", "1h30m")] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(
            (parse_mode("022"), parse_mode("0"), parse_mode("777")),
            (Ok(0o22), Ok(0), Ok(0o777))
        );
        for text in ["", "8", "-1", "+7", "1000", "u=rwx"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_count_is_digits() {
        assert_eq!(parse_count("30"), Ok(30));
        for text in ["", "abc", "-1", "+1", "1.5", "1k"] {
            let words = format!("\"{text}\" is not a whole number: write 0, 1, 2 ...");
            assert_eq!(parse_count(text), Err(words));
        }
        assert_eq!(parse_count("99999999999"), Err("\"99999999999\" is too large".to_owned()));
    }

    #[test]
    fn every_name_that_is_offered_parses() {
        let names: Vec<_> = SignalParser.possible_values().unwrap().collect();
        for name in &names {
            assert!(name.get_name().parse::<Signal>().is_ok(), "{name:?}");
        }
        for usual in ["TERM", "INT", "HUP", "KILL"] {
            assert!(names.iter().any(|name| name.get_name() == usual), "{usual}");
        }
    }
}
