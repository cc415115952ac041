//! A diagnosis in words: the sentences about it and its tests, and all of it for a terminal.

use std::io::{self, Write};
use std::path::Path;

use pipewright_disk::diagnosis::{
    Finding, Measured, Reason, Report, Test, TestOutcome, TestReport, Verdict,
};
use pipewright_disk::{BackendKind, Class};

/// Writes the summary, the tests, the reasons and the remedies.
pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", lead(report))?;
    let filesystem = report.filesystem.as_deref().unwrap_or("unknown filesystem");
    let backend = report.backend.map_or("none", |backend| backend.name());
    let (block, requests) = (report.options.block_bytes, report.options.requests);
    writeln!(out, "{filesystem}, backend {backend}, {requests} requests of {block} bytes")?;
    for step in &report.unavailable_backends {
        writeln!(out, "{step}")?;
    }
    if let Some(unjudged) = report.unjudged {
        writeln!(out, "Not judged: {unjudged}")?;
    }
    for (number, test) in report.tests.iter().enumerate() {
        writeln!(out, "\nTest {:<3} {}", number + 1, test.test)?;
        match &test.outcome {
            TestOutcome::Measured(measured) => write_measured(out, measured)?,
            TestOutcome::NotPossible(reason) => writeln!(out, "  not possible here: {reason}")?,
            TestOutcome::Failed(reason) => writeln!(out, "  failed: {reason}")?,
        }
    }
    Ok(())
}

fn write_measured(out: &mut impl Write, measured: &Measured) -> io::Result<()> {
    writeln!(out, "  {}", times(measured))?;
    writeln!(out, "  {}", order(measured))?;
    let counts = Class::ALL.iter().filter_map(|class| {
        let count = measured.evidence.count(*class);
        (count > 0).then(|| format!("{count} {class}"))
    });
    let counts = counts.collect::<Vec<_>>().join("   ");
    let verdict = measured.verdict.to_string().to_uppercase();
    writeln!(out, "  {}", [counts, verdict].join("   ").trim_start())?;
    for finding in &measured.findings {
        writeln!(out, "  Reason:  {}", finding.reason)?;
        writeln!(out, "           {}", finding.evidence)?;
        writeln!(out, "  Remedy:  {}{}", finding.remedy, effect(finding))?;
    }
    Ok(())
}

/// Returns the measured effect of a remedy.
pub(super) fn effect(finding: &Finding) -> String {
    let Some(effect) = finding.effect else { return String::new() };
    let (completed, free) = (effect.completed.as_secs_f64(), effect.free_share * 100.0);
    format!(" (measured: {completed:.4} s, {free:.0} % free, {})", effect.verdict)
}

/// Returns the summary: the requests that are asynchronous, those that are not, and the reasons.
pub(super) fn lead(report: &Report) -> String {
    let judged = report.tests.iter().filter_map(|test| match &test.outcome {
        TestOutcome::Measured(measured) if test.test.asynchronous => Some((test.test, &**measured)),
        _ => None,
    });
    let judged: Vec<_> = judged.collect();
    let mut parts = Vec::new();
    for (verdicts, what) in [
        (&[Verdict::Asynchronous][..], "are truly asynchronous"),
        (&[Verdict::Cached], "are served from memory"),
        (&[Verdict::Partly], "are partly asynchronous"),
        (&[Verdict::Workers, Verdict::Blocked], "are not asynchronous"),
        (&[Verdict::Unknown], "cannot be judged here"),
    ] {
        let these = judged.iter().filter(|(_, it)| verdicts.contains(&it.verdict));
        let subjects = subjects(these.clone().map(|(test, _)| *test));
        if !subjects.is_empty() {
            let has_reasons = [Verdict::Partly, Verdict::Workers, Verdict::Unknown];
            let is_explained = has_reasons.iter().any(|verdict| verdicts.contains(verdict));
            let why = if is_explained {
                reason_text(report, these.map(|(_, it)| *it))
            } else {
                String::new()
            };
            parts.push(format!("{} {what}{why}", list(&subjects)));
        }
    }
    let failed = |test: &TestReport| match &test.outcome {
        TestOutcome::Failed(why) => Some(why.clone()),
        _ => None,
    };
    let failures: Vec<String> = report.tests.iter().filter_map(failed).collect();
    if let Some(first) = failures.first() {
        parts.push(format!("{} of {} tests failed: {first}", failures.len(), report.tests.len()));
    }
    let path = shown(&report.path);
    if parts.is_empty() {
        return format!("{path}: no asynchronous test could be measured.");
    }
    format!("{path}: {}.", parts.join("; "))
}

