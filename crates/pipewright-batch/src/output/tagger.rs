//! Lines with a tag before each.

/// The most bytes of a tag. A longer one is cut, because it is repeated for each line.
const MAX_TAG_BYTES: usize = 1 << 10;
/// The length from which a piece of tagged output is passed on.
const PIECE_BYTES: usize = 16 << 10;

/// Puts a tag and a tab before each line of a stream.
#[derive(Debug)]
pub(super) struct Tagger {
    /// The tag and the tab.
    prefix: Box<[u8]>,
    is_in_line: bool,
}

impl Tagger {
    /// Creates the tagger of a stream. White space other than a space becomes a space, so that a line has one tag that ends at
    /// its first tab.
    pub(super) fn new(tag: &str) -> Tagger {
        let mut text: String = tag.replace(|one: char| one.is_ascii_control(), " ");
        while text.len() > MAX_TAG_BYTES {
            text.pop();
        }
        text.push('\t');
        Tagger { prefix: text.into_bytes().into(), is_in_line: false }
    }

    /// Calls `emit` with the tagged bytes, in pieces.
    pub(super) fn tag<E>(
        &mut self,
        bytes: &[u8],
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tagged = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_in_line {
                tagged.extend_from_slice(&self.prefix);
            }
            self.is_in_line = !line.ends_with(b"\n");
            tagged.extend_from_slice(line);
            if tagged.len() >= PIECE_BYTES {
                emit(&tagged)?;
                tagged.clear();
            }
        }
        if tagged.is_empty() { Ok(()) } else { emit(&tagged) }
    }
}
