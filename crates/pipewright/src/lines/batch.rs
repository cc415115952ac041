//! Whole lines of one stream, as they are handed out one by one.

use pipewright_os::base::memory;

use crate::outcome::Source;
use crate::text::{Decoding, NotUtf8};

/// Whole lines. None of them is moved or looked at before it is its turn, but for one thing: that
/// all of it is text is found out once, for all lines together.
#[derive(Debug)]
pub(super) struct Batch {
    text: Text,
    /// Where the next line starts.
    at: usize,
    max_bytes: usize,
    /// Of the first line something is missing already.
    is_cut: bool,
}

#[derive(Debug)]
pub(super) enum Text {
    Utf8(String),
    /// Not UTF-8, or not asked for: each line is decoded by itself.
    Bytes(Vec<u8>),
}

/// A line where it stands.
#[derive(Debug)]
pub(super) struct Found<'a> {
    content: Content<'a>,
    pub(super) truncated: bool,
}

#[derive(Debug)]
enum Content<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Text {
    pub(super) fn of(buffer: Vec<u8>) -> Text {
        match String::from_utf8(buffer) {
            Ok(text) => Text::Utf8(text),
            Err(error) => Text::Bytes(error.into_bytes()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Utf8(text) => text.as_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }
}

impl Default for Batch {
    /// No lines.
    fn default() -> Batch {
        Batch::new(Text::Bytes(Vec::new()), usize::MAX, false)
    }
}

impl Batch {
    pub(super) fn new(text: Text, max_bytes: usize, is_cut: bool) -> Batch {
        Batch { text, at: 0, max_bytes, is_cut }
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self.text {
            Text::Utf8(text) => text.into_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }

    /// The next line, where nothing about it is special; `None` leaves everything as it is, and
    /// [`next`](Self::next) knows more. Most lines come this way, and the way is short.
    #[inline]
    pub(super) fn next_ordinary(&mut self) -> Option<&str> {
        let Text::Utf8(text) = &self.text else { return None };
        let end = memory::find(text.as_bytes().get(self.at..)?, b'\n')?;
        if self.is_cut || end > self.max_bytes {
            return None;
        }
        let line = text.get(self.at..self.at + end)?;
        self.at += end + 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// The next line, without its end.
    pub(super) fn next(&mut self) -> Option<Found<'_>> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..)?;
        if rest.is_empty() && !self.is_cut {
            return None;
        }
        let end = memory::find(rest, b'\n');
        self.at += end.map_or(rest.len(), |end| end + 1);
        let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
        let is_cut = std::mem::take(&mut self.is_cut);
        let line = match line.strip_suffix(b"\r") {
            // Where bytes have been skipped, what stands before the line feed now did not then.
            Some(line) if end.is_some() && !is_cut => line,
            _ => line,
        };
        let truncated = is_cut || line.len() > self.max_bytes;
        let content = match &self.text {
            Text::Bytes(_) => Content::Bytes(line.get(..self.max_bytes).unwrap_or(line)),
            Text::Utf8(text) => {
                let mut kept = line.len().min(self.max_bytes);
                while !text.is_char_boundary(start + kept) {
                    kept -= 1;
                }
                Content::Text(text.get(start..start + kept).unwrap_or_default())
            }
        };
        Some(Found { content, truncated })
    }
}

impl Found<'_> {
    /// The line as a string of its own.
    pub(super) fn decode(&self, source: Source, decoding: Decoding) -> Result<String, NotUtf8> {
        match self.content {
            Content::Text(text) => Ok(text.to_owned()),
            Content::Bytes(bytes) if self.truncated => {
                decoding.decode(source, decoding.without_half_a_character(bytes).to_vec())
            }
            Content::Bytes(bytes) => decoding.decode(source, bytes.to_vec()),
        }
    }

    /// The same in a string that is there already.
    pub(super) fn decode_into(
        &self,
        source: Source,
        decoding: Decoding,
        text: &mut String,
    ) -> Result<(), NotUtf8> {
        match self.content {
            Content::Text(line) => {
                text.clear();
                text.push_str(line);
            }
            Content::Bytes(_) => *text = self.decode(source, decoding)?,
        }
        Ok(())
    }
}
