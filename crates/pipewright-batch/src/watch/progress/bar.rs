//! The lines of the bar, and of a log, as text.

use std::time::Instant;

use super::Screen;
use super::counts::Counts;
use crate::vocabulary::JobOutcome;
use crate::watch::text::{columns, line, rate, whole_duration};

/// Running jobs that are shown.
const MOST_RUNNING: usize = 3;

/// The length of the bar.
const BAR_COLUMNS: usize = 24;
const LEAST_BAR_COLUMNS: usize = 6;

/// A line, and its text without colors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Line {
    /// The text with colors.
    pub(super) painted: String,
    /// The number of columns that it uses, or more.
    pub(super) columns: usize,
}

/// A piece of a line, with the number of its color (SGR).
struct Piece(String, Option<&'static str>);

const RED: &str = "31";
const BLUE: &str = "34";
const FAINT: &str = "2";

/// Returns the lines of the bar. Each is shorter than the terminal, whose last column may wrap.
pub(super) fn lines(counts: &Counts, now: Instant, screen: Screen, columns: usize) -> Vec<Line> {
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
pub(super) fn plain(counts: &Counts, now: Instant) -> String {
    let done = counts.done();
    let mut parts = match (counts.total(), counts.percent()) {
        (Some(total), Some(percent)) => vec![format!("{done}/{total} ({percent} %)")],
        _ => vec![format!("{done}/{}+", counts.known())],
    };
    parts.extend(counts.problems().map(|(outcome, count)| format!("{count} {}", outcome.word())));
    parts.push(format!("{} running", counts.running()));
    parts.extend(counts.per_second(now).map(rate));
    parts.extend(counts.left(now).map(|left| format!("{} left", whole_duration(left))));
    format!("pipewright: {}", parts.join(", "))
}
