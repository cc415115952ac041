//! Names in messages: quoted, escaped and cut, so that a message stays one bounded line.

use std::fmt::{self, Display, Formatter, Write as _};

/// Characters of a name that a message shows.
const MOST_CHARACTERS: usize = 60;

/// Names of a cycle that a message shows.
const MOST_NAMES: usize = 6;

/// A name in quotes.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MOST_CHARACTERS) {
            write!(f, "{}", character.escape_debug())?;
        }
        f.write_str(if characters.next().is_some() { "…\"" } else { "\"" })
    }
}

/// A cycle: each job waits for the next one, and the last one for the first.
pub(crate) struct ShownCycle<'a>(pub(crate) &'a [Box<str>]);

impl Display for ShownCycle<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for name in self.0.iter().take(MOST_NAMES) {
            write!(f, "{} after ", Shown(name))?;
        }
        let hidden = self.0.len().saturating_sub(MOST_NAMES);
        if hidden > 0 {
            write!(f, "{hidden} more after ")?;
        }
        self.0.first().map_or(Ok(()), |first| write!(f, "{}", Shown(first)))
    }
}
