//! A diagnosis for a terminal.

use std::io::{self, Write};

use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Finding, Measured, Report, TestOutcome};

use super::sentence;

/// Writes the summary, the tests, the reasons and the remedies.
pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", sentence::lead(report))?;
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
    writeln!(out, "  {}", sentence::times(measured))?;
    writeln!(out, "  {}", sentence::order(measured))?;
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
