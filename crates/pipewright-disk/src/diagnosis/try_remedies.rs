//! The effects of remedies: taken from another test of the report, or measured by repeating the test.

use super::scratch::DiagnosisTarget;
use super::{DiagnoseOptions, Effect, Measured, Remedy, Test, TestOutcome, TestReport};
use crate::{BackendKind, Result};

/// A function that runs a test on a file.
pub(super) type RunTest<'a> =
    &'a dyn Fn(&DiagnosisTarget, Test, &DiagnoseOptions) -> Result<Measured>;

/// Adds the effect of its remedy to each finding, if it can be measured.
pub(super) fn try_remedies(
    run: RunTest<'_>,
    target: &DiagnosisTarget,
    options: &DiagnoseOptions,
    tests: &mut [TestReport],
) {
    let effects: Vec<(Test, Effect)> = tests
        .iter()
        .filter_map(|report| Some((report.test, measured(&report.outcome)?.effect())))
        .collect();
    for TestReport { test, outcome } in tests {
        let TestOutcome::Measured(measured) = outcome else { continue };
        for finding in &mut measured.findings {
            finding.effect = match finding.tried {
                Some(tried) => effects.iter().find(|(test, _)| *test == tried).map(|it| it.1),
                // A test that fails shows no effect.
                None => once_more(run, target, *test, options, finding.remedy),
            };
        }
    }
}

fn measured(outcome: &TestOutcome) -> Option<&Measured> {
    match outcome {
        TestOutcome::Measured(measured) => Some(measured),
        TestOutcome::NotPossible(_) | TestOutcome::Failed(_) => None,
    }
}

/// Repeats a test with the remedy. `None` if no test can try the remedy.
fn once_more(
    run: RunTest<'_>,
    target: &DiagnosisTarget,
    test: Test,
    options: &DiagnoseOptions,
    remedy: Remedy,
) -> Option<Effect> {
    let backend = |backend| DiagnoseOptions { backend, ..*options };
    let (target, options) = match remedy {
        Remedy::Aio | Remedy::AioOrDefragment | Remedy::AioOrOnePage | Remedy::AioOrLazytime => {
            (target.clone(), backend(BackendKind::Aio))
        }
        Remedy::Threads => (target.clone(), backend(BackendKind::Threads)),
        // The first run has already synced.
        Remedy::Sync => (target.clone(), *options),
        Remedy::NoCopyOnWrite => (target.without_copy_on_write()?, *options),
        _ => return None,
    };
    run(&target, test, &options).ok().map(|measured| measured.effect())
}
