//! The change of the machine itself between two reports, by its baselines.

use crate::report::{BenchReport, Cell};
use crate::stats::logarithm::ln;
use crate::stats::median;

/// The assumed drift of a machine without a baseline: 1.4 has been observed for minutes on an idle machine.
const UNKNOWN_DRIFT: f64 = 1.5;

/// A smaller change is not reported.
const LEAST_REPORTED: f64 = 0.05;

/// The time of each baseline, new by old. `None`: one of the reports has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BaselineDrift {
    pub(crate) copies: Option<f64>,
    pub(crate) wakes: Option<f64>,
    pub(crate) starts: Option<f64>,
    /// A cell has bare starts in only one of the reports.
    lacks_starts: bool,
}

impl BaselineDrift {
    /// Compares the baselines of two reports, and those of their common cells.
    pub(crate) fn between<'a>(
        old: &BenchReport,
        new: &BenchReport,
        cells: impl Iterator<Item = (&'a Cell, &'a Cell)>,
    ) -> BaselineDrift {
        let (before, now) = (&old.machine, &new.machine);
        let ratio = |one: &[f64], other: &[f64]| {
            let ratio = median(one)? / median(other)?;
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
        };
        let (mut starts, mut lacks_starts) = (Vec::new(), false);
        for (old, new) in cells {
            starts.extend(BaselineDrift::of_starts(old, new));
            lacks_starts |= old.in_bare_starts.is_empty() != new.in_bare_starts.is_empty();
        }
        BaselineDrift {
            // A speed, so the other way round.
            copies: ratio(&before.yardstick_bytes_per_second, &now.yardstick_bytes_per_second),
            wakes: ratio(&now.yardstick_wake_seconds, &before.yardstick_wake_seconds),
            starts: median(&starts),
            lacks_starts,
        }
    }

    /// Returns the time of the bare starts beside a cell, new by old.
    pub(crate) fn of_starts(old: &Cell, new: &Cell) -> Option<f64> {
        let bare = |cell: &Cell| Some(median(&cell.samples)? / median(&cell.in_bare_starts)?);
        let ratio = bare(new)? / bare(old)?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Returns the factor by which the machine may have become faster or slower for a cell, at least 1.
    pub(crate) fn of_cell(&self, old: &Cell, new: &Cell) -> f64 {
        match [old, new].map(|cell| cell.in_bare_starts.is_empty()) {
            // The samples are corrected already.
            [false, false] => 1.0,
            [true, true] => {
                let drift = |times: Option<f64>| {
                    times.map_or(UNKNOWN_DRIFT, |times| times.max(1.0 / times))
                };
                drift(self.copies).max(drift(self.wakes))
            }
            _ => UNKNOWN_DRIFT,
        }
    }

    /// Returns the changes in a sentence; `None`: there are none.
    pub(crate) fn words(&self) -> Option<String> {
        let all = [
            ("a bare start", self.starts, " (corrected for)"),
            ("a wake-up", self.wakes, ""),
            ("a copy", self.copies, ""),
        ];
        let found: Vec<String> = all
            .iter()
            .filter_map(|(name, times, what)| {
                let times = times.filter(|times| ln(*times).abs() > ln(1.0 + LEAST_REPORTED))?;
                Some(format!("{name} {}{what}", slower(times)))
            })
            .collect();
        (!found.is_empty())
            .then(|| format!("The machine itself has changed: {}.", found.join(", ")))
    }

    /// Names the missing baselines in a sentence; `None`: none is missing.
    pub(crate) fn missing(&self) -> Option<String> {
        let names = [
            ("starts", self.lacks_starts),
            ("wake-ups", self.wakes.is_none()),
            ("copies", self.copies.is_none()),
        ];
        let names: Vec<&str> =
            names.iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| *name).collect();
        let percent = (UNKNOWN_DRIFT - 1.0) * 100.0;
        (!names.is_empty()).then(|| {
            format!(
                "One of the reports has no baseline of {}: cells that depend on it are marked only if they changed by {percent:.0} % more.",
                names.join(" and "),
            )
        })
    }
}

