//! What the machine itself has changed by between two reports, by its yardsticks.

use crate::report::{Cell, Report};
use crate::stats::logarithm::ln;
use crate::stats::median;
use crate::units;

/// How much slower a machine may have become where no yardstick says it: 1.4 times has been seen, for
/// minutes, with nobody else at work.
const UNKNOWN_DRIFT: f64 = 1.5;

/// Below that it is not worth a word.
const WORTH_A_WORD: f64 = 0.05;

/// How many times as long each yardstick takes. `None`: one of the reports has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mood {
    pub(crate) copies: Option<f64>,
    pub(crate) wakes: Option<f64>,
    pub(crate) starts: Option<f64>,
    /// A cell went beside bare starts in one of the reports alone.
    lacks_starts: bool,
}

impl Mood {
    /// From the machines, and from the cells that both have.
    pub(crate) fn between<'a>(
        old: &Report,
        new: &Report,
        cells: impl Iterator<Item = (&'a Cell, &'a Cell)>,
    ) -> Mood {
        let (before, now) = (&old.machine, &new.machine);
        let ratio = |one: &[f64], other: &[f64]| {
            let ratio = median(one)? / median(other)?;
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
        };
        let (mut starts, mut lacks_starts) = (Vec::new(), false);
        for (old, new) in cells {
            starts.extend(Mood::of_starts(old, new));
            lacks_starts |= old.in_bare_starts.is_empty() != new.in_bare_starts.is_empty();
        }
        Mood {
            // Of a speed the other way round.
            copies: ratio(&before.yardstick_bytes_per_second, &now.yardstick_bytes_per_second),
            wakes: ratio(&now.yardstick_wake_seconds, &before.yardstick_wake_seconds),
            starts: median(&starts),
            lacks_starts,
        }
    }

    /// The bare starts beside a cell, new by old.
    pub(crate) fn of_starts(old: &Cell, new: &Cell) -> Option<f64> {
        let bare = |cell: &Cell| Some(median(&cell.samples)? / median(&cell.in_bare_starts)?);
        let ratio = bare(new)? / bare(old)?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// How many times faster or slower the machine may have been for that cell, 1 or more.
    pub(crate) fn drift_of(&self, old: &Cell, new: &Cell) -> f64 {
        match [old, new].map(|cell| cell.in_bare_starts.is_empty()) {
            // It is in the figures already.
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

    /// In a sentence; `None`: it is as it was.
    pub(crate) fn words(&self) -> Option<String> {
        let all = [
            ("a bare start", self.starts, " (taken out)"),
            ("a wake-up", self.wakes, ""),
            ("a copy", self.copies, ""),
        ];
        let said: Vec<String> = all
            .iter()
            .filter_map(|(name, times, what)| {
                let times = times.filter(|times| ln(*times).abs() > ln(1.0 + WORTH_A_WORD))?;
                Some(format!("{name} takes {}{what}", units::change(times)))
            })
            .collect();
        (!said.is_empty()).then(|| format!("The machine itself has changed: {}.", said.join(", ")))
    }

    /// Which yardsticks there are not, in a sentence; `None`: all that are needed are there.
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
                "One of the reports has no yardstick of {}: what depends on it has to change by {percent:.0} % more.",
                names.join(" and "),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::compare;
    use crate::sample;

    fn mood(old: &Report, new: &Report) -> Mood {
        let cells = |report: &Report| report.charts[0].curves[0].cells.clone();
        let (before, now) = (cells(old), cells(new));
        Mood::between(old, new, before.iter().zip(&now))
    }

    fn slow_down(report: &mut Report, times: f64) {
        for cell in &mut report.charts[0].curves[0].cells {
            cell.samples.iter_mut().for_each(|it| *it *= times);
        }
        report.machine.yardstick_wake_seconds.iter_mut().for_each(|it| *it *= times);
        report.machine.yardstick_bytes_per_second.iter_mut().for_each(|it| *it /= times);
    }

    #[test]
    fn each_yardstick_says_how_many_times_as_long_it_takes() {
        let (old, mut new) = (sample::spawn(), sample::spawn());
        assert_eq!(mood(&old, &new).words(), None);
        slow_down(&mut new, 1.25);
        let there = mood(&old, &new);
        for times in [there.copies, there.wakes, there.starts] {
            assert!((times.unwrap() - 1.25).abs() < 1e-9, "{there:?}");
        }
        assert_eq!(
            there.words().as_deref(),
            Some(
                "The machine itself has changed: a bare start takes +25 % (taken out), \
                 a wake-up takes +25 %, a copy takes +25 %."
            ),
        );
        let back = mood(&new, &old);
        assert!((back.wakes.unwrap() - 0.8).abs() < 1e-9 && back.missing().is_none(), "{back:?}");
        // What went beside bare starts has nothing left of it; what did not may have all of it.
        let cell = &old.charts[0].curves[0].cells[0];
        assert_eq!(there.drift_of(cell, cell), 1.0);
        let plain = Cell { in_bare_starts: Vec::new(), ..cell.clone() };
        for mood in [there, back] {
            assert!((mood.drift_of(&plain, &plain) - 1.25).abs() < 1e-9, "{mood:?}");
            assert_eq!(mood.drift_of(&plain, cell), UNKNOWN_DRIFT);
        }
    }

    #[test]
    fn what_an_older_report_lacks_is_said_and_allowed_for() {
        let (mut old, new) = (sample::spawn(), sample::spawn());
        old.machine.yardstick_wake_seconds.clear();
        for cell in &mut old.charts[0].curves[0].cells {
            cell.in_bare_starts.clear();
        }
        for mood in [mood(&old, &new), mood(&new, &old)] {
            let words = mood.missing().unwrap();
            assert!(words.contains("no yardstick of starts and wake-ups"), "{words}");
            assert!(words.contains("50 % more"), "{words}");
            let cell = &old.charts[0].curves[0].cells[0];
            assert_eq!(mood.drift_of(cell, cell), UNKNOWN_DRIFT);
        }
    }

    /// The starts of a build that takes so many times as long, on a machine that does.
    fn starts(build: f64, machine: f64) -> Report {
        let mut report = sample::spawn();
        for cell in &mut report.charts[0].curves[0].cells {
            let samples = cell.samples.iter().map(|it| it * build * machine).collect();
            let in_bare_starts = cell.in_bare_starts.iter().map(|it| it * build).collect();
            *cell = Cell { in_bare_starts, ..Cell::new(&cell.label, None, samples) };
        }
        report
    }

    fn without_yardsticks(mut report: Report) -> Report {
        report.machine.yardstick_wake_seconds.clear();
        for cell in &mut report.charts[0].curves[0].cells {
            cell.in_bare_starts.clear();
        }
        report
    }

    fn with_one_series(mut report: Report) -> Report {
        report.settings.series = 1;
        for cell in &mut report.charts[0].curves[0].cells {
            cell.samples.truncate(1);
            cell.in_bare_starts.truncate(1);
        }
        report
    }

    #[test]
    fn starts_are_judged_beside_bare_starts() {
        const TAKEN_OUT: &str = "a bare start takes +40 % (taken out)";
        let old = starts(1.0, 1.0);
        for (what, new, [faster, slower, unsure], words) in [
            (
                "the same",
                starts(1.0, 1.0),
                [0, 0, 0],
                "nothing changed beyond the noise in 3 cells.",
            ),
            ("another mood", starts(1.0, 1.4), [0, 0, 0], TAKEN_OUT),
            ("a slower build", starts(1.15, 1.0), [0, 3, 0], "3 slower, of 3 cells."),
            ("a slower build in a slower mood", starts(1.15, 1.4), [0, 3, 0], TAKEN_OUT),
            ("a slower build in a faster mood", starts(1.15, 0.7), [0, 3, 0], "-30 % (taken out)"),
            ("a faster build in a slower mood", starts(0.8, 1.4), [3, 0, 0], TAKEN_OUT),
            (
                "no yardstick",
                without_yardsticks(starts(1.0, 1.45)),
                [0, 0, 3],
                "no yardstick of starts and wake-ups",
            ),
            (
                "a much slower build, no yardstick",
                without_yardsticks(starts(2.5, 1.0)),
                [0, 3, 0],
                "no yardstick of starts and wake-ups",
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
        assert!(comparison.verdict.contains("one series says nothing"), "{}", comparison.verdict);
    }

    #[test]
    fn a_report_of_before_there_were_these_yardsticks_is_still_read() {
        let old = without_yardsticks(starts(1.0, 1.0));
        let mut data = serde_json::to_value(&old).unwrap();
        data["machine"].as_object_mut().unwrap().remove("yardstick_wake_seconds");
        for cell in data["charts"][0]["curves"][0]["cells"].as_array_mut().unwrap() {
            cell.as_object_mut().unwrap().remove("in_bare_starts");
        }
        let old: Report = serde_json::from_value(data).unwrap();
        assert_eq!(compare(&old, &starts(1.0, 1.0)).compared, 3);
    }
}
