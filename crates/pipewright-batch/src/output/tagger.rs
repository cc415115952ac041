//! Lines with a tag before each.

/// The most bytes of a tag. A longer one is cut, because it is repeated for each line.
const MAX_TAG_BYTES: usize = 1 << 10;
/// The end of a tag that was cut.
const CUT: char = '…';
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
    /// Creates the tagger of a stream. Control characters become spaces, so that a line has one tag that ends at its first tab, and
    /// no tag moves a cursor. A tag that was cut ends with an ellipsis.
    pub(super) fn new(tag: &str) -> Tagger {
        let mut text: String = tag.replace(char::is_control, " ");
        if text.len() > MAX_TAG_BYTES {
            while text.len() > MAX_TAG_BYTES - CUT.len_utf8() {
                text.pop();
            }
            text.push(CUT);
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
