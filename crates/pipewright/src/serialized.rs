//! Results as values of serde (feature `serde`), with the fields and words of `docs/json.md`.

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
        #[derive(Serialize)]
        struct Fields<'a> {
            #[serde(flatten)]
            end: EndFields,
            tree: Option<&'a TreeUsage>,
        }
        let end = EndFields::new(self.pid, self.status, self.usage);
        Fields { end, tree: self.tree_usage.as_deref() }.serialize(to)
    }
}

impl<T: Serialize> Serialize for Captured<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a, T> {
            program: String,
            outcome: Outcome,
            #[serde(flatten)]
            end: EndFields,
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
        }
        let fields = Fields {
            program: self.program.to_string_lossy().into_owned(),
            outcome: self.outcome,
            end: EndFields::new(self.pid, self.status, self.usage),
            elapsed_seconds: self.elapsed.as_secs_f64(),
            stdout: &self.stdout,
            stderr: &self.stderr,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            stdin_unread: self.stdin_unread,
            held_open: self.held_open,
            truncated: self.truncated,
            stdout_file: self.stdout_file.as_deref().map(Path::to_string_lossy),
            stderr_file: self.stderr_file.as_deref().map(Path::to_string_lossy),
            tee_failed: self.tee_failed,
            containment: self.containment,
            leftovers_killed: self.leftovers_killed,
            limits: self.limits.as_deref().filter(|held| held.is_asked_for()),
            tree: self.tree_usage.as_deref(),
            out_of_memory: self.out_of_memory,
        };
        fields.serialize(to)
    }
}

impl<T: Serialize> Serialize for Pipelined<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a, T> {
            #[serde(flatten)]
            whole: &'a Captured<T>,
            stages: &'a [StageEnd],
            decided_by: usize,
        }
        let Pipelined { whole, stages, decided_by, .. } = self;
        Fields { whole, stages, decided_by: *decided_by }.serialize(to)
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
    }
}
