//! JSON values as texts, numbers and names.

use std::ffi::OsString;
use std::time::Duration;

use super::Value;
use crate::job::os_string;
use crate::source::InputErrorKind;
use crate::units::{parse_duration, parse_size, whole};

const A_SIZE: &str = "a number of bytes, or a size such as 512M, 1.5GiB or 2GB";
const A_DURATION: &str = "a duration such as 200ms, 1.5s, 2m, 1h30m or 1d";

/// A value, and the name of the field that it is in.
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) value: Value,
}

type Converted<T> = Result<T, InputErrorKind>;

impl Field<'_> {
    /// Returns an error: the value is not the expected one.
    fn wrong<T>(&self, expected: &'static str) -> Converted<T> {
        Err(InputErrorKind::WrongField {
            field: self.name.to_owned(),
            expected,
            found: self.value.to_string(),
        })
    }

    /// Returns a string that names something: it is not empty.
    pub(super) fn name_text(self) -> Converted<String> {
        match self.value {
            Value::Text(text) if !text.is_empty() => Ok(text),
            _ => self.wrong("a string that is not empty"),
        }
    }

    /// Returns a text: a string, or bytes that are not Unicode.
    pub(super) fn bytes(self) -> Converted<Vec<u8>> {
        const EXPECTED: &str = "a string, or bytes as {\"hex\": \"00ff\"}";
        match self.value {
            Value::Text(text) => Ok(text.into_bytes()),
            Value::Object(fields) => {
                let hex = match &fields[..] {
                    [(name, Value::Text(hex))] if name == "hex" => bytes_of_hex(hex),
                    _ => None,
                };
                let value = Value::Object(fields);
                hex.map_or_else(|| Field { value, ..self }.wrong(EXPECTED), Ok)
            }
            _ => self.wrong(EXPECTED),
        }
    }

    /// Returns a text that is passed to a program.
    pub(super) fn os_string(self) -> Converted<OsString> {
        let bytes = self.bytes()?;
        if bytes.contains(&0) {
            return Err(InputErrorKind::NulByte);
        }
        Ok(os_string(bytes)?)
    }

    /// Returns a text that names a file.
    pub(super) fn path(self) -> Converted<OsString> {
        match &self.value {
            Value::Text(text) if text.is_empty() => self.wrong("a path"),
            _ => self.os_string(),
        }
    }

    pub(super) fn boolean(self) -> Converted<bool> {
        match self.value {
            Value::Bool(value) => Ok(value),
            _ => self.wrong("true or false"),
        }
    }

    /// Returns an integer of at least `least`, which is 0 or 1.
    pub(super) fn count(self, least: u32) -> Converted<u32> {
        let number = match self.value {
            Value::Whole(number) => u32::try_from(number).ok(),
            _ => None,
        };
        match number.filter(|number| *number >= least) {
            Some(number) => Ok(number),
            None if least == 0 => self.wrong("an integer from 0"),
            None => self.wrong("an integer from 1"),
        }
    }

    pub(super) fn size_bytes(self) -> Converted<u64> {
        let bytes = match &self.value {
            Value::Whole(bytes) => Some(*bytes),
            // Some writers write large integers as `2e9`.
            Value::Number(bytes) => whole(*bytes).filter(|whole| *whole as f64 == *bytes),
            Value::Text(text) => parse_size(text).ok(),
            _ => None,
        };
        bytes.map_or_else(|| self.wrong(A_SIZE), Ok)
    }

    /// Returns a size, or two as in `2G..16G`, of which the second is not less.
    pub(super) fn size_range(self) -> Converted<(u64, Option<u64>)> {
        let range = match &self.value {
            Value::Text(text) => text.split_once(".."),
            _ => None,
        };
        let Some((from, to)) = range else { return self.size_bytes().map(|bytes| (bytes, None)) };
        match parse_size(from).ok().zip(parse_size(to).ok()) {
            Some((from, to)) if from <= to => Ok((from, Some(to))),
            _ => self.wrong("a size, or two such as 2G..16G"),
        }
    }

    pub(super) fn duration(self) -> Converted<Duration> {
        let duration = match &self.value {
            Value::Whole(seconds) => Some(Duration::from_secs(*seconds)),
            Value::Number(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            Value::Text(text) => parse_duration(text).ok(),
            _ => None,
        };
        duration.map_or_else(|| self.wrong(A_DURATION), Ok)
    }

    /// Converts each item of an array.
    pub(super) fn items<T>(
        self,
        expected: &'static str,
        convert: impl Fn(Field<'_>) -> Converted<T>,
    ) -> Converted<Vec<T>> {
        let Value::Array(items) = self.value else { return self.wrong(expected) };
        let items = items.into_iter().enumerate().map(|(index, value)| {
            let name = format!("{}[{index}]", self.name);
            convert(Field { name: &name, value })
        });
        items.collect()
    }

    /// Converts each field of an object. Its names are not empty, and none occurs twice.
    pub(super) fn fields<T>(
        self,
        expected: &'static str,
        convert: impl Fn(Field<'_>) -> Converted<T>,
    ) -> Converted<Vec<(String, T)>> {
        let Value::Object(fields) = self.value else { return self.wrong(expected) };
        let mut converted: Vec<(String, T)> = Vec::new();
        for (key, value) in fields {
            let name = format!("{}.{key}", self.name);
            if converted.iter().any(|(earlier, _)| *earlier == key) {
                return Err(InputErrorKind::RepeatedField { field: name });
            }
            let value = convert(Field { name: &name, value })?;
            converted.push((key, value));
        }
        Ok(converted)
    }
}

/// Returns the bytes of pairs of hexadecimal digits.
fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}
