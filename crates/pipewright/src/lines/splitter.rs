//! Whole lines of one stream: found in the chunks that arrive, and handed out one by one. Pure, without system calls.

use pipewright_os::base::memory;

use crate::outcome::Source;
use crate::output::{Decoding, NotUtf8};

/// Finds the whole lines of one stream in the chunks that arrive.
///
/// The whole lines of a chunk become a [`Batch`]. The bytes after the last line end wait for the next chunk. Only
/// the start of a line longer than the maximum is kept and the rest is dropped, so memory stays bounded.
#[derive(Debug)]
pub(super) struct Splitter {
    max_bytes: usize,
    /// The bytes after the batch that is being handed out.
    tail: Vec<u8>,
    /// The length of the part of the buffer that is known to have no line end.
    searched: usize,
    /// True if the line at the start of the buffer exceeds the maximum: bytes are dropped up to its end.
    skipping: bool,
}

impl Splitter {
    /// Makes a splitter; `None` means no maximum.
    pub(super) fn new(max_bytes: Option<usize>) -> Splitter {
        let max_bytes = max_bytes.unwrap_or(usize::MAX);
        Splitter { max_bytes, tail: Vec::new(), searched: 0, skipping: false }
    }

    /// Returns the whole lines of the buffer, which begins with the rest of the last one, or returns the buffer if
    /// it has none. At the end of the stream, the last line may lack its line end.
    pub(super) fn split(
        &mut self,
        mut buffer: Vec<u8>,
        at_end: bool,
        as_text: bool,
    ) -> Result<Batch, Vec<u8>> {
        if !at_end {
            let unsearched = buffer.get(self.searched..).unwrap_or_default();
            let Some(last) = memory::find_last(unsearched, b'\n') else {
                self.drop_excess(&mut buffer);
                return Err(buffer);
            };
            let end = self.searched + last + 1;
            self.tail.extend_from_slice(buffer.get(end..).unwrap_or_default());
            buffer.truncate(end);
        } else if buffer.is_empty() && !self.skipping {
            return Err(buffer);
        }
        let is_cut = std::mem::take(&mut self.skipping);
        let text = if as_text { Text::of(buffer) } else { Text::Bytes(buffer) };
        Ok(Batch::new(text, self.max_bytes, is_cut))
    }

    /// Returns the buffer of a batch that was handed out, now holding the bytes after the batch.
    pub(super) fn reclaim(&mut self, batch: Batch) -> Vec<u8> {
        let mut buffer = batch.into_buffer();
        buffer.clear();
        buffer.append(&mut self.tail);
        self.drop_excess(&mut buffer);
        buffer
    }

    /// Drops the excess of an unfinished line over the maximum. A CR right after the maximum stays: it may be half
    /// of the line's end.
    fn drop_excess(&mut self, buffer: &mut Vec<u8>) {
        if buffer.len() > self.max_bytes {
            let may_be_half_an_end = buffer.get(self.max_bytes..) == Some(b"\r");
            if self.skipping || !may_be_half_an_end {
                self.skipping = true;
                buffer.truncate(self.max_bytes);
            }
        }
        self.searched = buffer.len();
    }
}

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

    fn into_buffer(self) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Lines = Vec<(String, bool)>;

    /// Splits text that arrives in pieces of these lengths, in a cycle. Also returns the largest length of the
    /// buffer.
    fn split(text: &[u8], pieces: &[usize], max: Option<usize>) -> (Lines, usize) {
        let mut splitter = Splitter::new(max);
        let (mut buffer, mut lines, mut most) = (Vec::new(), Vec::new(), 0);
        let mut pieces = pieces.iter().cycle();
        let mut rest = text;
        loop {
            let piece = pieces.next().map_or(1, |piece| (*piece).clamp(1, rest.len().max(1)));
            let (now, later) = rest.split_at(piece.min(rest.len()));
            let at_end = now.is_empty();
            rest = later;
            buffer.extend_from_slice(now);
            most = most.max(buffer.len());
            buffer = match splitter.split(buffer, at_end, rest.len() % 2 == 0) {
                Ok(mut batch) => {
                    loop {
                        if let Some(text) = batch.next_plain() {
                            lines.push((text.to_owned(), false));
                            continue;
                        }
                        let Some(found) = batch.next() else { break };
                        let text = found.decode(Source::Stdout, Decoding::default()).unwrap();
                        lines.push((text, found.truncated));
                    }
                    splitter.reclaim(batch)
                }
                Err(buffer) => buffer,
            };
            if at_end {
                return (lines, most);
            }
        }
    }

    /// Returns std's lines of the same text.
    fn by_std(text: &str, max: Option<usize>) -> Lines {
        let max = max.unwrap_or(usize::MAX);
        let cut = |line: &str| {
            let mut most = line.len().min(max);
            while !line.is_char_boundary(most) {
                most -= 1;
            }
            (line[..most].to_owned(), line.len() > max)
        };
        text.split_inclusive('\n')
            .map(|line| match line.strip_suffix('\n') {
                Some(line) => cut(line.strip_suffix('\r').unwrap_or(line)),
                None => cut(line),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_text_is_cut(
            text in "[a\r\n\u{e9}\u{1f600}]{0,200}",
            pieces in prop::collection::vec(1_usize..20, 1..10),
            max in prop::option::of(0_usize..12),
        ) {
            let (lines, _) = split(text.as_bytes(), &pieces, max);
            prop_assert_eq!(lines, by_std(&text, max));
        }

        #[test]
        fn invalid_utf8_is_replaced_only_in_its_own_line(
            bytes in prop::collection::vec(prop::sample::select(&b"a\xc3\xa9\xff\r\n"[..]), 0..100),
            pieces in prop::collection::vec(1_usize..20, 1..10),
        ) {
            let (lines, _) = split(&bytes, &pieces, None);
            let lossy: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            let lossy: Lines = lossy
                .iter()
                .flat_map(|line| by_std(&String::from_utf8_lossy(line), None))
                .collect();
            prop_assert_eq!(lines, lossy);
        }
    }

    #[test]
    fn a_line_without_end_keeps_memory_bounded() {
        let text = vec![b'x'; 1 << 20];
        let (lines, most) = split(&text, &[1000], Some(50));
        assert_eq!(lines, [("x".repeat(50), true)]);
        assert!(most <= 1051, "{most}");
    }

    #[test]
    fn a_carriage_return_just_past_the_maximum_is_not_excess() {
        for pieces in [&[5][..], &[6], &[7], &[1]] {
            let (lines, _) = split(b"12345\r\nx", pieces, Some(5));
            assert_eq!(lines[0], ("12345".to_owned(), false), "{pieces:?}");
            let (lines, _) = split(b"12345\rx\n", pieces, Some(5));
            assert_eq!(lines[0], ("12345".to_owned(), true), "{pieces:?}");
        }
    }

    #[test]
    fn a_zero_maximum_gives_empty_truncated_lines() {
        let (lines, _) = split(b"abc", &[1], Some(0));
        assert_eq!(lines, [(String::new(), true)]);
    }
}
