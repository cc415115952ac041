//! A line split into words by the quotes of a POSIX shell, without expansions.

use super::InputErrorKind;

/// Splits a line into words.
///
/// Single quotes keep everything. In double quotes a backslash escapes `$`, `` ` ``, `"`, `\` and a line end, and stays
/// before anything else. Outside of quotes it escapes any character. An escaped line end, which only a text that ends
/// with NUL can have, is removed.
pub(super) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, InputErrorKind> {
    let mut words = Vec::new();
    // `None` between words: `''` is a word too.
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' => words.extend(word.take()),
            b'\'' => single_quoted(&mut bytes, word.get_or_insert_default())?,
            b'"' => double_quoted(&mut bytes, word.get_or_insert_default())?,
            b'\\' => match bytes.next() {
                Some(b'\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err(InputErrorKind::TrailingBackslash),
            },
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(
    bytes: &mut impl Iterator<Item = u8>,
    word: &mut Vec<u8>,
) -> Result<(), InputErrorKind> {
    for byte in bytes {
        match byte {
            b'\'' => return Ok(()),
            byte => word.push(byte),
        }
    }
    Err(InputErrorKind::UnclosedQuote { quote: '\'' })
}

fn double_quoted(
    bytes: &mut impl Iterator<Item = u8>,
    word: &mut Vec<u8>,
) -> Result<(), InputErrorKind> {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return Ok(()),
            b'\\' => match bytes.next() {
                Some(b'\n') => {}
                Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => word.push(escaped),
                Some(other) => word.extend([b'\\', other]),
                None => break,
            },
            byte => word.push(byte),
        }
    }
    Err(InputErrorKind::UnclosedQuote { quote: '"' })
}
