//! What has changed since an older report, by more than the noise of both.

use super::advice;
use super::report::{Cell, Chart, Compared, Comparison, Curve, Report};
use super::stats::{Ratio, median};
use super::units::{self, Unit};

/// Compares cell by cell. Cells that only one of them has are left out. Where one of them is too noisy
/// for a verdict nothing is more than noise.
pub(super) fn compare(old: &Report, new: &Report) -> Comparison {
    let noisy = match [new, old].map(advice::is_too_noisy) {
        [true, _] => Some("this run is too noisy to be compared"),
        [_, true] => Some("that run is too noisy to be compared with"),
        _ => match [new, old].map(advice::is_disturbed) {
            [true, _] => Some("others were at work during this run, so that it cannot be compared"),
            [_, true] => {
                Some("others were at work during that run, so that it cannot be compared with")
            }
            _ => None,
        },
    };
    let yardstick_ratio = yardstick_ratio(old, new);
    let drift = yardstick_ratio.map_or(0.0, |ratio| (ratio.max(1.0 / ratio)) - 1.0);
    let mut cells = Vec::new();
    let (mut faster, mut slower) = (0, 0);
    for (chart, curve, cell) in all(new) {
        let Some((old_curve, old_cell)) = find(old, chart, curve, cell) else { continue };
        let Some((before, now)) = old_cell.summary().zip(cell.summary()) else { continue };
        let usual = old_curve.usual_spread().max(curve.usual_spread());
        let Some(mut ratio) = Ratio::of(&before, &now, usual, drift) else { continue };
        ratio.is_real &= noisy.is_none();
        if ratio.is_real {
            if is_better(chart.unit, ratio.ratio) { faster += 1 } else { slower += 1 }
        }
        cells.push(Compared {
            chart: chart.id.clone(),
            curve: curve.name.clone(),
            label: cell.label.clone(),
            old_median: before.median,
            new_median: now.median,
            ratio,
        });
    }
    let mut comparison = Comparison {
        started_unix_seconds: old.started_unix_seconds,
        tool_version: old.tool_version.clone(),
        differences: differences(old, new),
        yardstick_ratio,
        compared: cells.len(),
        faster,
        slower,
        cells,
        verdict: String::new(),
    };
    comparison.verdict = verdict(&comparison, noisy);
    comparison
}

pub(super) fn is_better(unit: Unit, ratio: f64) -> bool {
    (ratio > 1.0) == unit.more_is_better()
}

fn yardstick_ratio(old: &Report, new: &Report) -> Option<f64> {
    let of = |report: &Report| median(&report.machine.yardstick_bytes_per_second);
    let ratio = of(new)? / of(old)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

fn all(report: &Report) -> impl Iterator<Item = (&Chart, &Curve, &Cell)> {
    report.charts.iter().flat_map(|chart| {
        chart
            .curves
            .iter()
            .flat_map(move |curve| curve.cells.iter().map(move |cell| (chart, curve, cell)))
    })
}

fn find<'a>(
    old: &'a Report,
    chart: &Chart,
    curve: &Curve,
    cell: &Cell,
) -> Option<(&'a Curve, &'a Cell)> {
    let chart = old.charts.iter().find(|it| it.id == chart.id && it.unit == chart.unit)?;
    let curve = chart.curves.iter().find(|it| it.name == curve.name)?;
    Some((curve, curve.cells.iter().find(|it| it.label == cell.label)?))
}

/// What else is not the same, so that the reader knows what the ratios may come from.
fn differences(old: &Report, new: &Report) -> Vec<String> {
    let mut said = Vec::new();
    let mut differ = |what: &str, old: Option<&str>, new: Option<&str>| {
        if old != new {
            let [old, new] = [old, new].map(|it| it.unwrap_or("unknown"));
            said.push(format!("{what}: {old}, now {new}"));
        }
    };
    let (before, now) = (&old.machine, &new.machine);
    differ("tool", Some(&old.tool_version), Some(&new.tool_version));
    differ("system", before.system.as_deref(), now.system.as_deref());
    differ("kernel", before.kernel.as_deref(), now.kernel.as_deref());
    differ("processor", before.processor.as_deref(), now.processor.as_deref());
    differ("governor", before.governor.as_deref(), now.governor.as_deref());
    let processors = [before, now].map(|machine| machine.processors.to_string());
    differ("processors", Some(&processors[0]), Some(&processors[1]));
    let verify = [old, new].map(|report| if report.settings.verify { "on" } else { "off" });
    differ("verify", Some(verify[0]), Some(verify[1]));
    said
}

