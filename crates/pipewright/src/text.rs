//! The conversion of bytes to text.

use std::ffi::OsStr;
#[cfg(feature = "encoding")]
use std::io;

use crate::error::{Error, ErrorKind, FailedOperation};
use crate::outcome::Source;
use crate::output::{Capture, Output};

/// The rules by which a stream is decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decoding {
    strict: bool,
    #[cfg(feature = "encoding")]
    encoding: Option<&'static encoding_rs::Encoding>,
}

/// A stream that is not valid UTF-8, and the offset of its first invalid byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotUtf8 {
    pub(crate) source: Source,
    pub(crate) offset: usize,
}

impl Decoding {
    pub(crate) fn make_strict(&mut self) {
        self.strict = true;
    }

    #[cfg(feature = "encoding")]
    pub(crate) fn use_encoding(&mut self, encoding: &'static encoding_rs::Encoding) {
        self.encoding = Some(encoding);
    }

    /// Returns true if anything but the default is set.
    pub(crate) fn is_set(self) -> bool {
        #[cfg(feature = "encoding")]
        if self.encoding.is_some() {
            return true;
        }
        self.strict
    }

    /// Fails if lines cannot be found before they are decoded: in some encodings a byte 10 can be part of another
    /// character.
    pub(crate) fn check_splits_at_line_feeds(self, program: &OsStr) -> Result<(), Error> {
        #[cfg(feature = "encoding")]
        if self.encoding.is_some_and(|encoding| !encoding.is_ascii_compatible()) {
            let message = "lines need an encoding that is compatible with ASCII";
            let source = io::Error::new(io::ErrorKind::InvalidInput, message);
            return Err(Error::new(
                program,
                FailedOperation::Start,
                ErrorKind::InvalidInput,
                Some(source),
            ));
        }
        let _ = program;
        Ok(())
    }

    /// Returns true if UTF-8 needs no conversion.
    pub(crate) fn is_utf8(self) -> bool {
        #[cfg(feature = "encoding")]
        return self.encoding.is_none();
        #[cfg(not(feature = "encoding"))]
        true
    }

    /// Drops an incomplete character at the end of bytes that were cut off.
    pub(crate) fn without_half_a_character(self, bytes: &[u8]) -> &[u8] {
        let is_first = |byte: &u8| *byte & 0xc0 != 0x80;
        // A character has at most four bytes.
        let last = bytes.iter().rev().take(4).position(is_first).map(|back| bytes.len() - 1 - back);
        let Some((whole, last)) = last.and_then(|last| bytes.split_at_checked(last)) else {
            return bytes;
        };
        let length = match last.first() {
            Some(0xc2..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..=0xf4) => 4,
            _ => 1,
        };
        if self.is_utf8() && last.len() < length { whole } else { bytes }
    }

    /// Decodes a whole stream. Valid UTF-8 keeps its allocation.
    pub(crate) fn decode(self, source: Source, bytes: Vec<u8>) -> Result<String, NotUtf8> {
        #[cfg(feature = "encoding")]
        if let Some(encoding) = self.encoding {
            return self.decode_from(encoding, source, &bytes);
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) if self.strict => {
                Err(NotUtf8 { source, offset: error.utf8_error().valid_up_to() })
            }
            Err(error) => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        }
    }

    /// Decodes the part of a stream that a limit kept. The limit may have cut a character at either edge. That is not
    /// an error of the stream, so strict text drops the incomplete character.
    pub(crate) fn decode_cut(self, source: Source, bytes: Vec<u8>) -> Result<String, NotUtf8> {
        if !self.strict || !self.is_utf8() {
            return self.decode(source, bytes);
        }
        let is_later = |byte: &&u8| **byte & 0xc0 == 0x80;
        let half_bytes = bytes.iter().take(3).take_while(is_later).count();
        let rest = bytes.get(half_bytes..).unwrap_or_default();
        self.decode(source, self.without_half_a_character(rest).to_owned())
            .map_err(|bad| NotUtf8 { offset: bad.offset + half_bytes, ..bad })
    }

    #[cfg(feature = "encoding")]
    fn decode_from(
        self,
        encoding: &'static encoding_rs::Encoding,
        source: Source,
        bytes: &[u8],
    ) -> Result<String, NotUtf8> {
        let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
        if self.strict && had_errors {
            return Err(NotUtf8 { source, offset: valid_up_to(encoding, bytes) });
        }
        Ok(text.into_owned())
    }
}

/// Decodes a captured output of this program.
pub(crate) fn into_text(
    program: &OsStr,
    decoding: Decoding,
    output: Output,
) -> Result<Capture, Error> {
    let written = [output.stdout_bytes, output.stderr_bytes];
    let decode = |source, bytes: Vec<u8>| {
        let is_cut = written[source as usize].is_some_and(|written| written > bytes.len() as u64);
        if is_cut { decoding.decode_cut(source, bytes) } else { decoding.decode(source, bytes) }
    };
    output.try_map(decode).map_err(|bad| {
        let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
        Error::new(program, FailedOperation::Child("decode the output of"), kind, None)
    })
}

/// Returns the offset of the first byte that is invalid in the encoding.
#[cfg(feature = "encoding")]
fn valid_up_to(encoding: &'static encoding_rs::Encoding, bytes: &[u8]) -> usize {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(bytes.len() * 3 + 16);
    let (result, read) = decoder.decode_to_string_without_replacement(bytes, &mut text, true);
    match result {
        encoding_rs::DecoderResult::Malformed(length, after) => {
            read - usize::from(length) - usize::from(after)
        }
        _ => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_lossy_by_default_and_strict_on_request() {
        let bytes = b"caf\xc3\xa9 \xff!".to_vec();
        let lossy = Decoding::default().decode(Source::Stdout, bytes.clone());
        assert_eq!(lossy.as_deref(), Ok("caf\u{e9} \u{fffd}!"));
        let mut strict = Decoding::default();
        strict.make_strict();
        let refused = NotUtf8 { source: Source::Stderr, offset: 6 };
        assert_eq!(strict.decode(Source::Stderr, bytes), Err(refused));
    }

    #[test]
    fn strict_text_drops_an_incomplete_character_at_a_cut() {
        let mut strict = Decoding::default();
        strict.make_strict();
        let cut = |bytes: &[u8]| strict.decode_cut(Source::Stdout, bytes.to_owned());
        for text in ["caf\u{e9}", "\u{1f600}\u{1f600}", "plain", ""] {
            for (from, to) in (0..=text.len()).flat_map(|to| (0..=to).map(move |from| (from, to))) {
                let whole = cut(&text.as_bytes()[from..to]).unwrap();
                assert!(
                    text.contains(&whole) && whole.len() + 6 >= to - from,
                    "{text} {from} {to}"
                );
            }
        }
        let refused = NotUtf8 { source: Source::Stdout, offset: 4 };
        assert_eq!(cut(b"\xa9ab \xff \xc3"), Err(refused));
    }

    #[cfg(feature = "encoding")]
    #[test]
    fn another_encoding_is_decoded_and_its_errors_have_offsets() {
        let mut decoding = Decoding::default();
        decoding.use_encoding(encoding_rs::SHIFT_JIS);
        let decode =
            |decoding: Decoding, bytes: &[u8]| decoding.decode(Source::Stdout, bytes.into());
        assert_eq!(decode(decoding, b"\x83e\x83X\x83g").as_deref(), Ok("\u{30c6}\u{30b9}\u{30c8}"));
        decoding.make_strict();
        assert_eq!(decode(decoding, b"ab\xff").unwrap_err().offset, 2);
    }
}
