//! An attempt to run a job.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pipewright::Handle;

use super::OutputSink;
use crate::job::{JobId, JobStdin};
use crate::vocabulary::AttemptKey;

/// An attempt to run a job: everything that an executor needs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// The key.
    pub key: AttemptKey,
    /// The identity of the job.
    pub id: JobId,
    /// The slot that it runs in, from 1.
    pub slot: u32,
    /// The number of CPUs that it needs.
    pub cpus: u32,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// The working directory. `None`: that of the executor.
    pub current_dir: Option<PathBuf>,
    /// The changes to the environment. `None` removes a variable.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// The handles that it inherits, each with its number there: those of a jobserver. Empty on Windows. An executor of
    /// other machines ignores them.
    pub handles: Arc<[(Handle, i32)]>,
    /// The standard input.
    pub stdin: JobStdin,
    /// The time after which it is stopped.
    pub timeout: Option<Duration>,
    /// It must not begin a second time, so the log has it before it begins. If it finds no room, the batch is
    /// [told](super::ExecutorEvent::Displaced), and it begins when it is told to.
    pub once: bool,
    /// The memory that all processes of the job together may use, if the job states it.
    pub memory_max_bytes: Option<u64>,
    /// The receiver of its output. `None`: it has the stdout and stderr of the executor.
    pub output: Option<Box<dyn OutputSink>>,
}

impl Attempt {
    /// Creates an attempt to run these words in slot 1, with one CPU, an empty input and no limits. A batch makes its own; this
    /// is for an executor that gets them as messages, and for tests of executors.
    #[must_use]
    pub fn new(key: AttemptKey, id: JobId, argv: Vec<OsString>) -> Attempt {
        Attempt {
            key,
            id,
            slot: 1,
            cpus: 1,
            argv,
            current_dir: None,
            env: Vec::new(),
            handles: Arc::from([]),
            stdin: JobStdin::Null,
            timeout: None,
            once: false,
            memory_max_bytes: None,
            output: None,
        }
    }
}
