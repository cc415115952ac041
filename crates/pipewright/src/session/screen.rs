//! The screen of a terminal as a person sees it: feature `screen`.

use std::fmt;
use std::num::NonZeroU16;

use pipewright_os::process::pty::PtySize;

use super::Session;
use super::search::Pattern;

/// The test of a screen.
pub struct ScreenTest(pub(super) Box<dyn Fn(&Screen<'_>) -> bool + Send + Sync>);

impl fmt::Debug for ScreenTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScreenTest")
    }
}

/// The text on the screen of a terminal, as the emulator of the crate `vt100` shows it.
pub struct Screen<'a>(&'a vt100::Screen);

impl Screen<'_> {
    /// Returns the text of all rows, without trailing spaces, each row on a line.
    #[must_use]
    pub fn text(&self) -> String {
        self.rows().join("\n")
    }

    /// Returns the text of each row, without trailing spaces.
    #[must_use]
    pub fn rows(&self) -> Vec<String> {
        self.0.rows(0, self.cols()).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Returns true if a row contains the text.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.0.rows(0, self.cols()).any(|row| row.contains(text))
    }

    fn cols(&self) -> u16 {
        let (_, cols) = self.0.size();
        cols.get()
    }

    /// Returns the row and the column of the cursor, from 0.
    #[must_use]
    pub fn cursor(&self) -> (u16, u16) {
        self.0.cursor_position()
    }

    /// Returns true if the program uses the alternate screen, as editors and pagers do.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.0.alternate_screen()
    }
}

impl fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Screen").field(&self.rows()).finish()
    }
}

/// The most characters of a screen. The emulator keeps all of them, twice.
const MOST_CELLS: usize = 1 << 20;

/// Returns true for a size whose screen is kept.
pub(super) fn is_possible(size: PtySize) -> bool {
    usize::from(size.rows) * usize::from(size.cols) <= MOST_CELLS
}

/// The emulator of a session.
pub(super) struct ScreenState(vt100::Parser);

impl ScreenState {
    pub(super) fn new(size: PtySize) -> ScreenState {
        // Without scrollback.
        ScreenState(vt100::Parser::new(at_least_one(size.rows), at_least_one(size.cols), 0))
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.process(bytes);
    }

    pub(super) fn resize(&mut self, size: PtySize) {
        self.0.screen_mut().set_size(at_least_one(size.rows), at_least_one(size.cols));
    }

    /// Returns the text of the screen, if the program uses the alternate one.
    pub(super) fn alternate_text(&self) -> Option<String> {
        let screen = Screen(self.0.screen());
        screen.is_alternate().then(|| screen.text().trim_end().to_owned())
    }

    pub(super) fn has_application_cursor(&self) -> bool {
        self.0.screen().application_cursor()
    }

    /// Returns the place of the first pattern whose test the screen passes.
    pub(super) fn find(&self, patterns: &[Pattern]) -> Option<usize> {
        let screen = Screen(self.0.screen());
        let passes = |pattern: &Pattern| match pattern {
            Pattern::Screen(ScreenTest(test)) => test(&screen),
            _ => false,
        };
        patterns.iter().position(passes)
    }
}

/// Returns the length, or 1 for a terminal without a size.
fn at_least_one(length: u16) -> NonZeroU16 {
    NonZeroU16::new(length).unwrap_or(NonZeroU16::MIN)
}

impl Session {
    /// Returns the screen as a person would see it now, after all output that was read (feature `screen`).
    #[must_use]
    pub fn screen(&self) -> Screen<'_> {
        Screen(self.pump.screen().0.screen())
    }
}
