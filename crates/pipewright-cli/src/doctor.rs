//! `pipewright doctor`: the system features that are available.

use pipewright::machine::{self, Facility, State};
use serde::Serialize;

use crate::Failure;
use crate::args::DoctorOptions;
use crate::print::{print, print_json};

#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    facilities: Vec<DoctorCheck>,
}

#[derive(Debug, Serialize)]
struct DoctorCheck {
    name: &'static str,
    /// `available`, `missing` or `value`.
    state: &'static str,
    detail: String,
    used_for: &'static str,
    without: &'static str,
    needs: &'static str,
}

/// Tries each feature and prints a line for it.
pub(crate) fn run(options: &DoctorOptions) -> Result<i32, Failure> {
    let facilities = machine::facilities().into_iter().map(|facility| {
        let (state, detail) = match facility.state {
            State::Available(detail) => ("available", detail),
            State::Missing(reason) => ("missing", reason),
            State::Value(value) => ("value", value),
            // A later version of the library may have more states.
            _ => ("unknown", String::new()),
        };
        let Facility { name, used_for, without, needs, .. } = facility;
        DoctorCheck { name, state, detail, used_for, without, needs }
    });
    let findings = Findings { schema: "pipewright.doctor/1", facilities: facilities.collect() };
    if options.json {
        print_json(&findings)?;
        return Ok(crate::exit_code::SUCCESS);
    }
    let lines = |finding: &DoctorCheck| {
        let DoctorCheck { name, state, detail, used_for, without, needs } = finding;
        let text = match (*state, detail.as_str()) {
            ("available", "") => "yes".to_owned(),
            ("available", detail) => format!("yes ({detail})"),
            ("missing", _) => "no".to_owned(),
            (_, detail) => detail.to_owned(),
        };
        let mut lines = format!("{name:<20} {text:<28} {used_for}\n");
        if *state == "missing" {
            lines += &format!("{:<20}   needs {needs}: {detail}\n", "");
            lines += &format!("{:<20}   without it: {without}\n", "");
        }
        lines
    };
    let summary = summary(&findings.facilities);
    print(summary + &findings.facilities.iter().map(lines).collect::<String>())?;
    Ok(crate::exit_code::SUCCESS)
}

/// Returns the first line: how much there is, and the names of the rest.
fn summary(checks: &[DoctorCheck]) -> String {
    let named = |state| checks.iter().filter(move |check| check.state == state);
    let missing: Vec<_> = named("missing").map(|check| check.name).collect();
    let count = named("available").count();
    match missing.len() {
        0 => format!("all {count} features are available\n"),
        without => format!(
            "{count} of {} features are available; not: {}\n",
            count + without,
            missing.join(", ")
        ),
    }
}
