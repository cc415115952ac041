//! `pipewright doctor`: the system features that are available.

use pipewright::machine::{self, State};
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
        DoctorCheck { name: facility.name, state, detail, used_for: facility.used_for }
    });
    let findings = Findings { schema: "pipewright.doctor/1", facilities: facilities.collect() };
    if options.json {
        print_json(&findings)?;
        return Ok(crate::exit_code::SUCCESS);
    }
    let line = |finding: &DoctorCheck| {
        let text = match (finding.state, finding.detail.as_str()) {
            ("available", "") => "yes".to_owned(),
            ("available", detail) => format!("yes ({detail})"),
            ("missing", reason) => format!("no: {reason}"),
            (_, detail) => detail.to_owned(),
        };
        format!("{:<20} {:<28} {}\n", finding.name, text, finding.used_for)
    };
    print(findings.facilities.iter().map(line).collect::<String>())?;
    Ok(crate::exit_code::SUCCESS)
}
