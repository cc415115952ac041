//! Warnings about the figures of a report, with remedies.

use crate::report::{BenchReport, Warning};
use crate::stats::Summary;
use crate::units::three_digits;

/// If more than this share of the cells is noisy, the machine is too noisy for a verdict.
const TOO_NOISY_SHARE: f64 = 1.0 / 3.0;

/// If the baseline varies by more than this share, the speed of the machine drifts.
const DRIFT_SHARE: f64 = 0.15;

/// If other processes use more than this share of the CPU, they disturb the measurement.
const OTHERS_SHARE: f64 = 0.1;

/// Returns true if other processes disturbed more than a third of the series, and so possibly the medians.
pub(crate) fn is_disturbed(report: &BenchReport) -> bool {
    let shares = &report.machine.others_share;
    let disturbed = shares.iter().filter(|share| **share > OTHERS_SHARE).count();
    3 * disturbed > shares.len()
}

/// Returns true if the report is too noisy for a verdict.
pub(crate) fn is_too_noisy(report: &BenchReport) -> bool {
    let (noisy, measured) = noisy(report);
    are_too_many_noisy(noisy, measured)
}

/// Returns true if too many of all cells are noisy.
pub(crate) fn are_too_many_noisy(noisy: usize, all: usize) -> bool {
    noisy as f64 > TOO_NOISY_SHARE * all as f64
}

fn noisy(report: &BenchReport) -> (usize, usize) {
    let noisy = report.measured().filter(|cell| cell.noisy).count();
    (noisy, report.measured().count())
}

/// Returns the share by which the speed of the machine varied during the run.
pub(crate) fn drift(report: &BenchReport) -> Option<f64> {
    let baseline = Summary::of(&report.machine.yardstick_bytes_per_second)?;
    (baseline.median > 0.0).then(|| (baseline.most - baseline.least) / baseline.median)
}

pub(crate) fn warnings(report: &BenchReport) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, message: String| {
        warnings.push(Warning { kind: kind.to_owned(), message });
    };
    let machine = &report.machine;
    if machine.imitation {
        let words = "Wine: not representative of Windows; compare only with other runs under Wine";
        warn("imitation", words.to_owned());
    }
    if !report.complete {
        warn("interrupted", "interrupted: these are the results so far".to_owned());
    }
    if let Some(message) = about_time(report) {
        warn("short", message);
    }
    let others = machine.others_share.iter().copied().reduce(f64::max);
    if let Some(others) = others {
        if others > OTHERS_SHARE {
            let percent = others * 100.0;
            let words = format!("other processes used up to {percent:.0} % of the CPU; stop them",);
            warn("others", words);
        }
    } else if let Some(load) =
        // A high bound: the average of the last minute may contain work of our own.
        machine.load_before.filter(|load| *load > machine.processors as f64 / 2.0)
    {
        warn(
            "load",
            format!(
                "the load average was {} on {} before the first measurement; stop other processes",
                three_digits(load),
                processors(machine.processors),
            ),
        );
    }
    if machine.processors == 1 {
        let words = "only one processor: reader and writer, parent and child take turns";
        warn("one_processor", words.to_owned());
    } else if let Some(reason) = machine.not_pinned.as_ref().filter(|_| has_two_sides(report)) {
        let words = format!("reader and writer are not pinned to processors: {reason}");
        warn("not_pinned", words);
    }
    if let Some(quota) = machine.quota_processors.filter(|quota| *quota < machine.processors as f64)
    {
        let quota = three_digits(quota);
        warn(
            "quota",
            format!(
                "the control group is limited to {quota} of {}: processes that use more are paused",
                processors(machine.processors),
            ),
        );
    }
    if let Some(governor) = machine.governor.as_deref().filter(|it| *it == "powersave") {
        warn(
            "governor",
            format!(
                "the CPU governor is {governor}: short measurements may end before the processor is at full speed",
            ),
        );
    }
    if let Some(drift) = drift(report).filter(|drift| *drift > DRIFT_SHARE) {
        warn(
            "drift",
            format!(
                "the speed of the machine drifted by {:.0} % during the run: trust the order of the curves \
                 more than their height",
                drift * 100.0,
            ),
        );
    }
    for (kind, message) in about_samples(report) {
        warn(kind, message);
    }
    for (kind, message) in about_curves(report) {
        warn(kind, message);
    }
    warnings
}

