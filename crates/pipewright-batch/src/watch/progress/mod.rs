//! Progress for people: a bar on a terminal, or lines for a log.
//!
//! Nothing is drawn between two calls of the driver: [`Progress::tick`] draws, and returns the time of its next call.
//!
//! The bar is our own, as in `pipewright bench`: indicatif links libm, which the tool would load at every start.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use pipewright_os::process::terminal;

use super::text::{columns, cut, line, rate, whole_duration};
use super::{OutcomeCounts, named, numbered};
use crate::vocabulary::{AttemptKey, Event, JobOutcome};

/// The shortest time between two drawings.
const REDRAW: Duration = Duration::from_millis(100);

/// The time after which the bar is drawn again for its times alone.
const IDLE_REDRAW: Duration = Duration::from_secs(1);

/// The time without lines in a log at the start: a batch that is over by then needs none.
const SILENCE: Duration = Duration::from_secs(5);

/// The longest time between two lines in a log, also if nothing happens.
const LINE_PAUSE: Duration = Duration::from_secs(30);

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
    /// After 5 seconds, a line at each tenth and every 30 seconds.
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
    /// The end of the time without lines in a log.
    silent_until: Option<Instant>,
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
            silent_until: now.checked_add(SILENCE),
            step: 0,
        }
    }

    /// Takes note of the jobs that were read so far, and of the number of all, if it is known.
    pub(crate) fn added(&mut self, jobs: u64, total: Option<u64>) {
        (self.counts.added, self.is_changed) = (jobs, true);
        self.counts.total = total.or(self.counts.total);
    }

    /// Takes note of an event. Draws only messages.
    pub(crate) fn event(&mut self, event: &Event, now: Instant) {
        let was_held = self.counts.held.is_some();
        self.counts.event(event, now);
        self.is_changed = true;
        match event {
            Event::Note(text) => self.message(text),
            // The bar shows it.
            Event::Held { reason: Some(reason) } if !was_held && self.kind != ProgressKind::Bar => {
                self.message(&format!("no job starts: {reason}"));
            }
            Event::Halted(cause) => self.message(&format!("no more jobs start: {cause}")),
            Event::Settled { job, name, outcome, reason, before: false, .. }
                if matches!(
                    outcome,
                    JobOutcome::Failed | JobOutcome::Refused | JobOutcome::Unknown
                ) =>
            {
                let what = reason.as_deref().unwrap_or("may have run, and is not run again");
                let job = numbered(*job, name.as_deref());
                self.message(&format!("{job} {}: {what}", outcome.word()));
            }
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
                let lines = bar_lines(&self.counts, now, self.screen, columns);
                self.lines.draw(&mut self.writer, &lines, columns, self.screen.is_ansi);
                self.drawn = Some(now);
                self.is_changed = false;
            }
        }
        let pause = if self.is_changed { REDRAW } else { IDLE_REDRAW };
        self.drawn.and_then(|drawn| drawn.checked_add(pause))
    }

    fn tick_plain(&mut self, now: Instant) -> Option<Instant> {
        let silent_until = self.silent_until.filter(|until| now < *until);
        let step = self.counts.percent().unwrap_or(0) / STEP_PERCENT;
        let is_late = self.drawn.is_none_or(|last| now.duration_since(last) >= LINE_PAUSE);
        if silent_until.is_none() && (step > self.step || is_late) {
            self.step = step;
            self.drawn = Some(now);
            let text = plain_line(&self.counts, now);
            // Ignored, as for all output here.
            let _ = self.writer.write_all(format!("{text}\n").as_bytes());
        }
        silent_until.or_else(|| self.drawn?.checked_add(LINE_PAUSE))
    }

    /// Erases the bar, before something else is written to the same terminal. [`tick`](Self::tick) draws it again.
    /// Returns true if there was one.
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
        self.print_line(&format!("pipewright: {text}"));
    }

    /// Prints a line above the bar, without control characters.
    pub(crate) fn print_line(&mut self, text: &str) {
        const MOST_COLUMNS: usize = 1000;
        self.hide();
        self.start_line();
        // One write, which is whole.
        let text = format!("{}\n", line(text, MOST_COLUMNS));
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

// The counts of a batch that progress shows.

/// Bytes of a running job's command that are kept.
const MOST_TEXT_BYTES: usize = 400;

#[derive(Debug)]
struct Counts {
    outcomes: OutcomeCounts,
    /// Jobs that ended in an earlier run.
    resumed: u64,
    added: u64,
    total: Option<u64>,
    rate: Rate,
    running: BTreeMap<(Instant, AttemptKey), String>,
    starts: HashMap<AttemptKey, Instant>,
    /// The reason for which no job starts.
    held: Option<String>,
}

impl Counts {
    fn new(now: Instant) -> Counts {
        Counts {
            outcomes: OutcomeCounts::default(),
            resumed: 0,
            added: 0,
            total: None,
            rate: Rate::new(now),
            running: BTreeMap::new(),
            starts: HashMap::new(),
            held: None,
        }
    }

    fn event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Held { reason } => {
                self.held = reason.as_deref().map(|reason| cut(reason, MOST_TEXT_BYTES));
            }
            Event::InputEnded { jobs } => self.total = Some(*jobs),
            Event::Started { key, command, name, .. } => {
                self.starts.insert(*key, now);
                let shown = cut(&named(command, name.as_deref()), MOST_TEXT_BYTES);
                self.running.insert((now, *key), shown);
            }
            Event::Ended { end, .. } => {
                if let Some(start) = self.starts.remove(&end.key) {
                    self.running.remove(&(start, end.key));
                }
            }
            Event::Settled { before: true, .. } => self.resumed += 1,
            Event::Settled { outcome, .. } => {
                self.outcomes.add(*outcome);
                self.rate.record(now, self.outcomes.all());
            }
            _ => {}
        }
    }

    /// Returns the number of jobs that are over.
    fn done(&self) -> u64 {
        self.resumed + self.outcomes.all()
    }

    /// Returns the number of all jobs, if it is known.
    fn total(&self) -> Option<u64> {
        self.total.map(|total| total.max(self.done()))
    }

    /// Returns the number of all jobs so far.
    fn known(&self) -> u64 {
        self.total().unwrap_or(self.added.max(self.done()))
    }

    fn percent(&self) -> Option<u64> {
        let total = self.total().filter(|total| *total > 0)?;
        u64::try_from(u128::from(self.done()) * 100 / u128::from(total)).ok()
    }

    fn per_second(&self, now: Instant) -> Option<f64> {
        self.rate.per_second(now, self.outcomes.all())
    }

    fn left(&self, now: Instant) -> Option<std::time::Duration> {
        let waiting = self.total()?.saturating_sub(self.done());
        self.rate.left(now, self.outcomes.all(), waiting)
    }

    fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the jobs that have been running longest.
    fn longest(&self, most: usize) -> impl Iterator<Item = (Instant, AttemptKey, &str)> {
        self.running.iter().take(most).map(|((start, key), text)| (*start, *key, text.as_str()))
    }

    /// Returns the ends that people should see, with their numbers.
    fn problems(&self) -> impl Iterator<Item = (JobOutcome, u64)> {
        let counts = JobOutcome::ALL.map(|outcome| (outcome, self.outcomes.of(outcome)));
        counts
            .into_iter()
            .filter(|(outcome, count)| *outcome != JobOutcome::Succeeded && *count > 0)
    }
}

