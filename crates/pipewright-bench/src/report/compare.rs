//! The comparison with an older report: changes that are larger than the noise of both, and than the drift of the
//! machine itself.

use super::{
    BenchReport, Cell, Chart, Compared, Comparison, Curve, are_too_many_noisy, is_disturbed,
};
use crate::host::HostReport;
use crate::stats::{ComparisonContext, Noise, Ratio, Summary, ln, median};
use crate::units::{self, Unit};

/// Compares two reports cell by cell, without cells that only one of them has. Marks nothing if one of them is too
/// noisy for a verdict.
pub(crate) fn compare(old: &BenchReport, new: &BenchReport) -> Comparison {
    let pairs = pairs(old, new);
    let obstacle = obstacle(old, new, &pairs);
    let drift = BaselineDrift::between(old, new, pairs.iter().map(|pair| (pair.old, pair.new)));
    let mut comparison = Comparison {
        started_unix_seconds: old.started_unix_seconds,
        tool_version: old.tool_version.clone(),
        differences: differences(old, new),
        yardstick_ratio: drift.copies.map(|times| 1.0 / times),
        wake_yardstick_ratio: drift.wakes,
        start_yardstick_ratio: drift.starts,
        compared: 0,
        faster: 0,
        slower: 0,
        unsure: 0,
        cells: Vec::new(),
        verdict: String::new(),
    };
    for pair in &pairs {
        let Pair { chart, curve, old_curve, old, new } = pair;
        let (before, now) = Cell::comparable(old, new);
        let circumstances = ComparisonContext {
            noise: noise(old_curve, curve),
            pairs: pairs.len(),
            drift: drift.of_cell(old, new),
        };
        let Some(mut ratio) = Ratio::of(before, now, &circumstances) else { continue };
        ratio.is_real &= obstacle.is_none();
        ratio.is_unsure &= obstacle.is_none();
        let Some((old_median, new_median)) = old.summary().zip(new.summary()) else { continue };
        let (old_median, new_median) = (old_median.median, new_median.median);
        comparison.compared += 1;
        comparison.unsure += usize::from(ratio.is_unsure);
        let is_better = is_better(chart.unit, ratio.ratio);
        comparison.faster += usize::from(ratio.is_real && is_better);
        comparison.slower += usize::from(ratio.is_real && !is_better);
        comparison.cells.push(Compared {
            chart: chart.id.clone(),
            curve: curve.name.clone(),
            label: new.label.clone(),
            old_median,
            new_median,
            yardstick_ratio: BaselineDrift::of_starts(old, new),
            ratio,
        });
    }
    let reason_unsure = if [old, new].iter().any(|report| report.settings.series < 2) {
        "one series does not show the spread"
    } else {
        "the machine itself may have changed by as much"
    };
    comparison.verdict = verdict(&comparison, obstacle, reason_unsure, &drift);
    comparison
}

pub(crate) fn is_better(unit: Unit, ratio: f64) -> bool {
    (ratio > 1.0) == unit.more_is_better()
}

/// A cell that both reports have.
struct Pair<'a> {
    chart: &'a Chart,
    curve: &'a Curve,
    old_curve: &'a Curve,
    old: &'a Cell,
    new: &'a Cell,
}

fn pairs<'a>(old: &'a BenchReport, new: &'a BenchReport) -> Vec<Pair<'a>> {
    let pair = |(chart, curve, new): (&'a Chart, &'a Curve, &'a Cell)| {
        let (old_curve, old) = find(old, chart, curve, new)?;
        let is_measured = !old.samples.is_empty() && !new.samples.is_empty();
        is_measured.then_some(Pair { chart, curve, old_curve, old, new })
    };
    all(new).filter_map(pair).collect()
}

/// Returns the noise of both curves, in the unit in which they are compared.
fn noise(old: &Curve, new: &Curve) -> Option<Noise> {
    let both = new.cells.iter().filter_map(|cell| {
        let old = old.cells.iter().find(|it| it.label == cell.label)?;
        let (before, now) = Cell::comparable(old, cell);
        Some([before, now])
    });
    Noise::of(both.flatten())
}

