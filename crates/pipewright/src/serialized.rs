//! Results as values of serde (feature `serde`), with the fields and words of `docs/json.md`. Each is a struct with all
//! of its fields: `flatten` would make a map of it, whose length is unknown, and which formats such as postcard refuse.

use std::borrow::Cow;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::output::{Captured, TeeFailed};
use crate::{
    ChildEnd, Containment, Error, HeldLimits, OutOfMemory, Outcome, Pipelined, Source, StageEnd,
    TreeUsage, Usage,
};

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for TeeFailed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            kind: &'static str,
            message: String,
        }
        Fields { kind: self.kind().name(), message: self.to_string() }.serialize(to)
    }
}

/// Serializes the value of a field that only some of the structs have.
fn field<T: Serialize, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_none(),
    }
}

/// The fields of a process that has ended. Those of a usage are null without one.
#[derive(Debug, Serialize)]
struct EndFields {
    pid: u32,
    exit_code: Option<i32>,
    signal: Option<String>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    context_switches: Option<u64>,
    /// `None` if the end is not that of a stage.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "field")]
    tree: Option<Option<TreeUsage>>,
}

impl EndFields {
    fn new(pid: u32, status: crate::ExitStatus, usage: Option<Usage>) -> EndFields {
        EndFields {
            pid,
            exit_code: status.code(),
            signal: status.terminating_signal().map(|signal| signal.to_string()),
            user_seconds: usage.map(|usage| usage.user.as_secs_f64()),
            system_seconds: usage.map(|usage| usage.system.as_secs_f64()),
            peak_rss_bytes: usage.and_then(|usage| usage.peak_rss_bytes),
            context_switches: usage.and_then(|usage| usage.switches),
            tree: None,
        }
    }
}

impl Serialize for ChildEnd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        EndFields::new(self.pid, self.status, self.usage).serialize(to)
    }
}

impl Serialize for StageEnd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let end = EndFields::new(self.pid, self.status, self.usage);
        EndFields { tree: Some(self.tree_usage.as_deref().copied()), ..end }.serialize(to)
    }
}

/// The fields of a command that has ended, or of a pipeline.
#[derive(Debug, Serialize)]
struct CapturedFields<'a, T> {
    program: String,
    outcome: Outcome,
    pid: u32,
    exit_code: Option<i32>,
    signal: Option<String>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    context_switches: Option<u64>,
    elapsed_seconds: f64,
    stdout: &'a T,
    stderr: &'a T,
    stdout_bytes: Option<u64>,
    stderr_bytes: Option<u64>,
    stdin_unread: u64,
    held_open: bool,
    truncated: bool,
    stdout_file: Option<Cow<'a, str>>,
    stderr_file: Option<Cow<'a, str>>,
    tee_failed: Option<TeeFailed>,
    containment: Containment,
    leftovers_killed: u32,
    limits: Option<&'a HeldLimits>,
    tree: Option<&'a TreeUsage>,
    out_of_memory: Option<OutOfMemory>,
    /// Those of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "field")]
    stages: Option<&'a [StageEnd]>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "field")]
    decided_by: Option<usize>,
}

impl<'a, T> CapturedFields<'a, T> {
    fn new(of: &'a Captured<T>) -> CapturedFields<'a, T> {
        let end = EndFields::new(of.pid, of.status, of.usage);
        CapturedFields {
            program: of.program.to_string_lossy().into_owned(),
            outcome: of.outcome,
            pid: end.pid,
            exit_code: end.exit_code,
            signal: end.signal,
            user_seconds: end.user_seconds,
            system_seconds: end.system_seconds,
            peak_rss_bytes: end.peak_rss_bytes,
            context_switches: end.context_switches,
            elapsed_seconds: of.elapsed.as_secs_f64(),
            stdout: &of.stdout,
            stderr: &of.stderr,
            stdout_bytes: of.stdout_bytes,
            stderr_bytes: of.stderr_bytes,
            stdin_unread: of.stdin_unread,
            held_open: of.held_open,
            truncated: of.truncated,
            stdout_file: of.stdout_file.as_deref().map(Path::to_string_lossy),
            stderr_file: of.stderr_file.as_deref().map(Path::to_string_lossy),
            tee_failed: of.tee_failed,
            containment: of.containment,
            leftovers_killed: of.leftovers_killed,
            limits: of.limits.as_deref().filter(|held| held.is_asked_for()),
            tree: of.tree_usage.as_deref(),
            out_of_memory: of.out_of_memory,
            stages: None,
            decided_by: None,
        }
    }
}

impl<T: Serialize> Serialize for Captured<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        CapturedFields::new(self).serialize(to)
    }
}

impl<T: Serialize> Serialize for Pipelined<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Pipelined { whole, stages, decided_by, .. } = self;
        let (stages, decided_by) = (Some(&**stages), Some(*decided_by));
        CapturedFields { stages, decided_by, ..CapturedFields::new(whole) }.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Command, ErrorKind};

    #[test]
    fn results_and_errors_have_the_fields_of_reports() {
        let done = Command::new("sh").args(["-c", "echo out; kill -9 $$"]).capture().unwrap();
        let value = serde_json::to_value(&done).unwrap();
        for (field, expected) in [
            ("outcome", serde_json::json!("signaled")),
            ("exit_code", serde_json::Value::Null),
            ("signal", "SIGKILL".into()),
            ("stdout", "out\n".into()),
            ("stdout_bytes", 4.into()),
            ("pid", done.pid.into()),
            ("containment", done.containment.name().into()),
            ("limits", serde_json::Value::Null),
            ("program", "sh".into()),
        ] {
            assert_eq!(value[field], expected, "{field}");
        }
        assert!(value["user_seconds"].is_f64());

        let error = Command::new("no-such-program-at-all").capture().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
        let value = serde_json::to_value(&error).unwrap();
        assert_eq!(value["kind"], "not_found");
        assert_eq!(value["message"], error.to_string());

        let pipe = (Command::new("echo").arg("hi").owned() | Command::new("cat")).capture();
        let value = serde_json::to_value(pipe.unwrap()).unwrap();
        assert_eq!((&value["stdout"], &value["decided_by"]), (&"hi\n".into(), &1.into()));
        assert_eq!(value["stages"].as_array().map(Vec::len), Some(2));
        assert!(value["stages"][0].get("tree").is_some());
    }

    #[test]
    fn a_format_that_writes_no_names_takes_results() {
        let done = Command::new("echo").arg("out").capture().unwrap();
        let bytes = postcard::to_allocvec(&done).unwrap();
        let (program, outcome, pid): (String, String, u32) = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((&*program, &*outcome, pid), ("echo", "exited", done.pid));
        let command = Command::new("no-such-program-at-all").capture();
        postcard::to_allocvec(&command.unwrap_err()).unwrap();
        let pipe = (Command::new("echo").arg("hi").owned() | Command::new("cat")).capture();
        let pipe = pipe.unwrap();
        let bytes = postcard::to_allocvec(&pipe).unwrap();
        // The index of the deciding stage is last, after the stages.
        assert_eq!((bytes.last(), pipe.stages.len()), (Some(&1), 2));
        let stages = postcard::to_allocvec(&pipe.stages).unwrap();
        assert!(bytes.ends_with(&[&stages[..], &[1]].concat()));
    }
}
