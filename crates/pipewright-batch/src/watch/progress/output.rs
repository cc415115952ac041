//! Output of jobs that shares the terminal with the bar.

use std::time::{Duration, Instant};

/// The pause between two looks at a writer that has not finished.
const PAUSE: Duration = Duration::from_millis(100);

/// The time that the rest of a line may take. Then the bar is drawn below what is there.
const REST_OF_LINE: Duration = Duration::from_secs(1);

/// The writers of output, and where they left the cursor.
#[derive(Debug, Default)]
pub(super) struct Output {
    writing: u32,
    /// The time of the last byte, if it was not a newline.
    unfinished_line: Option<Instant>,
}

impl Output {
    pub(super) fn begin(&mut self) {
        self.writing += 1;
    }

    pub(super) fn end(&mut self, written: &[u8], now: Instant) {
        self.writing = self.writing.saturating_sub(1);
        if let Some(last) = written.last() {
            self.unfinished_line = (*last != b'\n').then_some(now);
        }
    }

    /// Returns the time at which to ask again, if nothing else should be written to the terminal now.
    pub(super) fn busy_until(&self, now: Instant) -> Option<Instant> {
        if self.writing > 0 {
            return now.checked_add(PAUSE);
        }
        let end = self.unfinished_line?.checked_add(REST_OF_LINE)?;
        (now < end).then_some(end)
    }

    /// Returns true if the cursor is behind output, and counts that line as finished.
    pub(super) fn take_unfinished_line(&mut self) -> bool {
        self.unfinished_line.take().is_some()
    }
}