/// Returns the reason why the reports cannot be compared.
fn obstacle(old: &BenchReport, new: &BenchReport, pairs: &[Pair<'_>]) -> Option<&'static str> {
    let is_noisy = |samples| Summary::of(samples).is_some_and(|it| it.is_noisy());
    let sides = pairs.iter().map(|pair| Cell::comparable(pair.old, pair.new));
    let (before, now): (Vec<bool>, Vec<bool>) =
        sides.map(|(before, now)| (is_noisy(before), is_noisy(now))).unzip();
    let is_too_noisy =
        |noisy: &[bool]| are_too_many_noisy(noisy.iter().filter(|it| **it).count(), noisy.len());
    if is_too_noisy(&now) {
        Some("this run is too noisy to compare")
    } else if is_too_noisy(&before) {
        Some("that run is too noisy to compare with")
    } else if is_disturbed(new) {
        Some("other processes were busy during this run, so it cannot be compared")
    } else if is_disturbed(old) {
        Some("other processes were busy during that run, so this one cannot be compared with it")
    } else {
        None
    }
}

fn all(report: &BenchReport) -> impl Iterator<Item = (&Chart, &Curve, &Cell)> {
    report.charts.iter().flat_map(|chart| {
        chart
            .curves
            .iter()
            .flat_map(move |curve| curve.cells.iter().map(move |cell| (chart, curve, cell)))
    })
}

fn find<'a>(
    old: &'a BenchReport,
    chart: &Chart,
    curve: &Curve,
    cell: &Cell,
) -> Option<(&'a Curve, &'a Cell)> {
    let chart = old.charts.iter().find(|it| it.id == chart.id && it.unit == chart.unit)?;
    let curve = chart.curves.iter().find(|it| it.name == curve.name)?;
    Some((curve, curve.cells.iter().find(|it| it.label == cell.label)?))
}

/// Names the other differences, which may be the cause of the ratios.
fn differences(old: &BenchReport, new: &BenchReport) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, old: Option<&str>, new: Option<&str>| {
        if old != new {
            let [old, new] = [old, new].map(|it| it.unwrap_or("unknown"));
            found.push(format!("{what}: {old}, now {new}"));
        }
    };
    let (before, now) = (&old.machine, &new.machine);
    differ("tool", Some(&old.tool_version), Some(&new.tool_version));
    differ("system", before.system.as_deref(), now.system.as_deref());
    differ("kernel", before.kernel.as_deref(), now.kernel.as_deref());
    differ("processor", before.processor.as_deref(), now.processor.as_deref());
    differ("governor", before.governor.as_deref(), now.governor.as_deref());
    let (program_before, program_now) = (&before.bare_start_program, &now.bare_start_program);
    differ("bare starts", program_before.as_deref(), program_now.as_deref());
    let processors = |machine: &HostReport| machine.processors.to_string();
    differ("processors", Some(&processors(before)), Some(&processors(now)));
    let verify = |report: &BenchReport| if report.settings.verify { "on" } else { "off" };
    differ("verify", Some(verify(old)), Some(verify(new)));
    found
}

/// Sums up the comparison in sentences.
fn verdict(
    comparison: &Comparison,
    obstacle: Option<&str>,
    reason_unsure: &str,
    drift: &BaselineDrift,
) -> String {
    let since = units::date(comparison.started_unix_seconds);
    if comparison.compared == 0 {
        return format!("The report of {since} and this one have no cell in common.");
    }
    let count = comparison.compared;
    let (faster, slower) = (comparison.faster, comparison.slower);
    let changed = match (faster, slower) {
        _ if obstacle.is_some() => obstacle.unwrap_or_default().to_owned(),
        (0, 0) => format!("no change beyond the noise in {count} cells"),
        (_, 0) => format!("{faster} faster, of {count} cells"),
        (0, _) => format!("{slower} slower, of {count} cells"),
        _ => format!("{faster} faster and {slower} slower, of {count} cells"),
    };
    let mut found = format!("Since {since}: {changed}.");
    if comparison.unsure > 0 {
        let unsure = comparison.unsure;
        found.push_str(&format!(" No verdict on {unsure} (marked ?): {reason_unsure}."));
    }
    for words in [drift.words(), drift.missing()].into_iter().flatten() {
        found.push_str(&format!(" {words}"));
    }
    found
}

