//! `pipewright doctor` and `pipewright handles`: the features of this system, and the handles that were inherited.

use pipewright::machine::{self, Facility, State};
use pipewright_os::base::stdio;
use serde::Serialize;

use crate::Failure;
use crate::args::{DoctorOptions, HandlesOptions};
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
pub(crate) fn doctor(options: &DoctorOptions) -> Result<i32, Failure> {
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

#[derive(Debug, Serialize)]
struct HandleList {
    schema: &'static str,
    handles: Vec<HandleEntry>,
}

#[derive(Debug, Serialize)]
struct HandleEntry {
    number: i64,
    kind: String,
    target: Option<String>,
}

/// Lists the handles.
pub(crate) fn handles(options: &HandlesOptions) -> Result<i32, Failure> {
    let handles = pipewright::open_handles()
        .map_err(Failure::cannot("list the handles"))?
        .into_iter()
        // Placeholders for streams that were closed: they were not inherited.
        .filter(|handle| !u8::try_from(handle.number).is_ok_and(stdio::was_closed))
        .map(|handle| HandleEntry {
            number: handle.number,
            kind: handle.kind.to_string(),
            target: handle.target,
        })
        .collect();
    let list = HandleList { schema: "pipewright.handles/1", handles };
    if options.json {
        print_json(&list)?;
        return Ok(crate::exit_code::SUCCESS);
    }
    let line = |handle: &HandleEntry| {
        let target = handle.target.as_deref().unwrap_or("");
        format!("{:>5}  {:<12} {}\n", handle.number, handle.kind, target.escape_debug())
    };
    print(list.handles.iter().map(line).collect::<String>())?;
    Ok(crate::exit_code::SUCCESS)
}
