//! Executors: engines that run attempts of jobs. This file has what each of them needs: an attempt, the receiver of its
//! output, and the memory where attempts run. `local/` is the executor of this machine, `attributes.rs` has what all
//! its jobs start with.

mod attributes;
mod local;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright::{Handle, Source};
use serde::{Deserialize, Serialize};

use crate::job::{JobId, JobStdin, path_bytes};
use crate::vocabulary::{AttemptEnd, AttemptKey};

pub use attributes::{JobAttributes, JobUser};
pub use local::{Containing, Local, LocalSettings};

/// An engine that runs attempts of jobs, on this machine or elsewhere.
///
/// One thread calls all methods. A batch starts at most one attempt of a job at a time, and at most one attempt in a
/// slot. Each started attempt has exactly one [`ExecutorEvent::Ended`], also if it could not be started, was stopped or
/// was lost. When that event is returned, no process of the attempt that the executor knows runs any more.
pub trait Executor: Send {
    /// Starts an attempt. A failure is an event too: [`AttemptOutcome::NotStarted`](crate::AttemptOutcome::NotStarted).
    fn start(&mut self, attempt: Attempt);

    /// Returns true if attempts may have to wait for a place: one that must be noted before it begins is then not
    /// started, but [placed](Self::place). The default is false.
    fn places_first(&self) -> bool {
        false
    }

    /// Finds a place for an attempt. [`ExecutorEvent::Placed`] follows once it has one, and [`begin`](Self::begin)
    /// starts it.
    fn place(&mut self, attempt: Attempt) {
        self.start(attempt);
    }

    /// Starts an attempt that has a place. Others are ignored.
    fn begin(&mut self, key: AttemptKey) {
        let _ = key;
    }

    /// Stops an attempt: the stop signal, then a kill after the grace period. Its end is reported as that of others. An
    /// attempt that has ended is ignored.
    fn stop(&mut self, key: AttemptKey);

    /// Returns the attempts that were not started yet, because they wait for room. If they are stopped, they end as
    /// [`AttemptOutcome::NotStarted`](crate::AttemptOutcome::NotStarted). The default is none.
    fn waiting(&self) -> Vec<AttemptKey> {
        Vec::new()
    }

    /// Waits for the next event, but no longer than `until`. Returns `None` after that time, after a wake, and at once
    /// if nothing runs.
    ///
    /// # Errors
    /// The executor itself has failed, and will report no more events.
    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>>;

    /// Returns a function that makes [`next_event`](Self::next_event) return early: the call that waits now, or the
    /// next one that would wait. It may be called from any thread.
    ///
    /// # Errors
    /// No more handles are available.
    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>>;

    /// Returns true if events can come while nothing runs. [`next_event`](Self::next_event) then waits for them. The
    /// default is false.
    fn expects_events(&self) -> bool {
        false
    }

    /// Returns the memory where the attempts run. `None`: it is unknown, and the batch only counts what jobs state.
    fn memory(&mut self) -> Option<MachineMemory>;

    /// Returns the number of threads that run or want to where the attempts run. `None`: it is unknown.
    fn load(&mut self) -> Option<f64> {
        None
    }
}

impl fmt::Debug for dyn Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

impl<E: Executor + ?Sized> Executor for Box<E> {
    fn start(&mut self, attempt: Attempt) {
        (**self).start(attempt);
    }

    fn places_first(&self) -> bool {
        (**self).places_first()
    }

    fn place(&mut self, attempt: Attempt) {
        (**self).place(attempt);
    }

    fn begin(&mut self, key: AttemptKey) {
        (**self).begin(key);
    }

    fn stop(&mut self, key: AttemptKey) {
        (**self).stop(key);
    }

    fn waiting(&self) -> Vec<AttemptKey> {
        (**self).waiting()
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        (**self).next_event(until)
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        (**self).waker()
    }

    fn expects_events(&self) -> bool {
        (**self).expects_events()
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        (**self).memory()
    }

    fn load(&mut self) -> Option<f64> {
        (**self).load()
    }
}

/// The time after the death of a batch in which its nodes have ended its jobs, whatever has become of the network.
///
/// [`Machines`] keep this promise. A resumed batch relies on it: it runs a job of a killed batch again after that time.
pub const NODES_END_WITHIN: Duration = Duration::from_secs(5);

