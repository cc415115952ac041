//! What a reader has to know about the figures, and what would make them better.

use crate::report::{Report, Warning};
use crate::stats::Summary;
use crate::units::three_digits;

/// Of so many cells, more than this share that spread is a noisy machine and not a noisy cell.
const TOO_NOISY_SHARE: f64 = 1.0 / 3.0;

/// A yardstick that spreads by more than this says that the machine drifts.
const DRIFT_SHARE: f64 = 0.15;

/// Others that use more than this share of the processors are no longer part of the noise.
const OTHERS_SHARE: f64 = 0.1;

/// Whether others were at work for so much of it that its figures are theirs as well: in more than a third of
/// the series, so that the medians may be.
pub(crate) fn is_disturbed(report: &Report) -> bool {
    let shares = &report.machine.others_share;
    let disturbed = shares.iter().filter(|share| **share > OTHERS_SHARE).count();
    3 * disturbed > shares.len()
}

/// Whether no verdict would be honest.
pub(crate) fn is_too_noisy(report: &Report) -> bool {
    let (noisy, measured) = noisy(report);
    are_too_many_noisy(noisy, measured)
}

/// Whether so many noisy cells, of all, are no longer some noisy cells.
pub(crate) fn are_too_many_noisy(noisy: usize, all: usize) -> bool {
    noisy as f64 > TOO_NOISY_SHARE * all as f64
}

fn noisy(report: &Report) -> (usize, usize) {
    let noisy = report.measured().filter(|cell| cell.noisy).count();
    (noisy, report.measured().count())
}

/// By which share the machine itself became faster or slower while it was measured.
pub(crate) fn drift(report: &Report) -> Option<f64> {
    let yardstick = Summary::of(&report.machine.yardstick_bytes_per_second)?;
    (yardstick.median > 0.0).then(|| (yardstick.most - yardstick.least) / yardstick.median)
}

/// Everything that there is to say.
pub(crate) fn warnings(report: &Report) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, message: String| {
        warnings.push(Warning { kind: kind.to_owned(), message });
    };
    let machine = &report.machine;
    if machine.imitation {
        let words = "Wine: not representative of Windows; compare with other runs under Wine only";
        warn("imitation", words.to_owned());
    }
    if !report.complete {
        warn("interrupted", "interrupted: these are the figures up to there".to_owned());
    }
    let others = machine.others_share.iter().copied().reduce(f64::max);
    if let Some(others) = others {
        if others > OTHERS_SHARE {
            let percent = others * 100.0;
            let words = format!(
                "others used up to {percent:.0} % of the processors while this was measured: end what else runs",
            );
            warn("others", words);
        }
    } else if let Some(load) =
        // Less: it is an average over the last minute, of which we may have been the most.
        machine.load_before.filter(|load| *load > machine.processors as f64 / 2.0)
    {
        warn(
            "load",
            format!(
                "others were at work: {} threads ran on {} before the first measurement",
                three_digits(load),
                processors(machine.processors),
            ),
        );
    }
    if machine.processors == 1 {
        let words = "one processor: reader and writer, parent and child take turns on it";
        warn("one_processor", words.to_owned());
    } else if let Some(why) = machine.not_pinned.as_ref().filter(|_| has_two_sides(report)) {
        let words = format!("reader and writer run wherever the system puts them: {why}");
        warn("not_pinned", words);
    }
    if let Some(quota) = machine.quota_processors.filter(|quota| *quota < machine.processors as f64)
    {
        let quota = three_digits(quota);
        warn(
            "quota",
            format!(
                "the control group may use {quota} of {}: what takes more is held up in between",
                processors(machine.processors),
            ),
        );
    }
    if let Some(governor) = machine.governor.as_deref().filter(|it| *it == "powersave") {
        warn(
            "governor",
            format!(
                "the governor is {governor}: short measurements may be over before the clock is up",
            ),
        );
    }
    if let Some(drift) = drift(report).filter(|drift| *drift > DRIFT_SHARE) {
        warn(
            "drift",
            format!(
                "the machine itself drifted by {:.0} % meanwhile: trust the order of the curves more than \
             their height",
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

/// Whether anything in it has a reader and a writer, which have their places.
fn has_two_sides(report: &Report) -> bool {
    let mut curves = report.charts.iter().flat_map(|chart| &chart.curves);
    curves.any(|curve| curve.facts.contains_key("reader_processor"))
}

fn processors(count: usize) -> String {
    if count == 1 { "1 processor".to_owned() } else { format!("{count} processors") }
}

fn about_samples(report: &Report) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    let (noisy, measured) = noisy(report);
    let settings = &report.settings;
    if noisy > 0 {
        let mut remedies = vec!["end what else runs".to_owned()];
        if settings.series < 5 {
            remedies.push("--series 5".to_owned());
        }
        let shortest =
            report.charts.iter().map(|chart| chart.cell_seconds).fold(f64::INFINITY, f64::min);
        if shortest < 0.2 && settings.count.is_none() {
            remedies.push("--time 200ms".to_owned());
        }
        said.push((
            "noisy",
            format!(
                "{noisy} of {measured} cells spread by more than 10 % (marked ~); what helps: {}",
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
        let words = "far off all others of their cell: something else ran for a moment";
        said.push(("outliers", format!("{samples} {words}")));
    }
    if settings.series < 3 {
        said.push(("few_series", "fewer than 3 series say nothing about the spread".to_owned()));
    }
    if settings.verify {
        let words = "every byte was compared (--verify): the figures contain that";
        said.push(("verify", words.to_owned()));
    }
    said
}

fn about_curves(report: &Report) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    for curve in report.charts.iter().flat_map(|chart| &chart.curves) {
        let bytes = |name: &str| curve.facts.get(name).and_then(serde_json::Value::as_u64);
        let asked = bytes("holds_bytes_asked").zip(bytes("holds_bytes"));
        if let Some((asked, got)) = asked.filter(|(asked, got)| got < asked) {
            said.push(("capacity", format!("{}: asked for {asked} bytes, got {got}", curve.name)));
        }
    }
    said.extend(about_what_is_missing(report).into_iter().map(|words| ("skipped", words)));
    said
}

/// What was not measured; the same reason once, however many cells it is the reason of.
fn about_what_is_missing(report: &Report) -> Vec<String> {
    // Each reason with the first that it is the reason of, and how many curves it concerns.
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
            2 => " and another way".to_owned(),
            _ => format!(" and {} more ways", curves - 1),
        };
        format!("not measured: {first}{others}: {reason}")
    };
    reasons.into_iter().map(words).collect()
}
