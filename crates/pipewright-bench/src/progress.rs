//! The progress line on stderr, if that is a terminal.
//!
//! It is drawn between two cells, never during a measurement. The documentation of the crate says why this is not
//! `indicatif`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use pipewright_os::process::terminal;

use crate::show::cut;

/// The longest line.
const MOST_COLUMNS: usize = 78;

/// The shortest time between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

/// The progress line.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    cells: usize,
    all_series: usize,
    done: usize,
    series: usize,
    started: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl ProgressLine {
    pub(crate) fn new(cells: usize, all_series: usize, hidden: bool) -> ProgressLine {
        ProgressLine {
            cells,
            all_series,
            done: 0,
            series: 0,
            started: Instant::now(),
            drawn: None,
            is_shown: !hidden && io::stderr().is_terminal(),
        }
    }

    pub(crate) fn series(&mut self, number: usize) {
        self.series = number + 1;
    }

    /// Called before each cell.
    pub(crate) fn cell(&mut self, name: &str) {
        let now = Instant::now();
        if self.is_shown && self.drawn.is_none_or(|drawn| now - drawn >= PAUSE) {
            self.drawn = Some(now);
            let columns = columns();
            let line = self.line(name, now - self.started, columns);
            // Ignored: the benchmark goes on without a terminal.
            let _ = write!(io::stderr().lock(), "\r{line:<columns$}");
        }
        self.done += 1;
    }

    /// Erases the line.
    pub(crate) fn end(&self) {
        if self.drawn.is_some() {
            // Ignored, as above.
            let _ = write!(io::stderr().lock(), "\r{:1$}\r", "", columns());
        }
    }

    fn line(&self, name: &str, elapsed: Duration, columns: usize) -> String {
        let all = (self.cells * self.all_series).max(1);
        // The other parts take 33 characters; the name follows.
        let length = columns.saturating_sub(33).min(20);
        let full = self.done * length / all;
        let bar = format!("{}{}", "━".repeat(full), "─".repeat(length - full.min(length)));
        let percent = self.done * 100 / all;
        let left = match self.done {
            0 => String::new(),
            done => {
                let seconds = elapsed.as_secs_f64() * (all - done.min(all)) as f64 / done as f64;
                format!("{seconds:.0} s left")
            }
        };
        let (series, of) = (self.series, self.all_series);
        cut(&format!("series {series} of {of} {bar} {percent:>3} % {left:>11}  {name}"), columns)
    }
}

/// Returns the longest line that fits: a line that wraps would not be overwritten. Asked again each time, because windows
/// are resized.
fn columns() -> usize {
    terminal::stderr_columns().map_or(MOST_COLUMNS, |columns| (columns - 1).min(MOST_COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_the_progress_and_the_remaining_time() {
        let mut progress = ProgressLine::new(10, 3, true);
        progress.series(0);
        let second = Duration::from_secs(1);
        assert_eq!(
            progress.line("x", second, 78),
            "series 1 of 3 ────────────────────   0 %              x"
        );
        (0..15).for_each(|_| progress.cell("x"));
        progress.series(1);
        assert_eq!(
            progress.line("two threads, 4 KiB", 6 * second, 78),
            "series 2 of 3 ━━━━━━━━━━──────────  50 %    6 s left  two threads, 4 KiB",
        );
        assert_eq!(
            progress.line("two threads, 4 KiB", 6 * second, 40),
            "series 2 of 3 ━━━────  50 %    6 s left…",
        );
        for columns in [0, 1, 39, 78] {
            let long = progress.line(&"x".repeat(100), second, columns);
            assert!(long.chars().count() <= columns, "{long:?}");
        }
        assert_eq!(ProgressLine::new(0, 1, true).line("", second, 78).chars().count(), 54);
    }
}