fn verdict(comparison: &Comparison, noisy: Option<&str>) -> String {
    let since = units::date(comparison.started_unix_seconds);
    if comparison.compared == 0 {
        return format!("The report of {since} has no cell that this one has.");
    }
    let count = comparison.compared;
    let (faster, slower) = (comparison.faster, comparison.slower);
    let changed = match (faster, slower) {
        _ if noisy.is_some() => noisy.unwrap_or_default().to_owned(),
        (0, 0) => format!("nothing changed beyond the noise in {count} cells"),
        (_, 0) => format!("{faster} faster, of {count} cells"),
        (0, _) => format!("{slower} slower, of {count} cells"),
        _ => format!("{faster} faster and {slower} slower, of {count} cells"),
    };
    let machine = comparison.yardstick_ratio.filter(|ratio| (ratio - 1.0).abs() > 0.05);
    let machine = machine
        .map(|ratio| format!("; the machine itself is {} (yardstick)", units::change(ratio)));
    format!("Since {since}: {changed}{}.", machine.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::cases::{case, chart};
    use super::super::measure::{Rules, Watch, measure};
    use super::super::shuffle::Random;
    use super::super::{plan, sample};
    use super::*;

    #[test]
    fn a_report_compared_with_itself_has_not_changed() {
        let report = sample::pipes();
        let comparison = compare(&report, &report);
        assert!(comparison.compared > 10, "{comparison:?}");
        assert_eq!((comparison.faster, comparison.slower), (0, 0));
        assert!(comparison.verdict.contains("nothing changed"), "{}", comparison.verdict);
        assert!(comparison.differences.is_empty());
    }

    #[test]
    fn what_became_slower_is_found_and_nothing_else() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        for cell in &mut new.charts[0].curves[0].cells[3..6] {
            let slower = cell.samples.iter().map(|sample| sample * 0.6).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        let comparison = compare(&old, &new);
        assert_eq!((comparison.faster, comparison.slower), (0, 3));
        // Read the other way it is as much faster.
        let back = compare(&new, &old);
        assert_eq!((back.faster, back.slower), (3, 0));
    }

    #[test]
    fn a_machine_that_is_slower_is_no_regression() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let slower = cell.samples.iter().map(|sample| sample * 0.8).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        new.machine.yardstick_bytes_per_second.iter_mut().for_each(|it| *it *= 0.8);
        let comparison = compare(&old, &new);
        assert_eq!((comparison.faster, comparison.slower), (0, 0), "{}", comparison.verdict);
        assert!(comparison.verdict.contains("-20 % (yardstick)"), "{}", comparison.verdict);
        new.machine.yardstick_bytes_per_second = old.machine.yardstick_bytes_per_second.clone();
        assert!(compare(&old, &new).slower > 10);
    }

    #[test]
    fn on_a_machine_that_is_too_noisy_nothing_has_changed() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let samples = [0.02, 0.05, 0.08].map(|factor| cell.samples[0] * factor).to_vec();
            *cell = Cell::new(&cell.label, cell.block_bytes, samples);
        }
        for (old, new, words) in [
            (&old, &new, "this run is too noisy to be compared"),
            (&new, &old, "that run is too noisy to be compared with"),
        ] {
            let comparison = compare(old, new);
            assert_eq!((comparison.faster, comparison.slower), (0, 0));
            assert!(comparison.cells.iter().all(|cell| !cell.ratio.is_real));
            assert!(comparison.verdict.contains(words), "{}", comparison.verdict);
        }
    }

    #[test]
    fn where_others_were_at_work_nothing_is_blamed_on_the_build() {
        let (old, mut new) = (sample::pipes(), sample::pipes());
        let all = new.charts.iter_mut().flat_map(|chart| &mut chart.curves);
        for cell in all.flat_map(|curve| &mut curve.cells) {
            let slower = cell.samples.iter().map(|sample| sample * 0.5).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, slower);
        }
        // A moment of it is not what the medians are made of.
        new.machine.others_share = vec![0.0, 0.4, 0.05];
        assert!(compare(&old, &new).slower > 10);
        new.machine.others_share = vec![0.0, 0.4, 0.3];
        for (old, new, words) in [
            (&old, &new, "others were at work during this run"),
            (&new, &old, "others were at work during that run"),
        ] {
            let comparison = compare(old, new);
            assert_eq!((comparison.faster, comparison.slower), (0, 0));
            assert!(comparison.verdict.contains(words), "{}", comparison.verdict);
        }
    }

    /// Starts of a process, on a machine that is never twice the same, by a build that takes so much longer
    /// for every second case. Cells are measured, and the clock is chance.
    fn run(seed: u64, slowed: f64) -> Report {
        let mut seeds = Random::new(seed);
        let points = (0..20).map(|number: u32| {
            let micros = 100.0 * f64::from(1 + number) * if number % 2 == 0 { slowed } else { 1.0 };
            let mut random = Random::new(seeds.next());
            let operation = move || {
                // The sum of four is all but normal: a standard deviation of 2.3 %.
                let sum: f64 = (0..4).map(|_| random.below(1000) as f64 / 1000.0).sum();
                Ok(Duration::from_secs_f64(micros * 1e-6 * (1.0 + 0.04 * (sum - 2.0))).into())
            };
            case(number.to_string(), Unit::Seconds, operation)
        });
        // So short that each operation takes all of it, and is the sample.
        let time = Duration::from_micros(1);
        let mut charts = [chart("spawn", "Start and wait", Unit::Seconds, time, points.collect())];
        let rules = Rules { series: 3, seed };
        assert!(matches!(measure(&mut charts, &rules, &mut Unwatched), Ok(true)));
        Report { charts: plan::report(&charts), ..sample::spawn() }
    }

    struct Unwatched;

    impl Watch for Unwatched {
        fn series(&mut self, _: usize) {}
        fn cell(&mut self, _: &str) {}
        fn after_series(&mut self, _: &[plan::Chart]) {}
        fn stops(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_build_that_is_slower_is_told_from_one_that_is_not() {
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
        // Of 2000 and another 1000 cells that did not change, and of 1000 that did.
        assert_eq!(wrong, 0);
        assert!(found >= 990, "{found}");
    }

    fn is_slowed(cell: &Compared) -> bool {
        cell.ratio.is_real && cell.label.parse::<u32>().unwrap() % 2 == 0
    }

    #[test]
    fn for_times_less_is_better_and_other_machines_are_named() {
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