// The rate of the last half minute, and the time that is left at that rate.

/// The time that a rate covers.
const WINDOW: Duration = Duration::from_secs(30);

/// The shortest time between two samples, so that there are few.
const SAMPLE: Duration = Duration::from_secs(1);

/// Ends that a window needs. With fewer, the rate is that of the whole run.
const LEAST_ENDS: u64 = 5;

/// The number of ended jobs over time. Jobs of an earlier run do not count.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    started: Instant,
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Rate {
        Rate { started: now, samples: VecDeque::from([(now, 0)]) }
    }

    /// Records the number of jobs that have ended by now.
    pub(super) fn record(&mut self, now: Instant, ended: u64) {
        let is_due =
            self.samples.back().is_none_or(|(last, _)| now.duration_since(*last) >= SAMPLE);
        if is_due {
            self.samples.push_back((now, ended));
        }
        // The first one is as old as the window, or a little older.
        while self.samples.get(1).is_some_and(|(next, _)| now.duration_since(*next) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Returns the jobs that end in a second; `None` if none has ended.
    fn per_second(&self, now: Instant, ended: u64) -> Option<f64> {
        let over = |from: Instant, count: u64| {
            let seconds = now.duration_since(from).as_secs_f64();
            (count > 0 && seconds > 0.0).then(|| count as f64 / seconds)
        };
        let (from, before) = self.samples.front().copied().unwrap_or((self.started, 0));
        match ended.saturating_sub(before) {
            recent if recent >= LEAST_ENDS => over(from, recent),
            _ => over(self.started, ended),
        }
    }

    /// Returns the time that this number of jobs takes.
    pub(super) fn left(&self, now: Instant, ended: u64, waiting: u64) -> Option<Duration> {
        let seconds = waiting as f64 / self.per_second(now, ended)?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

// The lines of the bar, and of a log, as text.

/// Running jobs that are shown.
const MOST_RUNNING: usize = 3;

/// The length of the bar.
const BAR_COLUMNS: usize = 24;
const LEAST_BAR_COLUMNS: usize = 6;

/// A line, and its text without colors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Line {
    /// The text with colors.
    painted: String,
    /// The number of columns that it uses, or more.
    columns: usize,
}

/// A piece of a line, with the number of its color (SGR).
struct Piece(String, Option<&'static str>);

const RED: &str = "31";
const BLUE: &str = "34";
const FAINT: &str = "2";

/// Returns the lines of the bar. Each is shorter than the terminal, whose last column may wrap.
fn bar_lines(counts: &Counts, now: Instant, screen: Screen, columns: usize) -> Vec<Line> {
    let most = columns.saturating_sub(1);
    let mut lines = vec![join(summary(counts, now, most), most, screen.colors)];
    if screen.is_ansi {
        for (start, key, text) in counts.longest(MOST_RUNNING) {
            let time = whole_duration(now.duration_since(start));
            let mut name = format!("job {}", key.job);
            if key.attempt > 1 {
                name += &format!(", attempt {}", key.attempt);
            }
            let pieces = vec![Piece(format!("  {time:>12}  {name}  {text}"), Some(FAINT))];
            lines.push(join(pieces, most, screen.colors));
        }
    }
    lines
}

/// Returns the parts of the first line: those that matter most come first, because the end may be cut.
fn summary(counts: &Counts, now: Instant, most: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let done = counts.done();
    match (counts.total(), counts.percent()) {
        (Some(total), Some(percent)) => {
            pieces.push(Piece(format!("{done}/{total}"), None));
            pieces.push(Piece(format!("{percent:>3} %"), None));
        }
        _ => pieces.push(Piece(format!("{done}/{}+", counts.known()), None)),
    }
    for (outcome, count) in counts.problems() {
        let color = if outcome == JobOutcome::Failed { RED } else { FAINT };
        pieces.push(Piece(format!("{count} {}", outcome.word()), Some(color)));
    }
    pieces.push(Piece(format!("{} running", counts.running()), None));
    if let Some(reason) = &counts.held {
        pieces.push(Piece(format!("waits: {reason}"), None));
    }
    if let Some(per_second) = counts.per_second(now) {
        pieces.push(Piece(rate(per_second), None));
    }
    if let Some(left) = counts.left(now) {
        pieces.push(Piece(format!("{} left", whole_duration(left)), None));
    }
    // The bar gets the rest, behind the percentage.
    let used: usize = pieces.iter().map(|piece| columns(&piece.0) + 2).sum();
    let length = most.saturating_sub(used).min(BAR_COLUMNS);
    if let (Some(percent), true) = (counts.percent(), length >= LEAST_BAR_COLUMNS) {
        let full = usize::try_from(percent).unwrap_or(0).min(100) * length / 100;
        pieces.insert(1, Piece("━".repeat(full) + &"─".repeat(length - full), Some(BLUE)));
    }
    pieces
}

/// Joins pieces by two blanks, and cuts what does not fit.
fn join(pieces: Vec<Piece>, most: usize, colors: bool) -> Line {
    let mut joined = Line::default();
    for Piece(text, color) in pieces {
        let gap = if joined.columns == 0 { 0 } else { 2 };
        let Some(room) = most.checked_sub(joined.columns + gap).filter(|room| *room > 0) else {
            break;
        };
        let text = line(&text, room);
        joined.painted.push_str(if gap > 0 { "  " } else { "" });
        joined.columns += gap + columns(&text);
        match color.filter(|_| colors) {
            Some(color) => joined.painted.extend(["\x1b[", color, "m", &text, "\x1b[0m"]),
            None => joined.painted.push_str(&text),
        }
    }
    joined
}

/// Returns a line for a log.
fn plain_line(counts: &Counts, now: Instant) -> String {
    let done = counts.done();
    let mut parts = match (counts.total(), counts.percent()) {
        (Some(total), Some(percent)) => vec![format!("{done}/{total} ({percent} %)")],
        _ => vec![format!("{done}/{}+", counts.known())],
    };
    parts.extend(counts.problems().map(|(outcome, count)| format!("{count} {}", outcome.word())));
    parts.push(format!("{} running", counts.running()));
    parts.extend(counts.held.iter().map(|reason| format!("waits: {reason}")));
    parts.extend(counts.per_second(now).map(rate));
    parts.extend(counts.left(now).map(|left| format!("{} left", whole_duration(left))));
    format!("pipewright: {}", parts.join(", "))
}

// Lines at the bottom of a terminal, which are drawn again and erased.

/// The lines that are on the terminal.
#[derive(Debug, Default)]
struct Lines {
    widths: Vec<usize>,
}

impl Lines {
    /// Replaces the lines. The cursor stays behind the last one.
    fn draw<W: Write>(&mut self, writer: &mut W, lines: &[Line], columns: usize, is_ansi: bool) {
        let mut text = String::new();
        // Without cursor movements there is one line, and blanks erase the rest of it.
        let rest = self.widths.first().copied().unwrap_or(0);
        if is_ansi {
            text += &self.erasure(columns);
        } else {
            text.push('\r');
        }
        for (index, line) in lines.iter().enumerate() {
            text += if index > 0 { "\n" } else { "" };
            text += &line.painted;
        }
        if !is_ansi {
            let width = lines.first().map_or(0, |line| line.columns);
            text += &" ".repeat(rest.min(columns.saturating_sub(1)).saturating_sub(width));
        }
        self.widths = lines.iter().map(|line| line.columns).collect();
        // One write, so that no other process writes in between. Ignored: the batch goes on without a terminal.
        let _ = writer.write_all(text.as_bytes());
        let _ = writer.flush();
    }

    /// Erases the lines. Returns true if there were some.
    fn erase<W: Write>(&mut self, writer: &mut W, columns: usize, is_ansi: bool) -> bool {
        if self.widths.is_empty() {
            return false;
        }
        let text = if is_ansi {
            self.erasure(columns)
        } else {
            let width = self.widths.first().copied().unwrap_or(0);
            format!("\r{:1$}\r", "", width.min(columns.saturating_sub(1)))
        };
        self.widths.clear();
        let _ = writer.write_all(text.as_bytes());
        let _ = writer.flush();
        true
    }

    /// Returns the movements to the start of the first line, and the erasure of everything from there.
    fn erasure(&self, columns: usize) -> String {
        if self.widths.is_empty() {
            return String::new();
        }
        // A terminal that was made narrower has wrapped the lines.
        let rows: usize =
            self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        match rows - 1 {
            0 => "\r\x1b[J".to_owned(),
            up => format!("\r\x1b[{up}A\x1b[J"),
        }
    }
}

// Output of jobs that shares the terminal with the bar.

/// The pause between two looks at a writer that has not finished.
const PAUSE: Duration = Duration::from_millis(100);

/// The time that the rest of a line may take. Then the bar is drawn below what is there.
const REST_OF_LINE: Duration = Duration::from_secs(1);

/// The writers of output, and where they left the cursor.
#[derive(Debug, Default)]
struct Output {
    writing: u32,
    /// The time of the last byte, if it was not a newline.
    unfinished_line: Option<Instant>,
}

impl Output {
    fn begin(&mut self) {
        self.writing += 1;
    }

    fn end(&mut self, written: &[u8], now: Instant) {
        self.writing = self.writing.saturating_sub(1);
        if let Some(last) = written.last() {
            self.unfinished_line = (*last != b'\n').then_some(now);
        }
    }

    /// Returns the time at which to ask again, if nothing else should be written to the terminal now.
    fn busy_until(&self, now: Instant) -> Option<Instant> {
        if self.writing > 0 {
            return now.checked_add(PAUSE);
        }
        let end = self.unfinished_line?.checked_add(REST_OF_LINE)?;
        (now < end).then_some(end)
    }

    /// Returns true if the cursor is behind output, and counts that line as finished.
    fn take_unfinished_line(&mut self) -> bool {
        self.unfinished_line.take().is_some()
    }
}

#[cfg(test)]
mod tests;
