//! `run --time`: what a command has taken, in words, and the least, the median and the most of several runs.

use pipewright::{Output, Usage};

use crate::print_error;

/// The figures of one run. An unknown one is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Figures([Option<f64>; NAMES.len()]);

/// A function that writes a figure.
type Show = fn(f64) -> String;

/// The names of the figures, and how each is written.
const NAMES: [(&str, Show); 6] = [
    ("wall", seconds),
    ("user", seconds),
    ("system", seconds),
    ("peak memory", bytes),
    ("processes at once", count),
    ("context switches", count),
];

/// The runs of a command.
#[derive(Debug, Default)]
pub(super) struct Timed {
    runs: Vec<Figures>,
}

impl Timed {
    /// Adds a run that has ended.
    pub(super) fn add(&mut self, capture: &Output) {
        self.runs.push(Figures::of(capture));
    }

    /// Returns the number of runs.
    pub(super) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Prints the figures on stderr: on one line, or for several runs in a table.
    pub(super) fn print(&self) {
        self.lines().iter().for_each(|line| print_error(line));
    }

    fn lines(&self) -> Vec<String> {
        match &self.runs[..] {
            [] => Vec::new(),
            [run] => vec![run.line()],
            runs => table(runs),
        }
    }
}

impl Figures {
    /// Returns those of the whole tree, as far as they are known, and else those of the command with its reaped
    /// children.
    fn of(capture: &Output) -> Figures {
        let Usage { user, system, peak_rss_bytes, switches, .. } =
            capture.usage.unwrap_or_default();
        let known = capture.usage.is_some();
        let tree = capture.tree_usage.as_deref();
        let time = |of_tree: Option<std::time::Duration>, own: std::time::Duration| {
            of_tree.or(known.then_some(own)).map(|time| time.as_secs_f64())
        };
        let number = |number: Option<u64>| number.map(|number| number as f64);
        Figures([
            Some(capture.elapsed.as_secs_f64()),
            time(tree.and_then(|tree| tree.user), user),
            time(tree.and_then(|tree| tree.system), system),
            number(tree.and_then(|tree| tree.peak_memory_bytes).or(peak_rss_bytes)),
            number(tree.and_then(|tree| tree.peak_pids)),
            number(switches),
        ])
    }

    fn line(&self) -> String {
        let named = NAMES.iter().zip(self.0);
        let parts =
            named.filter_map(|((name, show), figure)| Some(format!("{} {name}", show(figure?))));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns a row for each figure that is known of every run: the least, the median, the most.
fn table(runs: &[Figures]) -> Vec<String> {
    let mut lines = vec![format!("{} runs{:>22}{:>11}{:>11}", runs.len(), "min", "median", "max")];
    for (index, (name, show)) in NAMES.iter().enumerate() {
        let all: Option<Vec<f64>> =
            runs.iter().map(|run| run.0.get(index).copied().flatten()).collect();
        let Some(mut all) = all else { continue };
        all.sort_by(f64::total_cmp);
        let at = |index: usize| all.get(index).copied().unwrap_or(0.0);
        let last = all.len().saturating_sub(1);
        let median = (at(last / 2) + at(all.len() / 2)) / 2.0;
        let [least, median, most] = [at(0), median, at(last)].map(show);
        lines.push(format!("{name:17}{least:>11}{median:>11}{most:>11}"));
    }
    lines
}

/// Writes a time: `0.8 ms`, `12.3 ms`, `1.24 s`, `75.1 s`.
fn seconds(seconds: f64) -> String {
    match seconds {
        short if short < 0.9995 => format!("{:.1} ms", short * 1e3),
        long if long < 59.995 => format!("{long:.2} s"),
        long => format!("{long:.1} s"),
    }
}

/// Writes a size: `512 KiB`, `35.2 MiB`, `1.5 GiB`.
fn bytes(bytes: f64) -> String {
    let kib = bytes / 1024.0;
    match kib {
        kib if kib < 1023.5 => format!("{kib:.0} KiB"),
        kib if kib < 1023.95 * 1024.0 => format!("{:.1} MiB", kib / 1024.0),
        kib => format!("{:.1} GiB", kib / 1024.0 / 1024.0),
    }
}

fn count(count: f64) -> String {
    format!("{count:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wall: f64, peak: Option<f64>) -> Figures {
        Figures([Some(wall), Some(0.01), Some(0.002), peak, None, Some(120.0)])
    }

    #[test]
    fn one_run_is_a_line_without_what_is_unknown() {
        let one = Timed { runs: vec![run(1.2345, Some(36_000_000.0))] };
        let line =
            "1.23 s wall, 10.0 ms user, 2.0 ms system, 34.3 MiB peak memory, 120 context switches";
        assert_eq!(one.lines(), [line]);
    }

    #[test]
    fn several_runs_are_a_table() {
        let runs = [3.0, 1.0, 2.0, 10.0].map(|wall| run(wall, (wall < 5.0).then_some(2048.0)));
        let lines = Timed { runs: runs.to_vec() }.lines();
        assert_eq!(lines[0], "4 runs                   min     median        max");
        assert_eq!(lines[1], "wall                  1.00 s     2.50 s    10.00 s");
        assert_eq!(lines.len(), 5, "the peak of one is unknown: {lines:?}");
    }

    #[test]
    fn figures_have_few_digits() {
        assert_eq!(
            [0.0008, 0.0123, 0.9996, 61.0].map(seconds),
            ["0.8 ms", "12.3 ms", "1.00 s", "61.0 s"]
        );
        assert_eq!([2048.0, 1_048_000.0, 3e9].map(bytes), ["2 KiB", "1023 KiB", "2.8 GiB"]);
    }
}
