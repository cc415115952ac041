//! Lines with a tag before each: a tab behind it in a file, and a column in the colour of the job on a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pipewright::Source;
use unicode_width::UnicodeWidthStr as _;

/// The most bytes of a tag. A longer one is cut, because it is repeated for each line.
const MAX_TAG_BYTES: usize = 1 << 10;
/// The end of a tag that was cut.
const CUT: char = '…';
/// The length from which a piece of tagged output is passed on.
const PIECE_BYTES: usize = 16 << 10;
/// The widest column of tags. A wider tag is whole, and moves its own lines only.
const MOST_COLUMNS: usize = 32;
/// The colours of jobs, as numbers of SGR. Red is for failures.
const COLORS: [&str; 5] = ["36", "33", "35", "32", "34"];

/// The way in which one stream shows tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TagStyle {
    /// The tag and a tab: for files and programs.
    #[default]
    Tab,
    /// A column as wide as the widest tag so far: for terminals.
    Column { is_colored: bool },
}

/// The styles of both streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct TagStyles {
    pub(crate) stdout: TagStyle,
    pub(crate) stderr: TagStyle,
    /// The columns of the widest tag so far, up to [`MOST_COLUMNS`].
    widest: Arc<AtomicUsize>,
}

impl TagStyles {
    pub(crate) fn new(stdout: TagStyle, stderr: TagStyle) -> TagStyles {
        TagStyles { stdout, stderr, widest: Arc::default() }
    }

    /// Returns the style of a stream, and the width of its column.
    pub(super) fn of(&self, source: Source) -> (TagStyle, Arc<AtomicUsize>) {
        let style = if source == Source::Stdout { self.stdout } else { self.stderr };
        (style, Arc::clone(&self.widest))
    }
}

/// Puts a tag before each line of a stream.
#[derive(Debug)]
pub(super) struct Tagger {
    /// The tag and what is behind it, but for the blanks of the column.
    prefix: Box<[u8]>,
    column: Option<Column>,
    is_in_line: bool,
}

/// The column that a tag stands in.
#[derive(Debug)]
struct Column {
    columns: usize,
    widest: Arc<AtomicUsize>,
}

impl Tagger {
    /// Creates the tagger of a stream. Control characters become spaces, so that a line has one tag that ends at its
    /// first tab, and no tag moves a cursor. A tag that was cut ends with an ellipsis.
    pub(super) fn new(
        tag: &str,
        job: u64,
        (style, widest): (TagStyle, Arc<AtomicUsize>),
    ) -> Tagger {
        let mut text: String = tag.replace(char::is_control, " ");
        if text.len() > MAX_TAG_BYTES {
            while text.len() > MAX_TAG_BYTES - CUT.len_utf8() {
                text.pop();
            }
            text.push(CUT);
        }
        let column = match style {
            TagStyle::Tab => {
                text.push('\t');
                None
            }
            TagStyle::Column { is_colored } => {
                let columns = text.width();
                widest.fetch_max(columns.min(MOST_COLUMNS), Ordering::Relaxed);
                let color =
                    job.checked_rem(COLORS.len() as u64).and_then(|at| COLORS.get(at as usize));
                if let Some(color) = color.filter(|_| is_colored) {
                    text = format!("\x1b[{color}m{text}\x1b[0m");
                }
                Some(Column { columns, widest })
            }
        };
        Tagger { prefix: text.into_bytes().into(), column, is_in_line: false }
    }

    /// Calls `emit` with the tagged bytes, in pieces.
    pub(super) fn tag<E>(
        &mut self,
        bytes: &[u8],
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let blanks = self.column.as_ref().map_or(0, |column| {
            let widest = column.widest.load(Ordering::Relaxed);
            2 + widest.saturating_sub(column.columns)
        });
        let mut tagged = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_in_line {
                tagged.extend_from_slice(&self.prefix);
                tagged.resize(tagged.len() + blanks, b' ');
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(tagger: &mut Tagger, text: &str) -> String {
        let mut all = Vec::new();
        let done: Result<(), ()> = tagger.tag(text.as_bytes(), |piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        done.unwrap();
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn tags_on_a_terminal_are_a_column_in_the_colour_of_the_job() {
        let plain = TagStyles::new(TagStyle::Column { is_colored: false }, TagStyle::Tab);
        let new = |tag: &str, job, source| Tagger::new(tag, job, plain.of(source));
        let mut short = new("a", 1, Source::Stdout);
        assert_eq!(tagged(&mut short, "x\ny"), "a  x\na  y");
        let mut long = new("名前", 2, Source::Stdout);
        assert_eq!(tagged(&mut long, "x\n"), "名前  x\n");
        // The rest of a line has no tag; the next line is in the column of the longer one.
        assert_eq!(tagged(&mut short, "z\nx\n"), "z\na     x\n");
        // One that is too wide moves its own lines only.
        let mut wide = new(&"w".repeat(100), 3, Source::Stdout);
        assert_eq!(tagged(&mut wide, "x\n"), format!("{}  x\n", "w".repeat(100)));
        let column = " ".repeat(MOST_COLUMNS - 1 + 2);
        assert_eq!(tagged(&mut short, "x\n"), format!("a{column}x\n"));
        assert_eq!(tagged(&mut new("a", 1, Source::Stderr), "x\n"), "a\tx\n");
        let colored = TagStyles::new(TagStyle::Column { is_colored: true }, TagStyle::Tab);
        let paint = |job| tagged(&mut Tagger::new("a", job, colored.of(Source::Stdout)), "x\n");
        assert_eq!(paint(1), "\x1b[33ma\x1b[0m  x\n");
        assert_ne!(paint(1), paint(2));
    }
}