// The drift of the machine itself, by its baselines.

/// The assumed drift of a machine without a baseline: 1.4 has been observed for minutes on an idle machine.
const UNKNOWN_DRIFT: f64 = 1.5;

/// A smaller change is not reported.
const LEAST_REPORTED: f64 = 0.05;

/// The time of each baseline, new by old. `None`: one of the reports has none.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BaselineDrift {
    copies: Option<f64>,
    wakes: Option<f64>,
    starts: Option<f64>,
    /// A cell has bare starts in only one of the reports.
    lacks_starts: bool,
}

impl BaselineDrift {
    /// Compares the baselines of two reports, and those of their common cells.
    fn between<'a>(
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
    fn of_starts(old: &Cell, new: &Cell) -> Option<f64> {
        let bare = |cell: &Cell| Some(median(&cell.samples)? / median(&cell.in_bare_starts)?);
        let ratio = bare(new)? / bare(old)?;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Returns the factor by which the machine may have become faster or slower for a cell, at least 1.
    fn of_cell(&self, old: &Cell, new: &Cell) -> f64 {
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
    fn words(&self) -> Option<String> {
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
    fn missing(&self) -> Option<String> {
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
                "One of the reports has no baseline of {}: cells that depend on it are marked \
                 only if they changed by {percent:.0} % more.",
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
    use std::time::Duration;

    use super::*;
    use crate::cases::{case, chart};
    use crate::plan::{self, Observer, SeriesRules, measure};
    use crate::sample;
    use crate::stats::Random;

    #[test]
    fn a_report_compared_with_itself_has_not_changed() {
        let report = sample::pipes();
        let comparison = compare(&report, &report);
        assert!(comparison.compared > 10, "{comparison:?}");
        assert_eq!((comparison.faster, comparison.slower), (0, 0));
        assert!(comparison.verdict.contains("no change"), "{}", comparison.verdict);
        assert!(comparison.differences.is_empty());
    }

    #[test]
    fn only_cells_that_became_slower_are_marked() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        for cell in &mut new.charts[0].curves[0].cells[3..6] {
            let slower = cell.samples.iter().map(|sample| sample * 0.6).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        let comparison = compare(&old, &new);
        assert_eq!((comparison.faster, comparison.slower), (0, 3));
        // The reverse comparison finds the same cells to be faster.
        let back = compare(&new, &old);
        assert_eq!((back.faster, back.slower), (3, 0));
    }

    #[test]
    fn a_slower_machine_is_not_a_regression() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let slower = cell.samples.iter().map(|sample| sample * 0.8).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        new.machine.yardstick_bytes_per_second.iter_mut().for_each(|it| *it *= 0.8);
        let comparison = compare(&old, &new);
        assert_eq!((comparison.faster, comparison.slower), (0, 0), "{}", comparison.verdict);
        assert!(comparison.unsure > 30, "{}", comparison.verdict);
        for words in ["(marked ?): the machine itself may have", "changed: a copy is 25 % slower."]
        {
            assert!(comparison.verdict.contains(words), "{}", comparison.verdict);
        }
        new.machine.yardstick_bytes_per_second = old.machine.yardstick_bytes_per_second.clone();
        assert!(compare(&old, &new).slower > 10);
    }

    #[test]
    fn nothing_is_marked_on_a_machine_that_is_too_noisy() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let samples = [0.02, 0.05, 0.08].map(|factor| cell.samples[0] * factor).to_vec();
            *cell = Cell::new(&cell.label, cell.block_bytes, samples);
        }
        for (old, new, words) in [
            (&old, &new, "this run is too noisy to compare"),
            (&new, &old, "that run is too noisy to compare with"),
        ] {
            let comparison = compare(old, new);
            assert_eq!((comparison.faster, comparison.slower), (0, 0));
            assert!(comparison.cells.iter().all(|cell| !cell.ratio.is_real));
            assert!(comparison.verdict.contains(words), "{}", comparison.verdict);
        }
    }

    #[test]
    fn nothing_is_marked_if_other_processes_were_busy() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let slower = cell.samples.iter().map(|sample| sample * 0.5).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        // One of three series does not determine the medians.
        new.machine.others_share = vec![0.0, 0.4, 0.05];
        assert!(compare(&old, &new).slower > 10);
        new.machine.others_share = vec![0.0, 0.4, 0.3];
        for (old, new, words) in [
            (&old, &new, "other processes were busy during this run"),
            (&new, &old, "other processes were busy during that run"),
        ] {
            let comparison = compare(old, new);
            assert_eq!((comparison.faster, comparison.slower), (0, 0));
            assert!(comparison.verdict.contains(words), "{}", comparison.verdict);
        }
    }

