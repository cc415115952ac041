//! A batch of whole lines of one stream, which are handed out one by one.

use pipewright_os::base::memory;

use crate::outcome::Source;
use crate::output::{Decoding, NotUtf8};

/// Whole lines, which are moved and searched only when their turn comes. The UTF-8 check is the exception: it is
/// done once for all lines.
#[derive(Debug)]
pub(super) struct Batch {
    text: Text,
    /// The start of the next line.
    at: usize,
    max_bytes: usize,
    /// True if part of the first line has been dropped.
    is_cut: bool,
}

#[derive(Debug)]
pub(super) enum Text {
    Utf8(String),
    /// Bytes that are not UTF-8, or not to be checked for it: each line is decoded on its own.
    Bytes(Vec<u8>),
}

/// A line inside the batch.
#[derive(Debug)]
pub(super) struct FoundLine<'a> {
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
    /// Returns a batch without lines.
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

    /// Returns the next line if it needs no special treatment. Otherwise returns `None` and changes nothing; call
    /// [`next`](Self::next). This is the fast path for most lines.
    #[inline]
    pub(super) fn next_plain(&mut self) -> Option<&str> {
        let Text::Utf8(text) = &self.text else { return None };
        let end = memory::find(text.as_bytes().get(self.at..)?, b'\n')?;
        if self.is_cut || end > self.max_bytes {
            return None;
        }
        let line = text.get(self.at..self.at + end)?;
        self.at += end + 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// Returns the next line, without its line end.
    pub(super) fn next(&mut self) -> Option<FoundLine<'_>> {
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
            // If bytes were dropped, a CR before the line feed did not follow what is left of the line.
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
        Some(FoundLine { content, truncated })
    }
}

impl FoundLine<'_> {
    /// Returns the line as a new string.
    pub(super) fn decode(&self, source: Source, decoding: Decoding) -> Result<String, NotUtf8> {
        match self.content {
            Content::Text(text) => Ok(text.to_owned()),
            Content::Bytes(bytes) if self.truncated => {
                decoding.decode(source, decoding.without_half_a_character(bytes).to_vec())
            }
            Content::Bytes(bytes) => decoding.decode(source, bytes.to_vec()),
        }
    }

    /// Decodes the line into an existing string.
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