/// Shows a path on one line: control characters are escaped.
fn shown(path: &Path) -> String {
    let escaped = |character: char| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    };
    path.to_string_lossy().chars().map(escaped).collect()
}

/// Returns the subjects of a sentence about tests. A test that runs both with and without the cache is named once.
fn subjects(tests: impl Iterator<Item = Test>) -> Vec<String> {
    let mut tests: Vec<Test> = tests.collect();
    let mut subjects = Vec::new();
    while let Some(test) = (!tests.is_empty()).then(|| tests.remove(0)) {
        let words = test.to_string();
        let words = words.trim_start_matches("asynchronous").trim_start_matches([',', ' ']);
        let counterpart = Test { direct: !test.direct, ..test };
        match tests.iter().position(|other| *other == counterpart) {
            Some(place) => {
                tests.remove(place);
                let both = words.split_once(' ').map_or(words, |(_, work)| work);
                subjects.push(both.to_owned());
            }
            None => subjects.push(words.to_owned()),
        }
    }
    subjects
}

/// Returns the most important reasons, each once.
fn reason_text<'a>(report: &Report, measured: impl Iterator<Item = &'a Measured>) -> String {
    let mut why: Vec<String> = Vec::new();
    for reason in measured.filter_map(|it| it.findings.first()).map(|it| it.reason) {
        let words = reason.to_string();
        if reason != Reason::Unexplained && !why.contains(&words) {
            why.push(words);
        }
    }
    let has_threads = matches!(report.backend, Some(BackendKind::Threads | BackendKind::Aio));
    if why.is_empty() && has_threads {
        why.push("the engine uses blocking threads".to_owned());
    }
    if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) }
}

/// Joins names: `a`, `a and b`, `a, b and c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the times of a test, in the words of the code sample that the tool goes back to.
pub(super) fn times(measured: &Measured) -> String {
    let requests = measured.evidence.requests;
    let (queued, completed) = (measured.queued.as_secs_f64(), measured.completed.as_secs_f64());
    if measured.verdict == Verdict::Synchronous || measured.verdict == Verdict::Cached {
        return format!("{requests} requests issued and completed in {completed:.4} s");
    }
    let free = measured.free_share() * 100.0;
    format!(
        "{requests} requests queued in {queued:.4} s, completed in {completed:.4} s ({free:.0} % free)"
    )
}

/// Returns a sentence about the order of completion.
pub(super) fn order(measured: &Measured) -> String {
    match measured.out_of_order {
        0 => "Operations completed in the order issued.".to_owned(),
        count => format!(
            "Operations completed out of the order in which they were requested ({count} of {}).",
            measured.evidence.requests
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{list, shown};

    #[test]
    fn control_characters_in_a_path_are_escaped() {
        assert_eq!(shown(Path::new("a b/ü")), "a b/ü");
        assert_eq!(shown(Path::new("a\n\u{1b}[31mb\u{9b}")), "a\\n\\u{1b}[31mb\\u{9b}");
    }

    #[test]
    fn names_are_joined_as_in_a_sentence() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&names[..0]), "");
        assert_eq!(list(&names[..1]), "a");
        assert_eq!(list(&names[..2]), "a and b");
        assert_eq!(list(&names), "a, b and c");
    }
}
