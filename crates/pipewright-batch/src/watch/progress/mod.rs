//! Progress for people: a bar on a terminal, or lines for a log.
//!
//! Nothing is drawn between two calls of the driver: [`Progress::tick`] draws, and returns the time of its next call.
//!
//! The bar is our own, as in `pipewright bench`: indicatif links libm, which the tool would load at every start.
//!
//! | file | contents |
//! |---|---|
//! | `counts.rs` | what is counted |
//! | `rate.rs` | the rate, and the time that is left |
//! | `bar.rs` | the lines of the bar, as text |
//! | `draw.rs` | drawing and erasing lines on a terminal |
//! | `output.rs` | output of jobs on the same terminal |

mod bar;
mod counts;
mod draw;
mod output;
mod rate;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use pipewright_os::process::terminal;

use self::counts::Counts;
use self::draw::Lines;
use self::output::Output;
use super::Update;
use super::text::line;

/// The shortest time between two drawings.
const REDRAW: Duration = Duration::from_millis(100);

/// The time after which the bar is drawn again for its times alone.
const IDLE_REDRAW: Duration = Duration::from_secs(1);

/// The longest time between two lines in a log, while something happens.
const LINE_PAUSE: Duration = Duration::from_secs(10);

/// A percentage at which a log gets a line.
const STEP_PERCENT: u64 = 10;

/// The columns of a terminal of unknown size.
const USUAL_COLUMNS: usize = 80;

/// The kind of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressKind {
    /// A bar, drawn again and again.
    Bar,
    /// A line at most every 10 seconds, and at each tenth.
    Plain,
    /// Nothing but messages.
    None,
}

/// A terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// Returns the number of columns. Asked again each time, because windows are resized.
    pub(crate) columns: fn() -> usize,
    /// True if the terminal has cursor movements, and so more than one line.
    pub(crate) is_ansi: bool,
    /// True if there are colors.
    pub(crate) colors: bool,
}

impl Screen {
    /// Returns the terminal that is stderr, with the settings of the environment: `COLUMNS`, `NO_COLOR` and `TERM`.
    pub(crate) fn stderr() -> Screen {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let term = std::env::var_os("TERM").unwrap_or_default();
        let is_ansi = !term.is_empty() && term != "dumb";
        Screen { columns: stderr_columns, is_ansi, colors: is_ansi && !is_set("NO_COLOR") }
    }
}

fn stderr_columns() -> usize {
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    terminal::stderr_columns().or_else(variable).unwrap_or(USUAL_COLUMNS)
}

/// Progress of a batch. Errors of the writer are ignored: the batch goes on without a terminal.
#[derive(Debug)]
pub(crate) struct Progress<W> {
    writer: W,
    kind: ProgressKind,
    screen: Screen,
    counts: Counts,
    lines: Lines,
    output: Output,
    is_changed: bool,
    drawn: Option<Instant>,
    /// The step of the last line in a log.
    step: u64,
}

impl ProgressKind {
    /// Returns the kind for stderr: a bar on a terminal, else lines.
    #[must_use]
    pub fn for_stderr() -> ProgressKind {
        if io::stderr().is_terminal() { ProgressKind::Bar } else { ProgressKind::Plain }
    }
}

impl<W: Write> Progress<W> {
    /// Returns the progress of a batch that begins now.
    pub(crate) fn new(writer: W, kind: ProgressKind, screen: Screen, now: Instant) -> Progress<W> {
        Progress {
            writer,
            kind,
            screen,
            counts: Counts::new(now),
            lines: Lines::default(),
            output: Output::default(),
            is_changed: true,
            drawn: None,
            step: 0,
        }
    }

    /// Takes note of an update. Draws only messages.
    pub(crate) fn update(&mut self, update: &Update<'_>, now: Instant) {
        self.counts.update(update, now);
        self.is_changed = true;
        match update {
            Update::Note(text) => self.message(text),
            Update::Halted { cause } => self.message(&format!("no more jobs start: {cause}")),
            _ => {}
        }
    }

    /// Draws, if that is due. Returns the time at which the driver should call it again, whatever happens; call it
    /// after updates too.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Instant> {
        match self.kind {
            ProgressKind::None => None,
            ProgressKind::Plain => self.tick_plain(now),
            ProgressKind::Bar => self.tick_bar(now),
        }
    }

    fn tick_bar(&mut self, now: Instant) -> Option<Instant> {
        if let Some(free) = self.output.busy_until(now) {
            return Some(free);
        }
        let pause = if self.is_changed { REDRAW } else { IDLE_REDRAW };
        match self.drawn {
            Some(drawn) if now.duration_since(drawn) < pause => {}
            _ => {
                let columns = (self.screen.columns)();
                self.start_line();
                let lines = bar::lines(&self.counts, now, self.screen, columns);
                self.lines.draw(&mut self.writer, &lines, columns, self.screen.is_ansi);
                self.drawn = Some(now);
                self.is_changed = false;
            }
        }
        let pause = if self.is_changed { REDRAW } else { IDLE_REDRAW };
        self.drawn.and_then(|drawn| drawn.checked_add(pause))
    }

    fn tick_plain(&mut self, now: Instant) -> Option<Instant> {
        let step = self.counts.percent().unwrap_or(0) / STEP_PERCENT;
        let last = *self.drawn.get_or_insert(now);
        let is_late = self.is_changed && now.duration_since(last) >= LINE_PAUSE;
        if step > self.step || is_late {
            self.step = step;
            self.drawn = Some(now);
            self.is_changed = false;
            let text = bar::plain(&self.counts, now);
            // Ignored, as for all output here.
            let _ = self.writer.write_all(format!("{text}\n").as_bytes());
        }
        self.drawn.and_then(|drawn| drawn.checked_add(LINE_PAUSE))
    }

    /// Erases the bar, before something else is written to the same terminal. [`tick`](Self::tick) draws it again. Returns
    /// true if there was one.
    pub(crate) fn hide(&mut self) -> bool {
        self.lines.erase(&mut self.writer, (self.screen.columns)(), self.screen.is_ansi)
    }

    /// Erases the bar, and draws none until [`output_ended`](Self::output_ended) has been called as often as this.
    pub(crate) fn output_begins(&mut self) {
        self.hide();
        self.output.begin();
    }

    /// Allows the bar again. `written` are the bytes that another writer wrote to the terminal.
    pub(crate) fn output_ended(&mut self, written: &[u8], now: Instant) {
        self.output.end(written, now);
    }

    /// Writes a line for people, above the bar.
    pub(crate) fn message(&mut self, text: &str) {
        const MOST_COLUMNS: usize = 1000;
        self.hide();
        self.start_line();
        // One write, which is whole.
        let text = format!("pipewright: {}\n", line(text, MOST_COLUMNS));
        let _ = self.writer.write_all(text.as_bytes());
    }

    /// Ends a line of output that has no newline.
    fn start_line(&mut self) {
        if self.output.take_unfinished_line() {
            let _ = self.writer.write_all(b"\n");
        }
    }

    /// Erases the bar, and leaves the cursor at the start of a line.
    pub(crate) fn finish(&mut self) {
        self.hide();
        self.start_line();
        let _ = self.writer.flush();
    }
}
