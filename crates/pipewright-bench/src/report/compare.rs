//! The comparison with an older report: changes that are larger than the noise of both.

use crate::report::baseline_drift::BaselineDrift;
use crate::report::{BenchReport, Cell, Chart, Compared, Comparison, Curve, warnings};
use crate::stats::Summary;
use crate::stats::change::{ComparisonContext, Noise, Ratio};
use crate::units::{self, Unit};

/// Compares two reports cell by cell, without cells that only one of them has. Marks nothing if one of them is too noisy
/// for a verdict.
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
    let is_too_noisy = |noisy: &[bool]| {
        warnings::are_too_many_noisy(noisy.iter().filter(|it| **it).count(), noisy.len())
    };
    if is_too_noisy(&now) {
        Some("this run is too noisy to compare")
    } else if is_too_noisy(&before) {
        Some("that run is too noisy to compare with")
    } else if warnings::is_disturbed(new) {
        Some("other processes were busy during this run, so it cannot be compared")
    } else if warnings::is_disturbed(old) {
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
    let programs = [before, now].map(|machine| machine.bare_start_program.as_deref());
    differ("bare starts", programs[0], programs[1]);
    let processors = [before, now].map(|machine| machine.processors.to_string());
    differ("processors", Some(&processors[0]), Some(&processors[1]));
    let verify = [old, new].map(|report| if report.settings.verify { "on" } else { "off" });
    differ("verify", Some(verify[0]), Some(verify[1]));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cases::{case, chart};
    use crate::plan;
    use crate::plan::{Observer, SeriesRules, measure};
    use crate::sample;
    use crate::stats::shuffle::Random;

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
}