/// Says how a time has changed.
fn slower(times: f64) -> String {
    let percent = (times - 1.0) * 100.0;
    if percent >= 0.0 {
        format!("is {percent:.0} % slower")
    } else {
        format!("takes {:.0} % less time", -percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::compare;
    use crate::sample;

    fn drift(old: &BenchReport, new: &BenchReport) -> BaselineDrift {
        let cells = |report: &BenchReport| report.charts[0].curves[0].cells.clone();
        let (before, now) = (cells(old), cells(new));
        BaselineDrift::between(old, new, before.iter().zip(&now))
    }

    fn slow_down(report: &mut BenchReport, times: f64) {
        for cell in &mut report.charts[0].curves[0].cells {
            cell.samples.iter_mut().for_each(|it| *it *= times);
        }
        report.machine.yardstick_wake_seconds.iter_mut().for_each(|it| *it *= times);
        report.machine.yardstick_bytes_per_second.iter_mut().for_each(|it| *it /= times);
    }

    #[test]
    fn the_change_of_each_baseline_is_reported() {
        let (old, mut new) = (sample::spawn(), sample::spawn());
        assert_eq!(drift(&old, &new).words(), None);
        slow_down(&mut new, 1.25);
        let there = drift(&old, &new);
        for times in [there.copies, there.wakes, there.starts] {
            assert!((times.unwrap() - 1.25).abs() < 1e-9, "{there:?}");
        }
        assert_eq!(
            there.words().as_deref(),
            Some(
                "The machine itself has changed: a bare start is 25 % slower (corrected for), \
                 a wake-up is 25 % slower, a copy is 25 % slower."
            ),
        );
        let back = drift(&new, &old);
        assert!((back.wakes.unwrap() - 0.8).abs() < 1e-9 && back.missing().is_none(), "{back:?}");
        // Cells with bare starts are corrected; other cells may have drifted as much.
        let cell = &old.charts[0].curves[0].cells[0];
        assert_eq!(there.of_cell(cell, cell), 1.0);
        let plain = Cell { in_bare_starts: Vec::new(), ..cell.clone() };
        for drift in [there, back] {
            assert!((drift.of_cell(&plain, &plain) - 1.25).abs() < 1e-9, "{drift:?}");
            assert_eq!(drift.of_cell(&plain, cell), UNKNOWN_DRIFT);
        }
    }

    #[test]
    fn a_missing_baseline_is_reported_and_allowed_for() {
        let (mut old, new) = (sample::spawn(), sample::spawn());
        old.machine.yardstick_wake_seconds.clear();
        for cell in &mut old.charts[0].curves[0].cells {
            cell.in_bare_starts.clear();
        }
        for drift in [drift(&old, &new), drift(&new, &old)] {
            let words = drift.missing().unwrap();
            assert!(words.contains("no baseline of starts and wake-ups"), "{words}");
            assert!(words.contains("50 % more"), "{words}");
            let cell = &old.charts[0].curves[0].cells[0];
            assert_eq!(drift.of_cell(cell, cell), UNKNOWN_DRIFT);
        }
    }

    /// Process starts, with the times multiplied by a factor of the build and one of the machine.
    fn starts(build: f64, machine: f64) -> BenchReport {
        let mut report = sample::spawn();
        for cell in &mut report.charts[0].curves[0].cells {
            let samples = cell.samples.iter().map(|it| it * build * machine).collect();
            let in_bare_starts = cell.in_bare_starts.iter().map(|it| it * build).collect();
            *cell = Cell { in_bare_starts, ..Cell::new(&cell.label, None, samples) };
        }
        report
    }

    fn without_baselines(mut report: BenchReport) -> BenchReport {
        report.machine.yardstick_wake_seconds.clear();
        for cell in &mut report.charts[0].curves[0].cells {
            cell.in_bare_starts.clear();
        }
        report
    }

    fn with_one_series(mut report: BenchReport) -> BenchReport {
        report.settings.series = 1;
        for cell in &mut report.charts[0].curves[0].cells {
            cell.samples.truncate(1);
            cell.in_bare_starts.truncate(1);
        }
        report
    }

    #[test]
    fn starts_are_compared_as_multiples_of_bare_starts() {
        const CORRECTED: &str = "a bare start is 40 % slower (corrected for)";
        let old = starts(1.0, 1.0);
        for (what, new, [faster, slower, unsure], words) in [
            ("the same", starts(1.0, 1.0), [0, 0, 0], "no change beyond the noise in 3 cells."),
            ("drift", starts(1.0, 1.4), [0, 0, 0], CORRECTED),
            ("a slower build", starts(1.15, 1.0), [0, 3, 0], "3 slower, of 3 cells."),
            ("a slower build on a slower machine", starts(1.15, 1.4), [0, 3, 0], CORRECTED),
            (
                "a slower build on a faster machine",
                starts(1.15, 0.7),
                [0, 3, 0],
                "takes 30 % less time (corrected for)",
            ),
            ("a faster build on a slower machine", starts(0.8, 1.4), [3, 0, 0], CORRECTED),
            (
                "no baseline",
                without_baselines(starts(1.0, 1.45)),
                [0, 0, 3],
                "no baseline of starts and wake-ups",
            ),
            (
                "a much slower build, no baseline",
                without_baselines(starts(2.5, 1.0)),
                [0, 3, 0],
                "no baseline of starts and wake-ups",
            ),
            ("one series", with_one_series(starts(1.4, 1.0)), [0, 3, 0], "3 slower"),
        ] {
            let there = compare(&old, &new);
            let found = [there.faster, there.slower, there.unsure];
            assert_eq!(found, [faster, slower, unsure], "{what}: {}", there.verdict);
            assert!(there.verdict.contains(words), "{what}: {}", there.verdict);
            let back = compare(&new, &old);
            let found = [back.faster, back.slower, back.unsure];
            assert_eq!(found, [slower, faster, unsure], "{what}: {}", back.verdict);
        }
        let alone = with_one_series(starts(1.0, 1.0));
        let comparison = compare(&alone, &with_one_series(starts(1.4, 1.0)));
        assert_eq!((comparison.slower, comparison.unsure), (0, 3), "{}", comparison.verdict);
        assert!(comparison.verdict.contains("one series does not show"), "{}", comparison.verdict);
    }

    #[test]
    fn a_report_without_baselines_can_still_be_read() {
        let old = without_baselines(starts(1.0, 1.0));
        let mut data = serde_json::to_value(&old).unwrap();
        data["machine"].as_object_mut().unwrap().remove("yardstick_wake_seconds");
        for cell in data["charts"][0]["curves"][0]["cells"].as_array_mut().unwrap() {
            cell.as_object_mut().unwrap().remove("in_bare_starts");
        }
        let old: BenchReport = serde_json::from_value(data).unwrap();
        assert_eq!(compare(&old, &starts(1.0, 1.0)).compared, 3);
    }
}