/// Machines that run the jobs of a batch, instead of this one: the `Nodes` of the crate pipewright-cluster. See
/// [`Batch::nodes`](crate::Batch::nodes).
pub trait Machines: Send + Sync + fmt::Debug {
    /// Starts to connect them, and returns the executor that runs attempts there. Each batch has one of its own. It
    /// reports the [`Capacity`](ExecutorEvent::Capacity) as they come, and ends what runs there [in
    /// time](NODES_END_WITHIN) if this process dies. `settings` are those of the batch for each attempt.
    ///
    /// # Errors
    /// The settings name no machine, or no more threads or handles are available.
    fn connect(&self, settings: &LocalSettings) -> io::Result<Box<dyn Executor>>;
}

/// A report of an executor.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExecutorEvent {
    /// A message for the user: one line.
    Note(String),
    /// An attempt has a place, and waits for [`Executor::begin`]. If it loses the place, this comes again.
    Placed(AttemptKey),
    /// An attempt that must be noted before it begins was started, has not begun, and waits for a place.
    /// [`Placed`](Self::Placed) follows.
    Displaced(AttemptKey),
    /// The process of an attempt that has been started. Short ones may end without this event.
    Runs {
        /// The attempt.
        key: AttemptKey,
        /// The number of its process, on this machine.
        pid: u32,
    },
    /// The end of an attempt. Nothing more is reported about it.
    Ended(Box<AttemptEnd>),
    /// The number of CPUs that all attempts together may use from now on. Those that run keep theirs. Without this
    /// event it is the number of slots of the batch.
    Capacity {
        /// The number of CPUs.
        cpus: u32,
    },
    /// No attempt can have more CPUs than that, and no more will come: one that needs more is started all the same, and
    /// the executor refuses it. `None`: that may change.
    Largest {
        /// The number of CPUs.
        cpus: Option<u32>,
    },
}

// An attempt to run a job.

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
    /// The files that it gets and leaves. An executor of this machine ignores them.
    pub files: JobFiles,
    /// The receiver of its output. `None`: it has the stdout and stderr of the executor.
    pub output: Option<Box<dyn OutputSink>>,
}

impl Attempt {
    /// Creates an attempt to run these words in slot 1, with one CPU, an empty input and no limits. A batch makes its
    /// own; this is for an executor that gets them as messages, and for tests of executors.
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
            files: JobFiles::default(),
            output: None,
        }
    }
}

/// The files that an attempt on another machine gets before it begins, and leaves when it has ended. Relative paths are
/// those of this process here, and of the attempt's working directory there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFiles {
    /// The files that it gets.
    pub send: Vec<SentFile>,
    /// The files that are fetched, whole or not at all, before its end is reported.
    pub fetch: Vec<PathBuf>,
    /// Fetched files have to be on disk before the end is reported.
    pub is_durable: bool,
}

/// A file that an attempt gets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentFile {
    /// The file.
    pub path: PathBuf,
    /// Every job gets the same file, so each node needs it once.
    pub is_shared: bool,
}

impl SentFile {
    /// Names a file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, is_shared: bool) -> SentFile {
        SentFile { path: path.into(), is_shared }
    }
}

// The receiver of an attempt's output.

/// The receiver of an attempt's output. The executor calls it as the bytes arrive, and drops it before it reports the
/// end of the attempt.
pub trait OutputSink: Send + fmt::Debug {
    /// Takes bytes of a stream, in the order in which they were written to that stream. Must not block.
    fn write(&mut self, stream: Source, bytes: &[u8]);

    /// Returns true if somebody watches the output, so that it must not wait for more. Otherwise the executor may
    /// hand it over up to 1 ms late, in larger pieces.
    fn is_live(&self) -> bool {
        true
    }

    /// Returns the number of files that it opens for the attempt, so that handles are kept for them. The default is
    /// none.
    fn files(&self) -> usize {
        0
    }

    /// Returns the files that the node of the attempt may write itself. An executor that does so never calls
    /// [`write`](Self::write), and calls [`written`](Self::written) at the end. `None`, the default: it has to call
    /// `write`.
    fn node_files(&self) -> Option<NodeFiles> {
        None
    }