    /// Process starts with random times, by a build that is slower in every second case.
    fn run(seed: u64, slowed: f64) -> BenchReport {
        let mut seeds = Random::new(seed);
        let points = (0..20).map(|number: u32| {
            let micros = 100.0 * f64::from(1 + number) * if number % 2 == 0 { slowed } else { 1.0 };
            let mut random = Random::new(seeds.next());
            let operation = move || {
                // The sum of four is nearly normal, with a standard deviation of 2.3 %.
                let sum: f64 = (0..4).map(|_| random.below(1000) as f64 / 1000.0).sum();
                Ok(Duration::from_secs_f64(micros * 1e-6 * (1.0 + 0.04 * (sum - 2.0))).into())
            };
            case(number.to_string(), Unit::Seconds, operation)
        });
        // So short that each sample is one operation.
        let time = Duration::from_micros(1);
        let mut charts = [chart("spawn", "Start and wait", Unit::Seconds, time, points.collect())];
        let rules = SeriesRules { series: 3, seed, limit: None };
        assert!(measure(&mut charts, &rules, &mut Unwatched).unwrap().complete);
        BenchReport { charts: plan::report(&charts), ..sample::spawn() }
    }

    struct Unwatched;

    impl Observer for Unwatched {
        fn series(&mut self, _: usize) {}
        fn cell(&mut self, _: &str) {}
        fn after_series(&mut self, _: &[plan::PlannedChart]) {}
        fn is_stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_slower_build_is_distinguished_from_an_equal_one() {
        let (mut wrong, mut found) = (0, 0);
        for seed in 0..100 {
            let old = run(2 * seed, 1.0);
            let same = compare(&old, &run(2 * seed + 1, 1.0));
            wrong += same.faster + same.slower;
            let slowed = compare(&old, &run(2 * seed + 1, 1.4));
            assert_eq!((slowed.compared, slowed.faster), (20, 0), "{}", slowed.verdict);
            let right = slowed.cells.iter().filter(|cell| is_slowed(cell)).count();
            found += right;
            wrong += slowed.slower - right;
        }
        // Of 3000 cells that did not change, and of 1000 that did.
        assert_eq!(wrong, 0);
        assert!(found >= 990, "{found}");
    }

    fn is_slowed(cell: &Compared) -> bool {
        cell.ratio.is_real && cell.label.parse::<u32>().unwrap() % 2 == 0
    }

    #[test]
    fn less_time_is_better_and_differences_of_the_machine_are_named() {
        let (mut old, mut new) = (sample::pipes(), sample::pipes());
        for report in [&mut old, &mut new] {
            report.charts[0].unit = Unit::Seconds;
        }
        new.machine.kernel = Some("7.2".to_owned());
        let cell = &mut new.charts[0].curves[0].cells[0];
        *cell = Cell::new(
            &cell.label,
            cell.block_bytes,
            cell.samples.iter().map(|it| it * 2.0).collect(),
        );
        let comparison = compare(&old, &new);
        assert_eq!((comparison.faster, comparison.slower), (0, 1));
        assert_eq!(comparison.differences, ["kernel: 6.18.0, now 7.2"]);
    }

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
