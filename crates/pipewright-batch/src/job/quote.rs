//! Commands as text that a shell reads back to the same words.

use std::ffi::OsString;

/// Returns the words as a line for a POSIX shell, which reads it back to exactly these words.
///
/// Words of plain characters stay as they are. The others are put in single quotes. The bytes of a word are kept, so the
/// line is text only if all words are.
///
/// ```
/// use pipewright_batch::shell_quoted;
/// let line = shell_quoted(&["echo".into(), "it's".into(), "a b".into(), "".into()]);
/// assert_eq!(line, br"echo 'it'\''s' 'a b' ''");
/// ```
#[must_use]
pub fn shell_quoted(words: &[OsString]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        push_quoted(&mut line, word.as_encoded_bytes(), index == 0);
    }
    line
}

fn push_quoted(line: &mut Vec<u8>, word: &[u8], is_first: bool) {
    let is_plain = !word.is_empty() && word.iter().all(|byte| is_plain(*byte, is_first));
    if is_plain && !(is_first && RESERVED.contains(&word)) {
        line.extend_from_slice(word);
        return;
    }
    line.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => line.extend_from_slice(br"'\''"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
}

/// Returns the words of a line that [`shell_quoted`] has made. `None`: it has not made this one.
pub(super) fn words_of_quoted(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut word) = (Vec::new(), Vec::new());
    let mut rest = line;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b' ' => words.push(std::mem::take(&mut word)),
            b'\'' => {
                let end = rest.iter().position(|byte| *byte == b'\'')?;
                word.extend_from_slice(rest.get(..end)?);
                rest = rest.get(end + 1..)?;
            }
            b'\\' => {
                let (quote, after) = rest.split_first().filter(|(quote, _)| **quote == b'\'')?;
                word.push(*quote);
                rest = after;
            }
            plain => word.push(*plain),
        }
    }
    words.push(word);
    Some(words)
}

/// Returns true for a character that no shell gives a meaning. In the first word an equals sign has one: `A=1` is an
/// assignment.
fn is_plain(byte: u8, is_first: bool) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:,+@".contains(&byte) || (byte == b'=' && !is_first)
}

/// The words of plain characters that are no commands in the first place. Bash and Zsh have more than POSIX.
const RESERVED: [&[u8]; 22] = [
    b"case",
    b"coproc",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"end",
    b"esac",
    b"fi",
    b"for",
    b"foreach",
    b"function",
    b"if",
    b"in",
    b"namespace",
    b"nocorrect",
    b"repeat",
    b"select",
    b"then",
    b"time",
    b"until",
    b"while",
];

#[cfg(test)]
mod tests;