/// Returns a warning if the time was too short for all that was planned.
fn about_time(report: &BenchReport) -> Option<String> {
    let settings = &report.settings;
    let limit = settings.time_limit_seconds.filter(|_| report.complete)?;
    let series = settings.measured_series.filter(|series| *series < settings.series);
    let percent = (settings.shortest_share * 100.0).round();
    let what = match series {
        Some(series) => format!("{series} of {} series were measured", settings.series),
        // A little less time changes no figure.
        None if percent < 50.0 => {
            format!("cells were measured for as little as {percent} % of their time")
        }
        None => return None,
    };
    let remedy = format!("--runs {} measures all, as long as it takes", settings.series);
    Some(format!("this machine is too slow or busy for {limit:.0} s: {what}; {remedy}"))
}

/// Returns true if a curve has a reader and a writer that can be pinned.
fn has_two_sides(report: &BenchReport) -> bool {
    let mut curves = report.charts.iter().flat_map(|chart| &chart.curves);
    curves.any(|curve| curve.facts.contains_key("reader_processor"))
}

fn processors(count: usize) -> String {
    if count == 1 { "1 processor".to_owned() } else { format!("{count} processors") }
}

fn about_samples(report: &BenchReport) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let (noisy, measured) = noisy(report);
    let settings = &report.settings;
    if noisy > 0 {
        let mut remedies = vec!["stop other processes".to_owned()];
        if settings.series < 5 {
            remedies.push("--runs 5".to_owned());
        }
        let shortest =
            report.charts.iter().map(|chart| chart.cell_seconds).fold(f64::INFINITY, f64::min);
        if shortest < 0.2 && settings.count.is_none() {
            remedies.push("--time 200ms".to_owned());
        }
        found.push((
            "noisy",
            format!(
                "spread above 10 % in {noisy} of {measured} cells (marked ~); remedies: {}",
                remedies.join(", "),
            ),
        ));
    }
    let outliers: usize = report.measured().map(|cell| cell.outliers).sum();
    if outliers > 0 {
        let samples = if outliers == 1 {
            "1 sample was".to_owned()
        } else {
            format!("{outliers} samples were")
        };
        let words = "far from all others of their cell: something interfered for a moment";
        found.push(("outliers", format!("{samples} {words}")));
    }
    if settings.series < 3 {
        found.push(("few_series", "fewer than 3 series do not show the spread".to_owned()));
    }
    if settings.verify {
        let words = "every byte was compared (--verify), which the figures include";
        found.push(("verify", words.to_owned()));
    }
    found
}

fn about_curves(report: &BenchReport) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for curve in report.charts.iter().flat_map(|chart| &chart.curves) {
        let bytes = |name: &str| curve.facts.get(name).and_then(serde_json::Value::as_u64);
        let requested = bytes("holds_bytes_asked").zip(bytes("holds_bytes"));
        if let Some((requested, got)) = requested.filter(|(requested, got)| got < requested) {
            found.push((
                "capacity",
                format!("{}: asked for {requested} bytes, got {got}", curve.name),
            ));
        }
    }
    found.extend(about_skipped_cells(report).into_iter().map(|words| ("skipped", words)));
    found
}

/// Names the cells that were not measured, with each reason once.
fn about_skipped_cells(report: &BenchReport) -> Vec<String> {
    // Each reason with its first curve or cell, and with the number of its curves.
    let mut reasons: Vec<(&str, String, usize)> = Vec::new();
    for curve in report.charts.iter().flat_map(|chart| &chart.curves) {
        let skipped: Vec<(&str, &str)> = curve
            .cells
            .iter()
            .filter_map(|cell| Some((cell.label.as_str(), cell.skipped.as_deref()?)))
            .collect();
        for same in skipped.chunk_by(|(_, a), (_, b)| a == b) {
            let Some((first, reason)) = same.first() else { continue };
            let which = match same.len() {
                count if count == curve.cells.len() => String::new(),
                1 => format!(", {first}"),
                count => format!(", {first} and {} more", count - 1),
            };
            match reasons.iter_mut().find(|(known, ..)| known == reason) {
                Some((_, _, curves)) => *curves += 1,
                None => reasons.push((reason, format!("{}{which}", curve.name), 1)),
            }
        }
    }
    let words = |(reason, first, curves): (&str, String, usize)| {
        let others = match curves {
            1 => String::new(),
            2 => " and another curve".to_owned(),
            _ => format!(" and {} more curves", curves - 1),
        };
        format!("not measured: {first}{others}: {reason}")
    };
    reasons.into_iter().map(words).collect()
}