    /// Takes the facts about output that the node has written.
    fn written(&mut self, output: NodeOutput) {
        drop(output);
    }
}

/// The files of an attempt's output, for a node that writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFiles {
    /// The folder of the job. It exists, on a file system that the nodes share, and gets the files `stdout` and
    /// `stderr`.
    #[serde(with = "path_bytes")]
    pub folder: PathBuf,
    /// The most bytes of each file.
    pub max_bytes: Option<u64>,
    /// The files have to be on disk before the end is reported.
    pub is_durable: bool,
}

/// The facts about output that a node has written to files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeOutput {
    /// The number of bytes that the attempt wrote to stdout, kept or not.
    pub stdout_bytes: u64,
    /// The number of bytes that it wrote to stderr, kept or not.
    pub stderr_bytes: u64,
    /// The last lines of stderr, or of stdout if stderr is empty.
    pub tail: String,
    /// True if not all bytes were kept.
    pub is_truncated: bool,
    /// The first error of a write. The rest of that stream is lost.
    pub error: Option<String>,
}

// The memory where an executor runs its attempts.

/// The memory where an executor runs its attempts, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineMemory {
    /// The memory that is free, in bytes.
    pub free_bytes: u64,
    /// The time for which a process has waited for memory, since some moment in the past; `None` if it is unknown.
    pub stalled: Option<Duration>,
}

impl MachineMemory {
    /// Creates one without the time of waits.
    #[must_use]
    pub fn new(free_bytes: u64) -> MachineMemory {
        MachineMemory { free_bytes, stalled: None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pipewright::Signal;

    use super::*;
    use crate::batch::Batch;
    use crate::job::{Job, Template};

    /// One node, which is this machine.
    #[derive(Debug)]
    struct OneNode(Arc<Mutex<Vec<LocalSettings>>>);

    impl Machines for OneNode {
        fn connect(&self, settings: &LocalSettings) -> io::Result<Box<dyn Executor>> {
            self.0.lock().unwrap().push(settings.clone());
            Ok(Box::new(Node { local: Local::new(settings.clone()), has_joined: false }))
        }
    }

    struct Node {
        local: Local,
        has_joined: bool,
    }

    impl Executor for Node {
        fn start(&mut self, attempt: Attempt) {
            assert!(self.has_joined, "{} has no room yet", attempt.key);
            self.local.start(attempt);
        }

        fn stop(&mut self, key: AttemptKey) {
            self.local.stop(key);
        }

        fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
            match std::mem::replace(&mut self.has_joined, true) {
                false => Ok(Some(ExecutorEvent::Capacity { cpus: 1 })),
                true => self.local.next_event(until),
            }
        }

        fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
            self.local.waker()
        }

        fn expects_events(&self) -> bool {
            true
        }

        fn memory(&mut self) -> Option<MachineMemory> {
            None
        }
    }

    #[test]
    fn a_batch_without_machines_refuses_files_of_jobs() {
        let file = || Template::parse_text("{}").unwrap();
        for batch in [Batch::new().send_file(file()), Batch::new().fetch_file(file())] {
            let error = batch.run([Job::new("true")]).unwrap_err().to_string();
            assert!(error.contains("files are sent to nodes"), "{error}");
        }
    }

    #[test]
    fn a_batch_runs_its_jobs_on_the_machines_that_it_is_given_and_its_log_tells_so() {
        let (folder, seen) = (tempfile::tempdir().unwrap(), Arc::default());
        let log = folder.path().join("run.db");
        let batch = Batch::new().jobs(7).stop_with(Signal::INT, Duration::ZERO).log(&log);
        let summary =
            batch.nodes(OneNode(Arc::clone(&seen))).run(["true", "false"].map(Job::new)).unwrap();
        assert_eq!((summary.succeeded, summary.failed), (1, 1));
        let settings: Vec<_> = seen.lock().unwrap().iter().map(|it| it.stop_signal).collect();
        assert_eq!(settings, [Signal::INT]);
        let log = rusqlite::Connection::open(log).unwrap();
        let row = log.query_row("SELECT remote, slots FROM runs", [], |row| {
            Ok((row.get::<_, bool>(0)?, row.get::<_, u32>(1)?))
        });
        // The slots are those of the node.
        assert_eq!(row.unwrap(), (true, 1));
    }
}
