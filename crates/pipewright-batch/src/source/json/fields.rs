//! The fields of a job as a JSON object.

use std::ffi::OsString;

use super::Value;
use super::convert::Field;
use crate::job::{Job, JobStdin};
use crate::source::InputErrorKind;

/// The fields, in the order of the documentation.
pub(in crate::source) const FIELDS: [&str; 14] = [
    "argv",
    "shell",
    "id",
    "cwd",
    "env",
    "stdin",
    "stdin_file",
    "after",
    "cpus",
    "mem",
    "resources",
    "timeout",
    "retries",
    "once",
];

/// Makes a job of an object.
pub(super) fn job(value: Value) -> Result<Job, InputErrorKind> {
    let Value::Object(fields) = value else {
        let found = value.to_string();
        let message = format!("expected an object, found {found}");
        return Err(InputErrorKind::Json { message, column: 1 });
    };
    check_names(&fields)?;
    let is_command = |(name, _): &(String, Value)| ["argv", "shell"].contains(&name.as_str());
    let (mut commands, settings): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_command);
    let Some((name, value)) = commands.pop() else { return Err(InputErrorKind::MissingCommand) };
    let job = command(Field { name: &name, value })?;
    settings.into_iter().try_fold(job, |job, (name, value)| set(job, Field { name: &name, value }))
}

/// Refuses unknown and repeated fields, and those that exclude each other.
fn check_names(fields: &[(String, Value)]) -> Result<(), InputErrorKind> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    for (index, name) in names.iter().enumerate() {
        let field = || (*name).to_owned();
        if !FIELDS.contains(name) {
            return Err(InputErrorKind::UnknownField { field: field() });
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(InputErrorKind::RepeatedField { field: field() });
        }
    }
    for pair in [["argv", "shell"], ["stdin", "stdin_file"]] {
        if pair.iter().all(|name| names.contains(name)) {
            return Err(InputErrorKind::ConflictingFields { fields: pair });
        }
    }
    Ok(())
}

/// Makes a job of `argv` or `shell`.
fn command(field: Field<'_>) -> Result<Job, InputErrorKind> {
    if field.name == "shell" {
        return Ok(Job::shell(field.os_string()?));
    }
    let words = field.items("an array of strings", |word| word.os_string())?;
    match words.split_first() {
        None => Err(InputErrorKind::MissingCommand),
        Some((program, _)) if program.is_empty() => Err(InputErrorKind::EmptyProgram),
        Some((program, args)) => Ok(Job::new(program).args(args)),
    }
}

/// Sets what a field says.
fn set(job: Job, field: Field<'_>) -> Result<Job, InputErrorKind> {
    const NAMES: &str = "an array of strings";
    Ok(match field.name {
        "id" => job.name(field.name_text()?),
        "cwd" => job.current_dir(field.path()?),
        "env" => environment(job, field)?,
        "stdin" => job.stdin(JobStdin::bytes(field.bytes()?)),
        "stdin_file" => job.stdin(JobStdin::file(field.path()?)),
        "after" => field.items(NAMES, |name| name.name_text())?.into_iter().fold(job, Job::after),
        "cpus" => job.cpus(field.count(1)?),
        "mem" => {
            let (bytes, most) = field.size_range()?;
            let job = job.mem_bytes(bytes);
            most.into_iter().fold(job, Job::most_mem_bytes)
        }
        "resources" => {
            let tokens = field.fields("an object of integers", |count| count.count(1))?;
            tokens.into_iter().fold(job, |job, (name, count)| job.resource(name, count))
        }
        "timeout" => job.timeout(field.duration()?),
        "retries" => job.retries(field.count(0)?),
        "once" => job.once(field.boolean()?),
        unknown => return Err(InputErrorKind::UnknownField { field: unknown.to_owned() }),
    })
}

fn environment(job: Job, field: Field<'_>) -> Result<Job, InputErrorKind> {
    let variables = field.fields("an object of strings", |variable| match variable.value {
        Value::Null => Ok(None),
        _ => variable.os_string().map(Some),
    })?;
    variables.into_iter().try_fold(job, |job, (name, value): (String, Option<OsString>)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(InputErrorKind::WrongField {
                field: "env".to_owned(),
                expected: "names that are not empty and have no \"=\"",
                found: format!("\"{name}\""),
            });
        }
        Ok(match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        })
    })
}
